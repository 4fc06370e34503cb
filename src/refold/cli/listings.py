"""What the commands show people."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from refold.cli import terminal as screen
from refold.cli.tables import Line, columns
from refold.cli.terminal import bar, clean, many, short, tokens
from refold.codecs.repair import Repaired
from refold.core.view import View
from refold.retrieval import Hit
from refold.rules.rule import Violation
from refold.session_files import Found
from refold.session_files.edited_session import EditedSession, savings_by_strategy


def lines(texts: Iterable[Line]) -> None:
    """Lines as they are, however long."""
    console = screen.out()
    for text, style in texts:
        console.out(text, style=style or None, highlight=False)


def line(console: Console, text: str, style: str | None = None) -> None:
    """One line, however long."""
    console.out(text, style=style, highlight=False)


def title(work: EditedSession) -> None:
    """Which session it is, on one line."""
    screen.out().out(name(work), style="bold", highlight=False)


def name(work: EditedSession) -> str:
    """Path, client, title and length of a session."""
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
    columns(console, ("client", "project", "age>", "size>", "file"), list(map(_found, sessions)))
    console.print(
        f"\n{len(sessions):,} sessions. Where their tokens are: refold stats FILE. To make one fit: refold compact FILE --to 60k"
    )


def _found(one: Found) -> list[str]:
    where = str(one.path) + (f" --session {one.id}" if one.id else "")
    told = (one.client, short(one.cwd or one.title, 40), _age(one.modified), _size(one.size_bytes), where)
    return list(map(clean, told))


def _age(moment: datetime) -> str:
    minutes = (datetime.now(UTC) - moment).total_seconds() / 60
    if minutes < 60:
        return f"{max(0, minutes):.0f} min"
    return f"{minutes / 60:.0f} h" if minutes < 48 * 60 else f"{minutes / 1440:.0f} d"


def _size(count: int) -> str:
    return "" if count < 0 else f"{count / 1024:,.0f} kB" if count < 10 * 1024**2 else f"{count / 1024**2:,.1f} MB"


# --- refold stats ----------------------------------------------------------------------------


def stats(work: EditedSession, parts: dict[str, Any], effective: int | None) -> None:
    """One session: where its tokens are."""
    console, view = screen.out(), work.view
    line(console, name(work), "bold")
    told = f"{view.tokens_unedited:,} tokens said"
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
    for share in savings_by_strategy(view):
        console.print(Text(f"{many(share.edits, 'edit')} saved {share.saved:,} tokens: {share.by}", style="green"))


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


def table(works: Sequence[EditedSession]) -> None:
    """Several sessions, one line each, and their total."""
    rows = list[tuple[str, ...]]()
    for work in works:
        id = f" {work.session.id[:12]}" if work.session.id and work.session.id[:12] not in work.name else ""
        rows.append((work.session.client, *_sums([work.view]), clean(work.name) + id))
    total = ("", *_sums([work.view for work in works]), f"{len(works):,} sessions")
    columns(screen.out(), ("client", "messages>", "said>", "sent>", "edits>", "session"), rows, total)


def _sums(views: Sequence[View]) -> tuple[str, ...]:
    """Messages, tokens said and sent, edits."""
    sums = (sum(view.tokens_unedited for view in views), sum(view.tokens for view in views))
    return f"{sum(len(v.transcript) for v in views):,}", *map(tokens, sums), f"{sum(len(v.edits) for v in views):,}"


# --- refold recall, refold check ---------------------------------------------------------------------------


def recalled(rows: Sequence[tuple[EditedSession, Sequence[Hit]]], limit: int) -> None:
    """What was found behind the edits, *limit* hits of each session."""
    console = screen.out()
    for work, hits in rows:
        if len(rows) > 1 and hits:
            line(console, name(work), "bold")
        columns(console, ("edit", "message>", "role", ""), [_hit(hit) for hit in hits[:limit]])
        if len(hits) > limit:
            line(console, f"… and more (--limit {limit * 10:,} shows up to so many)", "dim")
        if len(rows) == 1 and not hits:
            line(console, "nothing that the edits hide says so" if work.view.edits else "no edit hides anything")


def _hit(hit: Hit) -> tuple[str, ...]:
    return hit.edit, f"#{hit.position}", hit.role, clean(hit.snippet)


def checked(rows: Sequence[tuple[EditedSession, Sequence[Violation], Repaired | None]], console: Console) -> None:
    """What a provider would refuse."""
    for work, found, repaired in rows:
        for one in found:
            line(console, f"{clean(work.name)}: #{one.at} {one.rule} {clean(one.text)}", "red")
        for mend in repaired.repairs if repaired else ():
            line(console, f"mended #{mend.at} {mend.rule} {clean(mend.text)}", "green")
        for one in repaired.left if repaired else ():
            why = f" ({one.unmended})" if one.unmended else ""
            line(console, f"left #{one.at} {one.rule} {clean(one.text)}{why}", "yellow")
        if not found:
            line(console, f"{clean(work.name)}: nothing that the API would refuse", "green")
