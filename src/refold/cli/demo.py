"""What `refold demo` shows."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.rule import Rule
from rich.text import Text

from refold.cli import terminal as screen
from refold.cli.output import strategies
from refold.cli.tables import Line, part_lines
from refold.cli.terminal import clean, tokens
from refold.demo.trial import TARGET, TRIGGER, Request, Trial
from refold.edits import Edit

SAMPLES = 12
"""Requests of which the size is drawn."""
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


def watch(entries: list[Any]) -> Iterable[Any]:
    """Pass entries through, with a progress bar on a terminal."""
    console = screen.err()
    if not console.is_terminal:
        yield from entries
        return
    with Progress(TextColumn("living through the session"), BarColumn(), console=console, transient=True) as progress:
        yield from progress.track(entries)


def show(done: Trial) -> None:
    """The whole report."""
    console = screen.out()
    _session(console, done)
    _curve(console, done.requests)
    _sums(console, done)
    if done.stub:
        _sample(console, done, done.stub, _heading(done.stub), 3)
    if done.summary:
        _sample(console, done, done.summary, "The summary, written by rules", 24)
    _proofs(console, done)
    console.print(Rule("Try next", align="left", style="dim"))
    console.print(Text(NEXT))


def _heading(stub: Edit) -> str:
    """What an edit did that shows less of a message."""
    return HEADINGS.get(stub.by.partition("(")[0], "A message that was shortened")


def _session(console: Console, done: Trial) -> None:
    console.print(Rule("The session", align="left", style="dim"))
    console.print(
        f"An agent mends a bug in a booking system: {len(done.history)} messages, {len(done.requests)} requests, "
        f"{tokens(done.requests[-1].said)} tokens in the end.\nRefold acts when a request reaches {tokens(TRIGGER)} tokens "
        f"and brings it down to {tokens(TARGET)}. No model was asked."
    )


def _curve(console: Console, requests: Sequence[Request]) -> None:
    console.print()
    console.print(Rule("Size of the requests: said and sent", align="left", style="dim"))
    whole = max(request.said for request in requests)
    count = min(SAMPLES, len(requests))
    picked = [round(k * (len(requests) - 1) / max(1, count - 1)) for k in range(count)]
    for at in picked:
        one = requests[at]
        sent, said = (max(1, round(44 * count / whole)) for count in (one.sent, one.said))
        size = f"  {tokens(one.said)}" + (f" → {tokens(one.sent)}" if one.sent < one.said else "")
        console.print(
            Text.assemble((f"{at + 1:>4} ", "dim"), ("█" * sent, "green"), ("░" * (said - sent), "dim"), (size, "dim"))
        )


def _sums(console: Console, done: Trial) -> None:
    said, sent = sum(one.said for one in done.requests), sum(one.sent for one in done.requests)
    breaks = sum(one.broke for one in done.requests)
    console.print()
    console.print(f"over all requests   {tokens(said)} tokens said, {tokens(sent)} sent: {1 - sent / said:.0%} less")
    console.print(
        f"cache breaks        {breaks} in {len(done.requests)} requests; in all others what was sent before was sent again unchanged"
    )
    console.print()
    console.print(strategies(done.shares))


def _sample(console: Console, done: Trial, edit: Edit, heading: str, most: int) -> None:
    view = done.view
    hidden, shown = view.ground.tokens(edit.start, edit.stop), sum(map(view.lens.count, edit.insert))
    messages = edit.stop - edit.start
    what = f"message {edit.start}" if messages == 1 else f"messages {edit.start}-{edit.stop - 1}"
    console.print()
    console.print(Rule(f"{heading}: {what}, {hidden:,} → {shown:,} tokens", align="left", style="dim"))
    lines = list(_changed(done, edit))
    for line in lines[:most]:
        text = clean(line.text)
        console.print(
            Text(text if len(text) < console.width else text[: console.width - 2] + "…", style=line.style), no_wrap=True
        )
    if len(lines) > most:
        console.print(Text(f"… {len(lines) - most} more lines", style="dim"))
    console.print(Text(f"view.unfold({edit.id[:8]!r}) brings it back", style="dim"))


def _changed(done: Trial, edit: Edit) -> Iterator[Line]:
    """The parts that an edit shows and that were not said so."""
    said = {part for message in done.view.transcript.messages[edit.start : edit.stop] for part in message.parts}
    for message in edit.insert:
        for part in message.parts:
            if part not in said:
                yield from part_lines(part)


def _proofs(console: Console, done: Trial) -> None:
    console.print()
    console.print(Rule("Nothing was lost", align="left", style="dim"))
    for proof in done.proofs:
        mark = ("✓ ", "bold green") if proof.holds else ("✗ ", "bold red")
        console.print(Text.assemble(mark, proof.claim, ("  " + clean(proof.detail), "dim")))
    console.print()


def document(done: Trial) -> dict[str, Any]:
    """What `refold demo --json` prints."""
    return {
        "messages": len(done.history),
        "budget": {"trigger": TRIGGER, "target": TARGET},
        "requests": [asdict(one) for one in done.requests],
        "tokens": {"said": sum(one.said for one in done.requests), "sent": sum(one.sent for one in done.requests)},
        "cache_breaks": sum(one.broke for one in done.requests),
        "strategies": [asdict(one) for one in done.shares],
        "proofs": [asdict(one) for one in done.proofs],
    }
