"""`refold demo`: compare a long session with and without Refold, and prove that nothing is lost."""

import json
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import RenderableType
from rich.rule import Rule

from refold.budget.budget import Budget
from refold.cli import terminal
from refold.cli.options import JSON
from refold.cli.places import option
from refold.cli.terminal import Line, printable, shorten, style_lines, tokens
from refold.cli.write_commands import strategy_table
from refold.codecs.repair import check
from refold.compactor.compactor import Compactor
from refold.compactor.settings import default_strategies
from refold.core.view import View
from refold.core.view_lines import (
    describe_strategy,
    part_lines,
    savings_by_strategy,
    span_text,
    tokens_saved,
)
from refold.edits import Edit
from refold.session_files import demo_session
from refold.speakers import is_request
from refold.stores import SQLiteStore
from refold.text.json_values import JsonObject
from refold.text.summary_wrapper import summary_in

TRIGGER, TARGET = 80_000, 30_000
MODEL = "claude-opus-5-5"
"""Model of the session. It binds signed thinking to the messages before it (AN-7)."""
CONSTRAINTS = (
    "Never touch anything under migrations/",
    "必须保持 API 返回的字段名和时间格式不变",
    "不要修改 locales/zh.json 里的键",
    "Don't add a dependency",
    "always run a part's own tests first",
    "harbor/parcels is frozen",
    "务必",
)
"""Excerpts of the user's standing instructions in the session."""
CHART_BARS = 12
"""Number of requests in the chart."""
NEXT = """\
refold                                  list the agent sessions on this machine
refold stats SESSION                    show its tokens and cost
refold compact SESSION                  compact it, with edits beside its file
refold diff SESSION                     show what the model would see
refold revert SESSION                   undo all edits"""


@click.command()
@JSON
@option("--turns", "N", "Replay only the first N answers of the model.", type=click.IntRange(min=1))
def demo(as_json: bool, turns: int | None) -> int:
    """Compact a long session, and prove that nothing is lost.

    Needs no API key, no network and no model. Exit code 1 if a proof fails.
    """
    result = replay(turns)
    if as_json:
        terminal.print_json(json_answer(result))
    else:
        terminal.print_lines(show(result))
    return int(not all(proof.holds for proof in result.proofs))


# --- replaying -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Request:
    """One request that a client would send."""

    unedited: int
    """Tokens of the whole conversation so far."""
    sent: int
    """Tokens that are sent instead."""
    breaks_cache: bool
    """Whether it changes anything that the previous request sent."""
    violations: int


@dataclass(frozen=True, slots=True)
class Proof:
    """A claim and whether it holds."""

    claim: str
    holds: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Replay:
    """The result of replaying the session."""

    history: list[Any]
    requests: Sequence[Request]
    view: View
    """View of the last request."""
    proofs: Sequence[Proof]

    @property
    def sums(self) -> tuple[int, ...]:
        """Totals over all requests: tokens unedited, tokens sent, cache breaks."""
        rows = ((request.unedited, request.sent, request.breaks_cache) for request in self.requests)
        return tuple(map(sum, zip(*rows, strict=True)))

    @property
    def stub(self) -> Edit | None:
        """Of the edits that shorten messages one for one, that of the largest; None without any."""
        stubs = [edit for edit in self._top_edits if len(edit.insert) == edit.stop - edit.start]
        size = self.view.base.tokens
        return max(stubs, key=lambda edit: size(edit.start, edit.stop), default=None)

    @property
    def summary(self) -> Edit | None:
        """The edit with a summary, if there is one."""
        return next((edit for edit in self._top_edits if any(map(summary_in, edit.insert))), None)

    @property
    def _top_edits(self) -> list[Edit]:
        return [edit for edit, _ in self.view.visible_edits]


def replay(turns: int | None = None) -> Replay:
    """Replay the demo session (its first *turns* assistant messages) with a store on disk."""
    history = demo_session(turns)
    before = json.dumps(history)
    with tempfile.TemporaryDirectory() as folder, SQLiteStore(Path(folder) / "refold.db") as store:
        entries = terminal.track(history, "replaying the session")
        steps = list(_replay(_compactor(store), entries))
        restarted = _compactor(store)(history)
    last, requests = steps[-1][0], [request for _, request in steps]
    return Replay(history, requests, last, prove(history, before, last, restarted, requests))


def _compactor(store: SQLiteStore) -> Compactor:
    return Compactor(default_strategies(TARGET), Budget(TRIGGER, TARGET), store, model=MODEL)


def _replay(compactor: Compactor, entries: Iterable[Any]) -> Iterator[tuple[View, Request]]:
    """Yield the view and the figures of each request."""
    live, sent, new = compactor.session(), list[Any](), list[Any]()
    for entry in entries:
        new.append(entry)
        if entry["role"] == "user":
            view, new = live.append(*new), []
            payload = view.payload
            violations = len(check(payload, "anthropic"))
            breaks = payload[: len(sent)] != sent
            yield view, Request(view.tokens_unedited, view.tokens, breaks, violations)
            sent = payload


def prove(
    history: list[Any], before: str, view: View, restarted: View, requests: Sequence[Request]
) -> list[Proof]:
    """Return the proofs of the demo. *before* is the history as JSON before the replay."""
    largest = max(request.sent for request in requests)
    exact = all(view.unfold(edit.id) == history[edit.start : edit.stop] for edit in view.edits)
    sent = "\n".join(message.text for message in view.messages)
    latest = [message.text for message in view.transcript.messages if is_request(message)][-1]
    unedited = json.dumps(history, ensure_ascii=False)
    rules = [words for words in CONSTRAINTS if words in unedited]
    lost = "; ".join(words for words in rules if words not in sent)
    whole, edits = view.revert().payload == history, f"{len(view.edits)} edits"
    valid = not any(request.violations for request in requests)
    return [
        Proof(
            "the history is unchanged",
            json.dumps(history) == before,
            f"{len(before):,} bytes",
        ),
        Proof("view.revert().payload == history", whole, f"{len(history)} messages"),
        Proof("every edit unfolds to exactly the original messages", exact, edits),
        Proof("the provider would accept every request", valid, f"{len(requests)} requests"),
        Proof("every request stayed under the trigger", largest < TRIGGER, f"largest {largest:,}"),
        Proof("after a restart, it sends the same request", restarted.payload == view.payload),
        Proof(
            "the user's latest request is sent word for word", latest in sent, shorten(latest, 36)
        ),
        Proof("the user's instructions are still sent", not lost, lost or f"{len(rules)} rules"),
    ]


# --- showing it ------------------------------------------------------------------------------


def show(result: Replay) -> Iterator[RenderableType]:
    """Show the whole report."""
    yield _rule("The session")
    yield (
        f"An agent fixes a bug in a booking system: {len(result.history)} messages, "
        f"{len(result.requests)} requests, {tokens(result.requests[-1].unedited)} tokens at the end.\n"
        f"Refold compacts when a request reaches {tokens(TRIGGER)} tokens, down to "
        f"{tokens(TARGET)}. No model was asked."
    )
    yield from _chart(result.requests)
    unedited, sent, breaks = result.sums
    yield Line(
        f"\nover all requests   {tokens(unedited)} tokens unedited, {tokens(sent)} sent: "
        f"{1 - sent / unedited:.0%} less"
    )
    yield Line(
        f"prompt cache        holds in {len(result.requests) - breaks} of {len(result.requests)} "
        "requests, which only append to the previous one;\n"
        f"                    {breaks} change earlier messages, which are then cached again\n"
    )
    yield from strategy_table(savings_by_strategy(result.view))
    for edit, most in ((result.stub, 3), (result.summary, 24)):
        if edit:
            yield from _edit(result.view, edit, most)
    yield Line()
    yield _rule("Nothing was lost")
    for proof in result.proofs:
        mark = ("✓ ", "bold green") if proof.holds else ("✗ ", "bold red")
        yield Line.assemble(mark, proof.claim, ("  " + printable(proof.detail), "dim"))
    yield Line()
    yield _rule("Try next")
    yield Line(NEXT)


def _rule(text: str) -> Rule:
    return Rule(text, align="left", style="dim")


def _chart(requests: Sequence[Request]) -> Iterator[RenderableType]:
    yield Line()
    yield _rule("Tokens of each request: █ sent, ░ removed by Refold")
    largest = max(request.unedited for request in requests)
    count = min(CHART_BARS, len(requests))
    for position in [round(bar * (len(requests) - 1) / max(1, count - 1)) for bar in range(count)]:
        unedited, sent = requests[position].unedited, requests[position].sent
        full, part = (max(1, round(44 * size / largest)) for size in (unedited, sent))
        size = f"  {tokens(unedited)}" + (f" → {tokens(sent)}" if sent < unedited else "")
        bars = ("█" * part, "green"), ("░" * (full - part), "dim")
        yield Line.assemble((f"{position + 1:>4} ", "dim"), *bars, (size, "dim"))


def _edit(view: View, edit: Edit, most: int) -> Iterator[RenderableType]:
    """Show at most *most* lines of an edit's content that is not in the hidden messages."""
    saved, hidden = tokens_saved(view, edit), view.base.tokens(edit.start, edit.stop)
    yield Line()
    place = span_text(edit.start, edit.stop)
    yield _rule(f"{describe_strategy(edit.by)}: {place}, {hidden:,} → {hidden - saved:,} tokens")
    messages = view.transcript.messages[edit.start : edit.stop]
    before = {part for message in messages for part in message.parts}
    new = (part for message in edit.insert for part in message.parts if part not in before)
    lines = [line for part in new for line in style_lines(part_lines(part, {}))]
    for line in lines[:most]:
        line.truncate(terminal.out().width, overflow="ellipsis")
        yield line
    if len(lines) > most:
        yield Line(f"… {len(lines) - most} more lines", "dim")
    yield Line(f"view.unfold({edit.id[:8]!r}) returns the original", "dim")


def json_answer(result: Replay) -> JsonObject:
    """Return what `refold demo --json` prints."""
    unedited, sent, breaks = result.sums
    return {
        "messages": len(result.history),
        "budget": {"trigger": TRIGGER, "target": TARGET},
        "requests": list(map(asdict, result.requests)),
        "tokens": {"unedited": unedited, "sent": sent},
        "cache_breaks": breaks,
        "strategies": [saving._asdict() for saving in savings_by_strategy(result.view)],
        "proofs": list(map(asdict, result.proofs)),
    }
