"""The SDKs of OpenAI and Anthropic as models, whose clients are of one make, and LiteLLM."""

from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from importlib import import_module
from operator import attrgetter
from typing import Any, ClassVar, Literal

from refold.core.strategy import Answer, Ask
from refold.errors import install_hint
from refold.models.model import ModelRequest, ProviderModel
from refold.models.responses import CHAT, MESSAGES, RESPONSES
from refold.text.json_values import dig

_ONE_CALL = {"max_retries": 0, "num_retries": 0}

_CALLS = {
    CHAT: ("chat.completions", ("model", "messages")),
    RESPONSES: ("responses", ("model", "input")),
    MESSAGES: ("messages", ("model", "messages", "max_tokens")),
}
"""Where a client sends a format, and the fields that it insists on."""


@dataclass(frozen=True)
class SDKModel(ProviderModel):
    """Asks by a client of an SDK.

    An async client serves `acall` only; a sync one serves both, `acall` in a thread that a
    cancelled task leaves behind until its timeout. Without a client one is made for each call.
    One ask is one HTTP request: the SDK's own retries are off, retrying is the work of `Fallback`.
    """

    client: Any = field(default=None, repr=False)
    sdk: ClassVar[str]
    """The name of its package, and of the extra that brings it."""
    clients: ClassVar[tuple[str, str]]
    """The names of its sync and of its async client."""

    def __post_init__(self) -> None:
        if self.client is None:
            _load(self.sdk, type(self).__name__)

    @property
    def is_async(self) -> bool:
        """Does the client serve async code only?"""
        return hasattr(self.client, "__aenter__")

    @property
    def secrets(self) -> tuple[str | None, ...]:
        """The client's keys."""
        return getattr(self.client, "api_key", None), getattr(self.client, "auth_token", None)

    def __call__(self, ask: Ask, within: float | None = None, /) -> Answer:
        """Ask. Raises TypeError if the client is an async one."""
        if self.is_async:
            name, client = type(self).__name__, self.clients[0]
            raise TypeError(
                f"this {name} has an async client: use `acompact`, or give it an {client}()"
            )
        return super().__call__(ask, within)

    def send(self, request: ModelRequest, seconds: float) -> Any:
        """Return the SDK's reply."""
        with nullcontext(self.client) if self.client else self.make_client() as client:
            return _create(client, request, seconds)

    async def asend(self, request: ModelRequest, seconds: float) -> Any:
        """As `send`, for async code."""
        if self.client and not self.is_async:
            return await super().asend(request, seconds)
        async with (
            nullcontext(self.client) if self.client else self.make_client(is_async=True) as client
        ):
            return await _create(client, request, seconds)

    @classmethod
    def make_client(cls, *, is_async: bool = False, **settings: Any) -> Any:
        """Return a new client of the SDK."""
        return getattr(_load(cls.sdk, cls.__name__), cls.clients[is_async])(**settings)


@dataclass(frozen=True)
class AnthropicModel(SDKModel):
    """Asks by `client.messages.create`.

    *client* is any client of the SDK, that of Bedrock or Vertex too, with your key and address;
    without one a client is made for each call, which reads `ANTHROPIC_API_KEY`.
    """

    sdk, clients = "anthropic", ("Anthropic", "AsyncAnthropic")

    @property
    def formats(self) -> tuple[str, ...]:
        """Anthropic's own."""
        return (MESSAGES,)


@dataclass(frozen=True)
class OpenAIModel(SDKModel):
    """Asks by `client.chat.completions.create`, or by `client.responses.create`: OpenAI itself,
    Azure, and every server that speaks its APIs.

    *client* is an `OpenAI` or `AsyncOpenAI` with your key and address; without one a client is made
    for each call, which reads `OPENAI_API_KEY`.
    """

    api: Literal["chat", "responses"] = field(default="chat", kw_only=True)
    """For requests of its own; a conversation is continued in the format it is in."""
    cap: str = field(default="max_completion_tokens", kw_only=True)
    """The field that caps an answer in Chat Completions; older servers know `max_tokens`."""

    sdk, clients = "openai", ("OpenAI", "AsyncOpenAI")

    @property
    def formats(self) -> tuple[str, ...]:
        """Both, that of *api* first."""
        return (CHAT, RESPONSES) if self.api == "chat" else (RESPONSES, CHAT)


@dataclass(frozen=True)
class LiteLLMModel(ProviderModel):
    """Asks by `litellm.completion` and `litellm.acompletion`.

    *model* is LiteLLM's name, such as `anthropic/claude-haiku-4-5` or `gemini/gemini-2.5-flash`.
    Keys come from the environment, as LiteLLM reads them, or with *options*, the further arguments
    of every call: `api_key`, `api_base`, `client`, `temperature` ... Without *price* an answer
    costs what LiteLLM says. One ask is one call: LiteLLM's own retries are off, retrying is the
    work of `Fallback`.
    """

    def __post_init__(self) -> None:
        _load("litellm", "LiteLLMModel")

    @property
    def secrets(self) -> Iterable[str]:
        """The keys among *options*."""
        options = self.options.items()
        return [value for name, value in options if "key" in name and isinstance(value, str)]

    def send(self, request: ModelRequest, seconds: float) -> Any:
        """Return LiteLLM's reply."""
        options = {"timeout": seconds, **_ONE_CALL, **request.body}
        return import_module("litellm").completion(**options)

    async def asend(self, request: ModelRequest, seconds: float) -> Any:
        """As `send`, for async code."""
        options = {"timeout": seconds, **_ONE_CALL, **request.body}
        return await import_module("litellm").acompletion(**options)

    def read(self, reply: Any, format: str) -> Answer:
        """Return the answer in a reply, with its cost."""
        answer = super().read(reply, format)
        cost = dig(getattr(reply, "_hidden_params", None), "response_cost")
        if self.price is None and isinstance(cost, int | float):
            return replace(answer, cost=float(cost))
        return answer


def _load(package: str, model: str) -> Any:
    """Return a package that *model* needs. Raises ImportError."""
    try:
        return import_module(package)
    except ImportError as error:
        hint = install_hint(package)
        raise ImportError(f"{model} needs the package {package}: {hint}") from error


def _create(client: Any, request: ModelRequest, seconds: float) -> Any:
    """Send; with an async client what comes back is to be awaited. The fields that the SDK insists
    on go by name, all others as they are: it need not know them."""
    path, names = _CALLS[request.format]
    named = {name: request.body[name] for name in names}
    rest = {name: value for name, value in request.body.items() if name not in names}
    api = attrgetter(path)(client.with_options(max_retries=0))
    return api.create(**named, extra_body=rest, timeout=seconds)
