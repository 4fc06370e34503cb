"""Lines of the net ledger, each the sums over the calls of one session with one model in one hour;
and reports of them: by session, model or day.

Money is whole picodollars (10^-12 US dollars), so that sums are exact.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from operator import add, attrgetter
from typing import Any, Literal, NamedTuple

HOUR = 3_600
DOLLAR = 10**12
"""Picodollars of a US dollar."""

Basis = Literal["reported", "estimated", "shadow"]
"""Whose figures they are: the upstream's; for calls of which it reported no usage, ours; for calls
in shadow, ours of what would have been sent, and in `would_...`, where no edit showed, the
upstream's."""


class Tokens(NamedTuple):
    """Tokens of one or more calls; every token of the request is in one of the first three."""

    fresh: int = 0
    """Input that was neither read from a cache nor written to one."""
    read: int = 0
    written: int = 0
    output: int = 0
    written_for_hour: int = 0
    """The share of *written* that the cache keeps for an hour."""

    @property
    def input(self) -> int:
        """All tokens of the request."""
        return self.fresh + self.read + self.written


class Cost(NamedTuple):
    """What each of these tokens cost, in picodollars."""

    fresh: int = 0
    read: int = 0
    written: int = 0
    output: int = 0


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


def clean_name(name: str) -> str:
    """Return a client's name of a model or a session, as any database can hold it."""
    return name[:200].replace("\0", "").encode("utf-8", "replace").decode()


# --- summed up for people -------------------------------------------------------------------------

Grouping = Literal["session", "model", "day"]

_GROUP_NAME: Mapping[str, Callable[[EntryKey], str]] = {
    "session": lambda key: key.session or "(none)",
    "model": lambda key: key.model or "(unknown)",
    "day": lambda key: datetime.fromtimestamp(key.hour, UTC).strftime("%Y-%m-%d"),
}
_ZERO = Sums()
_NOTHING = _ZERO.values()
MONEY_FIGURES = (
    *("cost", "cost_fresh", "cost_read", "cost_written", "cost_output"),
    *("would_cost", "summary_cost", "refetch_cost", "saved", "avoided_saved"),
)
"""The figures that are money."""


@dataclass(frozen=True, slots=True)
class ReportLine:
    """One row of a report."""

    name: str
    sums: Sums
    """Over calls whose usage the upstream reported."""
    unreported: Sums
    """Over calls without: our estimates, and no money."""
    sessions: int
    shadow: Sums = _ZERO
    """Over calls in shadow: what they would have been with edits, and in `would_...` as they were
    billed."""

    @property
    def hit_rate(self) -> float | None:
        """Share of the reported input that was read from a cache; None without any."""
        return self.sums.read / self.sums.input if self.sums.input else None


@dataclass(frozen=True, slots=True)
class Report:
    """Rows and their total."""

    by: Grouping
    since: int
    """The first hour that is in it, in seconds since 1970."""
    lines: tuple[ReportLine, ...]
    total: ReportLine


def build_report(entries: Iterable[Entry], by: Grouping = "model", since: int = 0) -> Report:
    """Sum *entries* up as they come. Every row is the sum of its entries, the total that of the
    rows. What is kept meanwhile does not grow with the entries, but for the sessions' names."""
    figures = defaultdict[tuple[str, Basis], tuple[int, ...]](lambda: _NOTHING)
    sessions = defaultdict[str, set[tuple[str, str]]](set)
    for key, sums in entries:
        group = _GROUP_NAME[by](key), key.basis
        figures[group] = tuple(map(add, figures[group], sums.values()))
        if key.session:
            sessions[group[0]].add((key.tenant, key.session))
    lines = [
        ReportLine(
            name,
            Sums(*figures[name, "reported"]),
            Sums(*figures[name, "estimated"]),
            len(sessions[name]),
            Sums(*figures[name, "shadow"]),
        )
        for name in {name for name, _ in figures}
    ]
    if by == "day":
        lines.sort(key=lambda line: line.name)
    else:
        lines.sort(key=lambda line: (-line.sums.cost, -line.sums.input, line.name))
    total = ReportLine(
        "total",
        sum((line.sums for line in lines), _ZERO),
        sum((line.unreported for line in lines), _ZERO),
        len(set().union(*sessions.values())),
        sum((line.shadow for line in lines), _ZERO),
    )
    return Report(by, since, tuple(lines), total)


def report_as_json(report: Report) -> dict[str, Any]:
    """Return the report as JSON: tokens as they are, money in US dollars."""
    since = datetime.fromtimestamp(report.since, UTC).isoformat() if report.since else None
    return {
        "by": report.by,
        "since": since,
        "rows": [{**line_as_json(line), **_shadow_as_json(line)} for line in report.lines],
        "total": {**line_as_json(report.total), **_shadow_as_json(report.total)},
    }


def _shadow_as_json(line: ReportLine) -> dict[str, Any]:
    sums = line.shadow
    counts = {"calls": sums.calls, "edited": sums.edited, "unpriced": sums.unpriced}
    sizes = {"input": sums.would_input, "input_with_edits": sums.input}
    money = {"cost": sums.would_cost / DOLLAR, "cost_with_edits": sums.cost / DOLLAR}
    return {"shadow": {**counts, **sizes, **money}}


def line_as_json(line: ReportLine) -> dict[str, Any]:
    """Return one row as JSON."""
    sums = line.sums
    counts = {name: getattr(sums, name) for name in FIGURES if name not in MONEY_FIGURES}
    dollars = {name: getattr(sums, name) / DOLLAR for name in MONEY_FIGURES}
    missing = {
        "calls": line.unreported.calls,
        "edited": line.unreported.edited,
        "input": line.unreported.fresh,
        "would_input": line.unreported.would_fresh,
    }
    both = {"input": sums.input, "would_input": sums.would_input, "cache_hit_rate": line.hit_rate}
    return {
        "name": line.name,
        "sessions": line.sessions,
        **counts,
        **both,
        **dollars,
        "unreported": missing,
    }
