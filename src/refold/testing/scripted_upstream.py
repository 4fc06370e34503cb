"""An upstream for tests of the gateway: real HTTP on this machine, streams included, answers out of a script.

It keeps every request as it came, byte for byte, and notices clients that leave. Standard library only.
"""

import json
import select
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from types import TracebackType
from typing import Any, Self

from refold.testing.scripted_answers import Received, Reply, encode_reply
from refold.testing.scripted_streams import events


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as it came in."""

    method: str
    target: str
    """Path and query."""
    headers: tuple[tuple[str, str], ...]
    """In order, repeats included, names as they were spelt."""
    body: bytes

    @property
    def json(self) -> Any:
        """The body as parsed; None where it is no JSON."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None

    @property
    def wants_stream(self) -> bool:
        """Does it ask for a stream?"""
        body = self.json
        return ":streamGenerateContent" in self.target or (
            isinstance(body, dict) and body.get("stream") is True
        )

    def all(self, name: str) -> list[str]:
        """The values of a header."""
        return [value for key, value in self.headers if key.lower() == name]


@dataclass(frozen=True, slots=True)
class Played:
    """An answer in detail."""

    reply: Reply = field(default_factory=Reply)
    pieces: Iterable[bytes] | None = None
    """Send these as the body, one by one as they are made, whatever *reply* says but its status."""
    pause: float = 0.0
    """Seconds between the pieces of a body."""
    cut_after: int | None = None
    """Close the connection after so many pieces."""
    headers: tuple[tuple[str, str], ...] = ()
    """Further headers."""
    type: str = ""
    """The content type, where it is not what it would be."""
    length: bool = False
    """Say how long the body is, and send it unchunked."""


Play = Callable[[Asked], str | Reply | Played] | Sequence[str | Reply | Played]


@dataclass
class ScriptedUpstream:
    """A server in a thread of this process: `with ScriptedUpstream(["hello"]) as upstream: upstream.url`.

    *script* is a list of answers, the last of which is given again and again, or a function of the
    request. `asked` is what was asked so far, `left` how many clients closed their connection in the
    middle of an answer.
    """

    script: Play = ("Done.",)
    asked: list[Asked] = field(default_factory=list)
    left: int = 0

    def __post_init__(self) -> None:
        self.closing, self._lock = Event(), Lock()
        self._http = _Server(self)
        self._thread = Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)

    @property
    def url(self) -> str:
        """Where it listens, without a path."""
        return f"http://127.0.0.1:{self._http.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def answer_to(self, asked: Asked) -> Played:
        """The next answer of the script."""
        with self._lock:
            self.asked.append(asked)
            at = len(self.asked) - 1
        reply = (
            self.script(asked)
            if callable(self.script)
            else self.script[min(at, len(self.script) - 1)]
        )
        if isinstance(reply, Played):
            return reply
        return Played(reply if isinstance(reply, Reply) else Reply(reply))

    def count_left(self) -> None:
        """One more client has left."""
        with self._lock:
            self.left += 1


class _Server(ThreadingHTTPServer):
    request_queue_size = 256
    daemon_threads = True
    block_on_close = False

    def __init__(self, upstream: ScriptedUpstream) -> None:
        self.upstream = upstream
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    @property
    def _upstream(self) -> ScriptedUpstream:
        return self.server.upstream  # type: ignore[attr-defined, no-any-return]  # `_Server` has it

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except OSError:
            self.close_connection = True

    def _answer(self) -> None:
        headers = tuple((name, value) for name, value in self.headers.items())
        asked = Asked(self.command, self.path, headers, self._body())
        played = self._upstream.answer_to(asked)
        if self._waits(played.reply.delay):
            self._send(played, *_make(played, asked))

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _answer  # noqa: N815 - the server's names

    def _body(self) -> bytes:
        if "chunked" in self.headers.get("transfer-encoding", ""):
            pieces = list[bytes]()
            while size := int(self.rfile.readline().partition(b";")[0], 16):
                pieces.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(pieces)
        return self.rfile.read(int(self.headers.get("content-length", 0)))

    def _send(self, played: Played, kind: str, pieces: Iterable[bytes]) -> None:
        self.send_response_only(played.reply.status)
        self.send_header("content-type", played.type or kind)
        for name, value in (*played.headers, *_extra(played.reply)):
            self.send_header(name, value)
        chunked = not played.length
        pieces = pieces if chunked else tuple(pieces)
        size = (
            ("transfer-encoding", "chunked")
            if chunked
            else ("content-length", str(sum(map(len, pieces))))
        )
        self.send_header(*size)
        self.end_headers()
        if self.command == "HEAD":
            return
        for at, piece in enumerate(pieces):
            if at == played.cut_after or (at and not self._waits(played.pause)):
                self.close_connection = True
                return
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece)
        if chunked:
            self.wfile.write(b"0\r\n\r\n")

    def _waits(self, seconds: float) -> bool:
        """Wait; False as soon as the client has left."""
        until = time.monotonic() + seconds
        while (remaining := until - time.monotonic()) > 0 and not self._upstream.closing.is_set():
            ready, _, _ = select.select([self.connection], [], [], min(remaining, 0.05))
            if ready and not self.connection.recv(1, socket.MSG_PEEK):
                self._upstream.count_left()
                return False
        return True

    def log_message(self, format: str, *args: Any) -> None:
        """Tests want no log."""


def _extra(reply: Reply) -> list[tuple[str, str]]:
    extra = [("location", reply.location)] if reply.location else []
    return extra + (
        [("retry-after", f"{reply.retry_after:g}")] if reply.retry_after is not None else []
    )


def _make(played: Played, asked: Asked) -> tuple[str, Iterable[bytes]]:
    """Content type and pieces of the body."""
    if played.pieces is not None:
        return "application/json", played.pieces
    path = asked.target.partition("?")[0].replace(":streamGenerateContent", ":generateContent")
    _, data = encode_reply(played.reply, Received(path, {}, asked.json))
    if played.reply.status >= 300 or played.reply.body is not None or not asked.wants_stream:
        return "application/json", (data,)
    streamed = events(path, json.loads(data), asked.json)
    if ":streamGenerateContent" in asked.target and "alt=sse" not in asked.target:
        return "application/json", _as_list(streamed)
    return "text/event-stream", streamed


def _as_list(streamed: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Gemini's stream without `alt=sse`: one JSON list."""
    values = [line.removeprefix(b"data: ").strip() for line in streamed]
    return (b"[" + values[0], *(b",\r\n" + line for line in values[1:]), b"]")
