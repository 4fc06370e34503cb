"""What the commands show people."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from refold.cli import screen
from refold.cli.documents import said
from refold.cli.screen import bar, clean, short, tokens
from refold.cli.show import Line, gist
from refold.edits import Edit
from refold.repairing import Repaired
from refold.rules.verdict import Violation
from refold.stores import SidecarStore
from refold.transcripts import Found
from refold.view import View
from refold.workfile import Share, WorkFile, standing

Compacted = tuple[WorkFile, View, View, Sequence[Share], int, str]
"""The work, its view before and after, what the strategies did, the target, where edits were kept."""

MOST = 10
"""Edits that are listed one by one."""


def lines(texts: Iterable[Line]) -> None:
    """Lines as they are, however long."""
    console = screen.out()
    for text, style in texts:
        console.out(text, style=style or None, highlight=False)


def _line(console: Console, text: str, style: str | None = None) -> None:
    """One line, however long."""
    console.out(text, style=style, highlight=False)


def title(work: WorkFile) -> None:
    """Which session it is, on one line."""
    screen.out().out(_name(work), style="bold", highlight=False)


def _name(work: WorkFile) -> str:
    one = work.session
    told = [
        clean(work.name),
        one.client,
        one.title and f"“{short(one.title, 60)}”",
        f"{len(work.view.transcript):,} messages",
    ]
    return " · ".join(filter(None, told))


def grid(*columns: str) -> Table:
    """A table without lines: `name` is left, `name>` is right, `name~` may be folded."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column in columns:
        table.add_column(column.rstrip(">~"), justify="right" if column.endswith(">") else "left",
                         overflow="fold" if column.endswith("~") else "ellipsis", no_wrap=not column.endswith("~"))  # fmt: skip
    return table


# --- refold ----------------------------------------------------------------------------------


def found(sessions: Sequence[Found]) -> None:
    """The sessions on this machine."""
    console = screen.out()
    if not sessions:
        console.print("No sessions of Claude Code, Codex, Gemini CLI, Qwen Code, pi or OpenCode on this machine.")
        console.print("Name a file (refold stats FILE), or see what Refold does: refold demo")
        return
    table = grid("client", "project", "age>", "size>", "file~")
    for one in sessions:
        where = str(one.path) + (f" --session {one.id}" if one.id else "")
        table.add_row(
            *map(clean, (one.client, short(one.cwd or one.title, 40), _age(one.modified), _size(one.size_bytes), where))
        )
    console.print(table)
    console.print(
        f"\n{len(sessions):,} sessions. Where their tokens are: refold stats FILE. To make one fit: refold compact FILE --to 60k"
    )


def _age(moment: datetime) -> str:
    minutes = (datetime.now(UTC) - moment).total_seconds() / 60
    if minutes < 60:
        return f"{max(0, minutes):.0f} min"
    return f"{minutes / 60:.0f} h" if minutes < 48 * 60 else f"{minutes / 1440:.0f} d"


def _size(count: int) -> str:
    return "" if count < 0 else f"{count / 1024:,.0f} kB" if count < 10 * 1024**2 else f"{count / 1024**2:,.1f} MB"


# --- refold stats ----------------------------------------------------------------------------


def stats(work: WorkFile, parts: dict[str, Any], effective: int | None) -> None:
    """One session: where its tokens are."""
    console, view = screen.out(), work.view
    _line(console, _name(work), "bold")
    told = f"{said(view):,} tokens said"
    told += f", {view.tokens:,} sent" if view.edits else ""
    told += f", {effective:,} in the client's own context" if effective is not None else ""
    console.print(told)
    for heading in ("role", "tool", "part"):
        if rows := parts[f"by_{heading}"]:
            console.print()
            console.print(_bars(heading, rows, view.tokens))
    console.print()
    console.print(_largest(parts["largest"]))
    for one in work.session.compactions:
        console.print(Text(f"recorded compaction: #{one.start}-{one.stop - 1} {one.trigger}", style="magenta"))
    for share in standing(view):
        console.print(Text(f"{share.edits:,} edits save {share.saved:,} tokens: {share.by}", style="green"))


def _bars(heading: str, rows: Sequence[dict[str, Any]], whole: int) -> Table:
    table = grid(heading, "tokens>", "share>", "")
    for row in rows:
        share = row["tokens"] / whole if whole else 0
        table.add_row(clean(row["name"]), f"{row['tokens']:,}", f"{share:.1%}", Text(bar(share, 1), style="cyan"))
    return table


def _largest(rows: Sequence[dict[str, Any]]) -> Table:
    table = grid("largest", "role", "tokens>", "begins with")
    for row in rows:
        table.add_row(f"#{row['at']}", row["role"], f"{row['tokens']:,}", row["begins"])
    return table


def table(works: Sequence[WorkFile]) -> None:
    """Several sessions, one line each, and their total."""
    rows = grid("client", "messages>", "said>", "sent>", "edits>", "session~")
    for work in works:
        id = f" {work.session.id[:12]}" if work.session.id and work.session.id[:12] not in work.name else ""
        rows.add_row(work.session.client, *_sums([work.view]), clean(work.name) + id)
    rows.add_row("", *_sums([work.view for work in works]), f"{len(works):,} sessions", style="bold")
    screen.out().print(rows)


def _sums(views: Sequence[View]) -> tuple[str, ...]:
    """Messages, tokens said and sent, edits."""
    sums = (sum(map(said, views)), sum(view.tokens for view in views))
    return f"{sum(len(v.transcript) for v in views):,}", *map(tokens, sums), f"{sum(len(v.edits) for v in views):,}"


# --- refold compact --------------------------------------------------------------------------


def place(work: WorkFile, named: str | None) -> str:
    """Where a session's edits are kept."""
    return named or (str(work.store.path) if isinstance(work.store, SidecarStore) else "")


def compactions(done: Sequence[Compacted], *, dry_run: bool, console: Console) -> None:
    """What became of each session."""
    for row in done:
        if len(done) == 1:
            _compaction(*row, dry_run=dry_run, console=console)
        else:
            _line(console, f"{_outcome(row[1], row[2], row[4])}  {_name(row[0])}")
    if len(done) > 1:
        before, after = sum(row[1].tokens for row in done), sum(row[2].tokens for row in done)
        console.print(Text(f"{tokens(before)} → {tokens(after)} tokens in {len(done):,} sessions", style="bold"))


def _compaction(
    work: WorkFile,
    before: View,
    after: View,
    shares: Sequence[Share],
    to: int,
    kept: str,
    *,
    dry_run: bool,
    console: Console,
) -> None:
    _line(console, _name(work), "bold")
    whole = max(said(before), 1)
    for name, count in (("said", said(before)), ("before", before.tokens), ("after", after.tokens)):
        console.print(
            Text.assemble(
                (f"{name:<7}", "dim"), f"{count:>11,} ", (bar(count, whole, 40), "green" if name == "after" else "cyan")
            )
        )
    if shares:
        console.print()
        console.print(strategies(shares))
    console.print()
    console.print(Text(_outcome(before, after, to), style="bold green" if after.tokens <= to else "bold yellow"))
    if dry_run:
        console.print("nothing was written (--dry-run)")
    elif kept and after is not before:
        _line(console, f"edits are in {clean(kept)}; {clean(work.name)} is as it was")


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
    rows = grid("strategy~", "edits>", "saved>", "")
    for one in shares:
        outcome = "" if one.outcome == "applied" else one.outcome
        rows.add_row(clean(one.by), f"{one.edits:,}", f"{one.saved:,}", ": ".join(filter(None, (outcome, one.reason))))
    return rows


# --- refold revert, refold check -------------------------------------------------------------


def reverted(rows: Sequence[tuple[WorkFile, Sequence[Edit], View]]) -> None:
    """What was taken back."""
    console = screen.out()
    for work, gone, after in rows:
        for edit in gone[:MOST]:
            hidden = f"#{edit.start}" if edit.stop == edit.start + 1 else f"#{edit.start}-{edit.stop - 1}"
            begins = gist(work.view.transcript.messages[edit.start], 60)
            console.print(Text(f"{edit.id[:8]} {hidden} {begins}", style="dim"), no_wrap=True)
        if len(gone) > MOST:
            console.print(Text(f"… and {len(gone) - MOST:,} more", style="dim"))
        step = f"{work.view.tokens:,} → {after.tokens:,} tokens"
        told = f"{len(gone):,} edits taken back, {step}" if gone else "no edits to take back"
        _line(console, f"{clean(work.name)}: {told}")


def checked(rows: Sequence[tuple[WorkFile, Sequence[Violation], Repaired | None]], console: Console) -> None:
    """What a provider would refuse."""
    for work, found, repaired in rows:
        for one in found:
            _line(console, f"{clean(work.name)}: #{one.at} {one.rule} {clean(one.text)}", "red")
        for mend in repaired.repairs if repaired else ():
            _line(console, f"mended #{mend.at} {mend.rule} {clean(mend.text)}", "green")
        for one in repaired.left if repaired else ():
            why = f" ({one.unmended})" if one.unmended else ""
            _line(console, f"left #{one.at} {one.rule} {clean(one.text)}{why}", "yellow")
        if not found:
            _line(console, f"{clean(work.name)}: nothing that the API would refuse", "green")
