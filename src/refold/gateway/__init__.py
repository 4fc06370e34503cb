"""A gateway between agents and model providers: one base URL, nothing else to change
(docs/gateway.md).

One request's way: `http.server_protocol` holds its client to limits, `app` answers it or says why
not, `relay` chooses its upstream, tells who sends it (`tenants`) and asks `pipeline.pipeline` what
to send; `http.client` sends it, `http.response` passes the answer on and reads its usage,
`ledger.writer` books it. If the upstream refuses it, `relay` has it changed and sends it again.

What is sent of a conversation is decided in `pipeline.decide`: `turns` finds the conversation and
shows what was decided before, `compaction` does what is due. What a process knows of conversations
stands in `conversations`.

Names are imported when they are first used; those that speak HTTP need the extra `gateway`.
"""

from typing import Any

from refold import lazy_names
from refold.errors import install_hint

__all__, _import_name, __dir__ = lazy_names(
    __name__,
    {
        "app": ("Gateway",),
        "config": (
            "Config",
            "ConfigError",
            "load_config",
            "parse_upstream",
            "with_environment",
        ),
        "exchange": ("GatewayResponse", "Incoming", "Outgoing"),
        "pipeline.pipeline": ("Pipeline",),
        "serve": ("create_app", "create_gateway", "create_server", "run"),
        "settings": ("Limits", "Settings", "Upstream"),
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
