"""An upstream's answer on its way to the client: its beginning is looked at before the client gets
anything of it, then its bytes are copied, and its usage is read on the side. Spans of requests are
made here too."""

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
except ImportError:  # nobody wants traces
    propagate = trace = None  # type: ignore[assignment]  # looked at before they are used


# --- the client's side ----------------------------------------------------------------------------

Send = Callable[[dict[str, Any]], Awaitable[None]]
Stop = Callable[[], object]
"""Ends what was begun."""
OnDisconnect = Callable[[Callable[[], None]], Stop]
"""Has a function called when the client leaves; what it returns takes that back."""
ON_DISCONNECT = "refold.on_disconnect"
"""The ASGI extension under which our own server hands over its `OnDisconnect`."""
ON_STOP = "refold.on_stop"
"""The ASGI extension under which our own server takes a function to call when it is stopping."""


_LINGER_SECONDS = 60
"""Seconds that a client has to finish a body that nobody reads, if some of it comes in each."""


class StallAbortingTransport:
    """A transport that sends what is left when it is closed, as long as the client takes some every
    *seconds*. If the client *is sending* still, it waits for the end of that: a client looks for
    its answer (413) only then, and what is closed before is reset, answer and all."""

    is_sending: Callable[[], bool] = staticmethod(lambda: False)
    is_lingering = has_received = False
    """Does it wait? Closing it once more ends that. Has anything come since it looked last?"""

    def __init__(self, transport: Any, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self._transport, self._loop, self._seconds = transport, loop, seconds
        self.write = transport.write

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        """Is it closed, or will it be?"""
        return self.is_lingering or bool(self._transport.is_closing())

    def close(self) -> None:
        """Send what is left, and close."""
        self.is_lingering = self.is_sending() and not self.is_closing()
        if self.is_lingering:
            self._transport.resume_reading()
        self._linger(_LINGER_SECONDS * self.is_lingering)

    def _linger(self, seconds: int) -> None:
        """Close unless something came within the last second and *seconds* are left."""
        if seconds and self.has_received:
            self.has_received = False
            self._loop.call_later(1.0, self._linger, seconds - 1)
            return
        self._transport.close()
        self._abort_if_stalled(before=0)

    def _abort_if_stalled(self, before: int) -> None:
        """Abort if as much is left to send as *before* (bytes, 0 at first); look again later if
        anything is."""
        unsent = self._transport.get_write_buffer_size()
        if unsent and unsent == before:
            self._transport.abort()
        elif unsent:
            self._loop.call_later(self._seconds, self._abort_if_stalled, unsent)


class ResponseWriter:
    """Writes the answer of one request to its client, over ASGI."""

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
    receive: Receive, writer: ResponseWriter, answering: "asyncio.Task[Any] | None"
) -> Iterator[None]:
    """Cancel *answering*, the task that leaves this, when the client goes before its answer is
    complete. Then raises `ClientDisconnected`."""

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
    """Call *callback* when a message says that the client has left: any other server says so."""
    while (await receive())["type"] != "http.disconnect":
        pass
    callback()


# --- spans ----------------------------------------------------------------------------------------
# Made where an OpenTelemetry tracer provider is configured (extra `otel`). Attributes are those of
# the semantic conventions for generative AI, and `refold...` of our own. Never content, a key or a
# session.

_PROVIDERS = {"anthropic": "anthropic", "gemini": "gcp.gemini"}
_USAGE_ATTRIBUTES = {
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
"""Bytes of an error's body that are read before it is passed on; unpacked, too."""
_MAX_HELD_BYTES = 256 * 1024


@dataclass(slots=True)
class ResponseStart:
    """What has been read of an answer so far."""

    pieces: list[bytes] = field(default_factory=list)
    """As they came; to be sent before the rest."""
    error: bytes | None = None
    """The body of the error that the answer is, in plain bytes; None if it is none."""
    is_stream_event: bool = False
    """Did the error come as an event of a stream that began well?"""
    is_unreadable: bool = False
    """Could it not be read, since it is too large or in a coding that is not known?"""

    def error_status(self, status: int) -> int:
        """Return the status of the error in an answer of this *status*: one that begins a stream
        has none itself."""
        return 400 if self.is_stream_event else status


async def peek(response: Response, hold_seconds: float) -> ResponseStart:
    """Look at how an answer begins: the whole of an error with a status of its own, the first
    telling event of a stream, nothing of anything else.

    Events that tell nothing (`response.created`, comments) are held for at most *hold_seconds*.
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
    """Read until an event tells something; *held* begins with the first piece."""
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
    """Copy a body to the client, from its *start* on as it arrives. If the upstream breaks off, so
    does this, and it is logged."""
    try:
        for piece in start.pieces:
            await writer.write(piece)
            await _feed(tap, piece)
        while not response.is_exhausted:
            piece = await response.read()
            if not response.is_exhausted:
                await writer.write(piece)
                await _feed(tap, piece)
            else:  # the end goes with the last piece
                await writer.end(piece)
                await _feed(tap, piece)
                return
    except OSError:
        writer.log_entry.upstream_broke_off = True
    else:
        await writer.end()


async def _feed(tap: "UsageTap | None", piece: bytes) -> None:
    """Feed the tap in steps, between which others are served: a small piece may unpack to a large
    one."""
    if tap is not None:
        for _ in tap.feed(piece):
            await asyncio.sleep(0)


# --- the usage of an answer -----------------------------------------------------------------------


MAX_BODY_BYTES = 32 * 1024 * 1024
"""Plain bytes of an answer that is no stream; a larger one's usage is not read."""
MAX_STREAM_BYTES = 256 * 1024 * 1024
"""Plain bytes of a stream; no usage is read behind them."""
MAX_JSON_SIGNS = 250_000
"""Commas, brackets and escapes that a text may have to be parsed: its time is theirs, whatever its
size is."""

_USAGE = b'"usage'
"""What stands in every event and answer that has usage: only those are parsed."""
_DONE = b"[DONE]"
"""The last event of Chat Completions."""
_OPENINGS = ("message_start", "response.created", "response.queued", "response.in_progress")
"""Events whose usage, if they have one, is of what was done so far."""


class UsageTap:
    """Listens to one answer. `feed` it every piece once that has been sent, then ask for
    `usage`."""

    def __init__(self, content_type: str, encoding: str = "") -> None:
        self._decoder = create_decoder(encoding) if encoding else None
        self._is_readable = self._decoder is not None or not encoding
        """No more in an unknown or broken coding, and to an answer that is too large."""
        is_stream = content_type.partition(";")[0].strip().lower() == "text/event-stream"
        self._events = EventSplitter() if is_stream else None
        self._pieces, self._room = list[bytes](), MAX_STREAM_BYTES if is_stream else MAX_BODY_BYTES
        self._usage: Any = None
        self._is_final = False

    def feed(self, piece: bytes) -> Iterator[None]:
        """Listen to a piece of the body as it came, in steps; between two of them others may work.
        Never raises."""
        if not self._is_readable:
            return
        try:
            for step, plain in enumerate(self._decoder.feed(piece) if self._decoder else (piece,)):
                if step:
                    yield
                self._read_plain(plain)
                if not self._is_readable:
                    return
        except Exception:  # noqa: BLE001 - a broken coding is not our affair
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
        """Return the usage object as the provider sent it; None if there was none, or only one of
        the beginning: a stream that the client left or the upstream broke off has not said what it
        used."""
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
    """Is a JSON text parsed in a moment? Nothing else runs meanwhile, in whatever thread it is
    done."""
    return sum(map(body.count, (b",", b"[", b"{", b"\\"))) <= MAX_JSON_SIGNS


def find_usage(value: Any) -> Mapping[str, Any] | None:
    """Return the usage object in an answer or an event of one of the four APIs. Streams of Groq
    have it in `x_groq`, those of Moonshot in the choice."""
    parts = [object_at(value, name) for name in ("response", "message", "x_groq")]
    holders = (object_at(value), *parts, *objects_at(value, "choices"))
    places = ((holder, name) for holder in holders for name in ("usage", "usageMetadata"))
    return next((usage for place in places if (usage := object_at(*place))), None)


def is_final_usage(event: Mapping[str, Any]) -> bool:
    """Is the usage in this event of a stream that of the whole answer? Anthropic's first event says
    one token of output for a start; Gemini and some servers of Chat Completions count on from event
    to event."""
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
    """Return the figures of both: Anthropic says the input when a stream begins and the output when
    it ends; others say it all last."""
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
