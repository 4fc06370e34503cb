"""One client: the answer that it gets, and what is noted of its request: for the log, and as a
span.

A span's attributes are those of the semantic conventions for generative AI, and `refold...` of our
own. Never content, a key or a session.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from refold.gateway.http.request import ClientDisconnected, Receive
from refold.gateway.messages import Headers, RequestHead, decode_header

if TYPE_CHECKING:
    from opentelemetry.trace import Span, TracerProvider

try:
    from opentelemetry import propagate, trace
except ImportError:  # nobody wants traces
    propagate = trace = None  # type: ignore[assignment]  # looked at before they are used

Send = Callable[[dict[str, Any]], Awaitable[None]]
Stop = Callable[[], object]
"""Ends what goes on until then."""
OnDisconnect = Callable[[Callable[[], None]], Stop]
"""Has a function called when the client leaves, unless that is stopped before."""
ON_DISCONNECT = "refold.on_disconnect"
"""The ASGI extension under which our own server hands over its `OnDisconnect`."""
ON_STOP = "refold.on_stop"
"""The one under which it takes a function that it calls when it is to stop."""


@dataclass(slots=True)
class AccessLogEntry:
    """What is logged and counted of one request. No content, no key."""

    method: str = ""
    path: str = ""
    api: str = ""
    upstream: str = ""
    model: str = ""
    """As the request names it."""
    status: int = 0
    outcome: str = ""
    reason: str = ""
    edits: int = 0
    tokens_before: int = 0
    tokens_after: int = 0
    received_bytes: int = 0
    sent_bytes: int = 0
    prepare_ms: float = 0.0
    first_byte_ms: float = 0.0
    total_ms: float = 0.0
    usage: dict[str, int] = field(default_factory=dict)
    client_disconnected: bool = False
    """The client left before the answer was complete."""
    upstream_broke_off: bool = False
    """The upstream broke off."""
    internal_error: str = ""
    """Type and places of an error of our own."""

    def as_fields(self) -> dict[str, Any]:
        """Return what is worth a place in a log line: everything that is not empty."""
        values = ((name, getattr(self, name)) for name in self.__dataclass_fields__)
        return {
            name: shown
            for name, value in values
            if (shown := round(value, 2) if isinstance(value, float) else value)
        }


class Caller:
    """Where the answer goes."""

    def __init__(
        self,
        send: Send,
        log_entry: AccessLogEntry,
        silence_seconds: float,
        on_disconnect: OnDisconnect | None = None,
    ) -> None:
        self._send, self._silence_seconds = send, silence_seconds
        self.log_entry, self.on_disconnect = log_entry, on_disconnect
        self.has_started = self.is_complete = False

    async def start(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Send status and headers. Nothing can be taken back after this. Raises
        `ClientDisconnected`, as all of these do, when the client takes nothing for too long."""
        self.has_started, self.log_entry.status = True, status
        await self._send_message(
            {"type": "http.response.start", "status": status, "headers": list(headers)}
        )

    async def write(self, data: bytes) -> None:
        """Send a piece of the body, at once."""
        self.log_entry.sent_bytes += len(data)
        await self._send_message({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self, data: bytes = b"") -> None:
        """Send the end of the body, which is complete with it."""
        self.is_complete = True
        self.log_entry.sent_bytes += len(data)
        await self._send_message({"type": "http.response.body", "body": data, "more_body": False})

    async def _send_message(self, message: dict[str, Any]) -> None:
        if self.on_disconnect is not None:  # our own server aborts a client that takes nothing
            await self._send(message)
            return
        try:
            async with asyncio.timeout(self._silence_seconds):
                await self._send(message)
        except TimeoutError as error:
            raise ClientDisconnected from error

    async def respond(self, status: int, headers: Headers, body: bytes) -> None:
        """Send an answer of our own."""
        await self.start(
            status, [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers]
        )
        await self.end(body)


@contextmanager
def cancel_on_disconnect(
    receive: Receive, caller: Caller, answering: "asyncio.Task[Any] | None"
) -> Iterator[None]:
    """Cancel *answering*, the task that leaves this, when the client goes before its answer is
    complete. Then raises `ClientDisconnected`."""

    def cancel() -> None:
        if answering is not None and not caller.is_complete:
            caller.log_entry.client_disconnected = True
            answering.cancel()

    if caller.on_disconnect is not None:
        stop = caller.on_disconnect(cancel)
    else:
        stop = asyncio.create_task(_wait_for_disconnect(receive, cancel)).cancel
    try:
        yield
    except asyncio.CancelledError as error:
        if answering is None or not caller.log_entry.client_disconnected:
            raise
        answering.uncancel()
        raise ClientDisconnected from error
    finally:
        stop()


async def _wait_for_disconnect(receive: Receive, callback: Callable[[], None]) -> None:
    """Call *callback* when a message says that the client has left: any other server says so."""
    while (await receive())["type"] != "http.disconnect":
        pass
    callback()


# --- its span, where an OpenTelemetry tracer provider is configured (extra `otel`) ----------------

_PROVIDERS = {"anthropic": "anthropic", "gemini": "gcp.gemini"}
_USAGE = {
    "input": "gen_ai.usage.input_tokens",
    "output": "gen_ai.usage.output_tokens",
    "cached": "gen_ai.usage.cache_read.input_tokens",
    "written": "gen_ai.usage.cache_creation.input_tokens",
}


class Tracing:
    """Makes spans with *provider*, or with the one that the process has configured when a request
    comes."""

    def __init__(self, provider: "TracerProvider | None" = None) -> None:
        self._provider = provider

    @contextmanager
    def trace_request(
        self, head: RequestHead, api: str, entry: AccessLogEntry
    ) -> Iterator[Headers]:
        """Make a span of one request, described by *entry* when it ends; yield the headers to send
        in place of the client's own of these names. None, if nothing is traced: the client's go on
        as they came. Only a request for an answer of a model, which has an *api*, is traced."""
        span = self._start_span(head, api) if api else None
        if span is None:
            yield ()
            return
        try:
            with trace.use_span(span, record_exception=False, set_status_on_exception=False):
                carrier = dict[str, str]()
                propagate.inject(carrier)
                yield tuple(carrier.items())
        except BaseException as error:
            entry.internal_error = entry.internal_error or (
                "" if entry.client_disconnected else type(error).__name__
            )
            raise
        finally:
            _set_attributes(span, api, entry)
            span.end()

    def _start_span(self, head: RequestHead, api: str) -> "Span | None":
        provider = self._provider or (trace.get_tracer_provider() if trace else None)
        if provider is None or isinstance(provider, trace.ProxyTracerProvider):
            return None
        headers = {
            decode_header(name).lower(): decode_header(value) for name, value in head.headers
        }
        name = _operation_name(api)
        begun = {
            "gen_ai.operation.name": name,
            "gen_ai.provider.name": _PROVIDERS.get(api, "openai"),
        }
        tracer = provider.get_tracer("refold.gateway")
        context = propagate.extract(headers)
        span = tracer.start_span(name, context, trace.SpanKind.CLIENT, begun)
        return span if span.is_recording() else None


def _set_attributes(span: "Span", api: str, entry: AccessLogEntry) -> None:
    if entry.model:
        span.update_name(f"{_operation_name(api)} {entry.model}")
    error = entry.internal_error.partition(" ")[0] or (
        "cut" if entry.upstream_broke_off else "gone" if entry.client_disconnected else ""
    )
    error = error or (str(entry.status) if entry.status >= 400 else "")
    attributes: dict[str, Any] = {
        "gen_ai.request.model": entry.model,
        "http.response.status_code": entry.status,
        "error.type": error,
        "refold.upstream": entry.upstream,
        "refold.outcome": entry.outcome,
        "refold.reason": entry.reason,
        **{_USAGE[kind]: count for kind, count in entry.usage.items() if kind in _USAGE},
    }
    attributes = {name: value for name, value in attributes.items() if value not in {"", 0}}
    if entry.tokens_before:
        attributes |= {
            "refold.tokens.before": entry.tokens_before,
            "refold.tokens.after": entry.tokens_after,
            "refold.edits": entry.edits,
        }
    span.set_attributes(attributes)
    if error:
        span.set_status(trace.StatusCode.ERROR)


def _operation_name(api: str) -> str:
    return "generate_content" if api == "gemini" else "chat"
