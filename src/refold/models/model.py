"""The model protocol, the base of all providers' models, and an `Ask` as a request: on its own, or
continuing the conversation's request."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from http.client import HTTPException
from typing import Any, NamedTuple, Protocol, runtime_checkable
from urllib.error import HTTPError

from refold.codecs.codec import Codec
from refold.core.strategy import Answer, Ask
from refold.core.view import View
from refold.messages import Message, Text, user
from refold.models.driver import call_in_thread
from refold.models.responses import (
    CHAT,
    MESSAGES,
    READERS,
    RESPONSES,
    answer_of_exception,
    as_mapping,
)
from refold.rules.openai_responses import SERVER_HELD
from refold.rules.request import Body
from refold.text.json_values import JsonObject, dig, without_keys
from refold.tokens.model_table import Rates


@runtime_checkable
class Model(Protocol):
    """A model that answers an `Ask`. It never raises for a provider's errors: a failed call is an
    `Answer` with `finish` set to `error`. Cancellation and `KeyboardInterrupt` propagate."""

    def __call__(self, ask: Ask, within: float | None = None, /) -> Answer | None:
        """Answer the ask, if possible within this number of seconds. Raises TypeError if the model
        is async only."""

    async def acall(self, ask: Ask, within: float | None = None, /) -> Answer | None:
        """Async version of `__call__`."""


# --- an ask as a request --------------------------------------------------------------------------


OPENING = "(The conversation begins.)"
"""User message put before an initial assistant message, because APIs require the user's first
(AN-4)."""

CHAT_CAPS = ("max_tokens", "max_completion_tokens")
OUTPUT_CAP_FIELDS = {RESPONSES: "max_output_tokens", MESSAGES: "max_tokens"}
"""Fields for the output cap. Chat Completions has an old and a new one."""

_DROPPED = frozenset(
    (
        *("stream", "stream_options", "stop", "stop_sequences", "n", "background", "prediction"),
        *("response_format", "output_format", "logprobs", "top_logprobs", "modalities", "audio"),
    )
)
"""Fields of a conversation's request that would prevent an immediate plain-text answer."""


class ModelRequest(NamedTuple):
    """A request body and its format."""

    format: str
    body: JsonObject


def standalone_request(ask: Ask, format: str) -> ModelRequest:
    """Return the ask as a new request."""
    turns, body = alternating_turns(ask), JsonObject()
    if ask.system and format == CHAT:
        turns = [("system", ask.system), *turns]
    elif ask.system:
        body["instructions" if format == RESPONSES else "system"] = ask.system
    entries = [{"role": role, "content": text} for role, text in turns]
    body["input" if format == RESPONSES else "messages"] = entries
    return ModelRequest(format, body)


def alternating_turns(ask: Ask) -> list[tuple[str, str]]:
    """Return role and text of each turn, the prompt last. Roles alternate and the user begins:
    messages of one role in a row are joined."""
    turns: list[tuple[str, str]] = []
    for message in (*ask.messages, user(ask.prompt)):
        if turns and turns[-1][0] == message.role:
            turns[-1] = (message.role, f"{turns[-1][1]}\n\n{message.text}")
        else:
            turns.append((message.role, message.text))
    return turns if turns[0][0] == "user" else [("user", OPENING), *turns]


def continue_request(ask: Ask, formats: Iterable[str], window: int | None) -> ModelRequest | None:
    """Return the conversation's own request with the prompt as its last user message, so that the
    provider's cache is used. None if that is not possible: the history is not a request body of one
    of *formats*, the server holds part of it, it ends in unanswered calls, or request and answer
    would exceed *window* tokens."""
    view = ask.view
    payload = view.source if view is not None else None
    if view is None or payload is None or not payload.field or payload.codec.NAME not in formats:
        return None
    if any(payload.body.get(name) for name in SERVER_HELD):
        return None
    tokens = view.tokens + view.profile.count(user(ask.prompt)) + ask.max_tokens
    if (window is not None and tokens > window) or _breaks_a_rule(view, ask):
        return None
    body, codec = _parse_body(view.payload), payload.codec
    fields = {
        name: value for name, value in body.items() if name not in _DROPPED and value is not None
    }
    fields[codec.FIELD] = _entries_with_prompt(codec, body, ask.prompt)
    return ModelRequest(codec.NAME, _without_tools(_without_form(fields), codec.NAME))


def complete_body(request: ModelRequest, model: str, max_tokens: int, cap: str) -> JsonObject:
    """Return the request's body with *model*, if it names none, and an output cap of *max_tokens*
    and the tokens reserved for thinking.

    *cap* is the field for the cap in Chat Completions, if the request has none.
    """
    format, body = request
    field = OUTPUT_CAP_FIELDS.get(format) or next((name for name in CHAT_CAPS if name in body), cap)
    fields = without_keys(body, *CHAT_CAPS, *OUTPUT_CAP_FIELDS.values())
    fields["model"] = body.get("model") or model
    return fields | {field: max_tokens + _thinking_budget(body)}


def _breaks_a_rule(view: View, ask: Ask) -> bool:
    """Return whether adding the prompt would violate a rule that the view keeps."""
    check, messages = view.profile.rules.check, view.messages
    after = {(v.rule, v.subject) for v in check(_with_prompt(view, ask.prompt))}
    return bool(after - {(v.rule, v.subject) for v in check(messages)})


def _with_prompt(view: View, prompt: str) -> tuple[Message, ...]:
    messages = view.messages
    if messages and messages[-1].role == "user" and view.profile.rules.alternate:
        return (*messages[:-1], Message("user", (*messages[-1].parts, Text(prompt))))
    return (*messages, user(prompt))


def _parse_body(payload: Any) -> Mapping[str, Any]:
    """Return a request body from an object or JSON text."""
    if isinstance(payload, bytes):
        payload = payload.decode("utf-8", "replace")
    body: Body = json.loads(payload, strict=False) if isinstance(payload, str) else payload
    return body


def _entries_with_prompt(codec: Codec, body: Body, prompt: str) -> list[Any]:
    content = body[codec.FIELD]
    entries = [codec.encode(user(content))] if isinstance(content, str) else list(content)
    last = codec.encode(user(prompt))
    if entries and codec.rules(body).alternate and codec.decode(entries[-1], ()).role == "user":
        return [*entries[:-1], codec.merge(entries[-1], last)]
    return [*entries, last]


def _thinking_budget(body: Body) -> int:
    """Return the thinking tokens of an Anthropic request, which count towards the cap; 0 if it
    sets none."""
    budget = dig(body, "thinking", "budget_tokens")
    return budget if isinstance(budget, int) else 0


def _without_form(body: JsonObject) -> JsonObject:
    """Return *body* without its response schema (`text.format`, `output_config.format`)."""
    for name in ("text", "output_config"):
        if isinstance(body.get(name), Mapping):
            body[name] = without_keys(body[name], "format")
    return body


def _without_tools(body: JsonObject, format: str) -> JsonObject:
    """Return *body* with its tools, but with tool calls off. Anthropic's cache depends on
    `tool_choice`, so there it is changed only if it forces a call."""
    if format != MESSAGES:
        return body | {"tool_choice": "none"} if body.get("tools") else body
    is_forced = dig(body, "tool_choice", "type") in ("any", "tool")
    return body | {"tool_choice": {"type": "none"}} if is_forced else body


# --- the models of providers ----------------------------------------------------------------------


Price = tuple[float, ...] | Rates
"""US dollars per million tokens: input, output, and, if different, cached input and cache writes;
or prices with cliffs."""


def with_cost(answer: Answer, price: Price | None) -> Answer:
    """Return the answer with its cost; unchanged without a price or usage."""
    usage = answer.usage
    if price is None or usage is None:
        return answer
    if isinstance(price, Rates):
        rates = price.for_request(usage.input)
        price = (rates.input, rates.output, rates.read, rates.write)
    new, out, cached, written = (*price, *(price[0],) * (4 - len(price)))
    fresh = max(0, usage.input - usage.cached - usage.written)
    dollars = fresh * new + usage.output * out + usage.cached * cached + usage.written * written
    return replace(answer, cost=dollars / 1_000_000)


@dataclass(frozen=True, kw_only=True)
class ProviderModel(ABC):
    """A model behind an API in OpenAI's or Anthropic's format."""

    model: str
    same_model: bool = False
    """Whether this is the conversation's own model. Then an ask continues the conversation's
    request, which the provider has cached, if there is one that fits."""
    window: int | None = None
    """The model's window in tokens. With None, the size of a continued request is not checked."""
    spare: int = 0
    """Tokens added to the output cap, for a model that reasons first."""
    cap: str = "max_tokens"
    """Field for the output cap in Chat Completions. Newer servers require
    `max_completion_tokens`."""
    timeout: float = 120.0
    """Seconds without data from the server."""
    price: Price | None = None
    """US dollars per million tokens: input, output, and optionally cached input and cache writes;
    or `Rates`."""
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Additional fields of every request, such as `temperature` or `reasoning_effort`."""

    @property
    def formats(self) -> tuple[str, ...]:
        """Formats that the API accepts: first that of its own requests, then those in which it can
        only continue a conversation."""
        return (CHAT,)

    @property
    def secrets(self) -> Iterable[str | None]:
        """Texts that no error may show."""
        return ()

    @abstractmethod
    def send(self, request: ModelRequest, seconds: float) -> Any:
        """Return the reply, as parsed JSON or an SDK's object. May raise any exception."""

    async def asend(self, request: ModelRequest, seconds: float) -> Any:
        """Async version of `send`. It runs in a thread, which continues after a cancelled task."""
        return await call_in_thread(self.send, request, seconds)

    def read(self, reply: Any, format: str) -> Answer:
        """Return the answer in a reply."""
        return with_cost(READERS[format](as_mapping(reply), self.secrets), self.price)

    def fail(self, error: Exception) -> Answer:
        """Return the answer for a call that raised *error*."""
        return answer_of_exception(error, self.secrets)

    def __call__(self, ask: Ask, within: float | None = None, /) -> Answer:
        """Answer the ask."""
        try:
            request = self._request(ask)
            return self.read(self.send(request, self._timeout(within)), request.format)
        except Exception as error:  # noqa: BLE001 - a model that fails must not stop an agent
            return self.fail(error)

    async def acall(self, ask: Ask, within: float | None = None, /) -> Answer:
        """Async version of `__call__`."""
        try:
            request = self._request(ask)
            return self.read(await self.asend(request, self._timeout(within)), request.format)
        except Exception as error:  # noqa: BLE001 - a model that fails must not stop an agent
            return self.fail(error)

    def _request(self, ask: Ask) -> ModelRequest:
        request = continue_request(ask, self.formats, self.window) if self.same_model else None
        request = request or standalone_request(ask, self.formats[0])
        body = complete_body(request, self.model, ask.max_tokens + self.spare, self.cap)
        return ModelRequest(request.format, {**body, **self.options})

    def _timeout(self, within: float | None) -> float:
        """Return the smaller of the model's own timeout and *within*, in seconds."""
        return self.timeout if within is None else min(self.timeout, within)


def read_body(error: HTTPError) -> str:
    """Return the body of an error response; its reason phrase if the body cannot be read."""
    try:
        return error.read(65_536).decode("utf-8", "replace")
    except (OSError, HTTPException):
        return error.reason if isinstance(error.reason, str) else ""


def plain_value(value: Any) -> Any:
    """Return an SDK's object inside a conversation as JSON. Raises TypeError for other objects."""
    if hasattr(value, "model_dump"):
        return value.model_dump(exclude_unset=True)
    raise TypeError(f"{type(value).__name__} is no JSON")
