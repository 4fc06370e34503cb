"""A gateway between agents and model providers: one base URL, nothing else to change
(docs/gateway.md).

One request's way: `http.server_protocol` holds its client to limits, `app` answers it or says why
not (`access`), `relay` chooses its upstream (`upstreams`), tells who sends it (`tenants`) and asks
`pipeline.pipeline` what to send; `http.client` sends it over an `http.connection`, `http.response`
passes the answer on and reads its usage, `ledger.writer` books it. If the upstream refuses it,
`upstream_call` has it changed and sent again.

What is sent of a conversation is decided in `pipeline.decide`: `match` finds the conversation,
`turns` shows what was decided before, `compaction` does what is due. What a process knows of
conversations stands in `conversations`.

Names are imported when they are first used; those that speak HTTP need the extra `gateway`.
"""

from typing import Any

from refold import lazy_names
from refold.errors import install_hint

__all__, _import_name, __dir__ = lazy_names(
    __name__,
    {
        "app": ("Gateway",),
        "config": ("Config", "parse_upstream", "with_environment"),
        "config_file": ("ConfigError", "load_config"),
        "messages": ("GatewayResponse", "Incoming", "Outgoing"),
        "pipeline.pipeline": ("Pipeline",),
        "serve": ("create_app", "create_gateway", "create_server", "run"),
        "settings": ("Limits", "Settings"),
        "upstreams": ("Upstream",),
    },
)
NEEDED = ("uvicorn", "httptools", "msgspec", "brotli", "aiohappyeyeballs")
"""Packages of the extra `gateway`."""


def __getattr__(name: str) -> Any:
    try:
        return _import_name(name)
    except ImportError as missing:
        if missing.name is None or missing.name.partition(".")[0] not in NEEDED:
            raise
        raise ImportError(
            f"the gateway needs {missing.name}: {install_hint('gateway')}"
        ) from missing
