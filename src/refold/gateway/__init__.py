"""A gateway between agents and model providers: one base URL, nothing else to change (docs/gateway.md).

Names are imported when they are first used; those that speak HTTP need the extra `create_gateway`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from refold.errors import install_hint

if TYPE_CHECKING:
    from refold.gateway.app import Gateway
    from refold.gateway.config.config import Config, load_config, parse_upstream, with_environment
    from refold.gateway.config.toml import ConfigError
    from refold.gateway.messages import GatewayResponse, Incoming, Outgoing
    from refold.gateway.pipeline.pipeline import Pipeline
    from refold.gateway.serve import create_app, create_gateway, create_server, run
    from refold.gateway.settings import Limits, Settings
    from refold.gateway.upstreams import Upstream

__all__ = [
    "Config",
    "ConfigError",
    "Gateway",
    "GatewayResponse",
    "Incoming",
    "Limits",
    "Outgoing",
    "Pipeline",
    "Settings",
    "Upstream",
    "create_app",
    "create_gateway",
    "create_server",
    "load_config",
    "parse_upstream",
    "run",
    "with_environment",
]

_HOMES = {
    "Config": "config.config",
    "ConfigError": "config.toml",
    "Pipeline": "pipeline.pipeline",
    "Gateway": "app",
    "Incoming": "messages",
    "Limits": "settings",
    "Outgoing": "messages",
    "GatewayResponse": "messages",
    "Settings": "settings",
    "Upstream": "upstreams",
    "create_app": "serve",
    "with_environment": "config.config",
    "create_gateway": "serve",
    "load_config": "config.config",
    "run": "serve",
    "create_server": "serve",
    "parse_upstream": "config.config",
}
_NEEDED = {"aiohappyeyeballs", "aiohttp", "brotli", "httptools", "msgspec", "uvicorn"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value = globals()[name] = getattr(import_module(f"refold.gateway.{_HOMES[name]}"), name)
    except ImportError as missing:
        if missing.name is None or missing.name.partition(".")[0] not in _NEEDED:
            raise
        raise ImportError(
            f"the gateway needs {missing.name}: {install_hint('gateway')}"
        ) from missing
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
