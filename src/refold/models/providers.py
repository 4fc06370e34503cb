"""Providers as models. OpenAI and Anthropic are asked by their SDKs, and many more by LiteLLM. Any
HTTP endpoint that speaks Chat Completions (vLLM, llama.cpp, Ollama, routers) is asked without an
SDK."""

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
from urllib.request import (
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    Request,
    build_opener,
)

from refold.core.strategy import Answer, Ask
from refold.errors import install_hint
from refold.models.model import ModelRequest, ProviderModel
from refold.models.responses import CHAT, MESSAGES, RESPONSES, answer_of_exception, answer_of_status
from refold.text.json_values import dig

# --- SDKs -----------------------------------------------------------------------------------------

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


# --- LiteLLM --------------------------------------------------------------------------------------

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


# --- HTTP endpoints -------------------------------------------------------------------------------


@dataclass(frozen=True)
class HTTPModel(ProviderModel):
    """Asks by `POST {url}/chat/completions`, with the standard library alone.

    *url* is the address up to the version (`http://localhost:11434/v1`) or of the endpoint itself.
    *key* goes out as a bearer token. Proxies are those of the environment; redirects are not
    followed, so that the key reaches no other server. One ask is one HTTP request. Cancelling
    `acall` cuts the connection. Raises ValueError for an address that is neither http nor https.
    """

    url: str = field(repr=False)
    key: str = field(default="", repr=False, kw_only=True)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False, kw_only=True)

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise ValueError("an endpoint's address begins with http:// or https://")

    @property
    def secrets(self) -> tuple[str, ...]:
        """The key, and whatever goes with it."""
        return self.key, *self.headers.values()

    def send(self, request: ModelRequest, seconds: float) -> Any:
        """Return the reply as parsed JSON."""
        return self._post(_Connections(), request, seconds)

    async def asend(self, request: ModelRequest, seconds: float) -> Any:
        """As `send`, for async code: in a thread, which a cancelled task cuts short."""
        connections = _Connections()
        try:
            return await asyncio.to_thread(self._post, connections, request, seconds)
        except asyncio.CancelledError:
            connections.cut()
            raise

    def _post(self, connections: "_Connections", request: ModelRequest, seconds: float) -> Any:
        base = self.url.rstrip("/")
        url = base if base.endswith("/chat/completions") else f"{base}/chat/completions"
        headers = {"Content-Type": "application/json", "User-Agent": "refold"}
        headers |= {"Authorization": f"Bearer {self.key}"} if self.key else {}
        data = json.dumps(request.body, default=_plain).encode()
        # The address begins with http or https: see __post_init__.
        post = Request(url, data, {**headers, **self.headers}, method="POST")  # noqa: S310
        with build_opener(connections, _NoRedirects).open(post, timeout=seconds) as reply:
            data = reply.read()
        try:
            return json.loads(data)
        except ValueError:
            return {"error": {"message": "the reply is no JSON"}}

    def fail(self, error: Exception) -> Answer:
        """Return the answer of a call that raised."""
        match error:
            case HTTPError():
                with error:
                    headers = dict(error.headers.items())
                    return answer_of_status(error.code, _body(error), headers, self.secrets)
            case URLError(reason=Exception() as reason):
                error = reason
            case HTTPException():
                error = ConnectionError(f"the reply broke off: {type(error).__name__}")
        return answer_of_exception(error, self.secrets)


def _body(error: HTTPError) -> str:
    """Return what a refusal says; nothing if even that breaks off."""
    try:
        return error.read(65_536).decode("utf-8", "replace")
    except (OSError, HTTPException):
        return error.reason if isinstance(error.reason, str) else ""


def _plain(value: Any) -> Any:
    """Return an SDK's object inside a conversation as JSON. Raises TypeError for any other."""
    if hasattr(value, "model_dump"):
        return value.model_dump(exclude_unset=True)
    raise TypeError(f"{type(value).__name__} is no JSON")


class _Connections(HTTPHandler, HTTPSHandler):
    """The connections of one request, so that another thread can cut them."""

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
        """Make a new connection. Raises ConnectionAbortedError once they are cut."""
        if self._is_cut:
            raise ConnectionAbortedError
        connection = kind(*args, **options)
        self._connections.append(connection)
        return connection

    def cut(self) -> None:
        """Break off the request: whoever waits for an answer wakes up."""
        self._is_cut = True
        for connection in self._connections:
            with suppress(OSError, AttributeError):  # closed already, or not yet connected
                connection.sock.shutdown(socket.SHUT_RDWR)


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        """A redirect is a refusal: the key is not carried to another address."""
