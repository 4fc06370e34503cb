"""A gateway between agents and model providers: one base URL, nothing else to change (docs/gateway.md).

Names are imported when they are first used; those that speak HTTP need the extra `create_gateway`.
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
_NEEDED = {"aiohappyeyeballs", "brotli", "httptools", "msgspec", "uvicorn"}


def __getattr__(name: str) -> Any:
    try:
        return _import_name(name)
    except ImportError as missing:
        if missing.name is None or missing.name.partition(".")[0] not in _NEEDED:
            raise
        raise ImportError(
            f"the gateway needs {missing.name}: {install_hint('gateway')}"
        ) from missing
