"""Strategies that replace the whole history: with a summary of all of it, of its newest messages or
of each chunk, or with facts."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from refold.core.strategy import Ending, Steps, Strategy, Summarizer, change_edits, full_repr
from refold.core.view import View
from refold.edits import Edit
from refold.errors import require_callable, require_callable_or_none, require_int
from refold.summarizers.forms.facts import FACTS_PROMPT, Concept, FactSummary
from refold.summarizers.heuristic import RuleSummary
from refold.summarizers.model.prompt import Prompt, as_prompt
from refold.summarizers.placement import (
    MessageFilter,
    TaggedMemory,
    keep_before,
    set_field,
    summarize_span,
)
from refold.summarizers.tail import find_unanswered, find_unsummarized


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class HistorySummary:
    """Settings that the strategies of this module share, and the replacement of one span."""

    max_tokens: int = 2_000
    """Maximum tokens of one summary message."""
    summarizer: Summarizer = field(default_factory=RuleSummary)
    preserve_memory: bool = True
    """Whether memory messages are kept."""
    memory: MessageFilter = field(default_factory=TaggedMemory)
    """Filter that accepts memory messages."""

    __repr__ = full_repr

    def __post_init__(self) -> None:
        require_int(1, max_tokens=self.max_tokens)
        require_callable(summarizer=self.summarizer, memory=self.memory)

    def replace_span(
        self, view: View, start: int, stop: int, since: int, is_alone: bool = False
    ) -> Steps:
        """Propose a summary of `messages[since:stop]`, beside what is kept, for
        `messages[start:stop]`; if it *is_alone*, by rules from these alone."""
        memory = self.memory if self.preserve_memory else None
        surroundings, write = keep_before(view, start, stop, memory), self.summarizer
        write = set_field(write, "is_alone", True) if is_alone else write
        result = yield from summarize_span(
            view, surroundings, write, self.max_tokens, repr(self), since
        )
        return result.ending

    def replace_spans(self, view: View, spans: Iterable[tuple[int, int]]) -> Steps:
        """Propose a summary for each of *spans*, oldest first, by rules from that span alone.

        Stop if no model answers."""
        worst: Ending | None = None
        for start, stop in spans:
            ending = yield from self.replace_span(view, start, stop, start, is_alone=True)
            worst = ending if ending and ending.outcome != "noop" else worst
            if ending and ending.outcome == "failed":
                break
        return worst


@dataclass(frozen=True, slots=True, repr=False)
class WholeHistory(HistorySummary):
    """Replace everything that the model has answered with one summary.

    It is retrospective. System messages, the first and the current request, memory and unanswered
    messages are kept (`refold.summarizers.placement`). An earlier summary is merged into the new
    one. Raises ValueError for *max_tokens* under 1.
    """

    def __call__(self, view: View) -> Steps:
        """Propose one edit, or none."""
        stop = find_unanswered(view)
        if not find_unsummarized(view, stop):
            return Ending("noop", "nothing new to summarise")
        return (yield from self.replace_span(view, 0, stop, 0))


@dataclass(frozen=True, slots=True, repr=False)
class FromLastN(HistorySummary):
    """Replace the history with a summary of its last *n* messages.

    It is retrospective. The same messages are kept as by `WholeHistory`. At least *n* messages are
    summarised, starting at a legal cut; unanswered messages do not count. Everything before them is
    hidden without a summary, an earlier summary included, until the edit is reverted. Raises
    ValueError for *n* or *max_tokens* under 1.
    """

    n: int = 5

    def __post_init__(self) -> None:
        require_int(1, n=self.n)
        HistorySummary.__post_init__(self)

    def __call__(self, view: View) -> Steps:
        """Propose one edit, or none."""
        stop = find_unanswered(view)
        if not find_unsummarized(view, stop):
            return Ending("noop", "nothing new to summarise")
        since = max((cut for cut in view.cuts if cut <= stop - self.n), default=0)
        return (yield from self.replace_span(view, 0, stop, since))


@dataclass(frozen=True, slots=True, repr=False)
class Chunked(HistorySummary):
    """Replace each *size* messages with a summary, oldest first, until the view fits.

    It is retrospective and makes one edit for each chunk. A chunk that would end inside a tool
    group is extended to the group's end. Chunks that are already summarised stay, and the next run
    goes on behind them. The same messages are kept as by `WholeHistory`. A chunk whose summary
    would not be smaller is left alone. Rules summarise each chunk as things stood at its end, since
    later chunks say what became of them. Raises ValueError for a *size* or *max_tokens* under 1.
    """

    size: int = 10
    """Minimum number of messages in a chunk."""
    max_tokens: int = field(default=500, kw_only=True)
    """Maximum tokens of one summary message."""

    def __post_init__(self) -> None:
        require_int(1, size=self.size)
        HistorySummary.__post_init__(self)

    def __call__(self, view: View) -> Steps:
        """Propose an edit for each chunk. Stop if no model answers."""
        return (yield from self.replace_spans(view, self.chunks(view)))

    def chunks(self, view: View) -> Iterator[tuple[int, int]]:
        """Yield start and stop of each chunk of messages that are not summarised yet."""
        all_cuts = sorted(view.cuts)
        for first, last in find_unsummarized(view, find_unanswered(view)):
            cuts = iter(all_cuts[bisect_left(all_cuts, first) : bisect_right(all_cuts, last)])
            start = first
            while start < last:
                stop = next((cut for cut in cuts if start + self.size <= cut <= last), last)
                yield start, stop
                start = stop


# --- facts in place of the history --------------------------------------------------------------


@dataclass(frozen=True, slots=True, repr=False)
class RetrieveFacts:
    """Replace everything that the model has answered with facts under *concepts*, and a note on the
    state of the work.

    It is retrospective, and asks a model one question for all concepts. The same messages are kept
    as by `WholeHistory`. Earlier facts are merged with the new ones. If there are none, or no model
    answers, nothing changes, or *fallback* runs. Raises ValueError without concepts, for two
    concepts with one keyword, and for numbers under 1.
    """

    concepts: tuple[Concept, ...]
    max_tokens: int = 2_000
    """Maximum tokens of the message with the facts."""
    piece: int = 60_000
    """Maximum tokens of history in one question. A longer history takes several."""
    asks: int = 8
    """Maximum number of questions. A history that needs more is left alone."""
    fallback: Strategy | None = None
    """Strategy that runs if no facts are found, such as `WholeHistory()`."""
    preserve_memory: bool = True
    """Whether memory messages are kept."""
    memory: MessageFilter = field(default_factory=TaggedMemory)
    """Filter that accepts memory messages."""
    prompt: Prompt | str = FACTS_PROMPT
    """System prompt for the model that looks for facts."""

    def __repr__(self) -> str:
        """Return every setting. The prompt is shown only if it is not the default, so that the repr
        can be parsed."""
        return full_repr(self).replace(f", prompt={FACTS_PROMPT!r}", "")

    def __post_init__(self) -> None:
        require_int(1, max_tokens=self.max_tokens, piece=self.piece, asks=self.asks)
        require_callable(memory=self.memory)
        require_callable_or_none(fallback=self.fallback)
        if not isinstance(self.concepts, tuple | list) or not all(
            isinstance(concept, Concept) for concept in self.concepts
        ):
            raise ValueError(f"concepts must be a tuple of Concept, not {self.concepts!r}")
        object.__setattr__(self, "prompt", as_prompt(self.prompt))
        self._summarizer()  # refuses two concepts of one keyword

    def __call__(self, view: View) -> Steps:
        """Propose one edit, or what the fallback proposes."""
        stop = find_unanswered(view)
        if not find_unsummarized(view, stop):
            return Ending("noop", "nothing new to look through")
        memory = self.memory if self.preserve_memory else None
        surroundings = keep_before(view, 0, stop, memory)
        result = yield from summarize_span(
            view, surroundings, self._summarizer(), self.max_tokens, repr(self)
        )
        if result.is_proposed or self.fallback is None:
            return result.ending
        why = result.ending.reason if result.ending else "no facts"
        return (yield from self._fall_back(view, self.fallback, why))

    def _fall_back(self, view: View, fallback: Strategy, why: str) -> Steps:
        """Propose what *fallback* proposes, and end as `degraded`."""
        edits = list[Edit]()

        def note(edit: Edit) -> Edit:
            edits.append(edit)
            return edit

        ending = yield from change_edits(fallback(view), note)
        return Ending("degraded", f"{why}: {fallback!r} instead") if edits else ending

    def _summarizer(self) -> FactSummary:
        return FactSummary(self.concepts, self.piece, self.asks, prompt=self.prompt)
