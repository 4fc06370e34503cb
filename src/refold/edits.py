"""Edits, the only kind of change; the outcome of the strategy run that made them; and what they
hide."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Literal, NamedTuple, get_args

from refold.errors import EditError
from refold.messages import Message, is_message


@dataclass(frozen=True, slots=True)
class Edit:
    """Show *insert* instead of `messages[start:stop]` of one exact history."""

    start: int
    stop: int
    insert: tuple[Message, ...]
    tip: str
    """Hash of `messages[:stop]`. The edit applies to exactly that history."""
    by: str = ""
    """The repr of the strategy that made it."""
    id: str = field(init=False, repr=False, compare=False)
    """16 hex digits. Any unique prefix names the edit."""

    def __post_init__(self) -> None:
        if not (
            type(self.start) is type(self.stop) is int
            and isinstance(self.tip, str)
            and isinstance(self.by, str)
        ):
            raise TypeError(
                "an edit hides whole positions and has texts as tip and `by`, not "
                f"{self.start!r}, {self.stop!r}, {self.tip!r:.80} and {self.by!r:.80}"
            )
        if not (isinstance(self.insert, tuple) and all(map(is_message, self.insert))):
            raise TypeError(
                "an edit shows a tuple of messages whose parts hold texts, such as "
                f"(refold.messages.user('...'),), not {self.insert!r:.200}"
            )
        object.__setattr__(self, "id", edit_id(self.start, self.stop, self.tip, self.by))


def edit_id(start: int, stop: int, tip: str, by: str) -> str:
    """Return the id of an edit. It does not depend on the inserted messages, so a stub can contain
    it."""
    key = f"{start}:{stop}:{tip}:{by}".encode("utf-8", "surrogatepass")
    return blake2b(key, digest_size=8).hexdigest()


def name_edit(edit: str | Edit) -> str:
    """Return the id of an `Edit`; a string, such as an id or its prefix, as it is. Raises
    `EditError` for anything else."""
    name = edit.id if isinstance(edit, Edit) else edit
    if not isinstance(name, str):
        raise EditError(f"name an edit by its id, as `view.edits` has it, not by {edit!r}")
    return name


def find_by_ids(edits: Sequence[Edit], ids: Iterable[str | Edit]) -> list[Edit]:
    """Return the edits with these ids or unique prefixes of ids, in this order. *edits* are sorted
    by id. Raises `EditError`."""
    matches = list[Edit]()
    for id in map(name_edit, ids):
        at = bisect_left(edits, id, key=lambda edit: edit.id)
        alike = [edit for edit in edits[at : at + 2] if id and edit.id.startswith(id)]
        if len(alike) != 1:
            count = "no edit" if not alike else "more than one edit"
            raise EditError(f"{count} of this view starts with {id!r}")
        matches += alike
    return matches


Outcome = Literal["applied", "noop", "rejected", "degraded", "failed", "no_headroom"]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One run of a strategy. Every run ends in exactly one outcome."""

    by: str
    """The strategy's repr."""
    outcome: Outcome
    """`applied`: some edits were accepted; `noop`: the strategy proposed none; `rejected`: no
    proposed edit was valid and made the view smaller; `failed`: the strategy gave up; `degraded`:
    it fell back to something weaker; `no_headroom`: all strategies together left the request above
    the trigger and hardly smaller (see `refold.Budget.progress`)."""
    reason: str = ""
    tokens_before: int = 0
    """Tokens of the request before the run. Attempts that a compactor returns or emits count as
    `View.tokens` does; while strategies run, only the library's own counter is used."""
    tokens_after: int = 0
    edits_applied: int = 0
    """Number of its edits that were accepted."""
    edit_tokens: tuple[tuple[str, int], ...] = field(default=(), compare=False, repr=False)
    """The id of each of its edits, with the tokens of the request after it."""
    asks: int = 0
    """Number of questions to a model."""
    calls: int = 0
    """Number of model calls for them, retries included."""
    cost: float = 0.0
    """Price of those calls in US dollars; 0 if prices are not known."""
    model: str = ""
    """The model that answered last."""
    prompt: str = ""
    """Name and hash of the last prompt."""

    def calibrate(self, count: Callable[[int], int]) -> "Attempt":
        """Return a copy whose estimated tokens are calibrated by *count* (`Profile.calibrate`)."""
        return replace(
            self,
            tokens_before=count(self.tokens_before),
            tokens_after=count(self.tokens_after),
            edit_tokens=tuple((id, count(tokens)) for id, tokens in self.edit_tokens),
        )


# --- what is lost ------------------------------------------------------------------------------

LossKind = Literal["constraints", "requests", "open_work", "facts", "paths", "identifiers"]
"""Kinds of loss, the most serious first."""


class Loss(NamedTuple):
    """A text that the view no longer shows."""

    kind: LossKind
    text: str
    at: int | None = None
    """Position of the last message that contains it; None if only an earlier summary does."""
    line: int = 1
    """Line in that message where it begins, counted from 1 in `refold.text.plain.readable_text`; 1
    if it is not found there."""


@dataclass(frozen=True, slots=True)
class Losses:
    """Everything that the view no longer shows. A paraphrase counts as a loss, because only the
    exact words are searched for."""

    items: tuple[Loss, ...] = ()
    """Sorted by kind, then by position or by weight."""

    def __repr__(self) -> str:
        counts = Counter(loss.kind.replace("_", " ") for loss in self.items)
        return f"<Losses: {', '.join(f'{n:,} {kind}' for kind, n in counts.items()) or 'none'}>"

    def texts(self, kind: LossKind) -> tuple[str, ...]:
        """Return the texts of one kind."""
        return tuple(loss.text for loss in self.items if loss.kind == kind)

    @property
    def constraints(self) -> tuple[str, ...]:
        """Sentences of the user that require or forbid something."""
        return self.texts("constraints")

    @property
    def requests(self) -> tuple[str, ...]:
        """Whole requests of the user, compared without regard to whitespace."""
        return self.texts("requests")

    @property
    def open_work(self) -> tuple[str, ...]:
        """Unfinished items of the latest plan, the last failure that was not fixed, and the step
        that the model announced."""
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
        """Other names and values in calls and results, the most likely to be needed first."""
        return self.texts("identifiers")

    def by_kind(self) -> dict[LossKind, tuple[str, ...]]:
        """Return the texts of every kind, including kinds without a loss."""
        return {kind: self.texts(kind) for kind in get_args(LossKind)}

    def __bool__(self) -> bool:
        return bool(self.items)
