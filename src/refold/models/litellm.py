"""LiteLLM as a model: whatever provider it knows, by its names."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from refold.core.strategy import Answer
from refold.errors import install_hint
from refold.models.model import ProviderModel
from refold.models.requests import Request
from refold.text.json_values import dig

try:
    from litellm import acompletion, completion
except ImportError as error:
    raise ImportError(f"LiteLLMModel needs LiteLLM: {install_hint('litellm')}") from error

_ONE_CALL = {"max_retries": 0, "num_retries": 0}


@dataclass(frozen=True)
class LiteLLMModel(ProviderModel):
    """Asks by `litellm.completion` and `litellm.acompletion`.

    *model* is LiteLLM's name, such as `anthropic/claude-haiku-4-5` or `gemini/gemini-2.5-flash`.
    Keys come from the environment, as LiteLLM reads them, or with *options*, the further arguments
    of every call: `api_key`, `api_base`, `client`, `temperature` ... Without *price* an answer
    costs what LiteLLM says. One ask is one call: LiteLLM's own retries are off, retrying is the
    work of `Fallback`.
    """

    @property
    def secrets(self) -> Iterable[str]:
        """The keys among *options*."""
        options = self.options.items()
        return [value for name, value in options if "key" in name and isinstance(value, str)]

    def send(self, request: Request, seconds: float) -> Any:
        """Return LiteLLM's reply."""
        return completion(**{"timeout": seconds, **_ONE_CALL, **request.body})

    async def asend(self, request: Request, seconds: float) -> Any:
        """As `send`, for async code."""
        return await acompletion(**{"timeout": seconds, **_ONE_CALL, **request.body})

    def read(self, reply: Any, format: str) -> Answer:
        """Return the answer in a reply, with its cost."""
        answer = super().read(reply, format)
        cost = dig(getattr(reply, "_hidden_params", None), "response_cost")
        if self.price is None and isinstance(cost, int | float):
            return replace(answer, cost=float(cost))
        return answer
