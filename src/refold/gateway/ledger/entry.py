"""One line of the net ledger: sums over the calls of one session with one model in one hour."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Literal, NamedTuple

HOUR = 3_600

Basis = Literal["reported", "estimated"]
"""Whose figures they are: the upstream's, or, for calls of which it reported no usage, ours."""


class EntryKey(NamedTuple):
    """What a line is about. No content: tenant and session are salted hashes."""

    hour: int
    """Its beginning, in seconds since 1970."""
    tenant: str
    """Empty if a call was not read at all."""
    session: str
    """Empty for calls that belong to no conversation: titles, classifiers, what could not be read.
    """
    model: str
    basis: Basis


@dataclass(frozen=True, slots=True)
class Sums:
    """What is summed up. Tokens, calls, and money in picodollars; every figure can be added up.

    `would_...` is what the same calls would have been billed with their history unedited,
    under the same rules of caching. Money is that of calls with a known price and reported usage.
    """

    calls: int = 0
    """Answers of the upstream."""
    edited: int = 0
    """Of these, to requests in which edits showed."""
    unpriced: int = 0
    """Of these, calls to models without a known price: their tokens are counted, their money is
    not."""
    counted: int = 0
    """Tokens of the requests as we estimated them before they were sent."""
    fresh: int = 0
    """Input that was neither read from a cache nor written to one."""
    read: int = 0
    written: int = 0
    output: int = 0
    cost_fresh: int = 0
    cost_read: int = 0
    cost_written: int = 0
    cost_output: int = 0
    would_fresh: int = 0
    would_read: int = 0
    would_written: int = 0
    would_cost: int = 0
    """Output included, which is the same."""
    summaries: int = 0
    """Model calls that were made for summaries."""
    summaries_unpriced: int = 0
    """Of these, those of a model without a known price."""
    summary_cost: int = 0
    refetches: int = 0
    """Results of calls that had been made before, with the same arguments, and whose result we had
    hidden."""
    refetched: int = 0
    """Their tokens."""
    refetch_cost: int = 0
    """The share of the calls' `would_cost` that nobody would have paid without them."""
    avoided: int = 0
    """Calls whose request, unedited, is longer than the model's window."""
    avoided_saved: int = 0
    """Of what was saved, the part in those calls."""

    @property
    def input(self) -> int:
        """Tokens of all requests."""
        return self.fresh + self.read + self.written

    @property
    def would_input(self) -> int:
        """Tokens of all requests without edits."""
        return self.would_fresh + self.would_read + self.would_written

    @property
    def cost(self) -> int:
        """What the calls were billed."""
        return self.cost_fresh + self.cost_read + self.cost_written + self.cost_output

    @property
    def saved(self) -> int:
        """What is left of the difference after summaries and refetches; negative if we cost
        more."""
        return self.would_cost - self.refetch_cost - self.cost - self.summary_cost

    def __add__(self, other: "Sums") -> "Sums":
        return add_up((self, other))

    def values(self) -> tuple[int, ...]:
        """The figures in the order of `FIGURES`."""
        return _values(self)


FIGURES = tuple(field.name for field in fields(Sums))
"""The figures."""
_values: Callable[[Sums], tuple[int, ...]] = attrgetter(*FIGURES)

Entry = tuple[EntryKey, Sums]


def add_up(parts: Sequence[Sums]) -> Sums:
    """Add up *parts*, of which there is at least one."""
    if len(parts) == 1:
        return parts[0]
    return Sums(*map(sum, zip(*map(_values, parts), strict=True)))


def hour_of(when: float) -> int:
    """Return the beginning of the hour, in seconds since 1970."""
    return int(when // HOUR) * HOUR


def clean_model_name(model: str) -> str:
    """Return a client's name of a model, as any database can hold it."""
    return model[:200].replace("\0", "").encode("utf-8", "replace").decode()
