"""LiteLLM as a model: whatever provider it knows, by its names."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from refold.core.strategy import Answer, Ask
from refold.errors import install_hint
from refold.models.errors import answer_of_exception
from refold.models.model import TIMEOUT, Price, effective_timeout, with_cost
from refold.models.requests import CHAT, standalone_request
from refold.models.responses import as_mapping, read_chat

try:
    from litellm import acompletion, completion
except ImportError as error:
    raise ImportError(f"LiteLLMModel needs LiteLLM: {install_hint('litellm')}") from error


@dataclass(frozen=True, slots=True)
class LiteLLMModel:
    """Asks by `litellm.completion` and `litellm.acompletion`.

    Keys come from the environment, as LiteLLM reads them, or with *options*. One ask is one call:
    LiteLLM's own retries are off, retrying is the work of `Fallback`.
    """

    model: str
    """LiteLLM's name, such as `anthropic/claude-haiku-4-5` or `gemini/gemini-2.5-flash`."""
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Further arguments of every call: `api_key`, `api_base`, `client`, `temperature` ..."""
    spare: int = 0
    """Tokens added to the cap of each answer, for a model that reasons before it speaks."""
    timeout: float = TIMEOUT
    """Seconds without a sign of life from the server."""
    price: Price | None = None
    """US dollars per million tokens: input, output, and optionally cached input; without it, what
    LiteLLM says the call cost."""

    def __call__(self, ask: Ask, within: float | None = None, /) -> Answer:
        """Ask."""
        try:
            reply = completion(**self._arguments(ask, within))
        except Exception as error:  # noqa: BLE001 - a model that fails must not stop an agent
            return answer_of_exception(error, self._secrets())
        return self._answer(reply)

    async def acall(self, ask: Ask, within: float | None = None, /) -> Answer:
        """As calling it, for async code."""
        try:
            reply = await acompletion(**self._arguments(ask, within))
        except Exception as error:  # noqa: BLE001 - a model that fails must not stop an agent
            return answer_of_exception(error, self._secrets())
        return self._answer(reply)

    def _arguments(self, ask: Ask, within: float | None) -> dict[str, Any]:
        body = standalone_request(ask, CHAT, self.model, self.spare, cap="max_tokens").body
        timeout = effective_timeout(self.timeout, within)
        return body | {"timeout": timeout, "max_retries": 0, "num_retries": 0} | dict(self.options)

    def _answer(self, reply: Any) -> Answer:
        answer, hidden = read_chat(_chat(as_mapping(reply))), getattr(reply, "_hidden_params", None)
        cost = hidden.get("response_cost") if isinstance(hidden, Mapping) else None
        if self.price is None and isinstance(cost, int | float):
            return replace(answer, cost=float(cost))
        return with_cost(answer, self.price)

    def _secrets(self) -> list[str]:
        return [
            value
            for name, value in self.options.items()
            if "key" in name and isinstance(value, str)
        ]


def _chat(reply: Mapping[str, Any]) -> Mapping[str, Any]:
    """The reply with its usage in OpenAI's form alone: LiteLLM adds Anthropic's fields, in which
    the cached tokens would come on top."""
    usage = reply.get("usage")
    if not isinstance(usage, Mapping):
        return reply
    return {
        **reply,
        "usage": {
            name: value
            for name, value in usage.items()
            if not name.startswith("cache_") and name != "iterations"
        },
    }
