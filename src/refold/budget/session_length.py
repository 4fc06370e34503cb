"""How many calls a conversation has still to come, and how long its pauses are.

What a gateway's own sessions tell comes first (`Survival`); until they are enough, a dated prior of
recorded ones (`PRIOR`). In those the calls still to come do not depend on how many there were.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, log
from pathlib import Path

EXACT = 64
"""Up to here each number of calls is counted for itself, above in buckets of a tenth."""
ENOUGH = 30
"""Calls that must have been counted at a place for it to be believed."""
PRIOR_PAUSES = 20
"""Pauses that those of recorded sessions count for, beside a session's own."""
LONGEST = 200
"""The most calls that are expected."""
PRIOR_PATH = Path(__file__).with_name("sessions.json")


@dataclass(frozen=True, slots=True)
class Prior:
    """What recorded sessions say of sessions that nothing is known of."""

    date: str
    """The day of the recordings' version, `YYYY-MM-DD`."""
    source: str
    remaining: tuple[tuple[float, float], ...]
    """Calls still to come on average, this one included, for requests of up to so many tokens."""
    growth: float
    """Tokens that a call adds on average."""
    output: float
    """Tokens of an answer on average."""
    pauses: tuple[tuple[float, float], ...]
    """The share of pauses between two calls that are longer than so many seconds."""

    def remaining_calls(self, tokens: int) -> float:
        """Return the calls that are still to come after a request of *tokens*."""
        return next(calls for most, calls in self.remaining if tokens <= most)

    def lapse_share(self, lifetime: float) -> float:
        """Return the share of calls before which a cache that lives *lifetime* seconds has
        lapsed."""
        shares = [share for seconds, share in self.pauses if seconds <= lifetime]
        return shares[-1] if shares else 1.0


def lapse_share(pauses: Sequence[float], lifetime: float) -> float:
    """Return the chance that a cache that lives *lifetime* seconds lapses before the next call of a
    session that has made these *pauses*, in seconds."""
    lapses = sum(pause > lifetime for pause in pauses) + PRIOR_PAUSES * PRIOR.lapse_share(lifetime)
    return lapses / (len(pauses) + PRIOR_PAUSES)


def read_prior() -> Prior:
    """Return the prior in the file that `python -m benchmarks.fit_sessions` wrote."""
    data = json.loads(PRIOR_PATH.read_text("utf-8"))
    remaining = tuple((inf if most is None else most, calls) for most, calls in data["remaining"])
    pauses = tuple((seconds, share) for seconds, share in data["pauses"])
    return Prior(data["date"], data["source"], remaining, data["growth"], data["output"], pauses)


def bucket_of(calls: int) -> int:
    """Return the bucket that so many calls belong to, named by its first."""
    return calls if calls <= EXACT else _bucket_start(int(log(calls / EXACT) / log(1.1) + 1e-9))


def _bucket_start(number: int) -> int:
    return int(EXACT * 1.1**number) + 1


def _bucket_width(start: int) -> int:
    """Return how many numbers of calls the bucket from *start* on has."""
    if start < EXACT:
        return 1
    return next(
        width for width in range(1, start + 2) if bucket_of(start + width) != bucket_of(start)
    )


@dataclass(frozen=True, slots=True)
class Survival:
    """How many calls were counted, by `bucket_of`.

    Every call of a conversation that had *t* calls before it is counted under *t*. Conversations go
    through each *t* once, so how these counts fall is how conversations end.
    """

    counts: Mapping[int, int] = field(default_factory=dict)

    def remaining_calls(self, past: int) -> float | None:
        """Return the calls that a conversation of *past* calls has still to come, this one
        included, on average: those counted from here on, for each that came this far. None if too
        few have been seen."""
        here = bucket_of(past)
        if self.counts.get(here, 0) < ENOUGH:
            return None
        width = _bucket_width(here)
        each = self.counts[here] / width
        within = each * (here + width - past)
        later = sum(count for start, count in self.counts.items() if start > here)
        return (within + later) / each


PRIOR = read_prior()


def estimate_remaining_calls(past: int, survival: Survival | None = None, tokens: int = 0) -> float:
    """Return how many calls a session of *past* calls, whose request has *tokens*, has still to
    come, this one included: what *survival* has learned, else what `PRIOR` says; at most
    `LONGEST`."""
    learned = survival.remaining_calls(past) if survival is not None else None
    return min(PRIOR.remaining_calls(tokens) if learned is None else learned, float(LONGEST))
