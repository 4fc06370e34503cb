"""The commands that look: each reads its options, has the library work, and shows what came of it."""

from dataclasses import replace
from typing import Any

import click

from refold.cli import (
    json_output as documents,
)
from refold.cli import (
    listings as report,
)
from refold.cli import (
    output as ledgers,
)
from refold.cli import (
    terminal as screen,
)
from refold.cli.compact_command import guard_output
from refold.cli.inputs import Inputs, one_standard_output, write
from refold.cli.options import SESSION, SESSIONS, looks_at_sessions
from refold.cli.tables import diff_lines, message_lines, parts, view_lines
from refold.codecs.repair import check as violations
from refold.codecs.repair import repair as mended
from refold.errors import FormatError
from refold.retrieval import recall as search
from refold.session_files.edited_session import EditedSession, find_owner, ledger_rows, open_edited
from refold.stores import MemoryStore


@click.command(epilog="Example: refold stats ~/.claude/projects")
@SESSIONS
@looks_at_sessions
@click.option(
    "--largest",
    type=click.IntRange(min=0),
    default=5,
    show_default=True,
    metavar="N",
    help="How many of the largest messages to show.",
)
def stats(inputs: Inputs, as_json: bool, largest: int) -> None:
    """Show where the tokens are: by role, by tool, by kind of part; the largest messages.

    Several files make a table with a total.
    """
    rows = [(work, parts(work.view, largest), _effective(work)) for work in inputs.works()]
    if as_json:
        screen.emit(documents.answer((documents.stats(*row) for row in rows), inputs.skipped))
    elif len(rows) == 1:
        report.stats(*rows[0])
    else:
        report.table([row[0] for row in rows])


@click.command(epilog="Example: refold view session.jsonl --diff | less -R")
@SESSIONS
@looks_at_sessions
@click.option("--diff", is_flag=True, help="What the model would see against what was said.")
@click.option("--payload", is_flag=True, help="The request itself, as JSON.")
@click.option(
    "--effective",
    is_flag=True,
    help="What the client's own recorded compactions left, instead of our edits.",
)
@click.option(
    "--lines", type=click.IntRange(min=0), metavar="N", help="At most N lines of each message."
)
def view(
    inputs: Inputs, diff: bool, payload: bool, effective: bool, lines: int | None, as_json: bool
) -> None:
    """Show what the model would see."""
    if payload and (diff or as_json or lines is not None):
        raise click.UsageError(
            "--payload prints the request as it is: leave out --diff, --lines and --json"
        )
    if payload:
        write("-", _seen(inputs.one(), effective).view.payload)
        return
    seen = (_seen(work, effective) for work in inputs.works())
    if as_json:
        screen.emit(documents.answer([documents.view(work) for work in seen], inputs.skipped))
        return
    for work in seen:
        report.title(work)
        report.lines(diff_lines(work.view) if diff else view_lines(work.view, lines))


@click.command(epilog="Example: refold unfold session.jsonl a81c")
@SESSION
@click.argument("edit", metavar="EDIT")
@looks_at_sessions
def unfold(inputs: Inputs, edit: str, as_json: bool) -> None:
    """Show exactly what an edit hides. EDIT is its id, or as much of it as is unambiguous.

    With --json the entries are as they stand in the session.
    """
    work = find_owner(inputs.works(), edit)
    if as_json:
        screen.emit(documents.answer([documents.unfolded(work, edit)], inputs.skipped))
        return
    one = work.view.find(edit)
    for message in work.view.transcript.messages[one.start : one.stop]:
        report.lines(message_lines(message))


@click.command(epilog="Example: refold recall session.jsonl 'timeout 超时'")
@SESSION
@click.argument("query", nargs=-1, required=True, metavar="QUERY...")
@looks_at_sessions
@click.option("--limit", type=click.IntRange(min=1), default=10, show_default=True, metavar="N",
              help="How many messages to show of each session, the best first.")  # fmt: skip
def recall(inputs: Inputs, query: tuple[str, ...], limit: int, as_json: bool) -> int:
    """Search what the edits hide; exit code 1 if nothing is found.

    Shows the edit that hides it, the message's position and role, and the piece that holds most of QUERY.
    """
    rows = [(work, search(work.view, " ".join(query), limit + 1)) for work in inputs.works()]
    if as_json:
        screen.emit(
            documents.answer((documents.recalled(*row, limit) for row in rows), inputs.skipped)
        )
    else:
        report.recalled(rows, limit)
    return int(not any(hits for _, hits in rows))


@click.command(epilog="Example: refold history session.jsonl")
@SESSIONS
@looks_at_sessions
def history(inputs: Inputs, as_json: bool) -> None:
    """List every attempt at a session: outcome, tokens, cost, who.

    Oldest first, with the reason, model and prompt, the edits, and what they cost in content.
    """
    rows = [(work, ledger_rows(work)) for work in inputs.works()]
    if as_json:
        screen.emit(documents.answer((documents.history(*row) for row in rows), inputs.skipped))
    else:
        ledgers.histories(rows)


@click.command(epilog="Example: refold check request.json --repair -o mended.json")
@SESSIONS
@looks_at_sessions
@click.option("--sent", is_flag=True, help="Check what the edits show instead of what was said.")
@click.option(
    "--before",
    metavar="EARLIER",
    help="The request that was sent before: what had to be kept of it, too.",
)
@click.option(
    "--repair",
    is_flag=True,
    help="Mend what can be mended without inventing content; needs --output.",
)
@click.option(
    "-o", "--output", metavar="PATH", help="Where the mended request goes (- for standard output)."
)
def check(
    inputs: Inputs, sent: bool, before: str | None, repair: bool, output: str | None, as_json: bool
) -> int:
    """List what the provider's API would refuse, with rule and position; exit code 1 if there is any.

    With --repair the exit code says whether anything is left.
    """
    if repair != bool(output):
        raise click.UsageError("--repair and --output go together")
    if repair and before:
        raise click.UsageError(
            "what was not kept of an earlier request cannot be mended: leave out --repair or --before"
        )
    one_standard_output(output, as_json=as_json)
    works = [inputs.one()] if repair or before else inputs.works()
    if repair:
        guard_output(output, works)
    earlier = (
        Inputs((before,), format=inputs.format).one().view.revert().payload if before else None
    )
    try:
        rows = [
            _checked(
                work, work.view.payload if sent else work.view.revert().payload, repair, earlier
            )
            for work in works
        ]
    except FormatError as error:
        raise click.UsageError(
            f"{before} is no request of the same kind: {error}" if before else str(error)
        ) from error
    if output and (repaired := rows[0][2]):
        write(output, repaired.payload)
    if as_json:
        screen.emit(documents.answer((documents.checked(*row) for row in rows), inputs.skipped))
    else:
        report.checked(rows, screen.err() if output == "-" else screen.out())
    return int(any(repaired.left if repaired else found for _, found, repaired in rows))


# --- small steps that several commands take ---------------------------------------------------


def _effective(work: EditedSession) -> int | None:
    """Tokens of what the client's own model saw, where its compactions are recorded."""
    return _seen(work, effective=True).view.tokens if work.session.compactions else None


def _seen(work: EditedSession, effective: bool) -> EditedSession:
    if not effective:
        return work
    session = replace(work.session, messages=work.session.effective, compactions=())
    return open_edited(session, None, MemoryStore(), count=work.count)


def _checked(
    work: EditedSession, payload: Any, repair: bool, before: Any
) -> tuple[EditedSession, Any, Any]:
    format = work.view.source.codec.NAME if work.view.source is not None else work.session.format
    return (
        work,
        violations(payload, format, before=before),
        mended(payload, format) if repair else None,
    )
