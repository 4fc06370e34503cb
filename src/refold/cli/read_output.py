"""What the commands that only read print for people."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby, pairwise
from typing import Any

from rich.console import RenderableType
from rich.filesize import decimal

from refold.cli.compaction import dollars
from refold.cli.edited_session import EditedSession, savings_by_strategy
from refold.cli.message_lines import diff_lines, gist, message_lines, view_lines
from refold.cli.terminal import Line, bar, clean, plural, short, table, tokens
from refold.codecs.repair import RepairResult
from refold.core.breakdown import break_down
from refold.core.view import View
from refold.edits import Edit
from refold.messages import Content, Message, Part
from refold.retrieval import Hit
from refold.rules.rule import Violation
from refold.session_files import FoundSession
from refold.stores.store import LedgerRow


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


def show_sessions(sessions: Sequence[FoundSession]) -> Iterator[RenderableType]:
    """Show the sessions on this machine."""
    if not sessions:
        yield (
            "No sessions of Claude Code, Codex, Gemini CLI, Qwen Code, pi or OpenCode "
            "on this machine."
        )
        yield "Name a file (refold stats FILE), or see what Refold does: refold demo"
        return
    yield from table(
        ("client", "project", "age>", "size>", "file"), list(map(_session_row, sessions))
    )
    yield (
        f"\n{len(sessions):,} sessions. Where their tokens are: refold stats FILE. "
        "To make one fit: refold compact FILE --to 60k"
    )


def _session_row(session: FoundSession) -> list[str]:
    file = str(session.path) + (f" --session {session.id}" if session.id else "")
    project = short(session.cwd or session.title, 40)
    size = decimal(session.size_bytes) if session.size_bytes >= 0 else ""
    return list(map(clean, (session.client, project, _age(session.modified), size, file)))


def _age(moment: datetime) -> str:
    minutes = (datetime.now(UTC) - moment).total_seconds() / 60
    if minutes < 60:
        return f"{max(0, minutes):.0f} min"
    return f"{minutes / 60:.0f} h" if minutes < 48 * 60 else f"{minutes / 1440:.0f} d"


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


Stats = tuple[EditedSession, Mapping[str, Any], int | None]
"""A session, its token shares, and its tokens after the client's own compactions."""


def show_stats(rows: Sequence[Stats]) -> Iterator[Line]:
    """Show where the tokens of one session are; several as one line each, and their total."""
    if len(rows) == 1:
        return _session_stats(*rows[0])
    sessions = [edited for edited, _, _ in rows]
    total = ("", *_sums([edited.view for edited in sessions]), f"{len(sessions):,} sessions")
    names = ("client", "messages>", "unedited>", "sent>", "edits>", "session")
    return table(names, list(map(_stats_row, sessions)), total)


def _session_stats(
    edited: EditedSession, shares: Mapping[str, Any], effective: int | None
) -> Iterator[Line]:
    view = edited.view
    yield Line(title(edited), "bold")
    sizes = f"{view.tokens_unedited:,} tokens unedited"
    sizes += f", {view.tokens:,} sent" if view.edits else ""
    sizes += f", {effective:,} in the client's own context" if effective is not None else ""
    yield Line(sizes)
    for heading in ("role", "tool", "part"):
        if rows := shares[f"by_{heading}"]:
            yield Line()
            bars = [_share_row(row, view.tokens) for row in rows]
            yield from table((heading, "tokens>", "share>", ""), bars, style="cyan")
    yield Line()
    largest = [
        (f"#{row['at']}", row["role"], f"{row['tokens']:,}", row["begins"])
        for row in shares["largest"]
    ]
    yield from table(("largest", "role", "tokens>", "begins with"), largest)
    for compaction in edited.session.compactions:
        place = f"#{compaction.start}-{compaction.stop - 1}"
        yield Line(f"recorded compaction: {place} {compaction.trigger}", "magenta")
    for share in savings_by_strategy(view):
        saved = f"{plural(share.edits, 'edit')} saved {share.saved:,} tokens: {share.by}"
        yield Line(saved, "green")


def _share_row(row: Mapping[str, Any], whole: int) -> tuple[str, ...]:
    share = row["tokens"] / whole if whole else 0
    return clean(row["name"]), f"{row['tokens']:,}", f"{share:.1%}", bar(share, 1)


def _stats_row(edited: EditedSession) -> tuple[str, ...]:
    id = edited.session.id[:12]
    suffix = f" {id}" if id not in edited.name else ""
    return edited.session.client, *_sums([edited.view]), clean(edited.name) + suffix


def _sums(views: Sequence[View]) -> tuple[str, ...]:
    """Return the messages, tokens unedited, tokens sent and edits of all views."""
    return (
        f"{sum(len(view.transcript) for view in views):,}",
        tokens(sum(view.tokens_unedited for view in views)),
        tokens(sum(view.tokens for view in views)),
        f"{sum(len(view.edits) for view in views):,}",
    )


# --- refold view, refold unfold --------------------------------------------------------------


def show_views(sessions: Iterable[EditedSession], diff: bool, most: int | None) -> Iterator[Line]:
    """Show what a model would see; with *diff*, what is different in it."""
    for edited in sessions:
        yield Line(title(edited), "bold")
        yield from diff_lines(edited.view) if diff else view_lines(edited.view, most)


def show_hidden(view: View, edit: Edit) -> Iterator[Line]:
    """Show the messages that an edit hides."""
    for message in view.transcript.messages[edit.start : edit.stop]:
        yield from message_lines(message)


# --- refold recall, refold check -------------------------------------------------------------


def show_hits(rows: Sequence[tuple[EditedSession, Sequence[Hit]]], limit: int) -> Iterator[Line]:
    """Show *limit* hits of each session."""
    for edited, hits in rows:
        if len(rows) > 1 and hits:
            yield Line(title(edited), "bold")
        cells = [
            (hit.edit, f"#{hit.position}", hit.role, clean(hit.snippet)) for hit in hits[:limit]
        ]
        yield from table(("edit", "message>", "role", ""), cells)
        if len(hits) > limit:
            yield Line(f"… and more (--limit {limit * 10:,} shows up to so many)", "dim")
        if len(rows) == 1 and not hits:
            hidden = "nothing that the edits hide says so"
            yield Line(hidden if edited.view.edits else "no edit hides anything")


Check = tuple[EditedSession, Sequence[Violation], RepairResult | None]
"""A session, what a provider would refuse of it, and its repair if that is wanted."""


def show_violations(rows: Iterable[Check]) -> Iterator[Line]:
    """Show what a provider would refuse, and what was repaired."""
    for edited, violations, repaired in rows:
        name = clean(edited.name)
        for violation in violations:
            yield Line(f"{name}: {_violation(violation)}", "red")
        for repair in repaired.repairs if repaired else ():
            yield Line(f"mended #{repair.at} {repair.rule} {clean(repair.text)}", "green")
        for violation in repaired.remaining if repaired else ():
            why = f" ({violation.unmended})" if violation.unmended else ""
            yield Line(f"left {_violation(violation)}{why}", "yellow")
        if not violations:
            yield Line(f"{name}: nothing that the API would refuse", "green")


def _violation(violation: Violation) -> str:
    return f"#{violation.at} {violation.rule} {clean(violation.text)}"


# --- refold history --------------------------------------------------------------------------

STYLES = {
    "applied": "bold green",
    "degraded": "bold yellow",
    "failed": "bold red",
    "rejected": "bold red",
}


def show_histories(rows: Iterable[tuple[EditedSession, Sequence[LedgerRow]]]) -> Iterator[Line]:
    """Show every attempt at each session, oldest first.

    Rows that differ in nothing but the edit are one attempt.
    """
    for edited, ledger in rows:
        yield Line(title(edited), "bold")
        if not ledger:
            yield Line("no compaction of it was recorded")
        for _, group in groupby(ledger, _attempt_key):
            yield from _attempt(list(group))


def _attempt_key(row: LedgerRow) -> tuple[object, ...]:
    return row.when, row.run, row.action, row.outcome, row.by, row.actor, row.grade


def _attempt(rows: Sequence[LedgerRow]) -> Iterator[Line]:
    row = rows[0]
    when = datetime.fromtimestamp(row.when).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    actor = row.actor and f"by {clean(row.actor)}"
    heading = filter(None, (when, row.action, row.outcome, _sizes(rows), actor))
    yield Line()
    yield Line("  ".join(heading), STYLES.get(row.outcome, ""))
    for text in _details(rows):
        yield Line(f"    {text}")


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
    """Yield who did it and why; model, prompt, calls and cost; the edits."""
    row = rows[0]
    calls, cost = sum(row.calls for row in rows), sum(row.cost for row in rows)
    ids = [row.edit[:8] for row in rows if row.edit]
    model = (
        row.model and f"model {clean(row.model)}",
        row.prompt and f"prompt {clean(row.prompt)}",
        plural(calls, "call") if calls else "",
        dollars(cost) if cost else "",
    )
    grade = f", {row.grade}" if row.grade else ""
    details = (
        clean(row.by),
        clean(row.reason),
        ", ".join(filter(None, model)),
        row.trigger and f"trigger: {clean(row.trigger)}",
        f"{plural(len(ids), 'edit')}{grade}: {' '.join(ids)}" if ids else "",
    )
    return filter(None, details)
