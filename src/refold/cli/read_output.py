"""What the commands that only read print for people."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby, pairwise
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from refold.cli import terminal
from refold.cli.compaction import dollars
from refold.cli.edited_session import EditedSession, savings_by_strategy
from refold.cli.message_lines import Line, gist
from refold.cli.terminal import bar, clean, grid, plural, print_columns, print_line, short, tokens
from refold.codecs.repair import RepairResult
from refold.core.breakdown import break_down
from refold.core.view import View
from refold.messages import Content, Message, Part
from refold.retrieval import Hit
from refold.rules.rule import Violation
from refold.session_files import FoundSession
from refold.stores.store import LedgerRow


def show_lines(lines: Iterable[Line]) -> None:
    """Print lines, however long."""
    console = terminal.out()
    for text, style in lines:
        print_line(console, text, style or None)


def show_title(edited: EditedSession) -> None:
    """Print which session it is, on one line."""
    print_line(terminal.out(), title(edited), "bold")


def title(edited: EditedSession) -> str:
    """Return path, client, title and length of a session."""
    session = edited.session
    pieces = [
        clean(edited.name),
        session.client,
        session.title and f"“{short(session.title, 60)}”",
        f"{len(edited.view.transcript):,} messages",
    ]
    return " · ".join(filter(None, pieces))


# --- refold ----------------------------------------------------------------------------------


def show_sessions(sessions: Sequence[FoundSession]) -> None:
    """Print the sessions on this machine."""
    console = terminal.out()
    if not sessions:
        console.print(
            "No sessions of Claude Code, Codex, Gemini CLI, Qwen Code, pi or OpenCode on this machine."
        )
        console.print("Name a file (refold stats FILE), or see what Refold does: refold demo")
        return
    names = ("client", "project", "age>", "size>", "file")
    print_columns(console, names, list(map(_session_row, sessions)))
    console.print(
        f"\n{len(sessions):,} sessions. Where their tokens are: refold stats FILE. "
        "To make one fit: refold compact FILE --to 60k"
    )


def _session_row(session: FoundSession) -> list[str]:
    file = str(session.path) + (f" --session {session.id}" if session.id else "")
    project = short(session.cwd or session.title, 40)
    row = (session.client, project, _age(session.modified), _size(session.size_bytes), file)
    return list(map(clean, row))


def _age(moment: datetime) -> str:
    minutes = (datetime.now(UTC) - moment).total_seconds() / 60
    if minutes < 60:
        return f"{max(0, minutes):.0f} min"
    return f"{minutes / 60:.0f} h" if minutes < 48 * 60 else f"{minutes / 1440:.0f} d"


def _size(count: int) -> str:
    if count < 0:
        return ""
    return f"{count / 1024:,.0f} kB" if count < 10 * 1024**2 else f"{count / 1024**2:,.1f} MB"


# --- refold stats ----------------------------------------------------------------------------


def token_shares(view: View, largest: int) -> dict[str, Any]:
    """Return a view's tokens by role, tool and kind of part, and its *largest* messages."""

    def count(part: Part | Content) -> int:
        return view.profile.count(Message("user", (part,))) - view.profile.count(Message("user"))

    def rows(counts: Mapping[str, int]) -> list[dict[str, Any]]:
        return [{"name": name, "tokens": tokens} for name, tokens in counts.items()]

    shares = break_down(view, part=count)
    shown = [(item.start, message) for item in view.iter_items() for message in item.messages]
    messages = [(size, *slot) for size, slot in zip(shares.messages, shown, strict=True)]
    messages.sort(key=lambda row: (-row[0], row[1]))
    return {
        "by_role": rows(shares.roles),
        "by_tool": rows({name: tokens for name, tokens in shares.names.items() if name}),
        "by_part": rows(shares.kinds),
        "largest": [
            {"at": at, "role": message.role, "tokens": size, "begins": gist(message, 60)}
            for size, at, message in messages[:largest]
        ],
    }


def show_stats(edited: EditedSession, shares: Mapping[str, Any], effective: int | None) -> None:
    """Print where the tokens of one session are."""
    console, view = terminal.out(), edited.view
    print_line(console, title(edited), "bold")
    sizes = f"{view.tokens_unedited:,} tokens said"
    sizes += f", {view.tokens:,} sent" if view.edits else ""
    sizes += f", {effective:,} in the client's own context" if effective is not None else ""
    console.print(sizes)
    for heading in ("role", "tool", "part"):
        if rows := shares[f"by_{heading}"]:
            console.print()
            console.print(_bars(heading, rows, view.tokens))
    console.print()
    largest = grid("largest", "role", "tokens>", "begins with")
    for row in shares["largest"]:
        largest.add_row(f"#{row['at']}", row["role"], f"{row['tokens']:,}", row["begins"])
    console.print(largest)
    for compaction in edited.session.compactions:
        place = f"#{compaction.start}-{compaction.stop - 1}"
        console.print(Text(f"recorded compaction: {place} {compaction.trigger}", style="magenta"))
    for share in savings_by_strategy(view):
        saved = f"{plural(share.edits, 'edit')} saved {share.saved:,} tokens: {share.by}"
        console.print(Text(saved, style="green"))


def _bars(heading: str, rows: Sequence[Mapping[str, Any]], whole: int) -> Table:
    table = grid(heading, "tokens>", "share>", "")
    for row in rows:
        share = row["tokens"] / whole if whole else 0
        drawn = Text(bar(share, 1), style="cyan")
        table.add_row(clean(row["name"]), f"{row['tokens']:,}", f"{share:.1%}", drawn)
    return table


def show_table(sessions: Sequence[EditedSession]) -> None:
    """Print several sessions, one line each, and their total."""
    rows = list[tuple[str, ...]]()
    for edited in sessions:
        id = edited.session.id[:12]
        suffix = f" {id}" if id not in edited.name else ""
        rows.append((edited.session.client, *_sums([edited.view]), clean(edited.name) + suffix))
    total = ("", *_sums([edited.view for edited in sessions]), f"{len(sessions):,} sessions")
    names = ("client", "messages>", "said>", "sent>", "edits>", "session")
    print_columns(terminal.out(), names, rows, total)


def _sums(views: Sequence[View]) -> tuple[str, ...]:
    """Return the messages, tokens said, tokens sent and edits of all views."""
    return (
        f"{sum(len(view.transcript) for view in views):,}",
        tokens(sum(view.tokens_unedited for view in views)),
        tokens(sum(view.tokens for view in views)),
        f"{sum(len(view.edits) for view in views):,}",
    )


# --- refold recall, refold check -------------------------------------------------------------


def show_hits(rows: Sequence[tuple[EditedSession, Sequence[Hit]]], limit: int) -> None:
    """Print *limit* hits of each session."""
    console = terminal.out()
    for edited, hits in rows:
        if len(rows) > 1 and hits:
            print_line(console, title(edited), "bold")
        cells = [
            (hit.edit, f"#{hit.position}", hit.role, clean(hit.snippet)) for hit in hits[:limit]
        ]
        print_columns(console, ("edit", "message>", "role", ""), cells)
        if len(hits) > limit:
            print_line(console, f"… and more (--limit {limit * 10:,} shows up to so many)", "dim")
        if len(rows) == 1 and not hits:
            hidden = "nothing that the edits hide says so"
            print_line(console, hidden if edited.view.edits else "no edit hides anything")


def show_violations(
    rows: Sequence[tuple[EditedSession, Sequence[Violation], RepairResult | None]], console: Console
) -> None:
    """Print what a provider would refuse, and what was repaired."""
    for edited, violations, repaired in rows:
        name = clean(edited.name)
        for violation in violations:
            print_line(console, f"{name}: {_violation(violation)}", "red")
        for repair in repaired.repairs if repaired else ():
            print_line(console, f"mended #{repair.at} {repair.rule} {clean(repair.text)}", "green")
        for violation in repaired.remaining if repaired else ():
            why = f" ({violation.unmended})" if violation.unmended else ""
            print_line(console, f"left {_violation(violation)}{why}", "yellow")
        if not violations:
            print_line(console, f"{name}: nothing that the API would refuse", "green")


def _violation(violation: Violation) -> str:
    return f"#{violation.at} {violation.rule} {clean(violation.text)}"


# --- refold history --------------------------------------------------------------------------

STYLES = {
    "applied": "bold green",
    "degraded": "bold yellow",
    "failed": "bold red",
    "rejected": "bold red",
}


def show_histories(histories: Sequence[tuple[EditedSession, Sequence[LedgerRow]]]) -> None:
    """Print every attempt at each session, oldest first.

    Rows that differ in nothing but the edit are one attempt.
    """
    console = terminal.out()
    for edited, rows in histories:
        print_line(console, title(edited), "bold")
        if not rows:
            print_line(console, "no compaction of it was recorded")
        for _, group in groupby(rows, _attempt_key):
            _show_attempt(console, list(group))


def _attempt_key(row: LedgerRow) -> tuple[object, ...]:
    return row.when, row.run, row.action, row.outcome, row.by, row.actor, row.grade


def _show_attempt(console: Console, rows: Sequence[LedgerRow]) -> None:
    row = rows[0]
    when = datetime.fromtimestamp(row.when).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    actor = row.actor and f"by {clean(row.actor)}"
    heading = filter(None, (when, row.action, row.outcome, _sizes(rows), actor))
    console.print()
    print_line(console, "  ".join(heading), STYLES.get(row.outcome))
    for text in _details(rows):
        print_line(console, f"    {text}")


def _sizes(rows: Sequence[LedgerRow]) -> str:
    """Return the tokens before and after, if each row begins where the one before it ends.

    Accepted and reverted edits are each compared with the whole: then what the rows have in common.
    """
    first, last = rows[0], rows[-1]
    if any(row.after != following.before for row, following in pairwise(rows)):
        return f"{first.before if first.action == 'revert' else last.after:,} tokens"
    if first.before == last.after:
        return f"{first.before:,} tokens"
    return f"{first.before:,} → {last.after:,} tokens"


def _details(rows: Sequence[LedgerRow]) -> Iterator[str]:
    row = rows[0]
    yield clean(row.by)
    if row.reason:
        yield clean(row.reason)
    if model := ", ".join(_model_use(rows)):
        yield model
    if row.trigger:
        yield f"trigger: {clean(row.trigger)}"
    if ids := [row.edit[:8] for row in rows if row.edit]:
        grade = f", {row.grade}" if row.grade else ""
        yield f"{plural(len(ids), 'edit')}{grade}: {' '.join(ids)}"


def _model_use(rows: Sequence[LedgerRow]) -> Iterator[str]:
    """Yield model, prompt, calls and cost."""
    calls, cost = sum(row.calls for row in rows), sum(row.cost for row in rows)
    if rows[0].model:
        yield f"model {clean(rows[0].model)}"
    if rows[0].prompt:
        yield f"prompt {clean(rows[0].prompt)}"
    if calls:
        yield plural(calls, "call")
    if cost:
        yield dollars(cost)
