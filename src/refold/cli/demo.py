"""`refold demo`: replays a long session request by request and proves that nothing is lost."""

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.rule import Rule
from rich.text import Text

from refold.budget.budget import Budget
from refold.cli import terminal
from refold.cli.message_lines import Line, part_lines
from refold.cli.options import JSON
from refold.cli.terminal import clean, short, tokens
from refold.cli.write_output import strategy_table
from refold.codecs.repair import check
from refold.compactor.compactor import Compactor
from refold.compactor.defaults import default_strategies
from refold.compactor.engine import make_local_edits
from refold.core.view import View
from refold.edits import Edit
from refold.session_files.demo import demo_session
from refold.session_files.edited_session import Share, tokens_saved
from refold.stores import SQLiteStore
from refold.text.summary_wrapper import summary_in

TRIGGER, TARGET = 80_000, 30_000
MODEL = "claude-opus-5-5"
"""The model of the session: its signed thinking is bound to what it was thought over (AN-7)."""
CONSTRAINTS = (
    "Never touch anything under migrations/",
    "必须保持 API 返回的字段名和时间格式不变",
    "不要修改 locales/zh.json 里的键",
    "Don't add a dependency",
    "always run a part's own tests first",
    "harbor/parcels is frozen",
    "务必",
)
"""Words from what the user of the session wants respected to its end."""
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


@dataclass(frozen=True, slots=True)
class Request:
    """One request that a client would send."""

    said: int
    """Tokens of the whole conversation so far."""
    sent: int
    """Tokens of what is sent instead."""
    broke: bool
    """Does it change something that the request before has sent already?"""
    violations: int


@dataclass(frozen=True, slots=True)
class Proof:
    """Something that must be true, and whether it is."""

    claim: str
    holds: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Replay:
    """What replaying the session shows."""

    history: list[Any]
    requests: tuple[Request, ...]
    shares: tuple[Share, ...]
    """What each strategy saved, over the whole session."""
    view: View
    """The last request."""
    proofs: tuple[Proof, ...]

    @property
    def stub(self) -> Edit | None:
        """The edit that shortens a single message, of several the one with the longest message."""
        stubs = [edit for edit in self.top_edits if len(edit.insert) == edit.stop - edit.start]
        return max(
            stubs, key=lambda edit: self.view.base.tokens(edit.start, edit.stop), default=None
        )

    @property
    def summary(self) -> Edit | None:
        """The edit that shows a summary, if there is one."""
        return next((edit for edit in self.top_edits if any(map(summary_in, edit.insert))), None)

    @property
    def top_edits(self) -> list[Edit]:
        """The edits that no later edit hides."""
        return [edit for edit, _ in self.view.visible_edits]


# --- replaying -------------------------------------------------------------------------------


def replay(turns: int | None = None, watch: Callable[[list[Any]], Iterable[Any]] = iter) -> Replay:
    """Replay the demo's session (its first *turns* answers) with a store on disk.

    *watch* passes the entries through, for a progress bar.
    """
    history = demo_session(turns)
    before = json.dumps(history)
    with tempfile.TemporaryDirectory() as folder, SQLiteStore(Path(folder) / "refold.db") as store:
        steps = list(_replay(_compactor(store), watch(history)))
        restarted = _compactor(store)(history)
        shares = tuple(_shares([view for view, _ in steps], _compactor(store)))
    last, requests = steps[-1][0], tuple(request for _, request in steps)
    proofs = tuple(prove(history, before, last, restarted, requests))
    return Replay(history, requests, shares, last, proofs)


def _compactor(store: SQLiteStore) -> Compactor:
    return Compactor(default_strategies(), Budget(TRIGGER, TARGET), store, model=MODEL)


def _replay(compactor: Compactor, entries: Iterable[Any]) -> Iterator[tuple[View, Request]]:
    """Yield each request as its view, with its figures."""
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


def _shares(views: Sequence[View], compactor: Compactor) -> Iterator[Share]:
    """Yield each strategy's edits over all requests, and the tokens they saved at first."""
    unedited = views[-1].revert()
    for strategy in compactor.settings.local:
        saved = [tokens_saved(unedited, edit) for edit in make_local_edits(unedited, [strategy])]
        yield Share(repr(strategy), len(saved), sum(saved))
    attempts = [attempt for view in views for attempt in view.attempts if attempt.edits_applied]
    for by in dict.fromkeys(map(repr, compactor.settings.retrospective)):
        mine = [attempt for attempt in attempts if attempt.by == by]
        outcome = ("applied", "") if mine else ("noop", "was not needed")
        yield Share(
            by,
            sum(run.edits_applied for run in mine),
            sum(run.tokens_before - run.tokens_after for run in mine),
            *outcome,
        )


def prove(
    history: list[Any], before: str, view: View, restarted: View, requests: Sequence[Request]
) -> list[Proof]:
    """Return every claim of the demo. *before* is the history as JSON before the replay."""
    messages, edits = f"{len(history)} messages, compared", f"{len(view.edits)} edits, compared"
    largest = max(request.sent for request in requests)
    valid = not any(request.violations for request in requests)
    exact = all(view.unfold(edit.id) == history[edit.start : edit.stop] for edit in view.edits)
    sent = "\n".join(message.text for message in view.messages)
    latest = [message.text for message in view.transcript.messages if message.is_request][-1]
    unedited = json.dumps(history, ensure_ascii=False)
    rules = [words for words in CONSTRAINTS if words in unedited]
    lost = "; ".join(words for words in rules if words not in sent)
    claims = (
        (
            "the history itself is untouched",
            json.dumps(history) == before,
            f"{len(before):,} bytes, compared",
        ),
        ("view.revert().payload == history", view.revert().payload == history, messages),
        ("every edit unfolds to exactly what was said", exact, edits),
        (
            "the provider would accept every request",
            valid,
            f"{len(requests)} requests, checked by rule",
        ),
        (
            "every request stayed under the trigger",
            largest < TRIGGER,
            f"largest {largest:,} of {TRIGGER:,} tokens",
        ),
        (
            "started anew from its store, it sends the same",
            restarted.payload == view.payload,
            "a second compactor, one file",
        ),
        ("the latest request is sent word for word", latest in sent, short(latest, 36)),
        ("what the user laid down is still in sight", not lost, lost or _rule_count(rules)),
    )
    return [Proof(*claim) for claim in claims]


def _rule_count(rules: list[str]) -> str:
    languages = ", two languages" if len({words.isascii() for words in rules}) == 2 else ""
    return f"{len(rules)} {'rule' if len(rules) == 1 else 'rules'}{languages}"


# --- output ----------------------------------------------------------------------------------


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


def show(replay: Replay) -> None:
    """Print the whole report."""
    console = terminal.out()
    console.print(Rule("The session", align="left", style="dim"))
    console.print(
        f"An agent mends a bug in a booking system: {len(replay.history)} messages, {len(replay.requests)} requests, "
        f"{tokens(replay.requests[-1].said)} tokens in the end.\nRefold acts when a request reaches "
        f"{tokens(TRIGGER)} tokens and brings it down to {tokens(TARGET)}. No model was asked."
    )
    _show_chart(console, replay.requests)
    _show_sums(console, replay)
    if stub := replay.stub:
        _show_edit(console, replay.view, stub, _heading(stub), 3)
    if replay.summary:
        _show_edit(console, replay.view, replay.summary, "The summary, written by rules", 24)
    _show_proofs(console, replay.proofs)
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


def _show_sums(console: Console, replay: Replay) -> None:
    unedited, sent, breaks = _sums(replay.requests)
    console.print()
    console.print(
        f"over all requests   {tokens(unedited)} tokens said, {tokens(sent)} sent: {1 - sent / unedited:.0%} less"
    )
    console.print(
        f"cache breaks        {breaks} in {len(replay.requests)} requests; "
        "in all others what was sent before was sent again unchanged"
    )
    console.print()
    console.print(strategy_table(replay.shares))


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


def json_answer(replay: Replay) -> dict[str, Any]:
    """Return what `refold demo --json` prints."""
    unedited, sent, breaks = _sums(replay.requests)
    return {
        "messages": len(replay.history),
        "budget": {"trigger": TRIGGER, "target": TARGET},
        "requests": [asdict(request) for request in replay.requests],
        "tokens": {"said": unedited, "sent": sent},
        "cache_breaks": breaks,
        "strategies": [asdict(share) for share in replay.shares],
        "proofs": [asdict(proof) for proof in replay.proofs],
    }


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
