"""What a model is to the rest of Refold, and what the models of all providers share."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

from refold.core.strategy import Answer, Ask
from refold.models.requests import (
    CHAT,
    Request,
    complete_body,
    continue_request,
    standalone_request,
)
from refold.models.responses import READERS, answer_of_exception, as_mapping


@runtime_checkable
class Model(Protocol):
    """What answers an `Ask`. It never raises for what a provider does: a failed call is an `Answer`
    whose `finish` is `error`. Cancelling and `KeyboardInterrupt` pass through."""

    def __call__(self, ask: Ask, within: float | None = None, /) -> Answer | None:
        """Answer, if possible within so many seconds. Raises TypeError for a model that is async
        only."""

    async def acall(self, ask: Ask, within: float | None = None, /) -> Answer | None:
        """As calling it, for async code."""


Price = tuple[float, ...]
"""US dollars per million tokens: input, output, and, where they differ, cached input and input
that is written to the cache."""


def with_cost(answer: Answer, price: Price | None) -> Answer:
    """Return the answer with what it cost."""
    usage = answer.usage
    if price is None or usage is None:
        return answer
    new, out, cached, written = (*price, *(price[0],) * (4 - len(price)))
    fresh = usage.input - usage.cached - usage.written
    dollars = fresh * new + usage.output * out + usage.cached * cached + usage.written * written
    return replace(answer, cost=dollars / 1_000_000)


@dataclass(frozen=True, kw_only=True)
class ProviderModel(ABC):
    """A model behind an API of OpenAI's or Anthropic's form."""

    model: str
    same_model: bool = False
    """It is the model that the conversation is with: continue the conversation's own request, which
    the provider has cached, wherever the ask brings one that fits."""
    window: int | None = None
    """The model's window in tokens; None leaves unchecked whether a continued request fits."""
    spare: int = 0
    """Tokens added to the cap of each answer, for a model that reasons before it speaks."""
    cap: str = "max_tokens"
    """The field that caps an answer in Chat Completions; newer servers want
    `max_completion_tokens`."""
    timeout: float = 120.0
    """Seconds without a sign of life from the server."""
    price: Price | None = None
    """US dollars per million tokens: input, output, and optionally cached input and cache
    writes."""
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Further fields of every request, such as `temperature` or `reasoning_effort`."""

    @property
    def formats(self) -> tuple[str, ...]:
        """The formats that the API takes: first that of its own requests, then those in which it
        can only continue a conversation."""
        return (CHAT,)

    @property
    def secrets(self) -> Iterable[str | None]:
        """What no error may show."""
        return ()

    @abstractmethod
    def send(self, request: Request, seconds: float) -> Any:
        """Return the reply, as parsed JSON or an SDK's object. May raise anything."""

    async def asend(self, request: Request, seconds: float) -> Any:
        """As `send`, for async code: in a thread, which a cancelled task leaves behind."""
        return await asyncio.to_thread(self.send, request, seconds)

    def read(self, reply: Any, format: str) -> Answer:
        """Return the answer in a reply."""
        return with_cost(READERS[format](as_mapping(reply)), self.price)

    def fail(self, error: Exception) -> Answer:
        """Return the answer of a call that raised."""
        return answer_of_exception(error, self.secrets)

    def __call__(self, ask: Ask, within: float | None = None, /) -> Answer:
        """Ask."""
        try:
            request = self._request(ask)
            return self.read(self.send(request, self._timeout(within)), request.format)
        except Exception as error:  # noqa: BLE001 - a model that fails must not stop an agent
            return self.fail(error)

    async def acall(self, ask: Ask, within: float | None = None, /) -> Answer:
        """As calling it, for async code."""
        try:
            request = self._request(ask)
            return self.read(await self.asend(request, self._timeout(within)), request.format)
        except Exception as error:  # noqa: BLE001 - a model that fails must not stop an agent
            return self.fail(error)

    def _request(self, ask: Ask) -> Request:
        request = continue_request(ask, self.formats, self.window) if self.same_model else None
        request = request or standalone_request(ask, self.formats[0])
        body = complete_body(request, self.model, ask.max_tokens + self.spare, self.cap)
        return Request(request.format, {**body, **self.options})

    def _timeout(self, within: float | None) -> float:
        """Return the seconds that a call may take: the model's own limit, or less."""
        return self.timeout if within is None else min(self.timeout, within)
