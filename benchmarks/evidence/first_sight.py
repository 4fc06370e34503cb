"""What remains of a long result at first sight: head and tail, or an outline by its kind."""

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, TypeVar

from benchmarks.evidence.first_sight_units import print_units
from benchmarks.evidence.names import percent
from benchmarks.evidence.needs import Name, OldLines, find_edits, find_names, iter_lines
from benchmarks.evidence.policies import MakePolicy, Policy, compacting
from benchmarks.evidence.replay import replay
from benchmarks.evidence.sessions import Session, load_sessions
from benchmarks.evidence.visible import History, Request, Score
from benchmarks.table import table
from refold.compactor.settings import default_strategies
from refold.core.strategy import Edits, Strategy
from refold.core.tool_groups import MessageSlot, map_parts, replace_if_smaller
from refold.core.view import View
from refold.messages import Message, Part, ToolResult
from refold.strategies import ClipResults, OutlineResults
from refold.strategies.first_sight import clip_part
from refold.testing import proposals
from refold.text.outline import KINDS, outline
from refold.text.outline_lines import Line, Outline
from refold.tokens.count import estimate

Need = TypeVar("Need", Name, OldLines)
EVERY = tuple(KINDS)
LIMITS = (2_000, 4_000, 8_000)
WAYS = ("head and tail", "outline", "random lines")
WINDOWS = (20_000, 30_000, 60_000)
"""Tokens of messages, for the default strategies."""


class Long(NamedTuple):
    """A result over the limit, and what later calls need of it."""

    kind: str
    text: str
    names: list[str]
    edits: list[OldLines]
    shown: tuple[str, ...]
    """Its text in each of the ways."""


@dataclass
class Remainder:
    """What remains of some results."""

    tokens: int = 0
    tied: int = 0
    edits: int = 0


def local(strategy: Strategy) -> MakePolicy:
    """Return a policy that sends what a local strategy shows, which is the same at every call."""

    def make(session: Session, _: int) -> Policy:
        shown = proposals(View.of(session.messages), strategy).messages
        return lambda _, messages: shown[: len(messages)]

    return make


@dataclass(frozen=True)
class ClipKinds:
    """Head and tail of the results that `OutlineResults` would outline, for comparison."""

    limit: int
    kinds: tuple[str, ...] = OutlineResults().kinds
    local: ClassVar[bool] = True

    def __call__(self, view: View, since: int = 0) -> Edits:
        """Clip the results of these kinds and leave the rest unchanged."""

        def clip(part: Part) -> Part:
            is_of_kind = isinstance(part, ToolResult) and kind_of(part.text) in self.kinds
            return clip_part(part, self.limit, 0.5, "12345678") if is_of_kind else part

        for at, message in view.iter_unedited(since):
            slot = MessageSlot(at, message, view.base.tokens(at, at + 1), "")
            yield from replace_if_smaller(view, slot, map_parts(message, clip), repr(self))


def kind_of(text: str) -> str:
    """Return the kind of a text, or `other`."""
    outlined = outline(text, frozenset())
    return outlined[0] if outlined else "other"


def iter_long(session: Session, limit: int) -> Iterator[Long]:
    """Yield the results of over *limit* characters."""
    names = [need for need in find_names(session.messages) if not need.is_reused]
    edits = find_edits(session.messages)
    view = View.of(session.messages)
    clipped, outlined = (
        texts_of(proposals(view, strategy).messages)
        for strategy in (ClipResults(limit), OutlineResults(limit, EVERY, limit))
    )
    for place, text in texts_of(session.messages).items():
        if len(text) <= limit:
            continue
        yield Long(
            kind_of(text),
            text,
            [need.text for need in after(names, place[0]) if need.text in text],
            [edit for edit in after(edits, place[0]) if {*iter_lines(text)}.issuperset(edit.lines)],
            (clipped[place], outlined[place], choose_lines(text, len(clipped[place]))),
        )


def after(needs: Sequence[Need], at: int) -> list[Need]:
    """Return the needs after the message at *at*."""
    return [need for need in needs if need.at > at]


def texts_of(messages: Sequence[Message]) -> dict[tuple[int, int], str]:
    """Return the text of every result by its position."""
    return {
        (at, n): part.text
        for at, message in enumerate(messages)
        for n, part in enumerate(message.parts)
        if isinstance(part, ToolResult)
    }


def choose_lines(text: str, room: int) -> str:
    """Return randomly chosen lines, as many as fit."""
    chance = random.Random(len(text))
    return Outline([Line(line, chance.random()) for line in text.split("\n")]).show(room)


def add(total: Remainder, result: Long, shown: str) -> None:
    """Count what *shown* keeps of a result."""
    request = Request((), (shown,))
    history = History(frozenset(), {name: [result.text] for name in result.names})
    lines = request.lines()
    total.tokens += estimate(shown)
    total.tied += sum(request.ties(name, history) for name in result.names)
    total.edits += sum(lines.issuperset(edit.lines) for edit in result.edits)


def print_kinds(sessions: Sequence[Session], limit: int) -> list[str]:
    """Print what remains of the results over *limit* by kind, and return the kinds."""
    kinds = defaultdict(list)
    for session in sessions:
        for result in iter_long(session, limit):
            kinds[result.kind].append(result)
    rows = []
    for kind, results in sorted(kinds.items(), key=lambda entry: -len(entry[1])):
        names = sum(len(result.names) for result in results)
        edits = sum(len(result.edits) for result in results)
        for at, way in enumerate(WAYS):
            total = Remainder()
            for result in results:
                add(total, result, result.shown[at])
            shares = percent(total.tied, names), percent(total.edits, edits)
            rows.append([f"{kind}, {len(results)}", way, f"{total.tokens:,}", *shares])
            rows[-1] += [str(names), str(edits)]
    head = ["kind, results", "shown", "tokens", "tied, %", "edits, %", "names", "edits"]
    print(f"\nresults over {limit:,} characters\n\n{table(head, rows)}", flush=True)
    return [kind for kind in EVERY if kind in kinds]


def print_sessions(sessions: Sequence[Session], limit: int, kinds: Sequence[str]) -> None:
    """Print what whole requests lose if long results are cut at first sight and nothing else is
    cut."""
    strategies = {
        "as they are": ClipResults(10**9),
        "head and tail": ClipResults(limit),
        "outlines, code too": OutlineResults(limit, EVERY, limit),
        "outlines, code as it is": OutlineResults(limit, rest=10**9),
        "head and tail, code as it is": ClipKinds(limit),
        **{f"outlines of {kind} alone": OutlineResults(limit, (kind,), 10**9) for kind in kinds},
    }
    rows = []
    for name, strategy in strategies.items():
        total = Score()
        for session in sessions:
            total += replay(session, local(strategy), 0)
        shares = (
            percent(total.sent, total.full),
            percent(total.plain, total.names),
            percent(total.tied, total.names),
            percent(total.editable, total.edits),
        )
        rows.append([name, *shares])
    head = ["long results", "sent, %", "plain", "tied", "edits"]
    print(f"\n{len(sessions)} sessions, {total.names:,} names, {total.edits:,} edits\n")
    print(table(head, rows), flush=True)


def in_defaults(strategy: Strategy) -> MakePolicy:
    """Return the default strategies with *strategy* in place of head and tail."""

    def make(session: Session, window: int) -> Policy:
        strategies = default_strategies(session.fixed + window // 2)
        places = [strategy if isinstance(each, ClipResults) else each for each in strategies]
        return compacting(places, session, window)

    return make


def print_defaults(sessions: Sequence[Session]) -> None:
    """Print what whole requests lose inside the default strategies."""
    rows = []
    for window in WINDOWS:
        long = [session for session in sessions if session.size >= 1.5 * window]
        for strategy in (ClipResults(50_000), OutlineResults(), OutlineResults(20_000)):
            total = Score()
            for session in long:
                total += replay(session, in_defaults(strategy), window)
            shares = (
                percent(total.sent, total.full),
                percent(total.plain, total.names),
                percent(total.tied, total.names),
                percent(total.editable, total.edits),
                f"{100 * total.dollars / total.full_dollars:.1f}",
            )
            label = f"{type(strategy).__name__}({strategy.limit:,})"
            rows.append([f"{window:,}", f"{total.names:,}", label, *shares])
    head = ["window", "names", "at first sight", "sent, %", "plain", "tied", "edits", "bill, %"]
    print(f"\ninside the default strategies\n\n{table(head, rows)}", flush=True)


def print_tables(split: str, limits: Sequence[int] = ()) -> None:
    """Print what remains inside the default strategies, and three tables for each limit."""
    sessions = list(load_sessions(split))
    print_defaults(sessions)
    for limit in limits or LIMITS:
        print_sessions(sessions, limit, print_kinds(sessions, limit))
        print_units(limit)
