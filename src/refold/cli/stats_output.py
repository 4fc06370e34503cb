"""What `refold stats` prints: where a session's tokens are, and what its provider billed."""

from collections import Counter as Tally
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from refold.cli import terminal
from refold.cli.read_output import title
from refold.cli.terminal import (
    Line,
    bar,
    clean,
    dollars,
    plural,
    short_path,
    table,
    tokens,
)
from refold.core.breakdown import Breakdown, break_down
from refold.core.view import View
from refold.core.view_lines import describe_strategy, first_words, savings_by_strategy, speaker
from refold.gateway.ledger.accounting import read_bill
from refold.messages import Text
from refold.session_files import Session
from refold.session_files.edited import EditedSession
from refold.speakers import segment_messages
from refold.tokens.count import part_counter

# --- where the tokens are ---------------------------------------------------------------------


def token_shares(view: View, largest: int) -> dict[str, Any]:
    """Return a view's tokens by role, tool and kind of part, and its *largest* messages."""

    def rows(counts: Mapping[str, int]) -> list[dict[str, Any]]:
        return [{"name": name, "tokens": tokens} for name, tokens in counts.items()]

    shares = break_down(view)
    shown = [(item.start, message) for item in view.iter_items() for message in item.messages]
    messages = [(size, *slot) for size, slot in zip(shares.messages, shown, strict=True)]
    messages.sort(key=lambda row: (-row[0], row[1]))
    return {
        "by_role": rows(shares.roles),
        "by_speaker": rows(_count_speakers(view, shares)),
        "by_tool": rows({name: tokens for name, tokens in shares.names.items() if name}),
        "by_part": rows(shares.kinds),
        "largest": [
            {"at": at, "role": speaker(message), "tokens": size, "begins": first_words(message, 60)}
            for size, at, message in messages[:largest]
        ],
    }


VOICES = {
    "person": "people",
    "instruction": "instructions",
    "context": "client",
    "summary": "summaries",
    "tool": "tools",
}


def _count_speakers(view: View, shares: Breakdown) -> dict[str, int]:
    """Return tokens by who speaks, the words of people apart from results of tools that clients
    send in the same role; the sum is that of the roles."""
    counts, count = Tally[str](), part_counter(view.profile.count)
    for message, spoken in zip(view.messages, segment_messages(view.messages), strict=True):
        if message.role not in ("assistant", "system"):
            for segment in spoken:
                counts[VOICES[segment.voice]] += count(Text(segment.text))
    fixed = (("system prompt", "system"), ("definitions of tools", "tools"), ("agent", "assistant"))
    for name, role in fixed:
        counts[name] = shares.roles.get(role, 0)
    counts["tools"] += max(0, shares.total - counts.total())
    return {name: count for name, count in counts.most_common() if count}


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
    view, width = edited.view, terminal.out().width
    yield Line(title(edited), "bold")
    if about := _about(edited.session, view):
        yield Line(about)
    yield Line()
    yield from table(("tokens>", "", ""), list(_size_rows(edited, effective)), width=width)
    yield from _bill_lines(edited.session)
    for heading in ("speaker", "tool", "part"):
        if rows := shares[f"by_{heading}"]:
            yield Line()
            room = max(8, min(30, width - 46))
            bars = [_share_row(row, view.tokens_uncalibrated, room) for row in rows]
            yield from table((heading, "tokens>", "share>", ""), bars, style="cyan", width=width)
    yield Line()
    largest = [
        (f"#{row['at']}", row["role"], f"{row['tokens']:,}", row["begins"])
        for row in shares["largest"]
    ]
    yield from table(("largest", "role", "tokens>", "begins with"), largest, width=width)
    for compaction in edited.session.compactions:
        place = f"#{compaction.start}-{compaction.stop - 1}"
        yield Line(f"recorded compaction: {place} {compaction.trigger}", "magenta")
    for saving in savings_by_strategy(view):
        edits = f"{plural(saving.edits, 'edit')} saved {saving.saved:,} tokens"
        yield Line(f"{describe_strategy(saving.by)}: {edits}", "green")


def _about(session: Session, view: View) -> str:
    """Return model, folder and time of a session."""
    began, ended = session.started, session.updated
    when = began.astimezone().strftime("%Y-%m-%d %H:%M") if began else ""
    if began and ended and ended > began:
        same_day = began.astimezone().date() == ended.astimezone().date()
        until = ended.astimezone().strftime("%H:%M" if same_day else "%Y-%m-%d %H:%M")
        when += f" to {until}"
    folder = short_path(session.cwd) if session.cwd else ""
    model = clean(view.profile.model) or "the file names no model"
    return " · ".join(filter(None, (model, folder, when)))


def _size_rows(edited: EditedSession, effective: int | None) -> Iterator[tuple[str, ...]]:
    view = edited.view
    yield f"{view.tokens_unedited:,}", "whole session", "our estimate"
    if view.edits:
        yield f"{view.tokens:,}", "as Refold would send it", "our estimate"
    if effective is not None:
        yield f"{effective:,}", "after the client's own compactions", "our estimate"
    if context := read_bill(edited.session).context:
        yield f"{context:,}", "last request and its answer", "the provider's count"
    if not view.profile.fixed_tokens:
        yield "?", "system prompt and tools", "not in the file, so in no estimate"


def _bill_lines(session: Session) -> Iterator[Line]:
    """Show what the provider billed, by the file."""
    bill, model = read_bill(session), str(session.body.get("model", ""))
    if not bill.calls:
        yield Line("the file does not say what the provider counted", "dim")
        return
    counts = bill.tokens
    pieces = (
        (counts.fresh, "input"),
        (counts.written, "written to the cache"),
        (counts.read, "read from it"),
        (counts.output, "output"),
    )
    yield Line()
    words = ", ".join(f"{tokens(count)} {kind}" for count, kind in pieces if count)
    yield Line(f"billed: {plural(bill.calls, 'call')}, {words}")
    if bill.dollars is None:
        yield Line(
            f"        no price is known of {clean(model) or 'a model without a name'}", "dim"
        )
        return
    source = "as the client wrote down" if bill.is_recorded else "by list prices"
    yield Line(f"        {dollars(bill.dollars)} {source}", "bold")
    if counts.read:
        share = counts.read / counts.input
        yield Line(f"        {share:.0%} of the input came from the cache", "dim")


def _share_row(row: Mapping[str, Any], whole: int, room: int) -> tuple[str, ...]:
    share = row["tokens"] / whole if whole else 0
    return clean(row["name"]), f"{row['tokens']:,}", f"{share:.1%}", bar(share, 1, room)


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
