"""What the commands show people that change which edits are kept, or would."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import groupby, pairwise

from rich.console import Console
from rich.table import Table
from rich.text import Text

from refold.cli import terminal as screen
from refold.cli.compact_command import Accepted, Compacted, dollars
from refold.cli.editor import summaries
from refold.cli.listings import grid, line, name
from refold.cli.tables import gist
from refold.cli.terminal import bar, clean, many, short, tokens
from refold.compactor.preview import Preview
from refold.core.view import View
from refold.edits import Edit
from refold.session_files.edited_session import EditedSession, Share
from refold.stores.store import LedgerRow

MOST = 10
"""Things of a kind that are listed one by one."""


def compactions(done: Sequence[Compacted], console: Console) -> None:
    """What became of each session, or would."""
    for one in done:
        if len(done) == 1:
            _compaction(one, console)
        else:
            line(console, f"{_outcome(one.work.view, one.made.view, one.to)}  {name(one.work)}")
    if len(done) > 1:
        before, after = sum(one.work.view.tokens for one in done), sum(one.made.view.tokens for one in done)
        console.print(Text(f"{tokens(before)} → {tokens(after)} tokens in {len(done):,} sessions", style="bold"))


def _compaction(one: Compacted, console: Console) -> None:
    before, after = one.work.view, one.made.view
    line(console, name(one.work), "bold")
    whole = max(before.tokens_unedited, 1)
    for label, count in (("said", before.tokens_unedited), ("before", before.tokens), ("after", after.tokens)):
        told = (
            (f"{label:<7}", "dim"),
            f"{count:>11,} ",
            (bar(count, whole, 40), "green" if label == "after" else "cyan"),
        )
        console.print(Text.assemble(*told))
    if one.shares:
        console.print()
        console.print(strategies(one.shares))
    if one.draft is not None:
        _preview(one.made, console)
    console.print()
    for text in _costs(one):
        line(console, text)
    met = after.tokens <= one.to
    console.print(Text(_outcome(before, after, one.to), style="bold green" if met else "bold yellow"))
    for text in _whereabouts(one):
        line(console, text)


def _whereabouts(one: Compacted) -> Iterable[str]:
    if one.dry_run:
        yield "nothing was written (--dry-run)"
    elif one.draft:
        yield f"the draft is in {clean(one.draft)}; keep it: refold accept {clean(one.work.name)}"
    elif one.draft is not None:
        yield "there is nothing to keep"
    elif one.kept:
        yield f"edits are in {clean(one.kept)}; {clean(one.work.name)} is as it was"


def _costs(one: Compacted) -> Iterable[str]:
    made = one.made
    if made.calls:
        cost = f", {dollars(made.cost)}" if made.cost else ""
        yield f"{made.calls:,} model call{'s' * (made.calls > 1)}{cost}"
    if one.prices:
        before, after = one.prices
        yield f"each further request: {dollars(before)} → {dollars(after)} of input"


def _outcome(before: View, after: View, to: int) -> str:
    step = f"{before.tokens:,} → {after.tokens:,} tokens"
    if before.tokens <= to:
        return f"{before.tokens:,} tokens: fits {to:,} as it is"
    return (
        f"{step}: fits {to:,}"
        if after.tokens <= to
        else f"{step}: target of {to:,} not met, {after.tokens - to:,} over"
    )


def strategies(shares: Sequence[Share]) -> Table:
    """What each strategy did."""
    rows = grid("strategy~", "edits>", "saved>", "~")
    for one in shares:
        outcome = "" if one.outcome == "applied" else one.outcome
        rows.add_row(clean(one.by), f"{one.edits:,}", f"{one.saved:,}", ": ".join(filter(None, (outcome, one.reason))))
    return rows


# --- previews --------------------------------------------------------------------------------


def _preview(made: Preview, console: Console) -> None:
    """Each edit, each summary in full, and what would vanish."""
    shown = [placed.edit for placed in made.view.visible_edits if placed.edit in made.edits]
    if shown:
        console.print()
    for edit in shown:
        line(console, _edit(made.view, edit))
    if under := len(made.edits) - len(shown):
        line(console, f"… and {under:,} more under these", "dim")
    for id, text in summaries(made).items():
        console.print()
        line(console, f"the summary that edit {id[:8]} shows", "bold")
        for one in clean(text).split("\n"):
            line(console, f"    {one}")
    for kind in ("requests", "constraints", "paths", "identifiers"):
        _vanished(kind, getattr(made.losses, kind), console)


def _edit(view: View, edit: Edit) -> str:
    hidden, shown = view.base.tokens(edit.start, edit.stop), sum(map(view.profile.count, edit.insert))
    return f"{edit.id[:8]} {_span(edit)} {hidden:,} → {shown:,} tokens  {short(edit.by, 60)}"


def _span(edit: Edit) -> str:
    return f"#{edit.start}" if edit.stop == edit.start + 1 else f"#{edit.start}-{edit.stop - 1}"


def _vanished(kind: str, texts: Sequence[str], console: Console) -> None:
    if not texts:
        return
    console.print()
    line(console, f"{kind} that no longer appear", "bold yellow")
    for text in texts[:MOST]:
        line(console, f"    {short(text, 160)}", "yellow")
    if len(texts) > MOST:
        line(console, f"    … and {len(texts) - MOST:,} more (--json lists all)", "dim")


# --- accept, discard, revert -----------------------------------------------------------------


def accepted(rows: Sequence[Accepted], actor: str) -> None:
    """What was kept, and by whom."""
    console = screen.out()
    for one in rows:
        step = f"{one.work.view.tokens:,} → {one.after.view.tokens:,} tokens"
        line(console, f"{clean(one.work.name)}: {many(len(one.edits), 'edit')} accepted by {clean(actor)}, {step}")
        if one.grown:
            line(
                console, f"{one.grown:,} messages were said since the preview; they are shown as they were said", "dim"
            )
        line(console, f"edits are in {clean(one.kept)}", "dim")


def discarded(rows: Sequence[tuple[EditedSession, bool]]) -> None:
    """Whose drafts are gone."""
    for work, found in rows:
        line(screen.out(), f"{clean(work.name)}: {'the draft is discarded' if found else 'no draft to discard'}")


def reverted(rows: Sequence[tuple[EditedSession, Sequence[Edit], EditedSession]]) -> None:
    """What was taken back."""
    console = screen.out()
    for work, gone, after in rows:
        for edit in gone[:MOST]:
            begins = gist(work.view.transcript.messages[edit.start], 60)
            console.print(Text(f"{edit.id[:8]} {_span(edit)} {begins}", style="dim"), no_wrap=True)
        if len(gone) > MOST:
            console.print(Text(f"… and {len(gone) - MOST:,} more (--json lists all)", style="dim"))
        step = f"{work.view.tokens:,} → {after.view.tokens:,} tokens"
        told = f"{many(len(gone), 'edit')} taken back, {step}" if gone else "no edits to take back"
        line(console, f"{clean(work.name)}: {told}")


STYLES = {"applied": "bold green", "degraded": "bold yellow", "failed": "bold red", "rejected": "bold red"}


def histories(rows: Sequence[tuple[EditedSession, Sequence[LedgerRow]]]) -> None:
    """Every attempt at each session, oldest first. Rows that differ in nothing but the edit are one entry."""
    console = screen.out()
    for work, found in rows:
        line(console, name(work), "bold")
        if not found:
            line(console, "no compaction of it was recorded")
        for _, group in groupby(found, _kind):
            _entry(console, list(group))


def _kind(row: LedgerRow) -> tuple[object, ...]:
    return row.when, row.run, row.action, row.outcome, row.by, row.actor, row.grade


def _entry(console: Console, rows: Sequence[LedgerRow]) -> None:
    row = rows[0]
    console.print()
    when = datetime.fromtimestamp(row.when).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    told = [when, row.action, row.outcome, _tokens(rows), row.actor and f"by {clean(row.actor)}"]
    line(console, "  ".join(filter(None, told)), STYLES.get(row.outcome))
    for text in _details(rows):
        line(console, f"    {text}")


def _tokens(rows: Sequence[LedgerRow]) -> str:
    """Before and after, where one row begins with what the one before it left; else what they have in common:
    accepted and reverted edits are each compared with the whole."""
    first, last = rows[0], rows[-1]
    if any(one.after != other.before for one, other in pairwise(rows)):
        return f"{first.before if first.action == 'revert' else last.after:,} tokens"
    return f"{first.before:,} → {last.after:,} tokens" if first.before != last.after else f"{first.before:,} tokens"


def _details(rows: Sequence[LedgerRow]) -> Iterator[str]:
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


def _asked(rows: Iterable[LedgerRow]) -> Iterator[str]:
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
