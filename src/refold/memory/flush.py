"""Extraction of memories from messages before they are hidden."""

import logging
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Lock
from typing import Any, NamedTuple

from refold.core.strategy import Ask, map_steps
from refold.core.view import View
from refold.memory.memories import Extractor, Memory, MemorySink, RuleExtractor
from refold.models.driver import Asker, AsyncAsker, Effect, adrive, ask_safely, call_safely, drive
from refold.retrieval.search import newly_hidden_positions

TRIES = 3
"""Maximum tries of an extractor that raises on the same messages."""
MAX_TURNS_TO_WAIT = 64
"""Maximum number of turns between two tries."""
_log = logging.getLogger("refold")


class Span(NamedTuple):
    """Messages to extract memories from."""

    view: View
    positions: tuple[int, ...]
    tries: int = 0
    """Number of times the extractor has raised on them."""


@dataclass(frozen=True, slots=True)
class FlushResult:
    """The result of a flush."""

    count: int = 0
    """Number of memories new to the sink."""
    failed: bool = False
    """Whether an extractor or the sink raised."""
    reason: str = ""
    """What went wrong, or why less was done than asked for."""
    total: int = 0
    """Number of extracted memories, known ones included."""


FlushSteps = Generator[Ask | Effect, Any, FlushResult]
"""Generator of asks and effects that returns the result."""


def flush(
    before: View | None,
    after: View,
    sink: MemorySink,
    *,
    extract: Extractor | None = None,
    ask: Asker | None = None,
) -> FlushResult:
    """Store in *sink* what *extract* (by default `RuleExtractor()`) finds in the messages that
    *after* hides and *before* does not. Without *before*, in all that *after* hides.

    The same content is stored once, so a flush can be repeated. *ask* answers an extractor that
    needs a model. Never raises: errors are in the result, and compaction goes on.
    """
    return drive(MemoryFlush(sink, extract or RuleExtractor()).flush_hidden(before, after), ask)


async def aflush(
    before: View | None,
    after: View,
    sink: MemorySink,
    *,
    extract: Extractor | None = None,
    ask: AsyncAsker | None = None,
) -> FlushResult:
    """As `flush`, for async code: *ask* is awaited, and the sink is used in a thread."""
    steps = MemoryFlush(sink, extract or RuleExtractor()).flush_hidden(before, after)
    return await adrive(steps, ask)


@dataclass(slots=True)
class Backlog:
    """Memories and messages that wait in this process for the next try. Thread-safe."""

    memories: dict[str, Memory] = field(default_factory=dict)
    """Memories that were extracted but not stored, by id."""
    spans: list[Span] = field(default_factory=list)
    """Messages whose extractor raised."""
    failures: int = 0
    """Failed tries in a row."""
    turns_to_wait: int = 0
    """Turns to skip before the next try. A sink that is down must not delay each of them."""
    lock: Lock = field(default_factory=Lock)

    def __len__(self) -> int:
        """Return the number of memories and of unextracted messages that wait."""
        with self.lock:
            return len(self.memories) + sum(len(span.positions) for span in self.spans)

    def is_due(self) -> bool:
        """Count down a turn and return whether another try is due; False if nothing waits."""
        with self.lock:
            if not self.memories and not self.spans:
                return False
            self.turns_to_wait -= 1
            return self.turns_to_wait < 0

    def take(self) -> tuple[list[Memory], list[Span]]:
        """Take everything that waits. The caller must store it or put it back."""
        with self.lock:
            memories, spans = list(self.memories.values()), self.spans
            self.memories, self.spans = {}, []
            return memories, spans

    def put_back(self, memories: Iterable[Memory], spans: Iterable[Span]) -> None:
        """Put items back and wait, for twice as many turns as before."""
        with self.lock:
            self.memories = {memory.id: memory for memory in memories} | self.memories
            self.spans = [*spans, *self.spans]
            self.failures += 1
            self.turns_to_wait = min(2**self.failures, MAX_TURNS_TO_WAIT) - 1

    def reset_failures(self) -> None:
        """Record that the last try succeeded."""
        with self.lock:
            self.failures = self.turns_to_wait = 0


@dataclass(frozen=True, slots=True)
class MemoryFlush:
    """Extracts memories before a compactor hides messages:
    `Compactor(..., memory=MemoryFlush(sink))`.

    Runs for each compaction that is saved or accepted, within the same call and before its edits
    are saved. A preview flushes nothing. A failure stops nothing and loses nothing. An attempt by
    `memory`, the log and *report* tell of it, and *backlog* keeps the memories until the next
    compaction, or a turn in between, retries. *ask* answers an extractor that needs a model,
    instead of the compactor's.
    """

    sink: MemorySink
    extract: Extractor = field(default_factory=RuleExtractor)
    ask: Asker | None = None
    report: Callable[[FlushResult], object] | None = None
    backlog: Backlog = field(default_factory=Backlog)

    def flush_hidden(self, before: View | None, after: View) -> FlushSteps:
        """Flush the backlog, and what *after* hides and *before* does not, as steps."""
        positions = newly_hidden_positions(before, after)
        return (yield from self._flush([Span(after, tuple(positions))] if positions else []))

    def flush_backlog(self) -> FlushSteps:
        """Flush the backlog, as steps."""
        return (yield from self._flush([]))

    def retry(self) -> FlushResult:
        """Flush the backlog now."""
        return drive(self.flush_backlog(), self.ask)

    def _flush(self, new: list[Span]) -> FlushSteps:
        memories, spans = self.backlog.take()
        try:
            return (yield from self._flush_spans(list(memories), [*spans, *new]))
        except BaseException:
            # Nothing of a cancelled or interrupted turn is lost: its messages are not hidden.
            self.backlog.put_back(memories, spans)
            raise

    def _flush_spans(self, memories: list[Memory], spans: list[Span]) -> FlushSteps:
        unread, reasons = list[Span](), list[str]()
        for span in spans:
            extracted = yield from _answer_by(self.ask, _extract_span(self.extract, span))
            memories += extracted.memories
            reasons += [extracted.reason] if extracted.reason else []
            unread += [extracted.retry] if extracted.retry else []
        result = FlushResult(
            reason="; ".join(dict.fromkeys(reasons)) if spans else "nothing is newly hidden"
        )
        if memories:
            result = yield partial(_store, self.sink, memories, result.reason)
        if result.failed or unread:
            self.backlog.put_back(memories if result.failed else (), unread)
            result = replace(result, failed=True)
            _log.warning("memories are not stored: %d wait for the next chance", len(self.backlog))
        else:
            self.backlog.reset_failures()
        if self.report is not None:
            call_safely(self.report, result)
        return result


class SpanExtraction(NamedTuple):
    """The memories extracted from a span."""

    memories: Sequence[Memory]
    reason: str = ""
    retry: Span | None = None
    """The span, if it is to be retried."""


SpanSteps = Generator[Ask | Effect, Any, SpanExtraction]


def _extract_span(extract: Extractor, span: Span) -> SpanSteps:
    """Return the memories of a span. Rules extract them if its extractor raised too often."""
    try:
        return SpanExtraction(*(yield from extract(span.view, span.positions)))
    except Exception as error:  # noqa: BLE001 - whatever an extractor does, compaction goes on
        reason = f"nothing extracted: {_describe(error)}"
    if span.tries + 1 < TRIES:
        return SpanExtraction((), reason, span._replace(tries=span.tries + 1))
    by_rules = yield from RuleExtractor()(span.view, span.positions)
    return SpanExtraction(by_rules.memories, f"{reason}; by rules instead")


def _answer_by(ask: Asker | None, run: SpanSteps) -> SpanSteps:
    """Have *ask* answer the asks of *run*. Without it, whatever drives *run* answers."""
    if ask is None:
        return run
    return map_steps(
        run, lambda step: partial(ask_safely, ask, step) if isinstance(step, Ask) else step
    )


def _store(sink: MemorySink, memories: Sequence[Memory], reason: str) -> FlushResult:
    total, now = len(memories), time.time()
    try:
        count = sink.store([replace(memory, when=memory.when or now) for memory in memories])
    except Exception as error:  # noqa: BLE001 - whatever a sink does, compaction goes on
        return FlushResult(failed=True, reason=f"not stored: {_describe(error)}", total=total)
    return FlushResult(count, reason=reason, total=total)


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".rstrip(": ")
