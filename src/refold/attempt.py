"""How one run of one strategy ended."""

from dataclasses import dataclass, field
from typing import Literal

Outcome = Literal["applied", "noop", "rejected", "degraded", "failed", "no_headroom"]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One strategy's run. Every run ends in exactly one outcome, whatever happened."""

    by: str
    """The strategy's repr."""
    outcome: Outcome
    """`applied`: edits were taken; `noop`: it proposed none; `rejected`: none of its proposals made
    the view smaller and kept it valid; `failed`: it gave up; `degraded`: it fell back on less; `no_headroom`: said of all strategies
    together, they left the request over the trigger and hardly smaller (see `refold.Budget.progress`)."""
    reason: str = ""
    before: int = 0
    """Tokens of the request before it ran, as they are counted (`View.counted`)."""
    after: int = 0
    edits: int = 0
    """How many of its edits were taken."""
    made: tuple[tuple[str, int], ...] = field(default=(), compare=False, repr=False)
    """The id of each of its edits, and the tokens of the request after it, as they are counted."""
    asks: int = 0
    """How many times it asked a model."""
    calls: int = 0
    """How many model calls that took, retries included."""
    cost: float = 0.0
    """What those calls cost, in US dollars, where prices are known."""
    model: str = ""
    """The model that answered last."""
    prompt: str = ""
    """Name and hash of the last prompt."""
