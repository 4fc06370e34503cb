"""The ledger of a session, for people."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import groupby, pairwise

from rich.console import Console

from refold.cli import screen
from refold.cli.compacting import dollars
from refold.cli.report import line, name
from refold.cli.screen import clean
from refold.ledger import Row
from refold.workfile import WorkFile

STYLES = {"applied": "bold green", "degraded": "bold yellow", "failed": "bold red", "rejected": "bold red"}


def histories(rows: Sequence[tuple[WorkFile, Sequence[Row]]]) -> None:
    """Every attempt at each session, oldest first. Rows that differ in nothing but the edit are one entry."""
    console = screen.out()
    for work, found in rows:
        line(console, name(work), "bold")
        if not found:
            line(console, "no compaction of it was recorded")
        for _, group in groupby(found, _kind):
            _entry(console, list(group))


def _kind(row: Row) -> tuple[object, ...]:
    return row.when, row.run, row.action, row.outcome, row.by, row.actor, row.grade


def _entry(console: Console, rows: Sequence[Row]) -> None:
    row = rows[0]
    console.print()
    when = datetime.fromtimestamp(row.when).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    told = [when, row.action, row.outcome, _tokens(rows), row.actor and f"by {clean(row.actor)}"]
    line(console, "  ".join(filter(None, told)), STYLES.get(row.outcome))
    for text in _details(rows):
        line(console, f"    {text}")


def _tokens(rows: Sequence[Row]) -> str:
    """Before and after, where one row begins with what the one before it left; else what they have in common:
    accepted and reverted edits are each compared with the whole."""
    first, last = rows[0], rows[-1]
    if any(one.after != other.before for one, other in pairwise(rows)):
        return f"{first.before if first.action == 'revert' else last.after:,} tokens"
    return f"{first.before:,} → {last.after:,} tokens" if first.before != last.after else f"{first.before:,} tokens"


def _details(rows: Sequence[Row]) -> Iterator[str]:
    row = rows[0]
    yield clean(row.by)
    if row.reason:
        yield clean(row.reason)
    if asked := ", ".join(_asked(rows)):
        yield asked
    if row.trigger:
        yield f"trigger: {clean(row.trigger)}"
    if edits := [one.edit[:8] for one in rows if one.edit]:
        grade = f", {row.grade}" if row.grade else ""
        yield f"{len(edits):,} edit{'s' * (len(edits) > 1)}{grade}: {' '.join(edits)}"


def _asked(rows: Iterable[Row]) -> Iterator[str]:
    """Model, prompt, calls and cost."""
    listed = list(rows)
    calls, cost, row = sum(one.calls for one in listed), sum(one.cost for one in listed), listed[0]
    if row.model:
        yield f"model {clean(row.model)}"
    if row.prompt:
        yield f"prompt {clean(row.prompt)}"
    if calls:
        yield f"{calls:,} call{'s' * (calls > 1)}"
    if cost:
        yield dollars(cost)
