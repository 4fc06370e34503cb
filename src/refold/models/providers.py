"""Providers as models: OpenAI and Anthropic by their SDKs, many more by LiteLLM, and any HTTP
endpoint for Chat Completions (vLLM, llama.cpp, Ollama, routers) without an SDK."""

import asyncio
import json
import socket
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from importlib import import_module
from operator import attrgetter
from typing import Any, ClassVar, Literal
from urllib.error import HTTPError, URLError
from urllib.request import HTTPHandler, HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from refold.core.strategy import Answer, Ask
from refold.errors import install_hint
from refold.models.model import ModelRequest, ProviderModel, plain_value, read_body
from refold.models.responses import CHAT, MESSAGES, RESPONSES, answer_of_exception, answer_of_status
from refold.text.json_values import dig

# --- SDKs -----------------------------------------------------------------------------------------

_CALLS = {
    CHAT: ("chat.completions", ("model", "messages")),
    RESPONSES: ("responses", ("model", "input")),
    MESSAGES: ("messages", ("model", "messages", "max_tokens")),
}
"""Client method for each format, and the arguments that it requires."""


@dataclass(frozen=True)
class SDKModel(ProviderModel):
    """A model called by an SDK's client.

    An async client serves `acall` only. A sync one serves both, `acall` in a thread that continues
    after a cancelled task until its timeout. Without a client, one is made for each call. One ask
    is one HTTP request: the SDK's own retries are off, because `Fallback` retries.
    """

    client: Any = field(default=None, repr=False)
    sdk: ClassVar[str]
    """Name of the SDK's package and extra."""
    clients: ClassVar[tuple[str, str]]
    """Names of its sync and async clients."""

    def __post_init__(self) -> None:
        if self.client is None:
            _load(self.sdk, type(self).__name__)

    @property
    def is_async(self) -> bool:
        """Whether the client is async only."""
        return hasattr(self.client, "__aenter__")

    @property
    def secrets(self) -> tuple[str | None, ...]:
        """The client's keys."""
        return getattr(self.client, "api_key", None), getattr(self.client, "auth_token", None)

    def __call__(self, ask: Ask, within: float | None = None, /) -> Answer:
        """Answer the ask. Raises TypeError if the client is async."""
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
        """Async version of `send`."""
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
    """A model called by `client.messages.create`.

    *client* is any client of the SDK, also for Bedrock or Vertex, with your key and address.
    Without one, a client that reads `ANTHROPIC_API_KEY` is made for each call.
    """

    sdk, clients = "anthropic", ("Anthropic", "AsyncAnthropic")

    @property
    def formats(self) -> tuple[str, ...]:
        """Anthropic's format."""
        return (MESSAGES,)


@dataclass(frozen=True)
class OpenAIModel(SDKModel):
    """A model called by `client.chat.completions.create` or `client.responses.create`: OpenAI
    itself, Azure, and every server with its APIs.

    *client* is an `OpenAI` or `AsyncOpenAI` with your key and address. Without one, a client that
    reads `OPENAI_API_KEY` is made for each call.
    """

    api: Literal["chat", "responses"] = field(default="chat", kw_only=True)
    """API for standalone requests. A conversation is continued in its own format."""
    cap: str = field(default="max_completion_tokens", kw_only=True)
    """Field for the output cap in Chat Completions. Older servers know `max_tokens`."""

    sdk, clients = "openai", ("OpenAI", "AsyncOpenAI")

    @property
    def formats(self) -> tuple[str, ...]:
        """Both formats, that of *api* first."""
        return (CHAT, RESPONSES) if self.api == "chat" else (RESPONSES, CHAT)


def _load(package: str, model: str) -> Any:
    """Import a package that *model* needs. Raises ImportError."""
    try:
        return import_module(package)
    except ImportError as error:
        hint = install_hint(package)
        raise ImportError(f"{model} needs the package {package}: {hint}") from error


def _create(client: Any, request: ModelRequest, seconds: float) -> Any:
    """Send the request; with an async client, return an awaitable. Fields that the SDK requires are
    named arguments. All others are passed unchanged, so the SDK need not know them."""
    path, names = _CALLS[request.format]
    named = {name: request.body[name] for name in names}
    rest = {name: value for name, value in request.body.items() if name not in names}
    api = attrgetter(path)(client.with_options(max_retries=0))
    return api.create(**named, extra_body=rest, timeout=seconds)


# --- LiteLLM --------------------------------------------------------------------------------------

_ONE_CALL = {"max_retries": 0, "num_retries": 0}


@dataclass(frozen=True)
class LiteLLMModel(ProviderModel):
    """A model called by `litellm.completion` and `litellm.acompletion`.

    *model* is LiteLLM's name, such as `anthropic/claude-haiku-4-5` or `gemini/gemini-2.5-flash`.
    Keys come from the environment, as LiteLLM reads them, or from *options*, the additional
    arguments of every call: `api_key`, `api_base`, `client`, `temperature` ... Without *price*,
    LiteLLM's cost is used. One ask is one call: LiteLLM's own retries are off, because `Fallback`
    retries.
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
        """Async version of `send`."""
        options = {"timeout": seconds, **_ONE_CALL, **request.body}
        return await import_module("litellm").acompletion(**options)

    def read(self, reply: Any, format: str) -> Answer:
        """Return the answer in a reply, with its cost."""
        answer = super().read(reply, format)
        cost = dig(getattr(reply, "_hidden_params", None), "response_cost")
        if self.price is None and isinstance(cost, int | float):
            return replace(answer, cost=float(cost))
        return answer


# --- HTTP endpoints -------------------------------------------------------------------------------

_SHORTEST_SECRET = 8  # characters of a header's value that is masked in errors


@dataclass(frozen=True)
class HTTPModel(ProviderModel):
    """A model called by `POST {url}/chat/completions`, with the standard library only.

    *url* is the address up to the version (`http://localhost:11434/v1`) or of the endpoint itself,
    with a query if it needs one (Azure's `?api-version=`). *key* is sent as a bearer token. Proxies
    come from the environment. Redirects are not followed, so that the key reaches no other server.
    One ask is one HTTP request. Cancelling `acall` closes the connection. Raises ValueError if the
    address is neither http nor https.
    """

    url: str = field(repr=False)
    key: str = field(default="", repr=False, kw_only=True)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False, kw_only=True)

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise ValueError("an endpoint's address begins with http:// or https://")

    @property
    def secrets(self) -> tuple[str, ...]:
        """The key and the values of *headers*, unless they are too short for a key."""
        long = (value for value in self.headers.values() if len(value.strip()) >= _SHORTEST_SECRET)
        return self.key, *long

    def send(self, request: ModelRequest, seconds: float) -> Any:
        """Return the reply as parsed JSON."""
        return self._post(_Connections(), request, seconds)

    async def asend(self, request: ModelRequest, seconds: float) -> Any:
        """Async version of `send`, in a thread that a cancelled task stops."""
        connections = _Connections()
        try:
            return await asyncio.to_thread(self._post, connections, request, seconds)
        except asyncio.CancelledError:
            connections.cut()
            raise

    def _post(self, connections: "_Connections", request: ModelRequest, seconds: float) -> Any:
        base, mark, query = self.url.partition("?")
        base = base.rstrip("/").removesuffix("/chat/completions")
        url = f"{base}/chat/completions{mark}{query}"
        headers = {"Content-Type": "application/json", "User-Agent": "refold"}
        headers |= {"Authorization": f"Bearer {self.key}"} if self.key else {}
        data = json.dumps(request.body, default=plain_value).encode()
        # The address begins with http or https: see __post_init__.
        post = Request(url, data, {**headers, **self.headers}, method="POST")  # noqa: S310
        with build_opener(connections, _NoRedirects).open(post, timeout=seconds) as reply:
            data = reply.read()
        try:
            return json.loads(data)
        except ValueError:
            return {"error": {"message": "the reply is no JSON"}}

    def fail(self, error: Exception) -> Answer:
        """Return the answer for a call that raised *error*."""
        match error:
            case HTTPError():
                with error:
                    headers = dict(error.headers.items())
                    return answer_of_status(error.code, read_body(error), headers, self.secrets)
            case URLError(reason=Exception() as reason):
                error = reason
            case HTTPException():
                error = ConnectionError(f"the reply broke off: {type(error).__name__}")
        return answer_of_exception(error, self.secrets)


class _Connections(HTTPHandler, HTTPSHandler):
    """The connections of one request, which another thread can close."""

    def __init__(self) -> None:
        super().__init__()
        self._connections: list[HTTPConnection] = []
        self._is_cut = False

    def http_open(self, req: Request) -> Any:
        return self.do_open(partial(self._connect, HTTPConnection), req)

    def https_open(self, req: Request) -> Any:
        return self.do_open(partial(self._connect, HTTPSConnection), req)

    def _connect(
        self, kind: Callable[..., HTTPConnection], *args: Any, **options: Any
    ) -> HTTPConnection:
        """Return a new connection. Raises ConnectionAbortedError after `cut`."""
        if self._is_cut:
            raise ConnectionAbortedError
        connection = kind(*args, **options)
        self._connections.append(connection)
        return connection

    def cut(self) -> None:
        """Abort the request, which wakes up the thread that waits for an answer."""
        self._is_cut = True
        for connection in self._connections:
            with suppress(OSError, AttributeError):  # closed already, or not yet connected
                connection.sock.shutdown(socket.SHUT_RDWR)


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Follow no redirect, so that the key is not sent to another address."""
