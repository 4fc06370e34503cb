"""Replace the history with the facts that matter (S3-17)."""

from dataclasses import dataclass, field

from refold.core.strategy import End, Ending, Steps, Strategy, advance, full_repr
from refold.core.view import View
from refold.edits import Edit
from refold.errors import require_callable, require_callable_or_none, require_int
from refold.summarizers.facts import FACTS_PROMPT, FactSummary
from refold.summarizers.forms.facts import Concept
from refold.summarizers.memory_messages import MessageFilter, TaggedMemory
from refold.summarizers.model.prompt import Prompt, as_prompt
from refold.summarizers.placement import keep_before, summarize_span
from refold.summarizers.tail import find_unanswered, find_unsummarized


@dataclass(frozen=True, slots=True, repr=False)
class RetrieveFacts:
    """Show facts under *concepts* instead of everything that the model has answered, and a note on
    where things stand.

    Retrospective; asks a model one question for all concepts. Stays as it is what `WholeHistory`
    leaves too. Facts that were found before are merged with the new ones. If none are found, or
    nobody answers, nothing changes, or *fallback* takes over (C3-8).

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
        self._summarizer()

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
        """What *fallback* proposes, as what it is: less than was asked for."""
        run, edits = fallback(view), 0
        step = advance(run)
        while not isinstance(step, End):
            edits += isinstance(step, Edit)
            step = advance(run, (yield step))
        return Ending("degraded", f"{why}: {fallback!r} instead") if edits else step.value

    def _summarizer(self) -> FactSummary:
        return FactSummary(self.concepts, self.piece, self.asks, prompt=self.prompt)
