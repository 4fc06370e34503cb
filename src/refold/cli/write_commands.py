"""Commands that change stored edits, `refold export`, and their output."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import groupby, starmap
from pathlib import Path
from typing import Any

import click

from refold.cli import json_output, terminal
from refold.cli.compaction import (
    SUMMARY_FACTORS,
    WINDOW_SHARE,
    Acceptance,
    CompactedSession,
    CompactOptions,
    accept_draft,
    compact_session,
    delete_draft,
    find_drafts,
    protect_edits,
    summaries,
)
from refold.cli.inputs import Inputs
from refold.cli.options import (
    ACTOR,
    ModelOptions,
    check_output,
    dollars_per_million,
    model_options,
    sessions_command,
    strategy_named,
    token_count,
    write_request,
)
from refold.cli.places import LOCATION_TYPE, flag, option
from refold.cli.read_output import argument_of, arguments_of, title
from refold.cli.terminal import (
    Line,
    Lines,
    Row,
    bar,
    dollars,
    plural,
    printable,
    shorten,
    table,
    tokens,
)
from refold.compactor.by_hand import Preview
from refold.compactor.late_edits import irreversible_thinking_edits
from refold.core.view import View
from refold.core.view_lines import Saving, describe_strategy, first_words, span_text
from refold.edits import Edit, Losses
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
from refold.session_files.export import CLIENTS, Exported, export_session, find_form
from refold.session_files.source import NAMES

# --- refold compact -------------------------------------------------------------------------------

ABORTED = "the summary was left empty: nothing was kept, the draft is unchanged"


@sessions_command("change", "compact session.jsonl --pin 'Never touch migrations'")
@model_options
@option(
    "--to",
    "TOKENS",
    "Target size in tokens: 60000, 60k, 1.5M. Default: half of the model's window.",
    type=token_count,
)
@option(
    "--pin pins",
    "TEXT",
    "Keep messages that contain this text, in later compactions too. May be repeated.",
    multiple=True,
)
@click.option(
    "--detail",
    type=click.Choice(list(SUMMARY_FACTORS)),
    default="normal",
    show_default=True,
    help="Length of summaries: 0.4, 1 or 2 times the usual.",
)
@flag("-v --verbose", "Show every strategy with its settings, even if it made no edit.")
@option(
    "--strategy strategies",
    "NAME",
    "Strategy to use instead of the default ones, e.g. 'ClearToolResults(keep=3)'. May be "
    "repeated, the gentlest first.",
    multiple=True,
    type=strategy_named,
)
@flag("--preview", "Write only a draft, which refold accept keeps and refold discard drops.")
@flag("--edit", "With --preview: open each summary in $VISUAL or $EDITOR.")
@option(
    "--price",
    "DOLLARS",
    "With --preview: show what a request costs at this price, in US dollars per million input "
    "tokens.",
    type=dollars_per_million,
)
@flag(
    "--dry-run",
    "Show what would be done; write no file. A model is asked nevertheless. With -o - the request "
    "goes to standard output.",
)
@option(
    "-o --output",
    "PATH",
    "Also write the compacted request as JSON to this file (- for standard output).",
    type=LOCATION_TYPE,
)
@flag(
    "--resume",
    "Also write the session to a new file that its client can resume, as refold export does.",
)
@ACTOR
def compact(inputs: Inputs, model: ModelOptions, **flags: Any) -> int:
    """Make sessions fit a number of tokens.

    Edits are written beside each session (FILE.refold) or into --store. The session itself is not
    changed. With --preview only a draft is written (FILE.refold-draft): `refold accept` keeps
    exactly that, `refold discard` drops it. If FILE is -, the compacted request goes to standard
    output, unless --output, --store, --json, --dry-run or --preview is given. Exit code 1 if a
    session still does not fit, or if a summary was left empty in the editor.
    """
    options = CompactOptions(**flags)
    writes = options.output or inputs.store or inputs.as_json or options.dry_run or options.preview
    if inputs.paths == ("-",) and not writes:
        options = replace(options, output="-")
    check_output(options.output, inputs)
    inputs.use = "try" if options.dry_run else "create"
    if options.preview and "-" in inputs.paths and not inputs.store:
        raise click.UsageError(
            "a preview of standard input has no place for its draft: name a --store"
        )
    ask = model.asker()
    sessions = _read_sessions(inputs, options, ask)
    compactions = [compact_session(edited, options, model, ask) for edited in sessions]
    if options.output:
        write_request(options.output, compactions[0].preview.payload)
    if options.resume:
        compactions = [
            replace(each, exported=write_exported(replace(each.edited, view=each.preview.view)))
            for each in compactions
        ]
    inputs.print_answer(
        map(json_output.compaction, compactions),
        show_compactions(compactions),
        terminal.err() if options.output == "-" else None,
        paged=options.preview,
    )
    aborted = any(compaction.aborted for compaction in compactions)
    if aborted:
        terminal.warn(ABORTED)
    return int(aborted or not all(compaction.fits for compaction in compactions))


def _read_sessions(
    inputs: Inputs, options: CompactOptions, ask: Asker | None
) -> Iterable[EditedSession]:
    """Return the sessions, read lazily if possible. All are read first if a model is asked or an
    editor opens, because the progress bar must be gone by then, or if a later one may be
    refused."""
    if not (
        ask
        or options.edit
        or options.output
        or options.resume
        or options.pins
        or options.to is None
    ):
        return inputs.sessions()
    sessions = [inputs.single_session()] if options.output else list(inputs.sessions())
    protect_edits(options.output, sessions)
    options.check_pins([edited.view for edited in sessions])
    for edited in sessions:
        options.target(edited)  # raises before anything is written
        if options.resume:
            find_form(edited.session)
    return sessions


# --- refold accept, refold discard ----------------------------------------------------------------


@sessions_command("change", "accept session.jsonl --edit")
@flag("--edit", "Open each summary in $VISUAL or $EDITOR first.")
@ACTOR
def accept(inputs: Inputs, edit: bool, actor: str) -> int:
    """Keep exactly what `refold compact --preview` showed. No model is asked.

    If a summary is left empty in the editor (--edit), nothing is kept and the exit code is 1. A
    draft is refused if the session's history or its edits have changed since; new messages at the
    end do not matter.
    """
    ready = find_drafts(list(inputs.sessions()))
    results = [accept_draft(*draft, edit=edit, actor=actor) for draft in ready]
    acceptances = [result for result in results if result]
    inputs.print_answer(
        (json_output.acceptance(result, actor) for result in acceptances),
        show_acceptances(acceptances, actor),
    )
    aborted = len(acceptances) < len(results)
    if aborted:
        terminal.warn(ABORTED)
    return int(aborted)


@sessions_command("read", "discard session.jsonl")
def discard(inputs: Inputs) -> None:
    """Delete the draft that `refold compact --preview` made."""
    rows = [(edited, delete_draft(edited)) for edited in inputs.sessions()]
    inputs.print_answer(starmap(json_output.discard, rows), show_discards(rows))


# --- refold revert --------------------------------------------------------------------------------


@sessions_command("change", "revert session.jsonl --before a81c", is_of_one=True)
@click.argument("edits", nargs=-1, metavar="[EDIT]...")
@option("--before", "EDIT", "Take back this edit and all edits made after it.", default="")
@flag("--newest", "Take back the edits of the newest compaction.")
@ACTOR
def revert(inputs: Inputs, edits: tuple[str, ...], before: str, newest: bool, actor: str) -> None:
    """Undo edits: the named ones, or all of them.

    The session then shows the original messages again. `refold history` still lists these edits,
    and who took them back.
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
    inputs.print_answer(starmap(json_output.revert, rows), show_reverts(rows))


def take_back(
    edited: EditedSession, ids: Sequence[str], *, before: str, actor: str
) -> EditedSession:
    """Revert edits (see `undo_edits`). In a gateway's store, also remove the result edits that were
    decided with them. Raises the errors of `undo_edits`."""
    after = undo_edits(edited, ids, before=before, actor=actor)
    if edited.tenant is not None:
        gone = subtract_edits(edited.view, after.view)
        edited.store.remove(edit.id for edit in find_result_edits(edited.tenant, edited.view, gone))
    return after


def first_of_last(edited: EditedSession) -> str:
    """Return the id of the first edit of the last compaction in the ledger. Without ledger rows,
    return that of the last edit; without edits, an empty string."""
    ids = [edit.id for edit in edited.view.edits]
    rows = [row for row in ledger_rows(edited) if row.edit in ids and row.action != "preview"]
    newest = {row.edit for row in rows if (row.when, row.run) == (rows[-1].when, rows[-1].run)}
    return next((id for id in ids if id in newest), ids[-1] if ids else "")


# --- refold export --------------------------------------------------------------------------------


@sessions_command("read", "compact ID --to 60k && refold export ID", is_of_one=True)
def export(inputs: Inputs) -> None:
    """Write a compacted session to a new file that its client resumes.

    Writes the session as its edits show it, beside the original and under a new id. The original is
    not changed. For sessions of Claude Code, Codex, pi and OpenCode.
    """
    edited = inputs.single_session()
    exported = write_exported(edited)
    lines = list(show_export(exported))
    if edited.session.compactions and not edited.view.edits:
        lines.append(Line("the whole session: what the client had compacted is included", "yellow"))
    inputs.print_answer([{**json_output.session(edited), **json_output.export(exported)}], lines)


def write_exported(edited: EditedSession) -> Exported:
    """Write a session as its edits show it. Raises `FormatError` if its client's format cannot be
    written, OSError."""
    session, payload = edited.session, edited.view.payload
    if not isinstance(payload, dict):  # the bytes of a request, of no client
        names = ", ".join(NAMES.get(client, client) for client in CLIENTS)
        raise FormatError(
            f"{edited.name}: only sessions of {names} are written, no lists of messages"
        )
    entries, now = payload[FIELDS[session.format]], datetime.now(UTC)
    return export_session(session, entries, now, Path.home())


# --- output of compact and export -----------------------------------------------------------------

MOST = 10
"""Maximum number of items of a kind that are listed."""


def show_compactions(compactions: Sequence[CompactedSession]) -> Lines:
    """Show the outcome of each compaction."""
    if len(compactions) == 1:
        yield from _compaction(compactions[0])
    else:
        for compaction in compactions:
            yield Line(f"{_outcome(compaction)}  {title(compaction.edited)}")
        before = sum(compaction.edited.view.tokens for compaction in compactions)
        after = sum(compaction.preview.view.tokens for compaction in compactions)
        total = f"{tokens(before)} → {tokens(after)} tokens in {len(compactions):,} sessions"
        yield Line(total, "bold")
    for compaction in compactions:
        if compaction.exported:
            yield from show_export(compaction.exported)


def _compaction(compaction: CompactedSession) -> Lines:
    before, after = compaction.edited.view, compaction.preview.view
    yield Line(title(compaction.edited), "bold")
    room = max(10, min(40, terminal.out().width - 24))
    sizes = [("before", before.tokens, "cyan"), ("after", after.tokens, "green")]
    if before.edits:
        sizes.insert(0, ("unedited", before.tokens_unedited, "cyan"))
    for label, count, style in sizes:
        drawn = bar(count, max(before.tokens_unedited, 1), room)
        yield Line.assemble((f"{label:<8}", "dim"), f"{count:>11,}  ", (drawn, style))
    if lines := list(strategy_table(compaction.savings, verbose=compaction.options.verbose)):
        yield Line()
        yield from lines
    if compaction.draft is not None:
        yield from _preview(compaction.preview)
    yield Line()
    yield from map(Line, _costs(compaction))
    yield Line(_outcome(compaction), "bold green" if compaction.fits else "bold yellow")
    yield from (Line(line, "dim") for line in _next_steps(compaction))
    edited = compaction.edited
    if compaction.file and not compaction.exported and edited.session.client in CLIENTS:
        name = arguments_of(edited)
        yield Line(f"refold export {name}    writes a session that its client can resume")


def show_export(exported: Exported) -> Lines:
    """Show where a session was written and how to continue it."""
    yield Line(f"written to {terminal.argument(exported.path)}")
    if exported.move_to is None:
        yield Line(f"resume with: {exported.command}")
        return
    folder = terminal.argument(exported.move_to)
    yield Line(f"the client looks for sessions in {folder} instead", "yellow")
    yield Line(f"move the file there, then run: {exported.command}")


def _next_steps(compaction: CompactedSession) -> Iterator[str]:
    """Yield where the result is, and the next commands."""
    edited, output = compaction.edited, compaction.options.output
    name = arguments_of(edited)
    if output and output != "-":
        yield f"the compacted request is in {terminal.argument(output)}"
    if compaction.options.dry_run:
        yield "nothing was written (--dry-run)"
    elif compaction.draft:
        yield f"the draft is in {terminal.argument(compaction.draft)}"
        yield f"refold accept {name}    keeps it; --edit opens the summary first"
        yield f"refold discard {name}   drops it"
    elif not compaction.preview.edits and edited.view.tokens <= compaction.to:
        if compaction.options.pins:
            yield f"nothing was compacted, so --pin keeps nothing yet: refold revert {name} undoes earlier edits"
        half = max(1, edited.view.tokens // 2_000)
        yield f"refold compact {name} --to {half}k --preview    shows what half the size would lose"
    elif compaction.draft is not None:
        yield "there is nothing to accept"
    elif compaction.file:
        yield f"edits are in {terminal.argument(compaction.file)}; the session file is unchanged"
        yield f"refold diff {name}      shows what the model would see now"
        yield f"refold revert {name}    undoes it"


def _costs(compaction: CompactedSession) -> Iterator[str]:
    preview = compaction.preview
    if preview.calls:
        cost = f", {dollars(preview.cost)}" if preview.cost else ""
        yield f"{plural(preview.calls, 'model call')}{cost}"
    if prices := compaction.prices:
        before, after = map(dollars, prices.values())
        yield f"each further request: {before} → {after} of input"


def _outcome(compaction: CompactedSession) -> str:
    to, options = compaction.to, compaction.options
    before, after = compaction.edited.view.tokens, compaction.preview.view.tokens
    goal = f"{to:,}" if options.to is not None else f"{to:,}, {WINDOW_SHARE:.0%} of the window"
    if before <= to:
        return f"{before:,} tokens: already fits {goal}"
    result = f"fits {goal}" if after <= to else f"target of {goal} not met, this is the minimum"
    less = f" ({1 - after / before:.0%} less)" if after < before else ""
    return f"{before:,} → {after:,} tokens{less}: {result}"


def strategy_table(savings: Sequence[Saving], *, verbose: bool = False) -> Lines:
    """Describe what each strategy did. If *verbose*, include idle ones and all settings."""
    rows = [
        _saving_row(saving, verbose=verbose)
        for saving in savings
        if verbose or saving.edits or saving.outcome not in ("applied", "noop")
    ]
    return table(("edits>", "saved>", "what"), rows)


def _saving_row(saving: Saving, *, verbose: bool) -> Row:
    outcome = "" if saving.outcome == "applied" else saving.outcome
    if saving.outcome == "no_headroom":
        return "", "", printable(f"all together: {saving.reason}")
    words = describe_strategy(saving.by) + f" [{saving.by}]" * verbose
    text = ": ".join(filter(None, (words, outcome, saving.reason)))
    return f"{saving.edits:,}", f"{saving.saved:,}", printable(text)


# --- output of previews ---------------------------------------------------------------------------


def _preview(preview: Preview) -> Lines:
    shown = [placed.edit for placed in preview.view.visible_edits if placed.edit in preview.edits]
    if shown:
        yield Line()
    for edit in shown:
        yield Line(_edit_line(preview.view, edit))
    if hidden := len(preview.edits) - len(shown):
        yield Line(f"… and {hidden:,} more inside these", "dim")
    counts = Counter(edit.by for edit in preview.edits)
    runs = (attempt.edits_applied - counts[attempt.by] for attempt in preview.attempts)
    if dropped := sum(count for count in runs if count > 0):
        yield Line(f"… {dropped:,} more, in messages that these hide, are not kept", "dim")
    for id, text in summaries(preview).items():
        yield Line()
        yield Line(f"summary of edit {id[:8]}", "bold")
        for line in printable(text).split("\n"):
            yield Line(f"    {line}")
    yield from loss_lines(preview.losses)


def _edit_line(view: View, edit: Edit) -> str:
    hidden = view.base.tokens(edit.start, edit.stop)
    shown = sum(map(view.profile.count, edit.insert))
    place, by = span_text(edit.start, edit.stop), describe_strategy(edit.by)
    return f"{edit.id[:8]} {place} {hidden:,} → {shown:,} tokens  {by}"


def loss_lines(losses: Losses) -> Lines:
    """Show the losses by kind, with message and line."""
    for kind, items in groupby(losses.items, lambda loss: loss.kind):
        texts = list(items)
        yield Line()
        yield Line(f"{kind.replace('_', ' ')} that no longer appear", "bold yellow")
        for loss in texts[:MOST]:
            place = "" if loss.at is None else f"#{loss.at}:{loss.line}"
            yield Line(f"    {place:<9} {shorten(loss.text, 160)}", "yellow")
        if len(texts) > MOST:
            yield Line(f"    … and {len(texts) - MOST:,} more (--json lists all)", "dim")


# --- output of accept, discard and revert ---------------------------------------------------------


def show_acceptances(acceptances: Iterable[Acceptance], actor: str) -> Lines:
    """Show the accepted edits, and who accepted them."""
    for acceptance in acceptances:
        step = _step(acceptance.before, acceptance.after)
        edits = f"{plural(len(acceptance.edits), 'edit')} accepted by {printable(actor)}"
        yield Line(f"{argument_of(acceptance.before)}: {edits}, {step}")
        if acceptance.grown:
            grown = f"{acceptance.grown:,} messages are newer than the preview"
            yield Line(f"{grown}; they are unchanged", "dim")
        place = terminal.argument(acceptance.before.place or "")
        yield Line(f"edits are in {place}", "dim")


def show_discards(rows: Iterable[tuple[EditedSession, bool]]) -> Lines:
    """Show the discarded drafts."""
    for edited, existed in rows:
        result = "the draft is discarded" if existed else "no draft to discard"
        yield Line(f"{argument_of(edited)}: {result}")


def show_reverts(
    rows: Iterable[tuple[EditedSession, Sequence[Edit], EditedSession]],
) -> Lines:
    """Show the reverted edits."""
    for before, edits, after in rows:
        for edit in edits[:MOST]:
            beginning = printable(first_words(before.view.transcript.messages[edit.start], 60))
            yield Line(f"{edit.id[:8]} {span_text(edit.start, edit.stop)} {beginning}", "dim")
        if len(edits) > MOST:
            yield Line(f"… and {len(edits) - MOST:,} more (--json lists all)", "dim")
        result = f"{plural(len(edits), 'edit')} reverted, {_step(before, after)}"
        result = result if edits else "no edits to revert"
        yield Line(f"{argument_of(before)}: {result}")
        if count := len(irreversible_thinking_edits(after.view)):
            yield Line(
                f"{plural(count, 'edit')} must stay: they drop signed thinking from after a "
                "compaction, which the provider might now refuse (rule AN-7)",
                "yellow",
            )


def _step(before: EditedSession, after: EditedSession) -> str:
    return f"{before.view.tokens:,} → {after.view.tokens:,} tokens"
