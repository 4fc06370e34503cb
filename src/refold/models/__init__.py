"""Models that answer an `Ask`: a provider's SDK, an HTTP endpoint, a function, or several in turn.

Names are imported at their first use, so that importing this package needs no SDK. Each SDK has its
own extra (`openai`, `anthropic`, `litellm`).
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
