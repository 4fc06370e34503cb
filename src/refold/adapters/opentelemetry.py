"""Compactions as spans: `Compactor(..., on_event=spans())`. Needs the extra `otel`."""

from collections.abc import Mapping

from opentelemetry import trace
from opentelemetry.trace import Tracer

from refold.compactor.hooks import CompactionEnded, Event, OnEvent


def spans(tracer: Tracer | None = None) -> OnEvent:
    """Return a listener that creates a span per compaction, `refold.compact` or `refold.preview`.

    The span has an event per run of a strategy, and is a child of the span that is current when the
    compactor is called. *tracer* defaults to that of the global provider.
    """
    chosen = tracer if tracer is not None else trace.get_tracer("refold")

    def listen(event: Event) -> None:
        if isinstance(event, CompactionEnded):
            _span(chosen, event)

    return listen


def _span(tracer: Tracer, ended: CompactionEnded) -> None:
    span = tracer.start_span(f"refold.{ended.action}", start_time=_nanoseconds(ended.started_at))
    span.set_attributes(
        _as_valid(
            {
                "refold.run": ended.run,
                "refold.actor": ended.actor,
                "refold.tokens.before": ended.before,
                "refold.tokens.after": ended.after,
                "refold.edits": len(ended.edits),
                "refold.calls": ended.calls,
                "refold.cost": ended.cost,
                "refold.vetoed": ended.veto,
            }
        )
    )
    for attempt in ended.attempts:
        attributes: dict[str, str | int | float] = {
            "by": attempt.by,
            "outcome": attempt.outcome,
            "reason": attempt.reason,
            "before": attempt.tokens_before,
            "after": attempt.tokens_after,
            "model": attempt.model,
            "prompt": attempt.prompt,
        }
        span.add_event("refold.edits", _as_valid(attributes), _nanoseconds(ended.ended_at))
    span.end(end_time=_nanoseconds(ended.ended_at))


def _as_valid(attributes: Mapping[str, str | int | float]) -> dict[str, str | int | float]:
    """Return attributes with lone surrogates, which OTLP cannot encode, as escapes."""
    return {
        name: value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value
        for name, value in attributes.items()
    }


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1_000_000_000)
