"""What the commands that only read print for people."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import groupby, pairwise

from refold.cli import terminal
from refold.cli.terminal import (
    Line,
    clean,
    dollars,
    plural,
    short,
    short_path,
    style_lines,
)
from refold.codecs.repair import RepairResult
from refold.core.view import View
from refold.core.view_lines import (
    call_titles,
    describe_strategy,
    diff_lines,
    message_lines,
    speaker,
    view_lines,
)
from refold.edits import Edit
from refold.retrieval import Hit
from refold.retrieval.search import word_pattern
from refold.rules.rule import Violation
from refold.session_files.client_files import NAMES
from refold.session_files.edited import EditedSession
from refold.speakers import first_request
from refold.stores.store import LedgerRow


def name_of(edited: EditedSession) -> str:
    """Return what a session is called: its title, else the words that it begins with, else its
    file."""
    session = edited.session
    words = session.title or first_request(session.opening, session.format)
    return short(words, 60) or short_path(edited.name)


def argument_of(edited: EditedSession) -> str:
    """Return what one types to name a session: its id if the user did so, else its file."""
    return edited.typed or terminal.argument(edited.name)


def title(edited: EditedSession) -> str:
    """Return path, client, title and length of a session."""
    session = edited.session
    width = terminal.width()
    pieces = [
        short_path(edited.name, max(30, width - 40) if width else 10_000),
        NAMES.get(session.client, session.client),
        session.title and f"“{short(session.title, 60)}”",
        plural(len(edited.view.transcript), "message"),
    ]
    return " · ".join(filter(None, pieces))


# --- refold view, refold diff, refold unfold --------------------------------------------------


def show_views(
    sessions: Iterable[EditedSession],
    diff: bool,
    most: int | None,
    only: int | None,
    request: int | None,
) -> Iterator[Line]:
    """Show what a model would see; with *diff*, what is different in it; with *only*, of that
    message alone. *request*: as which of its requests the session is shown."""
    width = terminal.width()
    room = {"width": width} if width else {}
    for edited in sessions:
        as_sent = f" · as sent in request {request}" if request is not None else ""
        yield Line(title(edited) + as_sent, "bold")
        view = edited.view
        if only is not None and only >= len(view.transcript):
            yield Line(f"there is no message #{only}", "yellow")
        elif diff and not view.edits and request is not None:
            yield Line("it was sent as it was said", "dim")
        elif diff and not view.edits:
            compact = f"refold compact {argument_of(edited)}"
            yield Line(f"it is sent as it was said: {compact} makes it smaller", "dim")
        else:
            lines = diff_lines(view, only, **room) if diff else view_lines(view, most, only)
            yield from style_lines(lines)


def show_hidden(view: View, edit: Edit) -> Iterator[Line]:
    """Show the messages that an edit hides."""
    titles = call_titles(view)
    for at in range(edit.start, edit.stop):
        message = view.transcript.messages[at]
        role, size = speaker(message), view.base.tokens(at, at + 1)
        yield Line(f"#{at} {role} · {size:,} tokens", terminal.STYLES.get("tool", ""))
        yield from style_lines(message_lines(message, titles(at, at + 1)))


# --- refold recall, refold check -------------------------------------------------------------


def show_hits(
    rows: Sequence[tuple[EditedSession, Sequence[Hit]]], limit: int, query: str
) -> Iterator[Line]:
    """Show *limit* hits of each session, the words of *query* marked."""
    pattern = word_pattern(query)
    for edited, hits in rows:
        if len(rows) > 1 and hits:
            yield Line(title(edited), "bold")
        clients = {edit.id[:8] for edit in edited.view.edits if edit.by == edited.session.client}
        for hit in hits[:limit]:
            by = f"{'its own client:' if hit.edit in clients else 'edit'} {hit.edit}"
            yield Line(f"#{hit.position} {hit.role} · hidden by {by}", "bold cyan")
            snippet = Line(f"    {clean(hit.snippet)}")
            if pattern is not None:
                snippet.highlight_regex(pattern, "bold yellow")
            yield snippet
        if len(hits) > limit:
            yield Line(f"… and more (--limit {limit * 10:,} shows up to so many)", "dim")
        if hits:
            name = argument_of(edited)
            yield Line(f"refold unfold {name} {hits[0].edit}   shows all that it hides", "dim")
        elif len(rows) == 1:
            hidden = "nothing that the edits hide says so"
            yield Line(hidden if edited.view.edits else "no edit hides anything")


Check = tuple[EditedSession, Sequence[Violation], RepairResult | None]
"""A session, what a provider would refuse of it, and its repair if that is wanted."""


def show_violations(rows: Iterable[Check]) -> Iterator[Line]:
    """Show what a provider would refuse, and what was repaired."""
    for edited, violations, repaired in rows:
        name = argument_of(edited)
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
        runs = set[str]()
        for _, group in groupby(ledger, _attempt_key):
            attempt = list(group)
            yield from _attempt(attempt)
            if attempt[0].run not in runs:
                yield from _already_less(edited.view, attempt[0])
            runs.add(attempt[0].run)


def _already_less(view: View, row: LedgerRow) -> Iterator[Line]:
    """Say by how much the history was less than said when the first attempt of a run began."""
    with suppress(ValueError):  # this session no longer has that history
        size = view.profile.fixed_tokens + view.base.tokens(0, view.transcript.tips.index(row.tip))
        if row.run and row.before < size:
            text = (
                f"{size:,} tokens unedited, {row.before:,} with edits made before or as they came"
            )
            yield Line(f"    {text}")


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
        f"{describe_strategy(row.by)}: {clean(row.by)}" if row.by else "",
        clean(row.reason),
        ", ".join(filter(None, model)),
        row.trigger and f"trigger: {clean(row.trigger)}",
        f"{plural(len(ids), 'edit')}{grade}: {' '.join(ids)}" if ids else "",
    )
    return filter(None, details)
