"""A gateway between agents and model providers: one base URL, nothing else to change
(docs/gateway.md).

The path of a request: `http.server_protocol` enforces limits on its client. `app` admits or refuses
it. `relay` chooses its upstream, identifies its sender (`tenants`) and asks `pipeline.pipeline`
what to send. `http.client` sends it, `http.response` passes the answer on and reads its usage, and
`ledger.writer` records it. If the upstream refuses the request, `relay` has it changed and sends it
again.

`pipeline.decide` decides what is sent of a conversation: `turns` finds the conversation and applies
earlier edits, `compaction` compacts it if that is due. `conversations` is what a process knows of
conversations.

Names are imported on first use. Those that speak HTTP need the extra `gateway`."""

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
