"""A model provider for tests: a local HTTP server that answers from a script, also as streams.

It records every request byte for byte and notices disconnected clients. The path of a request
decides the API: OpenAI's Chat Completions and Responses, Anthropic's Messages or Gemini's
generateContent. Standard library only.
"""

import json
import select
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from typing import Any, Self

from refold.testing.scripted_replies import Call, Reply, encode_reply, events
from refold.text.json_values import dig, parse_or_none

__all__ = ["Call", "Received", "Reply", "Script", "ScriptedProvider"]


@dataclass(frozen=True, slots=True)
class Received:
    """A recorded request."""

    method: str
    target: str
    """Path and query."""
    headers: tuple[tuple[str, str], ...]
    """Headers in order, with repeats and the original spelling of names."""
    body: bytes

    @property
    def path(self) -> str:
        """The path without the query."""
        return self.target.partition("?")[0]

    @property
    def json(self) -> Any:
        """The parsed body; None if it is not JSON."""
        return parse_or_none(self.body)

    @property
    def wants_stream(self) -> bool:
        """Whether the request asks for a stream."""
        return ":streamGenerateContent" in self.target or dig(self.json, "stream") is True

    def all(self, name: str) -> list[str]:
        """Return all values of a header. *name* is in lower case."""
        return [value for key, value in self.headers if key.lower() == name]

    def header(self, name: str) -> str:
        """Return the first value of a header; empty if it was not sent."""
        return next(iter(self.all(name)), "")


Script = Sequence[str | Reply] | Callable[[Received], str | Reply]
"""Replies in order, the last repeated, or a function of each request. A text is a `Reply` of it."""


@dataclass
class ScriptedProvider:
    """A server in a thread: `with ScriptedProvider(["hello"]) as provider: provider.url`.

    *script* is a list of replies, one per request, the last repeated, or a function from the
    received request to the reply. An empty list refuses every request with status 400.
    """

    script: Script = ("Done.",)
    keep_alive: bool = True
    """Whether a connection serves several requests. If not, it is closed after each answer."""
    received: list[Received] = field(default_factory=list)
    """All requests so far."""
    clients_left: int = 0
    """Number of clients that closed their connection during an answer."""

    def __post_init__(self) -> None:
        self.closing, self._lock = Event(), Lock()
        self._http = _Server(self)
        self._thread = Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)

    @property
    def url(self) -> str:
        """The base URL without a path. OpenAI's clients need `f"{provider.url}/v1"`."""
        return f"http://127.0.0.1:{self._http.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def reply_to(self, received: Received) -> Reply:
        """Return the next reply of the script."""
        with self._lock:
            self.received.append(received)
            at = len(self.received) - 1
        if callable(self.script):
            reply = self.script(received)
        elif self.script:
            reply = self.script[min(at, len(self.script) - 1)]
        else:
            reply = Reply("the script has no replies", status=400)
        return Reply(reply) if isinstance(reply, str) else reply

    def count_left(self) -> None:
        """Count a client that has disconnected."""
        with self._lock:
            self.clients_left += 1


class _Server(ThreadingHTTPServer):
    request_queue_size = 256
    daemon_threads = True
    block_on_close = False

    def __init__(self, provider: ScriptedProvider) -> None:
        self.provider = provider
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    @property
    def _provider(self) -> ScriptedProvider:
        return self.server.provider  # type: ignore[attr-defined, no-any-return]  # `_Server` has it

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except OSError:
            self.close_connection = True

    def _answer(self) -> None:
        headers = tuple((name, value) for name, value in self.headers.items())
        received = Received(self.command, self.path, headers, self._body())
        if self.path.startswith("/refold/"):  # from an earlier gateway's web page
            self.send_error(404)
            return
        reply = self._provider.reply_to(received)
        if self._waits(reply.delay):
            self._send(reply, *_encode(reply, received))

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _answer  # noqa: N815 - the server's names

    def _body(self) -> bytes:
        if "chunked" in self.headers.get("transfer-encoding", ""):
            pieces = list[bytes]()
            while size := int(self.rfile.readline().partition(b";")[0] or b"0", 16):
                pieces.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(pieces)
        return self.rfile.read(int(self.headers.get("content-length", 0)))

    def _send(self, reply: Reply, kind: str, pieces: Iterable[bytes]) -> None:
        self.send_response_only(reply.status)
        self.send_header("content-type", reply.type or kind)
        for name, value in reply.headers:
            self.send_header(name, value)
        if reply.location:
            self.send_header("location", reply.location)
        if reply.retry_after is not None:
            self.send_header("retry-after", f"{reply.retry_after:g}")
        chunked = not reply.has_length
        if chunked:
            self.send_header("transfer-encoding", "chunked")
        else:
            pieces = tuple(pieces)
            self.send_header("content-length", str(sum(map(len, pieces))))
        if not self._provider.keep_alive:
            self.send_header("connection", "close")
        self.end_headers()
        if self.command == "HEAD":
            return
        for at, piece in enumerate(pieces):
            if at == reply.cut_after or (at and not self._waits(reply.pause)):
                self.close_connection = True
                return
            if piece:  # an empty chunk would end the body
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece)
        if chunked:
            self.wfile.write(b"0\r\n\r\n")

    def _waits(self, seconds: float) -> bool:
        """Wait, and return whether the client is still connected. Return early if it is not."""
        until = time.monotonic() + seconds
        while (remaining := until - time.monotonic()) > 0 and not self._provider.closing.is_set():
            ready, _, _ = select.select([self.connection], [], [], min(remaining, 0.05))
            if ready and not self.connection.recv(1, socket.MSG_PEEK):
                self._provider.count_left()
                return False
        return True

    def log_message(self, format: str, *args: Any) -> None:
        """Do nothing: tests need no log."""


def _encode(reply: Reply, received: Received) -> tuple[str, Iterable[bytes]]:
    """Return the content type and the chunks of the body."""
    if isinstance(reply.body, str):
        return "application/json", [reply.body.encode()] if reply.body else []
    if reply.body is not None:
        return "application/json", reply.body
    path = received.path.replace(":streamGenerateContent", ":generateContent")
    data = encode_reply(reply, path, received.json)
    if reply.status >= 300 or not received.wants_stream or data == b"{}":
        return "application/json", [data]
    streamed = events(path, json.loads(data), received.json)
    if ":streamGenerateContent" in received.target and "alt=sse" not in received.target:
        return "application/json", _as_list(streamed)
    return "text/event-stream", streamed


def _as_list(streamed: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Convert an event stream to the JSON array of Gemini's streams without `alt=sse`."""
    values = [line.removeprefix(b"data: ").strip() for line in streamed]
    return (b"[" + values[0], *(b",\r\n" + line for line in values[1:]), b"]")
