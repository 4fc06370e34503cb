"""`refold demo`: what a long session costs with Refold and without, and that nothing is lost."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import click
from rich.console import RenderableType
from rich.rule import Rule

from refold.cli import terminal
from refold.cli.demo_replay import TARGET, TRIGGER, Proof, Replay, Request, replay
from refold.cli.options import JSON
from refold.cli.terminal import Line, clean, style_lines, tokens
from refold.cli.write_output import strategy_table
from refold.core.view import View
from refold.core.view_lines import part_lines
from refold.edits import Edit

CHART_BARS = 12
"""Requests whose size is drawn."""
HEADINGS = {
    "ClearToolResults": "A tool result that was cleared",
    "DropDuplicates": "A tool result that was given before",
    "ClipResults": "A tool result that was clipped",
    "OutlineResults": "A tool result that was outlined",
}
NEXT = """\
refold                                  the agent sessions on this machine
refold stats SESSION                    where its tokens and its money are
refold compact SESSION                  edits beside its file
refold diff SESSION                     what the model would see
refold revert SESSION                   and back"""


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
    result = replay(turns, watch=partial(terminal.track, label="living through the session"))
    if as_json:
        terminal.print_json(json_answer(result))
    else:
        terminal.print_lines(show(result))
    return int(not all(proof.holds for proof in result.proofs))


def show(result: Replay) -> Iterator[RenderableType]:
    """Show the whole report."""
    yield _rule("The session")
    yield (
        f"An agent mends a bug in a booking system: {len(result.history)} messages, "
        f"{len(result.requests)} requests, {tokens(result.requests[-1].unedited)} tokens in the end.\n"
        f"Refold acts when a request reaches {tokens(TRIGGER)} tokens and brings it down to "
        f"{tokens(TARGET)}. No model was asked."
    )
    yield from _chart(result.requests)
    yield from _sums_lines(result)
    if stub := result.stub:
        yield from _edit(result.view, stub, _heading(stub), 3)
    if result.summary:
        yield from _edit(result.view, result.summary, "The summary, written by rules", 24)
    yield from _proofs(result.proofs)
    yield _rule("Try next")
    yield Line(NEXT)


def _rule(text: str) -> Rule:
    return Rule(text, align="left", style="dim")


def _heading(stub: Edit) -> str:
    return HEADINGS.get(stub.by.partition("(")[0], "A message that was shortened")


def _chart(requests: Sequence[Request]) -> Iterator[RenderableType]:
    yield Line()
    yield _rule("Size of the requests: unedited and sent")
    largest = max(request.unedited for request in requests)
    count = min(CHART_BARS, len(requests))
    for position in [round(bar * (len(requests) - 1) / max(1, count - 1)) for bar in range(count)]:
        unedited, sent = requests[position].unedited, requests[position].sent
        full, part = (max(1, round(44 * size / largest)) for size in (unedited, sent))
        size = f"  {tokens(unedited)}" + (f" → {tokens(sent)}" if sent < unedited else "")
        bars = ("█" * part, "green"), ("░" * (full - part), "dim")
        yield Line.assemble((f"{position + 1:>4} ", "dim"), *bars, (size, "dim"))


def _sums_lines(result: Replay) -> Iterator[Line]:
    unedited, sent, breaks = _sums(result.requests)
    yield Line()
    yield Line(
        f"over all requests   {tokens(unedited)} tokens unedited, {tokens(sent)} sent: "
        f"{1 - sent / unedited:.0%} less"
    )
    yield Line(
        f"cache breaks        {breaks} in {len(result.requests)} requests; "
        "in all others what was sent before was sent again unchanged"
    )
    yield Line()
    yield from strategy_table(result.shares)


def _sums(requests: Sequence[Request]) -> tuple[int, int, int]:
    """Return the tokens unedited, the tokens sent and the cache breaks of all requests."""
    rows = ((request.unedited, request.sent, request.breaks_cache) for request in requests)
    unedited, sent, breaks = map(sum, zip(*rows, strict=True))
    return unedited, sent, breaks


def _edit(view: View, edit: Edit, heading: str, most: int) -> Iterator[RenderableType]:
    """Show at most *most* lines of what an edit shows."""
    hidden = view.base.tokens(edit.start, edit.stop)
    shown = sum(map(view.profile.count, edit.insert))
    single = edit.stop == edit.start + 1
    where = f"message {edit.start}" if single else f"messages {edit.start}-{edit.stop - 1}"
    yield Line()
    yield _rule(f"{heading}: {where}, {hidden:,} → {shown:,} tokens")
    lines = list(_new_lines(view, edit))
    for line in lines[:most]:
        line.truncate(terminal.out().width, overflow="ellipsis")
        yield line
    if len(lines) > most:
        yield Line(f"… {len(lines) - most} more lines", "dim")
    yield Line(f"view.unfold({edit.id[:8]!r}) brings it back", "dim")


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
                yield from style_lines(part_lines(part, {}))


def _proofs(proofs: Iterable[Proof]) -> Iterator[RenderableType]:
    yield Line()
    yield _rule("Nothing was lost")
    for proof in proofs:
        mark = ("✓ ", "bold green") if proof.holds else ("✗ ", "bold red")
        yield Line.assemble(mark, proof.claim, ("  " + clean(proof.detail), "dim"))
    yield Line()


def json_answer(result: Replay) -> dict[str, Any]:
    """Return what `refold demo --json` prints."""
    unedited, sent, breaks = _sums(result.requests)
    return {
        "messages": len(result.history),
        "budget": {"trigger": TRIGGER, "target": TARGET},
        "requests": [asdict(request) for request in result.requests],
        "tokens": {"unedited": unedited, "sent": sent},
        "cache_breaks": breaks,
        "strategies": [asdict(share) for share in result.shares],
        "proofs": [asdict(proof) for proof in result.proofs],
    }
