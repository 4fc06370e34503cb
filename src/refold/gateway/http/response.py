"""An upstream's answer on its way to the client: its start is inspected first, then its bytes are
copied and its usage is read. Also spans of requests."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from refold.gateway.exchange import Headers, RequestHead, decode_header
from refold.gateway.http.client import Response
from refold.gateway.http.decoding import (
    EventSplitter,
    classify_event,
    create_decoder,
    decode_piece,
    error_body,
    event_data,
    parse_event,
)
from refold.gateway.http.request import ClientDisconnected, Receive
from refold.gateway.logs import AccessLogEntry
from refold.text.json_values import object_at, objects_at, parse_or_none

if TYPE_CHECKING:
    from opentelemetry.trace import Span, TracerProvider
try:
    from opentelemetry import propagate, trace
except ImportError:  # without the extra `otel`
    propagate = trace = None  # type: ignore[assignment]  # checked before use


# --- the client's side ----------------------------------------------------------------------------

Send = Callable[[dict[str, Any]], Awaitable[None]]
Stop = Callable[[], object]
"""Stops waiting for a disconnect."""
OnDisconnect = Callable[[Callable[[], None]], Stop]
"""Registers a callback for the client's disconnect. Calling the result removes it."""
ON_DISCONNECT = "refold.on_disconnect"
"""ASGI extension in which our server passes its `OnDisconnect`."""
ON_STOP = "refold.on_stop"
"""ASGI extension in which our server takes a callback for when it is stopping."""


_LINGER_SECONDS = 60
"""Seconds for a client to finish sending an unread body, if some of it arrives each second."""


class StallAbortingTransport:
    """A transport that on `close` sends its buffered data as long as the client takes some every
    *seconds*. If the client *is sending* still, it first waits for it to finish: a client looks for
    its answer (413) only then, and an earlier close would reset the connection and lose the
    answer."""

    is_sending: Callable[[], bool] = staticmethod(lambda: False)
    is_lingering = has_received = False
    """Whether it waits for the client to finish sending, which a second `close` ends, and whether
    data has arrived since the last check."""

    def __init__(self, transport: Any, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self._transport, self._loop, self._seconds = transport, loop, seconds
        self.write = transport.write

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        """Return whether it is closed or closing."""
        return self.is_lingering or bool(self._transport.is_closing())

    def close(self) -> None:
        """Send the buffered data, and close."""
        self.is_lingering = self.is_sending() and not self.is_closing()
        if self.is_lingering:
            self._transport.resume_reading()
        self._linger(_LINGER_SECONDS * self.is_lingering)

    def _linger(self, seconds: int) -> None:
        """Close, unless data came within the last second and *seconds* are left."""
        if seconds and self.has_received:
            self.has_received = False
            self._loop.call_later(1.0, self._linger, seconds - 1)
            return
        self._transport.close()
        self._abort_if_stalled(before=0)

    def _abort_if_stalled(self, before: int) -> None:
        """Abort if as many bytes are unsent as *before* (0 at first). Check again later if any
        are."""
        unsent = self._transport.get_write_buffer_size()
        if unsent and unsent == before:
            self._transport.abort()
        elif unsent:
            self._loop.call_later(self._seconds, self._abort_if_stalled, unsent)


class ResponseWriter:
    """Writes the answer to one request over ASGI."""

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
        """Send status and headers. If the server passes no `OnDisconnect`, all methods raise
        `ClientDisconnected` when the client takes nothing for *silence_seconds*."""
        self.has_started, self.log_entry.status = True, status
        await self._send_message(
            {"type": "http.response.start", "status": status, "headers": list(headers)}
        )

    async def write(self, data: bytes) -> None:
        """Send a piece of the body at once."""
        self.log_entry.sent_bytes += len(data)
        await self._send_message({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self, data: bytes = b"") -> None:
        """Send the last piece of the body."""
        self.is_complete = True
        self.log_entry.sent_bytes += len(data)
        await self._send_message({"type": "http.response.body", "body": data, "more_body": False})

    async def _send_message(self, message: dict[str, Any]) -> None:
        if self.on_disconnect is not None:  # our own server aborts stalled clients
            await self._send(message)
            return
        try:
            async with asyncio.timeout(self._silence_seconds):
                await self._send(message)
        except TimeoutError as error:
            raise ClientDisconnected from error

    async def respond(self, status: int, headers: Headers, body: bytes) -> None:
        """Send a complete answer of the gateway's own."""
        await self.start(
            status, [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers]
        )
        await self.end(body)


@contextmanager
def cancel_on_disconnect(
    receive: Receive, writer: ResponseWriter, answering: "asyncio.Task[Any] | None"
) -> Iterator[None]:
    """Cancel *answering*, the task inside this context, if the client disconnects before its answer
    is complete. Then raises `ClientDisconnected`."""

    def cancel() -> None:
        if answering is not None and not writer.is_complete:
            writer.log_entry.client_disconnected = True
            answering.cancel()

    if writer.on_disconnect is not None:
        stop = writer.on_disconnect(cancel)
    else:
        stop = asyncio.create_task(_wait_for_disconnect(receive, cancel)).cancel
    try:
        yield
    except asyncio.CancelledError as error:
        if answering is None or not writer.log_entry.client_disconnected:
            raise
        answering.uncancel()
        raise ClientDisconnected from error
    finally:
        stop()


async def _wait_for_disconnect(receive: Receive, callback: Callable[[], None]) -> None:
    """Call *callback* at the disconnect message of any other ASGI server."""
    while (await receive())["type"] != "http.disconnect":
        pass
    callback()


# --- spans ----------------------------------------------------------------------------------------
# Made if an OpenTelemetry tracer provider is configured (extra `otel`). Attributes are those of the
# semantic conventions for generative AI, and our own `refold...`. They never contain content, keys
# or sessions.

_PROVIDERS = {"anthropic": "anthropic", "gemini": "gcp.gemini"}
_USAGE_ATTRIBUTES = {
    "input": "gen_ai.usage.input_tokens",
    "output": "gen_ai.usage.output_tokens",
    "cached": "gen_ai.usage.cache_read.input_tokens",
    "written": "gen_ai.usage.cache_creation.input_tokens",
}


class Tracing:
    """Makes spans with *provider*, or with the one that the process has configured when a request
    arrives."""

    def __init__(self, provider: "TracerProvider | None" = None) -> None:
        self._provider = provider

    @contextmanager
    def trace_request(
        self, head: RequestHead, api: str, entry: AccessLogEntry
    ) -> Iterator[Headers]:
        """Make a span of one request, with attributes from *entry* when it ends. Yield the headers
        that override the client's own; none if nothing is traced. Only requests for an answer of a
        model, which have an *api*, are traced."""
        span = self._start_span(head, api) if api else None
        if span is None:
            yield ()
            return
        failure = ""
        try:
            with trace.use_span(span, record_exception=False, set_status_on_exception=False):
                carrier = dict[str, str]()
                propagate.inject(carrier)
                yield tuple(carrier.items())
        except BaseException as error:
            failure = "" if entry.client_disconnected else type(error).__name__
            raise
        finally:
            _set_attributes(span, api, entry, failure)
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


def _set_attributes(span: "Span", api: str, entry: AccessLogEntry, failure: str) -> None:
    """Set the attributes of a span that ends. *failure* is the type of the error that ended it."""
    model = entry.model.encode(errors="backslashreplace").decode()  # no lone surrogates in OTLP
    if model:
        span.update_name(f"{_operation_name(api)} {model}")
    error = failure or (
        "cut" if entry.upstream_broke_off else "gone" if entry.client_disconnected else ""
    )
    error = error or (str(entry.status) if entry.status >= 400 else "")
    attributes: dict[str, Any] = {
        "gen_ai.request.model": model,
        "http.response.status_code": entry.status,
        "error.type": error,
        "refold.upstream": entry.upstream,
        "refold.outcome": entry.outcome,
        "refold.reason": entry.reason,
        **{
            _USAGE_ATTRIBUTES[kind]: count
            for kind, count in entry.usage.items()
            if kind in _USAGE_ATTRIBUTES
        },
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


# --- the beginning of an answer -------------------------------------------------------------------


MAX_ERROR_BYTES = 1024 * 1024
"""Maximum bytes of an error's body that are read before it is passed on, also after decoding."""
_MAX_HELD_BYTES = 256 * 1024


@dataclass(slots=True)
class ResponseStart:
    """The beginning of an answer that has been read so far."""

    pieces: list[bytes] = field(default_factory=list)
    """Pieces as received, to be sent before the rest."""
    error: bytes | None = None
    """Decoded body of the error, if the answer is one."""
    is_stream_event: bool = False
    """Whether the error is an event of a stream with a success status."""
    is_unreadable: bool = False
    """Whether it could not be read: too large, broken, or in an unknown coding."""

    def error_status(self, status: int) -> int:
        """Return the error's status: that of the answer, or 400 for an error event in a stream."""
        return 400 if self.is_stream_event else status


async def peek(response: Response, hold_seconds: float) -> ResponseStart:
    """Read the start of an answer: the body of an error status, up to `MAX_ERROR_BYTES`, a stream
    up to its first meaningful event, and nothing of any other.

    Events without results (`response.created`, comments) are held for at most *hold_seconds*.
    """
    start = ResponseStart()
    if response.status >= 400:
        await _read_error(response, start)
    elif response.media_type == "text/event-stream":
        try:
            async with asyncio.timeout(None) as held:
                await _read_events(response, start, held, hold_seconds)
        except TimeoutError:
            if not held.expired():
                raise
    return start


async def _read_error(response: Response, start: ResponseStart) -> None:
    size = 0
    while size <= MAX_ERROR_BYTES and (piece := await response.read()):
        start.pieces.append(piece)
        size += len(piece)
    if size <= MAX_ERROR_BYTES:
        reader = create_decoder(response.header(b"content-encoding"))
        start.error = decode_piece(reader, b"".join(start.pieces), MAX_ERROR_BYTES)
    start.is_unreadable = start.error is None


async def _read_events(
    response: Response, start: ResponseStart, held: asyncio.Timeout, hold_seconds: float
) -> None:
    """Read until a meaningful event. *held* starts with the first piece."""
    reader, events = create_decoder(response.header(b"content-encoding")), EventSplitter()
    start.is_unreadable = reader is None
    size, room = 0, MAX_ERROR_BYTES
    while not start.is_unreadable and size < _MAX_HELD_BYTES and (piece := await response.read()):
        if not start.pieces:
            held.reschedule(asyncio.get_running_loop().time() + hold_seconds)
        start.pieces.append(piece)
        size += len(piece)
        plain = decode_piece(reader, piece, room)
        start.is_unreadable, room = plain is None, room - len(plain or b"")
        for event in events.feed(plain or b""):
            kind = classify_event(event)
            if kind == "error":
                start.error, start.is_stream_event = error_body(event), True
            if kind != "opening":
                return


# --- the copy for the client ----------------------------------------------------------------------


async def copy_body(
    response: Response,
    writer: ResponseWriter,
    start: ResponseStart,
    tap: "UsageTap | None",
) -> None:
    """Copy a body to the client as it arrives, beginning with *start*. If the upstream breaks off,
    so does the copy, and this is logged."""
    try:
        for piece in start.pieces:
            await writer.write(piece)
            await _feed(tap, piece)
        while not response.is_exhausted:
            piece = await response.read()
            if not response.is_exhausted:
                await writer.write(piece)
                await _feed(tap, piece)
            else:  # the last piece also ends the body
                await writer.end(piece)
                await _feed(tap, piece)
                return
    except OSError:
        writer.log_entry.upstream_broke_off = True
    else:
        await writer.end()


async def _feed(tap: "UsageTap | None", piece: bytes) -> None:
    """Feed the tap in steps, between which other tasks run: a small piece may decode to a large
    one."""
    if tap is not None:
        for _ in tap.feed(piece):
            await asyncio.sleep(0)


# --- the usage of an answer -----------------------------------------------------------------------


MAX_BODY_BYTES = 32 * 1024 * 1024
"""Maximum decoded bytes of an answer that is not a stream, for its usage to be read."""
MAX_STREAM_BYTES = 256 * 1024 * 1024
"""Decoded bytes of a stream after which no usage is read."""
MAX_JSON_SIGNS = 250_000
"""Maximum commas, brackets and escapes of a text to be parsed, which determine its parsing time."""

_USAGE = b'"usage'
"""Substring of every event and answer with usage. Others are not parsed."""
_DONE = b"[DONE]"
"""Last event of Chat Completions."""
_OPENINGS = ("message_start", "response.created", "response.queued", "response.in_progress")
"""Types of events whose usage, if any, is provisional."""


class UsageTap:
    """Reads the usage of one answer. `feed` it every piece that has been sent, then call
    `usage`."""

    def __init__(self, content_type: str, encoding: str = "") -> None:
        self._decoder = create_decoder(encoding) if encoding else None
        self._is_readable = self._decoder is not None or not encoding
        """False after an unknown or broken coding, and once the answer is too large."""
        is_stream = content_type.partition(";")[0].strip().lower() == "text/event-stream"
        self._events = EventSplitter() if is_stream else None
        self._pieces, self._room = list[bytes](), MAX_STREAM_BYTES if is_stream else MAX_BODY_BYTES
        self._usage: Any = None
        self._is_final = False

    def feed(self, piece: bytes) -> Iterator[None]:
        """Read a piece of the body in steps, between which other tasks may run. Never raises."""
        if not self._is_readable:
            return
        try:
            for step, plain in enumerate(self._decoder.feed(piece) if self._decoder else (piece,)):
                if step:
                    yield
                self._read_plain(plain)
                if not self._is_readable:
                    return
        except Exception:  # noqa: BLE001 - broken data concerns only upstream and client
            self._is_readable = False

    def _read_plain(self, plain: bytes) -> None:
        self._room -= len(plain)
        if self._room < 0:
            self._is_readable = False
            self._pieces.clear()
        elif self._events is None:
            self._pieces.append(plain)
        elif _USAGE in plain or _DONE in plain or not self._events.is_whole_events(plain):
            for event in self._events.feed(plain):
                self._read_event(event)

    def usage(self) -> Any:
        """Return the provider's usage object; None if there is none, or only a provisional one
        because the client left the stream or the upstream broke it off."""
        if self._events is None and self._pieces:
            self._usage = _parse_usage(b"".join(self._pieces))
            self._pieces.clear()
        elif self._events is not None:
            self._read_event(self._events.remainder())
        return self._usage if self._events is None or self._is_final else None

    def _read_event(self, event: bytes) -> None:
        if _USAGE in event:
            value = parse_event(event) if is_cheap_to_parse(event) else None
            if value and (usage := find_usage(value)):
                self._usage = _merge_usage(self._usage, usage)
                self._is_final = self._is_final or is_final_usage(value)
        elif _DONE in event:
            self._is_final = self._is_final or event_data(event) == _DONE


def is_cheap_to_parse(body: bytes) -> bool:
    """Return whether a JSON text is parsed quickly. Parsing blocks all threads of the process."""
    return sum(map(body.count, (b",", b"[", b"{", b"\\"))) <= MAX_JSON_SIGNS


def find_usage(value: Any) -> Mapping[str, Any] | None:
    """Return the usage object in an answer or event of one of the four APIs. Groq's streams have it
    in `x_groq`, Moonshot's in the choice."""
    parts = [object_at(value, name) for name in ("response", "message", "x_groq")]
    holders = (object_at(value), *parts, *objects_at(value, "choices"))
    places = ((holder, name) for holder in holders for name in ("usage", "usageMetadata"))
    return next((usage for place in places if (usage := object_at(*place))), None)


def is_final_usage(event: Mapping[str, Any]) -> bool:
    """Return whether the usage in a stream's event is that of the whole answer. Anthropic's first
    event has a placeholder of one output token. Gemini and some servers of Chat Completions send
    running totals."""
    if "type" in event:
        return event["type"] not in _OPENINGS
    parts = event.get("choices") or event.get("candidates") or ()
    if not parts or not isinstance(parts, list):
        return True
    return any(
        part.get("finish_reason") or part.get("finishReason")
        for part in parts
        if isinstance(part, Mapping)
    )


def _merge_usage(earlier: Any, later: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of both. Anthropic sends input at the start of a stream and output at its
    end; others send everything at the end."""
    figures = {name: value for name, value in later.items() if value is not None}
    return {**(earlier or {}), **figures}


def _parse_usage(body: bytes) -> Any:
    if _USAGE not in body or not is_cheap_to_parse(body):
        return None
    value = parse_or_none(body)  # Gemini streams a list without alt=sse
    for candidate in reversed(value if isinstance(value, list) else [value]):
        if usage := find_usage(candidate):
            return dict(usage)
    return None
