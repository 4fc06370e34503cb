"""What answers an `Ask`: a provider's SDK, an HTTP endpoint, a function, or several of these in
turn.

Names are imported when they are first used, so that importing this needs no SDK; each SDK is an
extra of its own (`openai`, `anthropic`, `litellm`).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from refold.models.anthropic import AnthropicModel
    from refold.models.driver import as_model, as_text_model
    from refold.models.endpoint import HTTPModel
    from refold.models.fallback import CircuitBreaker, Fallback
    from refold.models.litellm import LiteLLMModel
    from refold.models.model import Model
    from refold.models.openai import OpenAIModel

__all__ = [
    "AnthropicModel",
    "CircuitBreaker",
    "Fallback",
    "HTTPModel",
    "LiteLLMModel",
    "Model",
    "OpenAIModel",
    "as_model",
    "as_text_model",
]

_HOMES = {
    "AnthropicModel": "refold.models.anthropic",
    "CircuitBreaker": "refold.models.fallback",
    "HTTPModel": "refold.models.endpoint",
    "Fallback": "refold.models.fallback",
    "LiteLLMModel": "refold.models.litellm",
    "Model": "refold.models.model",
    "OpenAIModel": "refold.models.openai",
    "as_model": "refold.models.driver",
    "as_text_model": "refold.models.driver",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
