"""The net ledger, summed up for people: by session, model or day."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import add
from typing import Any, Literal

from refold.gateway.ledger.cost import DOLLAR
from refold.gateway.ledger.entry import FIGURES, Basis, Entry, EntryKey, Sums

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
    """Over the others: our estimates, and no money."""
    sessions: int

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
    )
    return Report(by, since, tuple(lines), total)


def report_as_json(report: Report) -> dict[str, Any]:
    """Return the report as JSON: tokens as they are, money in US dollars."""
    since = datetime.fromtimestamp(report.since, UTC).isoformat() if report.since else None
    return {
        "by": report.by,
        "since": since,
        "rows": [line_as_json(line) for line in report.lines],
        "total": line_as_json(report.total),
    }


def line_as_json(line: ReportLine) -> dict[str, Any]:
    """Return one row as JSON."""
    sums = line.sums
    counts = {name: getattr(sums, name) for name in FIGURES if name not in MONEY_FIGURES}
    dollars = {name: getattr(sums, name) / DOLLAR for name in MONEY_FIGURES}
    missing = {
        "calls": line.unreported.calls,
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
