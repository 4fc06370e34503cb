"""A gateway between agents and model providers: one base URL, nothing else to change (docs/gateway.md).

Names are imported when they are first used; those that speak HTTP need the extra `gateway`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from refold.errors import install_hint

if TYPE_CHECKING:
    from refold.gateway.app import Gateway
    from refold.gateway.config.config import Config, from_environment, load, upstream
    from refold.gateway.config.toml import ConfigError
    from refold.gateway.messages import Incoming, Outgoing, Refusal
    from refold.gateway.pipeline.pipeline import Pipeline
    from refold.gateway.serve import application, gateway, run, server
    from refold.gateway.settings import Limits, Settings
    from refold.gateway.upstreams import Upstream

__all__ = [
    "Config",
    "ConfigError",
    "Gateway",
    "Incoming",
    "Limits",
    "Outgoing",
    "Pipeline",
    "Refusal",
    "Settings",
    "Upstream",
    "application",
    "from_environment",
    "gateway",
    "load",
    "run",
    "server",
    "upstream",
]

_HOMES = {
    "Config": "config.config",
    "ConfigError": "config.toml",
    "Pipeline": "pipeline.pipeline",
    "Gateway": "app",
    "Incoming": "messages",
    "Limits": "settings",
    "Outgoing": "messages",
    "Refusal": "messages",
    "Settings": "settings",
    "Upstream": "upstreams",
    "application": "serve",
    "from_environment": "config.config",
    "gateway": "serve",
    "load": "config.config",
    "run": "serve",
    "server": "serve",
    "upstream": "config.config",
}
_NEEDED = {"aiohappyeyeballs", "aiohttp", "brotli", "httptools", "uvicorn"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value = globals()[name] = getattr(import_module(f"refold.gateway.{_HOMES[name]}"), name)
    except ImportError as missing:
        if missing.name is None or missing.name.partition(".")[0] not in _NEEDED:
            raise
        raise ImportError(f"the gateway needs {missing.name}: {install_hint('gateway')}") from missing
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
