"""A model server for tests: real HTTP on this machine, answers out of a script.

It speaks, without streaming, OpenAI's Chat Completions and Responses, Anthropic's Messages and
Gemini's generateContent, by the path that is asked for. Standard library only.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from types import TracebackType
from typing import Any, Self

from refold.testing.scripted_answers import Received, Reply, encode_reply

__all__ = ["Received", "Reply", "Script", "ScriptedServer", "encode_reply"]

Script = Sequence[str | Reply] | Callable[[Received], str | Reply]


@dataclass
class ScriptedServer:
    """A server in a thread of this process: `with ScriptedServer(["a summary"]) as server: server.url`.

    *script* is a list of replies, given one a request (when it is used up, every further request
    is refused with status 400), or a function from what was received to the reply, for a model
    with a speed or a will of its own. `received` is what was asked so far.
    """

    script: Script = ()
    received: list[Received] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._closing, self._lock = Event(), Lock()
        self._http = _Listener(("127.0.0.1", 0), _handler(self))
        self._thread = Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)

    @property
    def url(self) -> str:
        """Where it listens, without a path; OpenAI's clients want `f"{server.url}/v1"`."""
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
        self._closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def reply_to(self, received: Received) -> Reply:
        """The next reply of the script, after its delay."""
        with self._lock:
            self.received.append(received)
            at = len(self.received) - 1
        reply = self._next_reply(received, at)
        reply = Reply(reply) if isinstance(reply, str) else reply
        self._closing.wait(reply.delay)
        return reply

    def _next_reply(self, received: Received, at: int) -> str | Reply:
        if callable(self.script):
            return self.script(received)
        return (
            self.script[at]
            if at < len(self.script)
            else Reply("the script has no more replies", status=400)
        )


class _Listener(ThreadingHTTPServer):
    request_queue_size = 128
    """Clients that may wait to be let in; of the 5 of the default, some are turned away."""


def _handler(server: ScriptedServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            length = int(self.headers.get("content-length", 0))
            body = json.loads(self.rfile.read(length) or b"null")
            headers = {name.lower(): value for name, value in self.headers.items()}
            received = Received(self.path, headers, body)
            self._send(server.reply_to(received), received)

        def _send(self, reply: Reply, received: Received) -> None:
            status, data = encode_reply(reply, received)
            try:
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.send_header("connection", "close")
                if reply.retry_after is not None:
                    self.send_header("retry-after", f"{reply.retry_after:g}")
                if reply.location:
                    self.send_header("location", reply.location)
                self.end_headers()
                self.wfile.write(data[: len(data) // 2] if reply.cut else data)
            except OSError:  # the client has gone: that is what tests of cancelling do
                pass
            self.close_connection = True

        def log_message(self, format: str, *args: Any) -> None:
            """Tests want no log."""

    return Handler
