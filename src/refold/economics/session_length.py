"""How many calls a conversation has still to come, learned from how far others went.

Every call of a conversation that had *t* calls before it is counted under *t*. Conversations go
through each *t* once, so how these counts fall is how conversations end.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import log

EXACT = 64
"""Up to here each number of calls is counted for itself, above in steps of a tenth."""
ENOUGH = 30
"""Calls that must have been counted at a place for it to be believed."""


def step(calls: int) -> int:
    """Return the step that so many calls belong to, named by its first."""
    return calls if calls <= EXACT else _first(int(log(calls / EXACT) / log(1.1) + 1e-9))


def _first(number: int) -> int:
    return int(EXACT * 1.1**number) + 1


def _width(start: int) -> int:
    """Return how many numbers of calls the step from *start* on has."""
    if start < EXACT:
        return 1
    return next(width for width in range(1, start + 2) if step(start + width) != step(start))


@dataclass(frozen=True, slots=True)
class Survival:
    """How many calls were counted, by `step`."""

    counts: Mapping[int, int] = field(default_factory=dict)

    def remaining_calls(self, past: int) -> float | None:
        """Return the calls that a conversation of *past* calls has still to come: after so many,
        half of those that came this far had ended. None if too few have been seen."""
        here = step(past)
        if self.counts.get(here, 0) < ENOUGH:
            return None
        half = self.counts[here] / _width(here) / 2
        later = sorted(start for start in self.counts if start > here)
        ended = next((start for start in later if self.counts[start] / _width(start) <= half), None)
        last = later[-1] if later else here
        return float(max(1, (last + _width(last) if ended is None else ended) - past))
