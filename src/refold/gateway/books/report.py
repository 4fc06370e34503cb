"""The net ledger, summed up for people: by session, model or day."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from refold.gateway.books.bills import DOLLAR
from refold.gateway.books.entry import NAMES, Entry, Key, Sums

By = Literal["session", "model", "day"]

_NAMED: Mapping[str, Callable[[Key], str]] = {
    "session": lambda key: key.session or "(none)",
    "model": lambda key: key.model or "(unknown)",
    "day": lambda key: datetime.fromtimestamp(key.hour, UTC).strftime("%Y-%m-%d"),
}
_ZERO = Sums()
MONEY = (
    *("cost", "cost_fresh", "cost_read", "cost_written", "cost_output"),
    *("would_cost", "summary_cost", "refetch_cost", "saved", "avoided_saved"),
)
"""The figures that are money."""


@dataclass(frozen=True, slots=True)
class Line:
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

    by: By
    since: int
    """The first hour that is in it, in seconds since 1970."""
    lines: tuple[Line, ...]
    total: Line


def report(entries: Iterable[Entry], by: By = "model", since: int = 0) -> Report:
    """Sum *entries* up. Every row is the sum of its entries, the total that of the rows."""
    groups: dict[str, list[Entry]] = {}
    for key, sums in entries:
        groups.setdefault(_NAMED[by](key), []).append((key, sums))
    lines = [_line(name, found) for name, found in groups.items()]
    if by == "day":
        lines.sort(key=lambda line: line.name)
    else:
        lines.sort(key=lambda line: (-line.sums.cost, -line.sums.input, line.name))
    return Report(by, since, tuple(lines), _line("total", [entry for found in groups.values() for entry in found]))


def _line(name: str, entries: Iterable[Entry]) -> Line:
    listed = list(entries)
    reported = sum((sums for key, sums in listed if key.basis == "reported"), _ZERO)
    other = sum((sums for key, sums in listed if key.basis != "reported"), _ZERO)
    return Line(name, reported, other, len({(key.tenant, key.session) for key, _ in listed if key.session}))


def document(one: Report) -> dict[str, Any]:
    """The report as JSON: tokens as they are, money in US dollars."""
    since = datetime.fromtimestamp(one.since, UTC).isoformat() if one.since else None
    return {"by": one.by, "since": since, "rows": [row(line) for line in one.lines], "total": row(one.total)}


def row(line: Line) -> dict[str, Any]:
    """One row as JSON."""
    sums = line.sums
    told = {name: getattr(sums, name) for name in NAMES if name not in MONEY}
    dollars = {name: getattr(sums, name) / DOLLAR for name in MONEY}
    missing = {
        "calls": line.unreported.calls,
        "input": line.unreported.fresh,
        "would_input": line.unreported.would_fresh,
    }
    both = {"input": sums.input, "would_input": sums.would_input, "cache_hit_rate": line.hit_rate}
    return {"name": line.name, "sessions": line.sessions, **told, **both, **dollars, "unreported": missing}
