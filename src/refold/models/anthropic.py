"""The Anthropic SDK as a model, its Bedrock and Vertex clients included."""

import asyncio
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from refold.core.strategy import Answer, Ask
from refold.errors import install_hint
from refold.models.errors import answer_of_exception
from refold.models.model import TIMEOUT, Price, effective_timeout, with_cost
from refold.models.requests import MESSAGES, continue_request, standalone_request
from refold.models.responses import as_mapping, read_messages

try:
    from anthropic import Anthropic, AsyncAnthropic
except ImportError as error:
    raise ImportError(
        f"AnthropicModel needs the Anthropic SDK: {install_hint('anthropic')}"
    ) from error


@dataclass(frozen=True, slots=True)
class AnthropicModel:
    """Asks by `client.messages.create`.

    *client* is any client of the SDK, with your key and address; without one a client is made for
    each call, which reads `ANTHROPIC_API_KEY`. An async client serves `acall` only; a sync one
    serves both, `acall` in a thread that a cancelled task leaves behind until its timeout.
    One ask is one HTTP request: the SDK's own retries are off, retrying is the work of `Fallback`.
    """

    client: Any = field(default=None, repr=False)
    _: KW_ONLY
    model: str
    same_model: bool = False
    """It is the model that the conversation is with: continue the conversation's own request, which
    the provider has cached, wherever the ask brings one that fits."""
    window: int | None = None
    """The model's window in tokens; None leaves unchecked whether a continued request fits."""
    spare: int = 0
    """Tokens added to the cap of each answer, for a model that thinks before it speaks."""
    timeout: float = TIMEOUT
    """Seconds without a sign of life from the server."""
    price: Price | None = None
    """US dollars per million tokens: input, output, and optionally cached input and cache
    writes."""
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Further fields of every request, such as `temperature`."""

    def __call__(self, ask: Ask, within: float | None = None, /) -> Answer:
        """Ask. Raises TypeError where the client is an async one."""
        if _is_async(self.client):
            raise TypeError(
                "this AnthropicModel has an async client: use `acompact`, or give it an Anthropic()"
            )
        try:
            with _sync(self.client) as client:
                reply = _create(client, self._body(ask), effective_timeout(self.timeout, within))
        except Exception as error:  # noqa: BLE001 - a model that fails must not stop an agent
            return answer_of_exception(error, _keys(self.client))
        return with_cost(read_messages(as_mapping(reply)), self.price)

    async def acall(self, ask: Ask, within: float | None = None, /) -> Answer:
        """As calling it, for async code."""
        if self.client is not None and not _is_async(self.client):
            return await asyncio.to_thread(self, ask, within)
        try:
            async with _async(self.client) as client:
                reply = await _create(
                    client, self._body(ask), effective_timeout(self.timeout, within)
                )
        except Exception as error:  # noqa: BLE001 - a model that fails must not stop an agent
            return answer_of_exception(error, _keys(self.client))
        return with_cost(read_messages(as_mapping(reply)), self.price)

    def _body(self, ask: Ask) -> dict[str, Any]:
        formats = (MESSAGES,) if self.same_model else ()
        request = continue_request(ask, formats, self.model, self.window, self.spare)
        return {
            **(request or standalone_request(ask, MESSAGES, self.model, self.spare)).body,
            **self.options,
        }


_NAMED = ("model", "max_tokens", "messages")
"""Fields that the SDK insists on; all others go as they are, it need not know them."""


def _create(client: Any, body: dict[str, Any], timeout: float) -> Any:
    """Send; with an async client what comes back is to be awaited."""
    named = {name: body[name] for name in _NAMED}
    rest = {name: value for name, value in body.items() if name not in _NAMED}
    return client.with_options(max_retries=0).messages.create(
        **named, extra_body=rest, timeout=timeout
    )


def _is_async(client: Any) -> bool:
    return hasattr(client, "__aenter__")


def _sync(client: Any) -> AbstractContextManager[Any]:
    return nullcontext(client) if client is not None else Anthropic()


def _async(client: Any) -> AbstractAsyncContextManager[Any]:
    return nullcontext(client) if client is not None else AsyncAnthropic()


def _keys(client: Any) -> tuple[str | None, ...]:
    return getattr(client, "api_key", None), getattr(client, "auth_token", None)
