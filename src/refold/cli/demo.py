"""`refold demo`: what a long session costs with Refold and without, and that nothing is lost."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.rule import Rule
from rich.text import Text

from refold.cli import terminal
from refold.cli.demo_replay import TARGET, TRIGGER, Proof, Replay, Request, replay
from refold.cli.message_lines import Line, part_lines
from refold.cli.options import JSON
from refold.cli.terminal import clean, tokens
from refold.cli.write_output import strategy_table
from refold.core.view import View
from refold.edits import Edit

CHART_BARS = 12
"""Requests whose size is drawn."""
HEADINGS = {
    "ClearToolResults": "A tool result that was cleared",
    "DropDuplicates": "A tool result that was given before",
    "ClipResults": "A tool result that was clipped",
}
NEXT = """\
refold                                  the agent sessions on this machine
refold stats FILE                       where a session's tokens are
refold compact FILE --to 60k            edits beside the file
refold view FILE --diff                 what the model would see
refold revert FILE                      and back"""


@click.command()
@JSON
@click.option(
    "--turns",
    type=click.IntRange(min=1),
    metavar="N",
    help="Only the first N answers of the model.",
)
def demo(as_json: bool, turns: int | None) -> int:
    """Compact a long agent session turn by turn, and prove that nothing was lost.

    Needs no key, no network and no model. Exit code 1 if a proof fails.
    """
    result = replay(turns, watch=track_progress)
    if as_json:
        terminal.print_json(json_answer(result))
    else:
        show(result)
    return int(not all(proof.holds for proof in result.proofs))


def track_progress(entries: list[Any]) -> Iterable[Any]:
    """Pass entries through, with a progress bar on a terminal."""
    console = terminal.err()
    if not console.is_terminal:
        yield from entries
        return
    with Progress(
        TextColumn("living through the session"), BarColumn(), console=console, transient=True
    ) as progress:
        yield from progress.track(entries)


def show(result: Replay) -> None:
    """Print the whole report."""
    console = terminal.out()
    console.print(Rule("The session", align="left", style="dim"))
    console.print(
        f"An agent mends a bug in a booking system: {len(result.history)} messages, {len(result.requests)} requests, "
        f"{tokens(result.requests[-1].said)} tokens in the end.\nRefold acts when a request reaches "
        f"{tokens(TRIGGER)} tokens and brings it down to {tokens(TARGET)}. No model was asked."
    )
    _show_chart(console, result.requests)
    _show_sums(console, result)
    if stub := result.stub:
        _show_edit(console, result.view, stub, _heading(stub), 3)
    if result.summary:
        _show_edit(console, result.view, result.summary, "The summary, written by rules", 24)
    _show_proofs(console, result.proofs)
    console.print(Rule("Try next", align="left", style="dim"))
    console.print(Text(NEXT))


def _heading(stub: Edit) -> str:
    return HEADINGS.get(stub.by.partition("(")[0], "A message that was shortened")


def _show_chart(console: Console, requests: Sequence[Request]) -> None:
    console.print()
    console.print(Rule("Size of the requests: said and sent", align="left", style="dim"))
    largest = max(request.said for request in requests)
    count = min(CHART_BARS, len(requests))
    for position in [round(bar * (len(requests) - 1) / max(1, count - 1)) for bar in range(count)]:
        request = requests[position]
        sent, unedited = (
            max(1, round(44 * size / largest)) for size in (request.sent, request.said)
        )
        size = f"  {tokens(request.said)}" + (
            f" → {tokens(request.sent)}" if request.sent < request.said else ""
        )
        bars = ("█" * sent, "green"), ("░" * (unedited - sent), "dim")
        console.print(Text.assemble((f"{position + 1:>4} ", "dim"), *bars, (size, "dim")))


def _show_sums(console: Console, result: Replay) -> None:
    unedited, sent, breaks = _sums(result.requests)
    console.print()
    console.print(
        f"over all requests   {tokens(unedited)} tokens said, {tokens(sent)} sent: {1 - sent / unedited:.0%} less"
    )
    console.print(
        f"cache breaks        {breaks} in {len(result.requests)} requests; "
        "in all others what was sent before was sent again unchanged"
    )
    console.print()
    console.print(strategy_table(result.shares))


def _sums(requests: Sequence[Request]) -> tuple[int, int, int]:
    """Return the tokens said, the tokens sent and the cache breaks of all requests."""
    unedited, sent = (
        sum(request.said for request in requests),
        sum(request.sent for request in requests),
    )
    return unedited, sent, sum(request.broke for request in requests)


def _show_edit(console: Console, view: View, edit: Edit, heading: str, most: int) -> None:
    """Print at most *most* lines of what an edit shows."""
    hidden, shown = (
        view.base.tokens(edit.start, edit.stop),
        sum(map(view.profile.count, edit.insert)),
    )
    single = edit.stop == edit.start + 1
    where = f"message {edit.start}" if single else f"messages {edit.start}-{edit.stop - 1}"
    console.print()
    console.print(
        Rule(f"{heading}: {where}, {hidden:,} → {shown:,} tokens", align="left", style="dim")
    )
    lines = list(_new_lines(view, edit))
    for line in lines[:most]:
        text = clean(line.text)
        text = text if len(text) < console.width else text[: console.width - 2] + "…"
        console.print(Text(text, style=line.style), no_wrap=True)
    if len(lines) > most:
        console.print(Text(f"… {len(lines) - most} more lines", style="dim"))
    console.print(Text(f"view.unfold({edit.id[:8]!r}) brings it back", style="dim"))


def _new_lines(view: View, edit: Edit) -> Iterator[Line]:
    """Yield the lines of an edit's parts that the hidden messages do not have."""
    hidden = {
        part
        for message in view.transcript.messages[edit.start : edit.stop]
        for part in message.parts
    }
    for message in edit.insert:
        for part in message.parts:
            if part not in hidden:
                yield from part_lines(part)


def _show_proofs(console: Console, proofs: Iterable[Proof]) -> None:
    console.print()
    console.print(Rule("Nothing was lost", align="left", style="dim"))
    for proof in proofs:
        mark = ("✓ ", "bold green") if proof.holds else ("✗ ", "bold red")
        console.print(Text.assemble(mark, proof.claim, ("  " + clean(proof.detail), "dim")))
    console.print()


def json_answer(result: Replay) -> dict[str, Any]:
    """Return what `refold demo --json` prints."""
    unedited, sent, breaks = _sums(result.requests)
    return {
        "messages": len(result.history),
        "budget": {"trigger": TRIGGER, "target": TARGET},
        "requests": [asdict(request) for request in result.requests],
        "tokens": {"said": unedited, "sent": sent},
        "cache_breaks": breaks,
        "strategies": [asdict(share) for share in result.shares],
        "proofs": [asdict(proof) for proof in result.proofs],
    }
