"""Entries of the net ledger, each the sums over the calls of one session with one model in one
hour, and reports of them by session, model or day.

Money is in whole picodollars (10^-12 US dollars), so that sums are exact."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from operator import add, attrgetter
from typing import Any, Literal, NamedTuple

HOUR = 3_600
DOLLAR = 10**12
"""Picodollars per US dollar."""

Basis = Literal["reported", "estimated", "shadow"]
"""Source of the figures. `reported`: the upstream. `estimated`: our estimates, for calls without
reported usage. `shadow`: our estimates of what would have been sent, for calls in shadow, with the
upstream's figures in `would_...`."""


class Tokens(NamedTuple):
    """Tokens of one or more calls. Every input token is in one of the first three."""

    fresh: int = 0
    """Input neither read from a cache nor written to one."""
    read: int = 0
    written: int = 0
    output: int = 0
    written_for_hour: int = 0
    """Part of *written* that the cache keeps for an hour."""

    @property
    def input(self) -> int:
        """All input tokens."""
        return self.fresh + self.read + self.written


class Cost(NamedTuple):
    """Cost of each of these kinds of tokens, in picodollars."""

    fresh: int = 0
    read: int = 0
    written: int = 0
    output: int = 0


class EntryKey(NamedTuple):
    """Key of an entry. No content: tenant and session are salted hashes."""

    hour: int
    """Beginning of the hour, in seconds since 1970."""
    tenant: str
    """Empty if a call was not read."""
    session: str
    """Empty for calls of no conversation: titles, classifiers, unreadable requests."""
    model: str
    basis: Basis


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums over calls: tokens, counts, and money in picodollars.

    `would_...` is what the same calls would have been billed with their history unedited, under the
    same rules of caching. Money covers calls with a known price and reported usage."""

    calls: int = 0
    """Calls that the upstream answered."""
    edited: int = 0
    """Calls in which edits showed."""
    unpriced: int = 0
    """Calls to models without a known price: their tokens are counted, their money is not."""
    counted: int = 0
    """Tokens of the requests as sent, by our estimate."""
    fresh: int = 0
    """Input neither read from a cache nor written to one."""
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
    """Including output, which is the same."""
    summaries: int = 0
    """Model calls for summaries."""
    summaries_unpriced: int = 0
    """Of these, calls to a model without a known price."""
    summary_cost: int = 0
    refetches: int = 0
    """Results of repeated calls with the same arguments, whose earlier result an edit had
    hidden."""
    refetched: int = 0
    """Their tokens."""
    refetch_cost: int = 0
    """Part of `would_cost` that these results caused."""
    avoided: int = 0
    """Edited calls whose unedited request exceeds the model's window."""
    avoided_saved: int = 0
    """Part of `saved` in those calls."""

    @property
    def input(self) -> int:
        """All input tokens."""
        return self.fresh + self.read + self.written

    @property
    def would_input(self) -> int:
        """All input tokens without edits."""
        return self.would_fresh + self.would_read + self.would_written

    @property
    def cost(self) -> int:
        """Money billed for the calls."""
        return self.cost_fresh + self.cost_read + self.cost_written + self.cost_output

    @property
    def saved(self) -> int:
        """Net savings after summaries and refetches; negative if the gateway cost more."""
        return self.would_cost - self.refetch_cost - self.cost - self.summary_cost

    def __add__(self, other: "Sums") -> "Sums":
        return add_up((self, other))

    def values(self) -> tuple[int, ...]:
        """Return the figures in the order of `FIGURES`."""
        return _values(self)


FIGURES = tuple(field.name for field in fields(Sums))
"""Names of the figures."""
_values: Callable[[Sums], tuple[int, ...]] = attrgetter(*FIGURES)

Entry = tuple[EntryKey, Sums]


def add_up(parts: Sequence[Sums]) -> Sums:
    """Return the sum of *parts*, at least one."""
    if len(parts) == 1:
        return parts[0]
    return Sums(*map(sum, zip(*map(_values, parts), strict=True)))


def floor_to_hour(when: float) -> int:
    """Return the beginning of the hour of *when*, both in seconds since 1970."""
    return int(when // HOUR) * HOUR


def clean_name(name: str) -> str:
    """Return a client's name of a model or session in a form that any database can store: at most
    200 characters, without NUL and surrogates."""
    return name[:200].replace("\0", "").encode("utf-8", "replace").decode()


# --- reports --------------------------------------------------------------------------------------

Grouping = Literal["session", "model", "day"]

_GROUP_NAME: Mapping[str, Callable[[EntryKey], str]] = {
    "session": lambda key: key.session or "(none)",
    "model": lambda key: key.model or "(unknown)",
    "day": lambda key: datetime.fromtimestamp(key.hour, UTC).strftime("%Y-%m-%d"),
}
_ZERO = Sums()
_NOTHING = _ZERO.values()
MONEY_FIELDS = (
    *("cost", "cost_fresh", "cost_read", "cost_written", "cost_output"),
    *("would_cost", "summary_cost", "refetch_cost", "saved", "avoided_saved"),
)
"""Figures that are money."""


@dataclass(frozen=True, slots=True)
class ReportLine:
    """One row of a report."""

    name: str
    sums: Sums
    """Of calls with usage that the upstream reported."""
    unreported: Sums
    """Of calls without: our estimates, and no money."""
    sessions: int
    shadow: Sums = _ZERO
    """Of calls in shadow: estimates with edits, and in `would_...` what was billed."""

    @property
    def hit_rate(self) -> float | None:
        """Share of the reported input that was read from a cache; None without input."""
        return self.sums.read / self.sums.input if self.sums.input else None


@dataclass(frozen=True, slots=True)
class Report:
    """Rows and their total."""

    by: Grouping
    since: int
    """Its first hour, in seconds since 1970; 0: from the beginning."""
    lines: tuple[ReportLine, ...]
    total: ReportLine


def build_report(entries: Iterable[Entry], by: Grouping = "model", since: int = 0) -> Report:
    """Return the report of *entries*: days in order, other rows the most expensive first. The total
    is the sum of the rows, but counts each session once. *since* is only noted, it selects nothing.
    Memory grows only with the number of sessions."""
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
    """Return the report as JSON, with money in US dollars and *since* in ISO 8601, null if it is
    0."""
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
    """Return one row as JSON, with money in US dollars and without its calls in shadow."""
    sums = line.sums
    counts = {name: getattr(sums, name) for name in FIGURES if name not in MONEY_FIELDS}
    dollars = {name: getattr(sums, name) / DOLLAR for name in MONEY_FIELDS}
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
