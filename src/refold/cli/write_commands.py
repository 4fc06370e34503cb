"""The commands that change which edits are kept, and `export`. The session itself is only ever
read."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import starmap
from typing import Any

import click

from refold.cli import drafts, json_output, terminal, write_output
from refold.cli.compaction import DETAIL, Plan, accept_draft, compact_session
from refold.cli.inputs import Inputs
from refold.cli.model_options import ModelOptions, dollars_per_million, model_options
from refold.cli.options import (
    ACTOR,
    EDIT,
    SESSION,
    SESSIONS,
    OfOneSession,
    check_output,
    protect_edits,
    session_options,
    strategy_named,
    token_count,
    write_request,
)
from refold.cli.places import PLACE
from refold.edits import Edit
from refold.errors import FormatError
from refold.gateway.conversations.persistence import find_result_edits
from refold.models.driver import Asker
from refold.session_files import FIELDS
from refold.session_files.edited import (
    EditedSession,
    find_owner,
    ledger_rows,
    subtract_edits,
    undo_edits,
)
from refold.session_files.export import Exported, export_session, find_form

ABORTED = "the summary was left empty: nothing was kept; the draft is as it was"


@click.command(epilog="Example: refold compact session.jsonl --pin 'Never touch migrations'")
@SESSIONS
@session_options("change")
@model_options
@click.option(
    "--to",
    type=token_count,
    metavar="TOKENS",
    help="How large it may be: 60000, 60k, 1.5M. Default: half of the model's window.",
)
@click.option(
    "--pin",
    "pins",
    multiple=True,
    metavar="TEXT",
    help="Messages that say this stay in sight, in later compactions too. May be repeated.",
)
@click.option(
    "--detail",
    type=click.Choice(list(DETAIL)),
    default="normal",
    help="How long a summary is.",
)
@click.option("-v", "--verbose", is_flag=True, help="Show all strategies, with their settings.")
@click.option(
    "--strategy",
    "strategies",
    multiple=True,
    type=strategy_named,
    metavar="NAME",
    help="What may be done, gentlest first, e.g. 'ClearToolResults(keep=3)'. May be repeated.",
)
@click.option(
    "--preview",
    is_flag=True,
    help="Keep a draft, to look at, edit and accept; models are asked once.",
)
@EDIT
@click.option(
    "--price",
    type=dollars_per_million,
    metavar="DOLLARS",
    help="Of a million input tokens of the session's own model: shows what a request costs.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Show what it would do; write nothing but, with -o -, the request on standard output.",
)
@click.option(
    "-o",
    "--output",
    type=PLACE,
    metavar="PATH",
    help="Write the compacted request as JSON (- for standard output).",
)
@click.option(
    "--resume",
    is_flag=True,
    help="Write it to a new file, too, that its client goes on with, as refold export does.",
)
@ACTOR
def compact(inputs: Inputs, model: ModelOptions, **options: Any) -> int:
    """Make sessions fit a number of tokens.

    By default half of their model's window. The edits are written beside each session (FILE.refold)
    or into --store; the session itself is left alone. With --preview only a draft is
    (FILE.refold-draft), which `refold accept` keeps as it is and `refold discard` drops. A session
    from standard input goes to standard output unless --output, --store or --json says otherwise.
    Exit code 1 if a session does not fit for all that could be done, or the summary was left empty
    in --edit.
    """
    plan = Plan(**options)
    writes = plan.output or inputs.store or inputs.as_json or plan.dry_run or plan.preview
    if inputs.paths == ("-",) and not writes:
        plan = replace(plan, output="-")
    check_output(plan.output, inputs)
    inputs.use = "try" if plan.dry_run else "create"
    if plan.preview and "-" in inputs.paths and not inputs.store:
        raise click.UsageError(
            "a preview of standard input has no place for its draft: name a --store"
        )
    ask = model.asker()
    sessions = _read_sessions(inputs, plan, ask)
    compactions = [compact_session(edited, plan, model, ask) for edited in sessions]
    if plan.output:
        write_request(plan.output, compactions[0].preview.payload)
    if plan.resume:
        compactions = [
            replace(each, exported=write_exported(replace(each.edited, view=each.preview.view)))
            for each in compactions
        ]
    inputs.print_answer(
        map(json_output.compaction, compactions),
        write_output.show_compactions(compactions),
        terminal.err() if plan.output == "-" else None,
    )
    aborted = any(compaction.aborted for compaction in compactions)
    if aborted:
        terminal.warn(ABORTED)
    return int(aborted or not all(compaction.fits for compaction in compactions))


def _read_sessions(inputs: Inputs, plan: Plan, ask: Asker | None) -> Iterable[EditedSession]:
    """Return the sessions as they are read; all read already if a model is asked or an editor
    opens, for by then the progress bar must be gone, or if something may be wrong with a later
    one."""
    if not (ask or plan.edit or plan.output or plan.resume or plan.to is None):
        return inputs.sessions()
    sessions = [inputs.single_session()] if plan.output else list(inputs.sessions())
    protect_edits(plan.output, sessions)
    for edited in sessions:
        plan.target(edited)  # what cannot be is said before anything is written
        if plan.resume:
            find_form(edited.session)
    return sessions


@click.command(epilog="Example: refold accept session.jsonl --edit")
@SESSIONS
@session_options("change")
@EDIT
@ACTOR
def accept(inputs: Inputs, edit: bool, actor: str) -> int:
    """Keep exactly what `refold compact --preview` showed. No model is asked.

    With --edit the summary is opened first: unchanged it is kept as it is; left empty, nothing is
    kept and the exit code is 1. A draft is refused if the session's history or its edits are others
    now; that the session has grown does not matter.
    """
    ready = drafts.find_drafts(list(inputs.sessions()))
    results = [accept_draft(*draft, edit=edit, actor=actor) for draft in ready]
    acceptances = [result for result in results if result]
    inputs.print_answer(
        (json_output.acceptance(result, actor) for result in acceptances),
        write_output.show_acceptances(acceptances, actor),
    )
    aborted = len(acceptances) < len(results)
    if aborted:
        terminal.warn(ABORTED)
    return int(aborted)


@click.command(epilog="Example: refold discard session.jsonl")
@SESSIONS
@session_options("read")
def discard(inputs: Inputs) -> None:
    """Drop the draft that `refold compact --preview` made."""
    rows = [(edited, drafts.delete_draft(edited)) for edited in inputs.sessions()]
    inputs.print_answer(starmap(json_output.discard, rows), write_output.show_discards(rows))


@click.command(cls=OfOneSession, epilog="Example: refold revert session.jsonl --before a81c")
@SESSION
@click.argument("edits", nargs=-1, metavar="[EDIT]...")
@session_options("change")
@click.option(
    "--before",
    default="",
    metavar="EDIT",
    help="Go back to before this edit: it and all made after it go.",
)
@click.option("--newest", is_flag=True, help="Take back what the newest compaction made.")
@ACTOR
def revert(inputs: Inputs, edits: tuple[str, ...], before: str, newest: bool, actor: str) -> None:
    """Take edits back: those named, or all of them. The session shows what was said again.

    `refold history` lists the edits; the ledger keeps what was taken back, and by whom.
    """
    if bool(edits) + bool(before) + newest > 1:
        raise click.UsageError("name edits, one to go back to before, or --newest: not several")
    named = [*edits[:1], *filter(None, [before])]
    sessions = [find_owner(inputs.sessions(), id) for id in named] or list(inputs.sessions())
    rows = list[tuple[EditedSession, list[Edit], EditedSession]]()
    for edited in sessions:
        first = first_of_last(edited) if newest else before
        after = take_back(edited, edits, before=first, actor=actor)
        rows.append((edited, subtract_edits(edited.view, after.view), after))
    inputs.print_answer(starmap(json_output.revert, rows), write_output.show_reverts(rows))


def take_back(
    edited: EditedSession, ids: Sequence[str], *, before: str, actor: str
) -> EditedSession:
    """Take edits back (`undo_edits`); in a gateway's store also what was decided with them. Raises
    as that does."""
    after = undo_edits(edited, ids, before=before, actor=actor)
    if edited.tenant is not None:
        gone = subtract_edits(edited.view, after.view)
        edited.store.remove(edit.id for edit in find_result_edits(edited.tenant, edited.view, gone))
    return after


def first_of_last(edited: EditedSession) -> str:
    """Return the id of the first edit that the last compaction made, by the ledger; without one,
    that of the last edit; empty if there is no edit."""
    ids = [edit.id for edit in edited.view.edits]
    rows = [row for row in ledger_rows(edited) if row.edit in ids and row.action != "preview"]
    newest = {row.edit for row in rows if row.when == rows[-1].when}
    return next((id for id in ids if id in newest), ids[-1] if ids else "")


@click.command(cls=OfOneSession, epilog="Example: refold compact ID --to 60k && refold export ID")
@SESSION
@session_options("read")
def export(inputs: Inputs) -> None:
    """Write a compacted session to a new file that its client resumes.

    As its edits show it. For sessions of Claude Code, Codex, pi and OpenCode. The file is written
    where the client looks for its sessions, under an id of its own; the original stays as it is.
    """
    edited = inputs.single_session()
    exported = write_exported(edited)
    inputs.print_answer(
        [{**json_output.session(edited), **json_output.export(exported)}],
        write_output.show_export(exported),
    )


def write_exported(edited: EditedSession) -> Exported:
    """Write what is shown of a session. Raises `FormatError` if its client's form is not written,
    OSError."""
    session, payload = edited.session, edited.view.payload
    if not isinstance(payload, dict):  # a request as it was, of no client
        raise FormatError(f"{edited.name}: a request is no session of a client")
    return export_session(session, payload[FIELDS[session.format]], datetime.now(UTC))
