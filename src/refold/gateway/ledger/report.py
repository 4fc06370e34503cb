"""The net ledger, summed up for people: by session, model or day."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import add
from typing import Any, Literal

from refold.gateway.ledger.cost import DOLLAR
from refold.gateway.ledger.entry import FIGURES, Entry, EntryKey, Sums

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
    """Sum *entries* up. Every row is the sum of its entries, the total that of the rows."""
    groups, sessions = dict[str, _Group](), set[tuple[str, str]]()
    for key, sums in entries:
        name = _GROUP_NAME[by](key)
        if (group := groups.get(name)) is None:
            group = groups[name] = _Group()
        group.add(key, sums)
        if key.session:
            sessions.add((key.tenant, key.session))
    lines = [groups.pop(name).line(name) for name in list(groups)]
    if by == "day":
        lines.sort(key=lambda line: line.name)
    else:
        lines.sort(key=lambda line: (-line.sums.cost, -line.sums.input, line.name))
    reported, unreported = (
        sum((line.sums for line in lines), _ZERO),
        sum((line.unreported for line in lines), _ZERO),
    )
    return Report(by, since, tuple(lines), ReportLine("total", reported, unreported, len(sessions)))


class _Group:
    """Entries of one row, added up as they come: what is kept does not grow with them, but for the
    sessions' names."""

    def __init__(self) -> None:
        self._reported: Sequence[int] = _NOTHING
        self._other: Sequence[int] = _NOTHING
        self._sessions = set[tuple[str, str]]()

    def add(self, key: EntryKey, sums: Sums) -> None:
        """One more entry."""
        if key.basis == "reported":
            self._reported = tuple(map(add, self._reported, sums.values()))
        else:
            self._other = tuple(map(add, self._other, sums.values()))
        if key.session:
            self._sessions.add((key.tenant, key.session))

    def line(self, name: str) -> ReportLine:
        """Their sum."""
        return ReportLine(
            name, _as_sums(self._reported), _as_sums(self._other), len(self._sessions)
        )


def _as_sums(figures: Sequence[int]) -> Sums:
    return _ZERO if figures is _NOTHING else Sums(**dict(zip(FIGURES, figures, strict=True)))


def report_as_json(report: Report) -> dict[str, Any]:
    """The report as JSON: tokens as they are, money in US dollars."""
    since = datetime.fromtimestamp(report.since, UTC).isoformat() if report.since else None
    return {
        "by": report.by,
        "since": since,
        "rows": [line_as_json(line) for line in report.lines],
        "total": line_as_json(report.total),
    }


def line_as_json(line: ReportLine) -> dict[str, Any]:
    """One row as JSON."""
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
