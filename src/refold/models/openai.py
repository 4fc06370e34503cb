"""The OpenAI SDK as a model: OpenAI itself, Azure, and every server that speaks its APIs."""

import asyncio
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal

from refold.core.strategy import Answer, Ask
from refold.errors import install_hint
from refold.models.errors import answer_of_exception
from refold.models.model import TIMEOUT, Price, effective_timeout, with_cost
from refold.models.requests import CHAT, RESPONSES, Request, continue_request, standalone_request
from refold.models.responses import as_mapping, read_chat, read_responses

try:
    from openai import AsyncOpenAI, OpenAI
except ImportError as error:
    raise ImportError(f"OpenAIModel needs the OpenAI SDK: {install_hint('openai')}") from error


@dataclass(frozen=True, slots=True)
class OpenAIModel:
    """Asks by `client.chat.completions.create`, or by `client.responses.create`.

    *client* is an `OpenAI` or `AsyncOpenAI` with your key and address; without one a client is made
    for each call, which reads `OPENAI_API_KEY`. An async client serves `acall` only; a sync one
    serves both, `acall` in a thread that a cancelled task leaves behind until its timeout.
    One ask is one HTTP request: the SDK's own retries are off, retrying is the work of `Fallback`.
    """

    client: OpenAI | AsyncOpenAI | None = field(default=None, repr=False)
    _: KW_ONLY
    model: str
    api: Literal["chat", "responses"] = "chat"
    """For requests of its own; a conversation is continued in the format it is in."""
    same_model: bool = False
    """It is the model that the conversation is with: continue the conversation's own request, which
    the provider has cached, wherever the ask brings one that fits."""
    window: int | None = None
    """The model's window in tokens; None leaves unchecked whether a continued request fits."""
    spare: int = 0
    """Tokens added to the cap of each answer, for a model that reasons before it speaks."""
    cap: str = "max_completion_tokens"
    """The field that caps an answer in Chat Completions; older servers know `max_tokens`."""
    timeout: float = TIMEOUT
    """Seconds without a sign of life from the server."""
    price: Price | None = None
    """US dollars per million tokens: input, output, and optionally cached input."""
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Further fields of every request, such as `temperature` or `reasoning_effort`."""

    def __call__(self, ask: Ask, within: float | None = None, /) -> Answer:
        """Ask. Raises TypeError where the client is an async one."""
        if isinstance(self.client, AsyncOpenAI):
            raise TypeError(
                "this OpenAIModel has an async client: use `acompact`, or give it an OpenAI()"
            )
        try:
            request = self._request(ask)
            with _sync(self.client) as client:
                reply = _create(client, request, effective_timeout(self.timeout, within))
        except Exception as error:  # noqa: BLE001 - a model that fails must not stop an agent
            return answer_of_exception(error, (_key(self.client),))
        return self._answer(request, reply)

    async def acall(self, ask: Ask, within: float | None = None, /) -> Answer:
        """As calling it, for async code."""
        if isinstance(self.client, OpenAI):
            return await asyncio.to_thread(self, ask, within)
        try:
            request = self._request(ask)
            async with _async(self.client) as client:
                reply = await _create(client, request, effective_timeout(self.timeout, within))
        except Exception as error:  # noqa: BLE001 - a model that fails must not stop an agent
            return answer_of_exception(error, (_key(self.client),))
        return self._answer(request, reply)

    def _request(self, ask: Ask) -> Request:
        formats = (CHAT, RESPONSES) if self.same_model else ()
        request = continue_request(ask, formats, self.model, self.window, self.spare, self.cap)
        if request is None:
            own_format = RESPONSES if self.api == "responses" else CHAT
            request = standalone_request(
                ask, own_format, self.model, self.spare, self.cap if own_format == CHAT else ""
            )
        return Request(request.format, {**request.body, **self.options})

    def _answer(self, request: Request, reply: Any) -> Answer:
        read = read_responses if request.format == RESPONSES else read_chat
        return with_cost(read(as_mapping(reply)), self.price)


def _create(client: Any, request: Request, timeout: float) -> Any:
    """Send; with an async client what comes back is to be awaited. The fields that the SDK insists
    on go by name, all others as they are: it need not know them."""
    field = "input" if request.format == RESPONSES else "messages"
    rest = {name: value for name, value in request.body.items() if name not in ("model", field)}
    client = client.with_options(max_retries=0)
    api = client.responses if request.format == RESPONSES else client.chat.completions
    named = {"model": request.body["model"], field: request.body[field]}
    return api.create(**named, extra_body=rest, timeout=timeout)


def _sync(client: OpenAI | None) -> AbstractContextManager[OpenAI]:
    return nullcontext(client) if client is not None else OpenAI()


def _async(client: AsyncOpenAI | None) -> AbstractAsyncContextManager[AsyncOpenAI]:
    return nullcontext(client) if client is not None else AsyncOpenAI()


def _key(client: OpenAI | AsyncOpenAI | None) -> str | None:
    return client.api_key if client is not None else None
