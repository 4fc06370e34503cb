"""One OpenTelemetry span for each request for an answer, where a tracer provider is configured
(extra `otel`).

Attributes are those of the semantic conventions for generative AI, and `refold...` of our own.
Never content, a key or a session.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from refold.gateway.http.caller import AccessLogEntry
from refold.gateway.messages import RequestHead, decode_header

if TYPE_CHECKING:
    from opentelemetry.trace import Span, TracerProvider

try:
    from opentelemetry import propagate, trace
except ImportError:  # nobody wants traces
    propagate = trace = None  # type: ignore[assignment]  # looked at before they are used

Headers = tuple[tuple[str, str], ...]

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

    @property
    def is_enabled(self) -> bool:
        """Is anything traced?"""
        return trace is not None and not isinstance(
            self._tracer_provider(), trace.ProxyTracerProvider
        )

    @contextmanager
    def trace_request(self, head: RequestHead, api: str, note: AccessLogEntry) -> Iterator[Headers]:
        """Make a span of one request, described by *note* when it ends; yield the headers to send
        in place of the client's own of these names. None, if nothing is traced: the client's go on
        as they came."""
        span = self._start_span(head, api)
        if span is None:
            yield ()
            return
        try:
            with trace.use_span(span, record_exception=False, set_status_on_exception=False):
                carrier = dict[str, str]()
                propagate.inject(carrier)
                yield tuple(carrier.items())
        except BaseException as error:
            note.internal_error = note.internal_error or (
                "" if note.client_disconnected else type(error).__name__
            )
            raise
        finally:
            _set_attributes(span, api, note)
            span.end()

    def _start_span(self, head: RequestHead, api: str) -> "Span | None":
        if not self.is_enabled:
            return None
        headers = {
            decode_header(name).lower(): decode_header(value) for name, value in head.headers
        }
        begun = {
            "gen_ai.operation.name": _operation_name(api),
            "gen_ai.provider.name": _PROVIDERS.get(api, "openai"),
        }
        span = (
            self._tracer_provider()
            .get_tracer("refold.gateway")
            .start_span(
                _operation_name(api), propagate.extract(headers), trace.SpanKind.CLIENT, begun
            )
        )
        return span if span.is_recording() else None

    def _tracer_provider(self) -> "TracerProvider":
        return self._provider or trace.get_tracer_provider()


def _set_attributes(span: "Span", api: str, note: AccessLogEntry) -> None:
    if note.model:
        span.update_name(f"{_operation_name(api)} {note.model}")
    error = note.internal_error.partition(" ")[0] or (
        "cut" if note.upstream_broke_off else "gone" if note.client_disconnected else ""
    )
    error = error or (str(note.status) if note.status >= 400 else "")
    attributes: Mapping[str, Any] = {
        "gen_ai.request.model": note.model,
        "http.response.status_code": note.status,
        "error.type": error,
        "refold.upstream": note.upstream,
        "refold.outcome": note.outcome,
        "refold.reason": note.reason,
        **{_USAGE[kind]: count for kind, count in note.usage.items() if kind in _USAGE},
    }
    span.set_attributes({name: value for name, value in attributes.items() if value not in {"", 0}})
    if note.tokens_before:
        counted = {
            "refold.tokens.before": note.tokens_before,
            "refold.tokens.after": note.tokens_after,
            "refold.edits": note.edits,
        }
        span.set_attributes(counted)
    if error:
        span.set_status(trace.StatusCode.ERROR)


def _operation_name(api: str) -> str:
    return "generate_content" if api == "gemini" else "chat"
