"""Keeping what is worth knowing of messages before they are hidden."""

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from refold.events import Ended
from refold.hidden import newly_hidden
from refold.loop import Asker, AsyncAsker, Effect, adrive, drive
from refold.memory.extract import Extractor
from refold.memory.port import Memory, MemorySink
from refold.memory.rules import RuleMemories
from refold.strategy import Ask
from refold.view import View


@dataclass(frozen=True, slots=True)
class Flushed:
    """How a flush went."""

    count: int = 0
    """Memories that the sink did not have before."""
    failed: bool = False
    """Was something lost: an extractor that raised, or a sink that did?"""
    reason: str = ""
    """What went wrong, or why less was done than asked for."""
    found: int = 0
    """Memories that were extracted, known ones included."""


def flush(
    before: View | None,
    after: View,
    sink: MemorySink,
    *,
    extract: Extractor | None = None,
    ask: Asker | None = None,
) -> Flushed:
    """Put what *extract* (by default `RuleMemories()`) finds in the messages that *after* hides and
    *before* does not into *sink*. Without *before*, in all that *after* hides.

    The same content is kept once, so a flush can be repeated. *ask* answers an extractor that needs a
    model. Never raises: what goes wrong is in the result, and compaction goes on.
    """
    return drive(_flush(before, after, sink, extract or RuleMemories()), ask)


async def aflush(
    before: View | None,
    after: View,
    sink: MemorySink,
    *,
    extract: Extractor | None = None,
    ask: AsyncAsker | None = None,
) -> Flushed:
    """As `flush`, for async code: *ask* is awaited, the sink is used in a thread."""
    return await adrive(_flush(before, after, sink, extract or RuleMemories()), ask)


@dataclass(frozen=True, slots=True)
class Flushing:
    """`flush` as a compactor's `after` hook: `Compactor(..., after=Flushing(sink))`.

    Runs once for each compaction that was kept, within the same call; a preview flushes nothing. *report*, if
    given, is told how each flush went.
    """

    sink: MemorySink
    extract: Extractor = field(default_factory=RuleMemories)
    ask: Asker | None = None
    report: Callable[[Flushed], object] | None = None

    def __call__(self, view: View, ended: Ended) -> None:
        """Flush what the edits of this compaction hide. Never raises, unless *report* does."""
        made = set(ended.edits) & {edit.id for edit in view.edits}
        if ended.action == "preview" or not made:
            return
        flushed = flush(view.revert(*made), view, self.sink, extract=self.extract, ask=self.ask)
        if self.report is not None:
            self.report(flushed)


def _flush(
    before: View | None, after: View, sink: MemorySink, extract: Extractor
) -> Generator[Ask | Effect, Any, Flushed]:
    """The steps of a flush: questions, and the writing as an effect."""
    try:
        positions = newly_hidden(before, after)
        if not positions:
            return Flushed(reason="nothing is newly hidden")
        found, reason = yield from extract(after, positions)
    except Exception as error:  # noqa: BLE001 - whatever an extractor does, compaction goes on
        return Flushed(failed=True, reason=f"nothing extracted: {_said(error)}")
    if not found:
        return Flushed(reason=reason)
    flushed: Flushed = yield partial(_store, sink, found, reason)
    return flushed


def _store(sink: MemorySink, found: Sequence[Memory], reason: str) -> Flushed:
    now = time.time()
    try:
        count = sink.store([replace(one, when=one.when or now) for one in found])
    except Exception as error:  # noqa: BLE001 - whatever a sink does, compaction goes on
        return Flushed(failed=True, reason=f"not stored: {_said(error)}", found=len(found))
    return Flushed(count, reason=reason, found=len(found))


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".rstrip(": ")
