"""Any HTTP endpoint that speaks Chat Completions: vLLM, llama.cpp, Ollama, routers. No SDK."""

import asyncio
import json
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import (
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    Request,
    build_opener,
)

from refold.core.strategy import Answer, Ask, Failure
from refold.models.errors import answer_of_exception, answer_of_status
from refold.models.model import TIMEOUT, Price, effective_timeout, with_cost
from refold.models.requests import CHAT, continue_request, standalone_request
from refold.models.responses import read_chat


@dataclass(frozen=True, slots=True)
class HTTPModel:
    """Asks by `POST {url}/chat/completions`, with the standard library alone.

    *url* is the address up to the version (`http://localhost:11434/v1`) or of the endpoint itself.
    *key* goes out as a bearer token. Proxies are those of the environment; redirects are not
    followed, so that the key reaches no other server. One ask is one HTTP request. Cancelling
    `acall` cuts the connection. Raises ValueError for an address that is neither http nor https.
    """

    url: str = field(repr=False)
    model: str
    key: str = field(default="", repr=False)
    same_model: bool = False
    """It is the model that the conversation is with: continue the conversation's own request, which
    the server has cached, wherever the ask brings one that fits."""
    window: int | None = None
    """The model's window in tokens; None leaves unchecked whether a continued request fits."""
    spare: int = 0
    """Tokens added to the cap of each answer, for a model that reasons before it speaks."""
    cap: str = "max_tokens"
    """The field that caps an answer; newer servers want `max_completion_tokens`."""
    timeout: float = TIMEOUT
    """Seconds without a sign of life from the server."""
    price: Price | None = None
    """US dollars per million tokens: input, output, and optionally cached input."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Further fields of every request, such as `temperature`."""

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise ValueError("an endpoint's address begins with http:// or https://")

    def __call__(self, ask: Ask, within: float | None = None, /) -> Answer:
        """Ask."""
        return self._ask(_CuttableConnections(), ask, within)

    async def acall(self, ask: Ask, within: float | None = None, /) -> Answer:
        """As calling it, for async code: in a thread, which a cancelled task cuts short."""
        line = _CuttableConnections()
        try:
            return await asyncio.to_thread(self._ask, line, ask, within)
        except asyncio.CancelledError:
            line.cut()
            raise

    def _ask(self, line: "_CuttableConnections", ask: Ask, within: float | None) -> Answer:
        secrets = (self.key, *self.headers.values())
        try:
            with line.opener().open(
                self._request(ask), timeout=effective_timeout(self.timeout, within)
            ) as reply:
                return with_cost(_read(reply.read()), self.price)
        except HTTPError as error:
            with error:
                return answer_of_status(
                    error.code, _body(error), dict(error.headers.items()), secrets
                )
        except URLError as error:
            return answer_of_exception(
                error.reason if isinstance(error.reason, Exception) else error, secrets
            )
        except HTTPException as error:
            return answer_of_exception(
                ConnectionError(f"the reply broke off: {type(error).__name__}"), secrets
            )
        except Exception as error:  # noqa: BLE001 - a model that fails must not stop an agent
            return answer_of_exception(error, secrets)

    def _request(self, ask: Ask) -> Request:
        formats = (CHAT,) if self.same_model else ()
        request = continue_request(ask, formats, self.model, self.window, self.spare, self.cap)
        body = (request or standalone_request(ask, CHAT, self.model, self.spare, self.cap)).body
        data = json.dumps({**body, **self.options}, default=_plain).encode()
        key = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "refold",
            **key,
            **self.headers,
        }
        # The address begins with http or https: see __post_init__.
        return Request(self._address(), data, headers, method="POST")  # noqa: S310

    def _address(self) -> str:
        base = self.url.rstrip("/")
        return base if base.endswith("/chat/completions") else f"{base}/chat/completions"


def _read(data: bytes) -> Answer:
    try:
        reply = json.loads(data)
    except ValueError:
        return Answer("", "error", "the reply is no JSON", failure=Failure("reply"))
    return read_chat(reply if isinstance(reply, Mapping) else {})


def _body(error: HTTPError) -> str:
    """What a refusal says; nothing where even that breaks off."""
    try:
        return error.read(65_536).decode("utf-8", "replace")
    except (OSError, HTTPException):
        return error.reason if isinstance(error.reason, str) else ""


def _plain(value: Any) -> Any:
    """SDK objects inside a conversation as JSON. Raises TypeError for anything else."""
    if hasattr(value, "model_dump"):
        return value.model_dump(exclude_unset=True)
    raise TypeError(f"{type(value).__name__} is no JSON")


class _CuttableConnections:
    """The connections of one request, so that another thread can cut them."""

    def __init__(self) -> None:
        self._connections: list[HTTPConnection] = []
        self._is_cut = False

    def opener(self) -> OpenerDirector:
        """Return an opener that makes its connections here."""
        return build_opener(_Plain(self), _Secure(self), _NoRedirects)

    def connect(
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


class _Plain(HTTPHandler):
    def __init__(self, line: _CuttableConnections) -> None:
        super().__init__()
        self._line = line

    def http_open(self, req: Request) -> Any:
        return self.do_open(partial(self._line.connect, HTTPConnection), req)


class _Secure(HTTPSHandler):
    def __init__(self, line: _CuttableConnections) -> None:
        super().__init__()
        self._line = line

    def https_open(self, req: Request) -> Any:
        return self.do_open(partial(self._line.connect, HTTPSConnection), req)


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        """A redirect is a refusal: the key is not carried to another address."""
