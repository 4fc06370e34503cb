"""The read-only commands: stats, view, diff, unfold, recall, history, check."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import starmap
from typing import Any

import click

from refold.cli import json_output, read_output, terminal
from refold.cli.compaction import protect_edits
from refold.cli.inputs import Inputs
from refold.cli.options import (
    check_output,
    sessions_command,
    write_output,
    write_request,
)
from refold.cli.places import LOCATION_TYPE, flag, option
from refold.cli.terminal import Line, short_path
from refold.codecs.repair import check as find_violations
from refold.codecs.repair import repair as repair_payload
from refold.core.view_lines import html_page
from refold.errors import FormatError
from refold.retrieval.search import Hit, find_hidden, relevant_hits
from refold.retrieval.search import recall as search
from refold.session_files.edited import (
    EditedSession,
    find_edits,
    find_owner,
    ledger_rows,
    open_edited,
    with_client_compactions,
)
from refold.stores import MemoryStore


@sessions_command("read", "stats ~/.claude/projects")
@option(
    "--largest",
    "N",
    "Number of largest messages to show.",
    type=click.IntRange(min=0),
    default=5,
    show_default=True,
)
def stats(inputs: Inputs, largest: int) -> None:
    """Show where the tokens of a session are, and what they cost.

    Lists tokens by speaker, tool and kind of part, and the largest messages. Several files make a
    table with a total.
    """
    rows = list[read_output.Stats]()
    for edited in inputs.sessions():
        effective = _as_client(edited).view.tokens if edited.session.compactions else None
        rows.append((edited, read_output.token_shares(edited.view, largest), effective))
    inputs.print_answer(starmap(json_output.stats, rows), read_output.show_stats(rows))


MESSAGE = option(
    "--message only",
    "N",
    "Show only message #N, counted from 0, or what hides it.",
    type=click.IntRange(min=0),
)
REQUEST = option(
    "--request",
    "N",
    "Show the session as sent in request N, counted from 1.",
    type=click.IntRange(min=1),
)
HTML = option(
    "--html",
    "PATH",
    "Write a self-contained HTML page to this file (- for standard output).",
    type=LOCATION_TYPE,
)


@sessions_command("read", "view session.jsonl --lines 3")
@flag("--original", "Show the original messages, without edits.")
@flag("--payload", "Print the request as JSON.")
@flag("--effective", "Show what the client's own compactions left, without Refold's edits.")
@option("--lines", "N", "Show at most N lines of each message.", type=click.IntRange(min=0))
@MESSAGE
@REQUEST
@HTML
def view(  # noqa: PLR0917 - click passes them by name
    inputs: Inputs,
    original: bool,
    payload: bool,
    effective: bool,
    lines: int | None,
    only: int | None,
    html: str | None,
) -> None:
    """Show what the model would see."""
    if payload and (inputs.as_json or html or (lines, only) != (None, None)):
        raise click.UsageError(
            "--payload prints the request as it is: leave out --lines, --message, --html and --json"
        )
    if original and effective:
        raise click.UsageError("--original and --effective exclude one another")
    if inputs.request is not None and (payload or effective):
        raise click.UsageError("--request goes with neither --payload nor --effective")
    change = _as_client if effective else _as_said if original else _as_edited
    if payload:
        write_request("-", change(inputs.single_session()).view.payload)
    else:
        _show(inputs, html, change, lines, only, diff=False)


@sessions_command("read", "diff session.jsonl --html changes.html")
@MESSAGE
@REQUEST
@HTML
def diff(inputs: Inputs, only: int | None, html: str | None) -> None:
    """Compare what the model would see with the transcript."""
    _show(inputs, html, _as_edited, None, only, diff=True)


def _show(
    inputs: Inputs,
    html: str | None,
    change: Callable[[EditedSession], EditedSession],
    lines: int | None,
    only: int | None,
    *,
    diff: bool,
) -> None:
    """Show the sessions after *change*, or write one as a page to *html*."""
    if not html:
        sessions: Iterable[EditedSession] = map(change, inputs.sessions())
        if only is not None:
            _check_message(only, sessions := list(sessions))
        shown = read_output.show_views(sessions, diff, lines, only, inputs.request)
        documents = (json_output.view(edited, only) for edited in sessions)
        inputs.print_answer(documents, shown, paged=True)
        return
    check_output(html, inputs, "--html")
    protect_edits(html, [edited := inputs.single_session()])
    view = change(edited).view
    if only is not None:
        _check_message(only, [edited])
    page = html_page(view, read_output.name_of(edited), diff=diff, only=only)
    write_output(html, page.encode("utf-8", "replace"))
    if html != "-":
        terminal.print_lines([Line(f"wrote {short_path(html)}")])


def _check_message(at: int, sessions: Sequence[EditedSession]) -> None:
    """Raise `click.UsageError` if none of *sessions* has a message at this position."""
    length = max(len(edited.view.transcript) for edited in sessions)
    if at >= length:
        raise click.UsageError(f"there is no message #{at}: there are {length:,}, from #0 on")


@sessions_command("read", "unfold session.jsonl a81c", is_of_one=True)
@click.argument("edit", metavar="EDIT")
def unfold(inputs: Inputs, edit: str) -> None:
    """Show exactly what an edit hides.

    EDIT is the id of the edit, a unique prefix of it, or the id of a tool call whose result is
    hidden. With --json the entries are printed as in the session.
    """
    edited = find_owner(map(with_client_compactions, inputs.sessions()), edit)
    (hidden,) = find_edits(edited.view, [edit])
    inputs.print_answer(
        [json_output.unfold(edited, hidden)], read_output.show_hidden(edited.view, hidden)
    )


@sessions_command("read", "recall session.jsonl 'timeout 超时'", is_of_one=True)
@click.argument("query", nargs=-1, required=True, metavar="QUERY...")
@option(
    "--limit",
    "N",
    "Maximum number of messages to show per session, the best first.",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
)
def recall(inputs: Inputs, query: tuple[str, ...], limit: int) -> int:
    """Search what edits and the client's own compactions hide.

    Messages that contain QUERY word for word come first; weak matches are left out. Each hit shows
    position and role of the message, the edit that hides it, and the passage with most of QUERY.
    Exit code 1 if nothing is found.
    """
    words = " ".join(query)
    rows = [find_hits(edited, words, limit + 1) for edited in inputs.sessions()]
    documents = (json_output.hits(edited, hits, limit) for edited, hits in rows)
    inputs.print_answer(documents, read_output.show_hits(rows, limit, words))
    return int(not any(hits for _, hits in rows))


def find_hits(edited: EditedSession, query: str, limit: int) -> tuple[EditedSession, list[Hit]]:
    """Return the session with its client's compactions, and hits for *query* in hidden messages. A
    hit names Refold's edit if there is one, since it can be reverted, or else the client's."""
    whole = with_client_compactions(edited)
    own = find_hidden(edited.view)
    hits = relevant_hits(search(whole.view, query, limit))
    return whole, [hit._replace(edit=own.get(hit.position, hit.edit)) for hit in hits]


@sessions_command("read", "history session.jsonl")
def history(inputs: Inputs) -> None:
    """List every compaction attempt: outcome, tokens, cost, actor.

    Oldest first, with the reason, the model and prompt, the edits, and whether their content can be
    recovered.
    """
    rows = [(edited, ledger_rows(edited)) for edited in inputs.sessions()]
    inputs.print_answer(starmap(json_output.history, rows), read_output.show_histories(rows))


@sessions_command("read", "check request.json --repair -o mended.json")
@flag("--sent", "Check the messages as the edits show them, not the original ones.")
@option(
    "--before",
    "EARLIER",
    "Also compare with the request that was sent before, in this file.",
    type=LOCATION_TYPE,
)
@flag("--repair", "Repair what can be repaired without inventing content; needs --output.")
@option(
    "-o --output",
    "PATH",
    "Write the repaired request to this file (- for standard output).",
    type=LOCATION_TYPE,
)
def check(inputs: Inputs, sent: bool, before: str | None, repair: bool, output: str | None) -> int:
    """List what the provider's API would refuse.

    Each problem comes with its rule and position. Exit code 1 if there is any, or, with --repair,
    if any is left.
    """
    check_output(output, inputs)
    if repair != bool(output):
        raise click.UsageError("--repair and --output go together")
    if repair and before:
        raise click.UsageError(
            "what was not kept of an earlier request cannot be mended: "
            "leave out --repair or --before"
        )
    sessions = [inputs.single_session()] if repair or before else list(inputs.sessions())
    protect_edits(output, sessions)
    earlier = None
    if before:
        earlier = Inputs((before,), format=inputs.format).single_session().view.revert().payload
    try:
        rows = [_check(edited, sent, repair, earlier) for edited in sessions]
    except FormatError as error:
        reason = f"{before} is no request of the same kind: {error}" if before else str(error)
        raise click.UsageError(reason) from error
    if output and (repaired := rows[0][2]):
        write_request(output, repaired.payload)
    console = terminal.err() if output == "-" else None
    inputs.print_answer(
        starmap(json_output.check, rows), read_output.show_violations(rows), console
    )
    return int(
        any(repaired.remaining if repaired else violations for _, violations, repaired in rows)
    )


def _check(edited: EditedSession, sent: bool, repair: bool, before: Any) -> read_output.Check:
    """Return the violations in a session, and its repair if *repair*."""
    payload = edited.view.payload if sent else edited.view.revert().payload
    violations = find_violations(payload, edited.format, before=before)
    return edited, violations, repair_payload(payload, edited.format) if repair else None


def _as_client(edited: EditedSession) -> EditedSession:
    """Return the session as its client's recorded compactions left it."""
    session = replace(edited.session, messages=edited.session.effective, compactions=())
    return open_edited(session, None, MemoryStore(), count=edited.count)


def _as_edited(edited: EditedSession) -> EditedSession:
    """Return the session as its edits show it."""
    return edited


def _as_said(edited: EditedSession) -> EditedSession:
    """Return the session without edits."""
    return replace(edited, view=edited.view.revert())
