"""Text output of the read-only commands: `view`, `diff`, `unfold`, `recall`, `check`, `history`,
`stats` and the list of sessions."""

from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import groupby, pairwise

from rich.console import RenderableType

from refold.cli import terminal
from refold.cli.sessions import SessionEntry, group_projects, sum_listed
from refold.cli.terminal import (
    Line,
    Lines,
    Row,
    bar,
    dollars,
    plural,
    printable,
    short_path,
    shorten,
    style_lines,
    table,
    tokens,
)
from refold.codecs.repair import RepairResult
from refold.core.view import View
from refold.core.view_lines import (
    Breakdown,
    break_down,
    call_titles,
    describe_strategy,
    diff_lines,
    first_words,
    message_lines,
    savings_by_strategy,
    speaker,
    view_lines,
)
from refold.edits import Edit
from refold.gateway.ledger.accounting import read_bill
from refold.messages import Text, ToolResult
from refold.retrieval import Hit
from refold.retrieval.search import word_pattern
from refold.rules.rule import Violation
from refold.session_files import Session
from refold.session_files.edited import EditedSession, opening_words
from refold.session_files.source import NAMES, short_id
from refold.speakers import segment_messages
from refold.stores.store import LedgerRow
from refold.text.json_values import JsonObject, Record
from refold.tokens.count import part_counter

# --- names of sessions ----------------------------------------------------------------------------


def name_of(edited: EditedSession) -> str:
    """Return a session's name: its title, or its opening words, or its file."""
    session = edited.session
    return shorten(session.title or opening_words(session), 60) or short_path(edited.name)


def argument_of(edited: EditedSession) -> str:
    """Return the argument that names a session: its id if the user typed that, or its file."""
    return terminal.argument(edited.typed or edited.name)


def arguments_of(edited: EditedSession) -> str:
    """Return the arguments with which a command finds a session and its edits."""
    return argument_of(edited) + store_of(edited)


def store_of(edited: EditedSession) -> str:
    """Return the --store option for a session's edits, if the user gave it."""
    return f" --store {terminal.argument(edited.typed_store)}" if edited.typed_store else ""


def title(edited: EditedSession) -> str:
    """Return path, client, title and length of a session."""
    session = edited.session
    width = terminal.width()
    pieces = [
        short_path(edited.name, max(30, width - 40) if width else 10_000),
        NAMES.get(session.client, session.client),
        session.title and f"“{shorten(session.title, 60)}”",
        plural(len(edited.view.transcript), "message"),
    ]
    return " · ".join(filter(None, pieces))


# --- refold view, refold diff, refold unfold ------------------------------------------------------


def show_views(
    sessions: Iterable[EditedSession],
    diff: bool,
    most: int | None,
    only: int | None,
    request: int | None,
) -> Lines:
    """Show what a model would see or, with *diff*, its differences from the transcript: of all
    messages, or of *only* one. *request* is the number of the request that is shown."""
    width = terminal.width()
    room = {"width": width} if width else {}
    for edited in sessions:
        as_sent = f" · as sent in request {request}" if request is not None else ""
        yield Line(title(edited) + as_sent, "bold")
        view = edited.view
        if only is not None and only >= len(view.transcript):
            yield Line(f"there is no message #{only}", "yellow")
        elif diff and not view.edits and request is not None:
            yield Line("sent unchanged", "dim")
        elif diff and not view.edits:
            compact = f"refold compact {arguments_of(edited)}"
            yield Line(f"sent unchanged; to compact it: {compact}", "dim")
        else:
            lines = diff_lines(view, only, **room) if diff else view_lines(view, most, only)
            yield from style_lines(lines)


def show_hidden(view: View, edit: Edit) -> Lines:
    """Show the messages that an edit hides."""
    titles = call_titles(view)
    for at in range(edit.start, edit.stop):
        message = view.transcript.messages[at]
        role, size = speaker(message), view.base.tokens(at, at + 1)
        yield Line(f"#{at} {role} · {size:,} tokens", terminal.STYLES.get("tool", ""))
        yield from style_lines(message_lines(message, titles(at, at + 1)))


# --- refold recall, refold check ------------------------------------------------------------------


def show_hits(rows: Sequence[tuple[EditedSession, Sequence[Hit]]], limit: int, query: str) -> Lines:
    """Show *limit* hits of each session, with the words of *query* highlighted."""
    pattern = word_pattern(query)
    for edited, hits in rows:
        if len(rows) > 1 and hits:
            yield Line(title(edited), "bold")
        clients = {edit.id[:8] for edit in edited.view.edits if edit.by == edited.session.client}
        for hit in hits[:limit]:
            by = f"{'client compaction' if hit.edit in clients else 'edit'} {hit.edit}"
            yield Line(f"#{hit.position} {hit.role} · hidden by {by}", "bold cyan")
            snippet = Line(f"    {printable(hit.snippet)}")
            if pattern is not None:
                snippet.highlight_regex(pattern, "bold yellow")
            yield snippet
        if len(hits) > limit:
            yield Line(f"… and more (--limit {limit * 10:,} shows more)", "dim")
        if hits:
            store = store_of(edited)
            unfold = f"refold unfold {argument_of(edited)} {hits[0].edit}{store}"
            yield Line(f"{unfold}   shows everything it hides", "dim")
        elif len(rows) == 1:
            hidden = "no matches in hidden text"
            yield Line(hidden if edited.view.edits else "nothing is hidden: there are no edits")


Check = tuple[EditedSession, Sequence[Violation], RepairResult | None]
"""A session, its violations of provider rules, and its repair if that is wanted."""


def show_violations(rows: Iterable[Check]) -> Lines:
    """Show violations of provider rules and repairs."""
    for edited, violations, repaired in rows:
        name = argument_of(edited)
        for violation in violations:
            yield Line(f"{name}: {_violation(violation)}", "red")
        for repair in repaired.repairs if repaired else ():
            yield Line(f"repaired #{repair.at} {repair.rule} {printable(repair.text)}", "green")
        for violation in repaired.remaining if repaired else ():
            why = f" ({violation.unmended})" if violation.unmended else ""
            yield Line(f"not repaired {_violation(violation)}{why}", "yellow")
        if not violations:
            yield Line(f"{name}: nothing that the API would refuse", "green")


def _violation(violation: Violation) -> str:
    return f"#{violation.at} {violation.rule} {printable(violation.text)}"


# --- refold history -------------------------------------------------------------------------------

STYLES = {
    "applied": "bold green",
    "degraded": "bold yellow",
    "failed": "bold red",
    "rejected": "bold red",
}


def show_histories(rows: Iterable[tuple[EditedSession, Sequence[LedgerRow]]]) -> Lines:
    """Show every attempt at each session, oldest first.

    Rows that differ only in the edit form one attempt.
    """
    for edited, ledger in rows:
        yield Line(title(edited), "bold")
        if not ledger:
            yield Line("no compactions recorded")
        runs = set[str]()
        for _, group in groupby(ledger, _attempt_key):
            attempt = list(group)
            yield from _attempt(attempt)
            if attempt[0].run not in runs:
                yield from _already_less(edited.view, attempt[0])
            runs.add(attempt[0].run)


def _already_less(view: View, row: LedgerRow) -> Lines:
    """Show what earlier edits had saved when a run began."""
    with suppress(ValueError):  # the session no longer has that history
        size = view.profile.fixed_tokens + view.base.tokens(0, view.transcript.tips.index(row.tip))
        if row.run and row.before < size:
            text = f"{size:,} tokens unedited, {row.before:,} with earlier and local edits"
            yield Line(f"    {text}")


def _attempt_key(row: LedgerRow) -> tuple[object, ...]:
    return row.when, row.run, row.action, row.outcome, row.by, row.actor, row.grade


def _attempt(rows: Sequence[LedgerRow]) -> Lines:
    row = rows[0]
    when = datetime.fromtimestamp(row.when).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    actor = row.actor and f"by {printable(row.actor)}"
    heading = filter(None, (when, row.action, row.outcome, _sizes(rows), actor))
    yield Line()
    yield Line("  ".join(heading), STYLES.get(row.outcome, ""))
    for text in _details(rows):
        yield Line(f"    {text}")


def _sizes(rows: Sequence[LedgerRow]) -> str:
    """Return the tokens before and after, if each row starts where the previous one ended.

    Accepted and reverted edits are each compared with the whole: then only the common figure.
    """
    first, last = rows[0], rows[-1]
    if any(row.after != following.before for row, following in pairwise(rows)):
        return f"{first.before if first.action == 'revert' else last.after:,} tokens"
    if first.before == last.after:
        return f"{first.before:,} tokens"
    return f"{first.before:,} → {last.after:,} tokens"


def _details(rows: Sequence[LedgerRow]) -> Iterator[str]:
    """Yield strategy and reason; model, prompt, calls and cost; trigger; edits."""
    row = rows[0]
    calls, cost = sum(row.calls for row in rows), sum(row.cost for row in rows)
    ids = [row.edit[:8] for row in rows if row.edit]
    model = (
        row.model and f"model {printable(row.model)}",
        row.prompt and f"prompt {printable(row.prompt)}",
        plural(calls, "call") if calls else "",
        dollars(cost) if cost else "",
    )
    grade = f", {row.grade}" if row.grade else ""
    details = (
        f"{describe_strategy(row.by)}: {printable(row.by)}" if row.by else "",
        printable(row.reason),
        ", ".join(filter(None, model)),
        row.trigger and f"trigger: {printable(row.trigger)}",
        f"{plural(len(ids), 'edit')}{grade}: {' '.join(ids)}" if ids else "",
    )
    return filter(None, details)


# --- refold stats ---------------------------------------------------------------------------------

VOICES = {
    "person": "people",
    "instruction": "instructions",
    "context": "client",
    "summary": "summaries",
    "tool": "tools",
}


def token_shares(view: View, largest: int) -> JsonObject:
    """Return a view's tokens by role, speaker, tool and part, and its *largest* messages."""

    def rows(counts: Mapping[str, int]) -> list[JsonObject]:
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


def _count_speakers(view: View, shares: Breakdown) -> dict[str, int]:
    """Return tokens by speaker. Text of people is separated from tool results that clients send in
    the same role. The total is that of the roles."""
    counts, count = Tally[str](), part_counter(view.profile.count)
    messages = [message for item in view.iter_items() for message in item.messages]  # not joined
    segmented = segment_messages(messages)
    for message, size, spoken in zip(messages, shares.messages, segmented, strict=True):
        if message.role not in ("assistant", "system"):
            texts = Tally[str]()
            for segment in spoken:
                texts[VOICES[segment.voice]] += count(Text(segment.text))
            has_results = any(isinstance(part, ToolResult) for part in message.parts)
            rest = "tools" if has_results else "people"  # results, media and message overhead
            texts[rest] += max(0, size - texts.total())
            counts.update(texts)
    fixed = (("system prompt", "system"), ("definitions of tools", "tools"), ("agent", "assistant"))
    for name, role in fixed:
        counts[name] = shares.roles.get(role, 0)
    return {name: count for name, count in counts.most_common() if count}


Stats = tuple[EditedSession, Record, int | None]
"""A session, its token shares, and its tokens after the client's own compactions."""


def show_stats(rows: Sequence[Stats]) -> Lines:
    """Show where the tokens of one session are. Several sessions get one line each and a total."""
    if len(rows) == 1:
        return _session_stats(*rows[0])
    sessions = [edited for edited, _, _ in rows]
    total = ("", *_sums([edited.view for edited in sessions]), f"{len(sessions):,} sessions")
    names = ("client", "messages>", "unedited>", "sent>", "edits>", "session")
    return table(names, map(_stats_row, sessions), total)


def _session_stats(edited: EditedSession, shares: Record, effective: int | None) -> Lines:
    view, width = edited.view, terminal.out().width
    yield Line(title(edited), "bold")
    if about := _about(edited.session, view):
        yield Line(about)
    yield Line()
    yield from table(("tokens>", "", ""), _size_rows(edited, effective), width=width)
    yield from _bill_lines(edited)
    for heading in ("speaker", "tool", "part"):
        if rows := shares[f"by_{heading}"]:
            yield Line()
            room = max(8, min(30, width - 46))
            bars = (_share_row(row, view.tokens_uncalibrated, room) for row in rows)
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
    began, ended = session.started, session.updated
    when = began.astimezone().strftime("%Y-%m-%d %H:%M") if began else ""
    if began and ended and ended > began:
        same_day = began.astimezone().date() == ended.astimezone().date()
        until = ended.astimezone().strftime("%H:%M" if same_day else "%Y-%m-%d %H:%M")
        when += f" to {until}"
    folder = short_path(session.cwd) if session.cwd else ""
    model = printable(view.profile.model) or "no model in the file"
    return " · ".join(filter(None, (model, folder, when)))


def _size_rows(edited: EditedSession, effective: int | None) -> Iterator[Row]:
    view = edited.view
    yield f"{view.tokens_unedited:,}", "whole session", "estimate"
    if view.edits:
        yield f"{view.tokens:,}", "as Refold would send it", "estimate"
    if effective is not None:
        yield f"{effective:,}", "after the client's own compactions", "estimate"
    if context := read_bill(edited.session).context:
        yield f"{context:,}", "last request and its answer", "provider's count"
    if not view.profile.fixed_tokens:
        yield "?", "system prompt and tools", "not in the file, not in the estimates"


def _bill_lines(edited: EditedSession) -> Lines:
    """Show what the provider billed, according to the file."""
    bill, model = read_bill(edited.session), str(edited.session.body.get("model", ""))
    if not bill.calls:
        why = "no provider usage in the file"
        if edited.tenant is not None:
            why = f"billed: refold report --by session{store_of(edited)}"
        yield Line(why, "dim")
        return
    counts = bill.tokens
    pieces = (
        (counts.fresh, "input"),
        (counts.written, "written to cache"),
        (counts.read, "read from cache"),
        (counts.output, "output"),
    )
    yield Line()
    words = ", ".join(f"{tokens(count)} {kind}" for count, kind in pieces if count)
    yield Line(f"billed: {plural(bill.calls, 'call')}, {words}")
    if bill.dollars is None:
        yield Line(f"        no price is known for {printable(model) or 'an unnamed model'}", "dim")
        return
    source = "at list prices" if edited.tenant is None else "recorded by the gateway"
    source = "recorded by the client" if bill.is_recorded else source
    yield Line(f"        {dollars(bill.dollars)} {source}", "bold")
    if counts.read:
        share = counts.read / counts.input
        yield Line(f"        {share:.0%} of the input came from the cache", "dim")


def _share_row(row: Record, whole: int, room: int) -> Row:
    share = row["tokens"] / whole if whole else 0
    return (printable(row["name"]), f"{row['tokens']:,}", f"{share:.1%}", bar(share, 1, room))


def _stats_row(edited: EditedSession) -> Row:
    id = edited.session.id[:12]
    suffix = f" {id}" if id not in edited.name else ""
    return (edited.session.client, *_sums([edited.view]), printable(edited.name) + suffix)


def _sums(views: Sequence[View]) -> Row:
    """Return totals over *views*: messages, tokens unedited, tokens sent, edits."""
    return (
        f"{sum(len(view.transcript) for view in views):,}",
        tokens(sum(view.tokens_unedited for view in views)),
        tokens(sum(view.tokens for view in views)),
        f"{sum(len(view.edits) for view in views):,}",
    )


# --- refold, refold pick --------------------------------------------------------------------------


def show_listed(
    rows: Sequence[SessionEntry], count: int, width: int | None
) -> Iterator[RenderableType]:
    """Show the list of sessions, *count* in all, in lines of at most *width* cells."""
    if not count:
        yield "No sessions of a supported client (Claude Code, Codex ...) were found on this machine."
        yield "Name a file (refold stats FILE), or see Refold at work: refold demo"
        return
    yield from session_table(rows, width)
    shown = f"{len(rows):,} of {plural(count, 'session')}"
    rest = "refold --all shows all, " if len(rows) < count else ""
    yield Line(f"\n{shown}; {rest}refold pick opens one", "dim")
    if not all(row.is_read for row in rows):
        yield Line("rows without tokens were not read; refold --all reads them, more slowly", "dim")
    example = terminal.argument(short_id(rows[0].file)) if rows else "ID"
    yield Line(f"refold stats {example}     shows its tokens and cost", "dim")
    yield Line(f"refold compact {example}   compacts it; refold diff shows what changed", "dim")


def session_table(rows: Sequence[SessionEntry], width: int | None) -> Lines:
    """Return a table of sessions."""
    names = ("id", "agent", "project", "age>", "tokens>", "cost>", "title")
    return table(names, map(_row, rows), width=width)


def _row(listed: SessionEntry) -> Row:
    file = listed.file
    return (
        shorten(short_id(file), 12),
        NAMES.get(file.client, file.client),
        shorten(listed.project, 24),
        _age(file.modified),
        "" if listed.tokens is None else tokens(listed.tokens),
        "" if listed.dollars is None else dollars(listed.dollars),
        shorten(listed.title, 400),
    )


def _age(moment: datetime) -> str:
    minutes = (datetime.now(UTC) - moment).total_seconds() / 60
    if minutes < 60:
        return f"{max(0, minutes):.0f} min"
    return f"{minutes / 60:.0f} h" if minutes < 48 * 60 else f"{minutes / 1440:.0f} d"


def show_projects(rows: Sequence[SessionEntry], width: int | None) -> Lines:
    """Show the cost of each project's sessions, the most expensive first."""
    lines = [_project_row(cwd, group) for cwd, group in group_projects(rows)]
    names = ("sessions>", "tokens>", "cost>", "project")
    yield from table(names, lines, _project_row("all", rows), width=width)
    yield Line("tokens: the last request of each session", "dim")


def _project_row(name: str, rows: Sequence[SessionEntry]) -> Row:
    count, cost = sum_listed(rows)
    return (
        f"{len(rows):,}",
        tokens(count),
        "" if cost is None else dollars(cost),
        terminal.short_path(name) if name else "(none)",
    )
