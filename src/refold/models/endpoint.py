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
    Request,
    build_opener,
)

from refold.core.strategy import Answer
from refold.models.model import ModelRequest, ProviderModel
from refold.models.responses import answer_of_exception, answer_of_status


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
    """What a refusal says; nothing if even that breaks off."""
    try:
        return error.read(65_536).decode("utf-8", "replace")
    except (OSError, HTTPException):
        return error.reason if isinstance(error.reason, str) else ""


def _plain(value: Any) -> Any:
    """SDK objects inside a conversation as JSON. Raises TypeError for anything else."""
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
