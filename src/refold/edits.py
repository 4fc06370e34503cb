"""The only kind of change: show *insert* instead of `messages[start:stop]`; how the run ended that
made it, and what it takes out of sight."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Literal, NamedTuple, get_args

from refold.errors import EditError
from refold.messages import Message


@dataclass(frozen=True, slots=True)
class Edit:
    """Show *insert* instead of `messages[start:stop]` of one exact history."""

    start: int
    stop: int
    insert: tuple[Message, ...]
    tip: str
    """Hash of `messages[:stop]`: the edit holds for exactly that history."""
    by: str = ""
    """The repr of the strategy that made it."""
    id: str = field(init=False, repr=False, compare=False)
    """16 hex digits; an unambiguous beginning is enough to name it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "id", edit_id(self.start, self.stop, self.tip, self.by))


def edit_id(start: int, stop: int, tip: str, by: str) -> str:
    """Name an edit by place and maker, not by what it shows, so that a stub can say its name."""
    key = f"{start}:{stop}:{tip}:{by}".encode("utf-8", "surrogatepass")
    return blake2b(key, digest_size=8).hexdigest()


def name_edit(edit: str | Edit) -> str:
    """Return the id that names an edit. Raises `EditError` for what is neither."""
    name = edit.id if isinstance(edit, Edit) else edit
    if not isinstance(name, str):
        raise EditError(f"name an edit by its id, as `view.edits` has it, not by {edit!r}")
    return name


Outcome = Literal["applied", "noop", "rejected", "degraded", "failed", "no_headroom"]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One strategy's run. Every run ends in exactly one outcome, whatever happened."""

    by: str
    """The strategy's repr."""
    outcome: Outcome
    """`applied`: edits were taken; `noop`: it proposed none; `rejected`: none of its proposals made
    the view smaller and kept it valid; `failed`: it gave up; `degraded`: it fell back on less;
    `no_headroom`: all strategies together left the request over the trigger and hardly smaller
    (see `refold.Budget.progress`)."""
    reason: str = ""
    tokens_before: int = 0
    """Tokens of the request before it ran: as `View.tokens` in all that a compactor returns or
    emits; while strategies run, by our own counter alone."""
    tokens_after: int = 0
    edits_applied: int = 0
    """How many of its edits were taken."""
    edit_tokens: tuple[tuple[str, int], ...] = field(default=(), compare=False, repr=False)
    """The id of each of its edits, and the tokens of the request after it."""
    asks: int = 0
    """How many times it asked a model."""
    calls: int = 0
    """How many model calls that took, retries included."""
    cost: float = 0.0
    """What those calls cost, in US dollars, if prices are known."""
    model: str = ""
    """The model that answered last."""
    prompt: str = ""
    """Name and hash of the last prompt."""

    def calibrate(self, count: Callable[[int], int]) -> "Attempt":
        """Return it with its estimated tokens as *count* expects them (`Profile.calibrate`)."""
        return replace(
            self,
            tokens_before=count(self.tokens_before),
            tokens_after=count(self.tokens_after),
            edit_tokens=tuple((id, count(tokens)) for id, tokens in self.edit_tokens),
        )


# --- what is lost ------------------------------------------------------------------------------

LossKind = Literal["constraints", "requests", "open_work", "facts", "paths", "identifiers"]
"""What is lost, the gravest first."""


class Loss(NamedTuple):
    """Words that no longer appear."""

    kind: LossKind
    text: str
    at: int | None = None
    """Position of the message that said it last; None if only an earlier summary says it."""
    line: int = 1
    """Where it begins there, counted from 1 in `refold.text.plain.readable_text`."""


@dataclass(frozen=True, slots=True)
class Losses:
    """What no longer appears. What appears in other words counts as lost: only the words can be
    looked for."""

    items: tuple[Loss, ...] = ()
    """By kind, those of a kind in the order of the conversation or by weight."""

    def __repr__(self) -> str:
        counts = Counter(loss.kind.replace("_", " ") for loss in self.items)
        return f"<Losses: {', '.join(f'{n:,} {kind}' for kind, n in counts.items()) or 'none'}>"

    def texts(self, kind: LossKind) -> tuple[str, ...]:
        """Return the words of one kind."""
        return tuple(loss.text for loss in self.items if loss.kind == kind)

    @property
    def constraints(self) -> tuple[str, ...]:
        """Sentences of the user that say what must or must not be done."""
        return self.texts("constraints")

    @property
    def requests(self) -> tuple[str, ...]:
        """What the user asked for, whole; line breaks and spaces make no difference."""
        return self.texts("requests")

    @property
    def open_work(self) -> tuple[str, ...]:
        """Items of the latest plan that are not done, the last failure that nothing mended, and
        what the model announced next."""
        return self.texts("open_work")

    @property
    def facts(self) -> tuple[str, ...]:
        """Sentences of the model that decide or explain, the weightiest first."""
        return self.texts("facts")

    @property
    def paths(self) -> tuple[str, ...]:
        """Files that were read, written or listed."""
        return self.texts("paths")

    @property
    def identifiers(self) -> tuple[str, ...]:
        """Other names and values out of calls and results, the most likely to be needed first."""
        return self.texts("identifiers")

    def by_kind(self) -> dict[LossKind, tuple[str, ...]]:
        """Return the words of every kind, also of those of which nothing is lost."""
        return {kind: self.texts(kind) for kind in get_args(LossKind)}

    def __bool__(self) -> bool:
        return bool(self.items)
