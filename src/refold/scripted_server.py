"""A model server for tests: real HTTP on this machine, answers out of a script.

It speaks, without streaming, OpenAI's Chat Completions and Responses, Anthropic's Messages and
Gemini's generateContent, by the path that is asked for. Standard library only.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from types import TracebackType
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of the server, in no format yet."""

    text: str = ""
    finish: str = "stop"
    """`stop`, `length`, `filter`, `tool` (it calls a tool), or a word of your own."""
    usage: tuple[int, int, int] = (100, 20, 0)
    """Tokens: input (all of it), output, and the share of input that was read from a cache."""
    reasoning: str = ""
    """What the model thought, where the format has a place for it."""
    status: int = 200
    """An HTTP status from 300 on makes it an error, of which *text* is the message."""
    code: str = ""
    """An error's code, such as `context_length_exceeded`."""
    retry_after: float | None = None
    """Seconds, for the header `retry-after`."""
    location: str = ""
    """Where a redirect leads, for the header `location`."""
    delay: float = 0.0
    """Seconds before it answers."""
    cut: bool = False
    """Close the connection in the middle of the answer."""
    body: str | None = None
    """Send this instead, whatever it is."""


@dataclass(frozen=True, slots=True)
class Received:
    """A request as it came in."""

    path: str
    headers: Mapping[str, str]
    """Names in lower case."""
    body: Any
    """The parsed JSON."""


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
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
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
        reply = self._scripted(received, at)
        reply = Reply(reply) if isinstance(reply, str) else reply
        self._closing.wait(reply.delay)
        return reply

    def _scripted(self, received: Received, at: int) -> str | Reply:
        if callable(self.script):
            return self.script(received)
        return self.script[at] if at < len(self.script) else Reply("the script has no more replies", status=400)


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
            status, data = encoded(reply, received)
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


def encoded(reply: Reply, received: Received) -> tuple[int, bytes]:
    """Status and body of *reply* in the format that the path asks for."""
    form = next((form for ending, form in _FORMS.items() if ending in received.path.partition("?")[0]), None)
    if form is None:
        return 404, b'{"error": {"message": "no such path", "type": "not_found_error"}}'
    if reply.body is not None:
        return reply.status, reply.body.encode()
    value = _error(reply) if reply.status >= 300 else form(reply, _model(received))
    return reply.status, json.dumps(value, ensure_ascii=False).encode()


def _model(received: Received) -> str:
    """The model that was asked for; Gemini's stands in the path."""
    named = received.body.get("model") if isinstance(received.body, dict) else None
    return str(named or received.path.rpartition("/")[2].partition(":")[0])


def _error(reply: Reply) -> dict[str, Any]:
    """An error as all four APIs read it: each takes what it knows."""
    kind = reply.code or _ERRORS.get(reply.status, "invalid_request_error")
    error = {"message": reply.text, "type": kind, "code": reply.code or reply.status, "status": kind.upper()}
    return {"type": "error", "error": error}


_ERRORS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    529: "overloaded_error",
}


def _chat(reply: Reply, model: str) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
    if reply.reasoning:
        message["reasoning_content"] = reply.reasoning
    if reply.finish == "tool":
        message["tool_calls"] = [{"id": "call_1", "type": "function", "function": {"name": "read", "arguments": "{}"}}]
    finish = {"filter": "content_filter", "tool": "tool_calls"}.get(reply.finish, reply.finish)
    read, wrote, cached = reply.usage
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [{"index": 0, "finish_reason": finish, "message": message, "logprobs": None}],
        "usage": {
            "prompt_tokens": read,
            "completion_tokens": wrote,
            "total_tokens": read + wrote,
            "prompt_tokens_details": {"cached_tokens": cached},
        },
    }


def _responses(reply: Reply, model: str) -> dict[str, Any]:
    output: list[dict[str, Any]] = []
    if reply.reasoning:
        output.append(
            {"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": reply.reasoning}]}
        )
    if reply.text:
        block = {"type": "output_text", "text": reply.text, "annotations": []}
        output.append(
            {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [block]}
        )
    if reply.finish == "tool":
        output.append({"id": "fc_1", "type": "function_call", "call_id": "call_1", "name": "read", "arguments": "{}"})
    why = {"length": "max_output_tokens", "filter": "content_filter", "stop": None, "tool": None}.get(
        reply.finish, reply.finish
    )
    read, wrote, cached = reply.usage
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 0,
        "model": model,
        "status": "incomplete" if why else "completed",
        "incomplete_details": {"reason": why} if why else None,
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": read,
            "input_tokens_details": {"cached_tokens": cached},
            "output_tokens": wrote,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": read + wrote,
        },
    }


def _anthropic(reply: Reply, model: str) -> dict[str, Any]:
    content: list[dict[str, Any]] = []
    if reply.reasoning:
        content.append({"type": "thinking", "thinking": reply.reasoning, "signature": "c2ln"})
    if reply.text:
        content.append({"type": "text", "text": reply.text})
    if reply.finish == "tool":
        content.append({"type": "tool_use", "id": "toolu_1", "name": "read", "input": {}})
    finishes = {"stop": "end_turn", "length": "max_tokens", "filter": "refusal", "tool": "tool_use"}
    read, wrote, cached = reply.usage
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": finishes.get(reply.finish, reply.finish),
        "stop_sequence": None,
        "usage": {
            "input_tokens": read - cached,
            "cache_read_input_tokens": cached,
            "cache_creation_input_tokens": 0,
            "output_tokens": wrote,
        },
    }


def _gemini(reply: Reply, model: str) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [{"text": reply.reasoning, "thought": True}] if reply.reasoning else []
    if reply.text:
        parts.append({"text": reply.text})
    if reply.finish == "tool":
        parts.append({"functionCall": {"name": "read", "args": {}}})
    finishes = {"stop": "STOP", "length": "MAX_TOKENS", "filter": "SAFETY", "tool": "STOP"}
    read, wrote, cached = reply.usage
    return {
        "candidates": [
            {
                "index": 0,
                "content": {"role": "model", "parts": parts},
                "finishReason": finishes.get(reply.finish, reply.finish),
            }
        ],
        "modelVersion": model,
        "usageMetadata": {
            "promptTokenCount": read,
            "candidatesTokenCount": wrote,
            "totalTokenCount": read + wrote,
            "cachedContentTokenCount": cached,
        },
    }


_FORMS = {"/chat/completions": _chat, "/responses": _responses, "/messages": _anthropic, ":generateContent": _gemini}
"""What a path contains, and the format it asks for."""
