"""The commands that change which edits are kept. The session itself is only ever read."""

from typing import Any

import click

from refold.cli import json_output as documents
from refold.cli import output as changes
from refold.cli import terminal as screen
from refold.cli.compact_command import Plan, accepted, compacted, guard_draft, guard_output, ready
from refold.cli.inputs import Inputs, named, one_standard_output, tokens, write
from refold.cli.model_options import ModelOptions, dollars_a_million, takes_model
from refold.cli.options import ACTOR, EDIT, SESSION, SESSIONS, looks_at_sessions, takes_sessions
from refold.session_files import drafts
from refold.session_files.edited_session import find_owner, removed_edits, take_back

ABORTED = "the summary was left empty: nothing was kept; the draft is as it was"


@click.command(epilog="Example: refold compact session.jsonl --to 60k")
@SESSIONS
@takes_sessions
@takes_model
@click.option("--to", required=True, type=tokens, metavar="TOKENS", help="How large it may be: 60000, 60k, 1.5M.")
@click.option("--strategy", "strategies", multiple=True, type=named, metavar="NAME",
              help="What may be done, gentlest first, e.g. 'ClearToolResults(keep=3)'. May be repeated.")  # fmt: skip
@click.option("--preview", is_flag=True, help="Keep a draft, to look at, edit and accept; models are asked once.")
@EDIT
@click.option("--price", type=dollars_a_million, metavar="DOLLARS",
              help="Of a million input tokens of the session's own model: shows what a request costs.")  # fmt: skip
@click.option(
    "--dry-run",
    is_flag=True,
    help="Show what it would do; write nothing but, with -o -, the request on standard output.",
)
@click.option("-o", "--output", metavar="PATH", help="Write the compacted request as JSON (- for standard output).")
@ACTOR
def compact(inputs: Inputs, model: ModelOptions, output: str | None, as_json: bool, **plan: Any) -> int:
    """Make sessions fit a number of tokens.

    The edits are written beside each session (FILE.refold) or into --store; the session itself is
    left alone. With --preview only a draft is (FILE.refold-draft), which `refold accept` keeps as it
    is and `refold discard` drops. A session from standard input goes to standard output unless
    --output, --store or --json says otherwise. Exit code 1 if a session does not fit for all that could
    be done, or the summary was left empty in --edit.
    """
    wanted = Plan(**plan)
    if inputs.paths == ("-",) and not (output or inputs.store or as_json or wanted.dry_run or wanted.preview):
        output = "-"
    one_standard_output(output, as_json=as_json)
    if wanted.dry_run and output and output != "-":
        raise click.UsageError(
            "--dry-run writes no file: leave out --output, or have the request on standard output with -o -"
        )
    inputs.use = "try" if wanted.dry_run else "make"
    if wanted.preview:
        guard_draft(inputs.paths, inputs.store)
    ask = model.asker()
    works = [inputs.one()] if output else inputs.works()
    if ask or wanted.edit:  # the progress bar of reading must be off the terminal by then
        works = list(works)
    guard_output(output, works)
    done = [compacted(work, wanted, model, ask) for work in works]
    if output:
        write(output, done[0].made.payload)
    if as_json:
        screen.emit(documents.answer((documents.compaction(one) for one in done), inputs.skipped))
    else:
        changes.compactions(done, screen.err() if output == "-" else screen.out())
    if aborted := any(one.aborted for one in done):
        screen.complain(ABORTED)
    return int(aborted or any(one.made.view.tokens > one.to for one in done))


@click.command(epilog="Example: refold accept session.jsonl --edit")
@SESSIONS
@takes_sessions
@EDIT
@ACTOR
def accept(inputs: Inputs, edit: bool, actor: str, as_json: bool) -> int:
    """Keep exactly what `refold compact --preview` showed. No model is asked.

    With --edit the summary is opened first: unchanged it is kept as it is; left empty, nothing is kept
    and the exit code is 1. A draft is refused if the session's history or its edits are others now;
    that the session has grown does not matter.
    """
    tried = [accepted(*one, edit=edit, actor=actor) for one in ready(list(inputs.works()))]
    done = [one for one in tried if one]
    if as_json:
        screen.emit(documents.answer((documents.accepted(one, actor) for one in done), inputs.skipped))
    else:
        changes.accepted(done, actor)
    if len(done) < len(tried):
        screen.complain(ABORTED)
    return int(len(done) < len(tried))


@click.command(epilog="Example: refold discard session.jsonl")
@SESSIONS
@looks_at_sessions
def discard(inputs: Inputs, as_json: bool) -> None:
    """Drop the draft that `refold compact --preview` made."""
    rows = [(work, drafts.delete_draft(work)) for work in inputs.works()]
    if as_json:
        screen.emit(documents.answer((documents.discarded(*row) for row in rows), inputs.skipped))
    else:
        changes.discarded(rows)


@click.command(epilog="Example: refold revert session.jsonl --before a81c")
@SESSION
@click.argument("edits", nargs=-1, metavar="[EDIT]...")
@takes_sessions
@click.option("--before", default="", metavar="EDIT", help="Go back to before this edit: it and all made after it go.")
@ACTOR
def revert(inputs: Inputs, edits: tuple[str, ...], before: str, actor: str, as_json: bool) -> None:
    """Take edits back: those named, or all of them. The session shows what was said again.

    `refold history` lists the edits; the ledger keeps what was taken back, and by whom.
    """
    if edits and before:
        raise click.UsageError("name edits to take back or one to go back to before, not both")
    works = [find_owner(inputs.works(), id) for id in edits[:1] or filter(None, (before,))] or list(inputs.works())
    rows = [(work, take_back(work, edits, before=before, actor=actor)) for work in works]
    done = [(work, removed_edits(work.view, after.view), after) for work, after in rows]
    if as_json:
        screen.emit(documents.answer((documents.reverted(*row) for row in done), inputs.skipped))
    else:
        changes.reverted(done)
