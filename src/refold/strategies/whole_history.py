"""Replace the history with a summary of all of it, of its newest messages, or of each stretch; or
with the facts that matter."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from refold.core.strategy import Ending, Steps, Strategy, Summarizer, change_edits, full_repr
from refold.core.view import View
from refold.edits import Edit
from refold.errors import require_callable, require_callable_or_none, require_int
from refold.summarizers.forms.facts import FACTS_PROMPT, Concept, FactSummary
from refold.summarizers.heuristic import RuleSummary
from refold.summarizers.model.prompt import Prompt, as_prompt
from refold.summarizers.placement import MessageFilter, TaggedMemory, keep_before, summarize_span
from refold.summarizers.tail import find_unanswered, find_unsummarized


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class HistorySummary:
    """The settings that the strategies of this module share, and how they replace one span."""

    max_tokens: int = 2_000
    """Cap of one summary message, in tokens."""
    summarizer: Summarizer = field(default_factory=RuleSummary)
    preserve_memory: bool = True
    """Whether memory messages stay."""
    memory: MessageFilter = field(default_factory=TaggedMemory)
    """Which messages are memory."""

    __repr__ = full_repr

    def __post_init__(self) -> None:
        require_int(1, max_tokens=self.max_tokens)
        require_callable(summarizer=self.summarizer, memory=self.memory)

    def replace_span(self, view: View, start: int, stop: int, since: int) -> Steps:
        """Propose a summary of `messages[since:stop]`, and what stays, for
        `messages[start:stop]`."""
        memory = self.memory if self.preserve_memory else None
        surroundings = keep_before(view, start, stop, memory)
        result = yield from summarize_span(
            view, surroundings, self.summarizer, self.max_tokens, repr(self), since
        )
        return result.ending

    def replace_spans(self, view: View, spans: Iterable[tuple[int, int]]) -> Steps:
        """Propose a summary for each of *spans*, oldest first; give up when nobody answers."""
        worst: Ending | None = None
        for start, stop in spans:
            ending = yield from self.replace_span(view, start, stop, start)
            worst = ending if ending and ending.outcome != "noop" else worst
            if ending and ending.outcome == "failed":
                break
        return worst


@dataclass(frozen=True, slots=True, repr=False)
class WholeHistory(HistorySummary):
    """Show one summary instead of everything that the model has answered.

    Retrospective. System messages, the first request, the current one, memory and whatever waits
    for an answer stay as they are (`refold.summarizers.placement`). An earlier summary is merged
    into the new one. Raises ValueError for *max_tokens* under 1.
    """

    def __call__(self, view: View) -> Steps:
        """Propose one edit, or none."""
        stop = find_unanswered(view)
        if not find_unsummarized(view, stop):
            return Ending("noop", "nothing new to summarise")
        return (yield from self.replace_span(view, 0, stop, 0))


@dataclass(frozen=True, slots=True, repr=False)
class FromLastN(HistorySummary):
    """Show a summary of the last *n* messages, and nothing of what was before them.

    Retrospective. The same messages stay as with `WholeHistory`. At least *n* messages are
    summarised, from the latest legal cut on; those that wait for an answer do not count. What is
    before them is hidden without a word, an earlier summary too; it comes back when the edit is
    reverted.

    Raises ValueError for *n* or *max_tokens* under 1.
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
    """Show a summary for each *size* messages, oldest first, until the view fits.

    Retrospective; one edit a chunk. A chunk that would end inside a tool group takes the rest of
    the group in. Chunks that are summarised already stay; the next run continues behind
    them. The same messages stay as with `WholeHistory`. A chunk whose summary would not be smaller
    is left alone.

    Raises ValueError for a *size* or *max_tokens* under 1.
    """

    size: int = 10
    """Messages of one chunk, at least."""
    max_tokens: int = field(default=500, kw_only=True)
    """Cap of one summary message, in tokens."""

    def __post_init__(self) -> None:
        require_int(1, size=self.size)
        HistorySummary.__post_init__(self)

    def __call__(self, view: View) -> Steps:
        """Propose an edit for each chunk; give up when nobody answers."""
        return (yield from self.replace_spans(view, self.chunks(view)))

    def chunks(self, view: View) -> Iterator[tuple[int, int]]:
        """Yield where each chunk of what is not summarised yet begins and ends."""
        cuts = sorted(view.cuts)
        for first, last in find_unsummarized(view, find_unanswered(view)):
            start = first
            while start < last:
                stop = next((cut for cut in cuts if start + self.size <= cut <= last), last)
                yield start, stop
                start = stop


# --- facts in place of the history --------------------------------------------------------------


@dataclass(frozen=True, slots=True, repr=False)
class RetrieveFacts:
    """Show facts under *concepts* instead of everything that the model has answered, and a note on
    where things stand.

    Retrospective; asks a model one question for all concepts. Stays as it is what `WholeHistory`
    leaves too. Facts that were found before are merged with the new ones. If none are found, or
    nobody answers, nothing changes, or *fallback* takes over.

    Raises ValueError without concepts, for two of one keyword, and for figures under 1.
    """

    concepts: tuple[Concept, ...]
    max_tokens: int = 2_000
    """Cap of the message with the facts, in tokens."""
    piece: int = 60_000
    """Tokens of history in one question; a longer one takes several."""
    asks: int = 8
    """Questions at most; a history that takes more is left alone."""
    fallback: Strategy | None = None
    """What runs when there are no facts, such as `WholeHistory()`."""
    preserve_memory: bool = True
    """Whether memory messages stay."""
    memory: MessageFilter = field(default_factory=TaggedMemory)
    """Which messages are memory."""
    prompt: Prompt | str = FACTS_PROMPT
    """How a model is to look for them: its system prompt."""

    def __repr__(self) -> str:
        """Return every setting; the prompt where it is another than the package's, so that the rest
        can be given back."""
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
        """Propose what *fallback* does, and end `degraded`: it is less than was asked for."""
        edits = list[Edit]()

        def note(edit: Edit) -> Edit:
            edits.append(edit)
            return edit

        ending = yield from change_edits(fallback(view), note)
        return Ending("degraded", f"{why}: {fallback!r} instead") if edits else ending

    def _summarizer(self) -> FactSummary:
        return FactSummary(self.concepts, self.piece, self.asks, prompt=self.prompt)
