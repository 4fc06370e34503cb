"""The only kind of change: show *insert* instead of `messages[start:stop]`."""

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Literal

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
    """Tokens of the request before it ran (`View.tokens_uncalibrated`)."""
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
