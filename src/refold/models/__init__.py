"""What answers an `Ask`: a provider's SDK, an HTTP endpoint, a function, or several of these in
turn.

Names are imported when they are first used, so that importing this needs no SDK; each SDK is an
extra of its own (`openai`, `anthropic`, `litellm`).
"""

from refold import lazy_names

__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        "driver": ("as_model", "as_text_model"),
        "fallback": ("CircuitBreaker", "Fallback"),
        "model": ("Model",),
        "providers": ("AnthropicModel", "HTTPModel", "LiteLLMModel", "OpenAIModel"),
    },
)
