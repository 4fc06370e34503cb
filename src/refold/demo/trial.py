"""A trial run: live through a session turn by turn, and prove that nothing was lost."""

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from refold.budget.budget import Budget
from refold.codecs.repair import check
from refold.compactor.compactor import Compactor
from refold.compactor.defaults import default_strategies
from refold.compactor.engine import first_sight
from refold.core.view import View
from refold.demo import lines
from refold.demo.story import session
from refold.edits import Edit
from refold.session_files.workfile import Share, saving
from refold.stores import SQLiteStore
from refold.text.summary_wrapper import summary_in

TRIGGER, TARGET = 80_000, 30_000
MODEL = "claude-opus-5-5"
"""Whose thinking is in the session: it is bound to what it was thought over (AN-7)."""
BUDGET = Budget(TRIGGER, TARGET)
"""What the demo lives on."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request that a client would have sent."""

    said: int
    """Tokens of everything said so far."""
    sent: int
    """Tokens of what was sent instead."""
    broke: bool
    """Did it change something that the request before had sent already?"""
    violations: int


@dataclass(frozen=True, slots=True)
class Proof:
    """Something that must be true, and whether it is."""

    claim: str
    holds: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Trial:
    """What the session was like."""

    history: list[Any]
    requests: tuple[Request, ...]
    shares: tuple[Share, ...]
    """What each strategy did, over the whole session."""
    view: View
    """The last request."""
    proofs: tuple[Proof, ...]

    @property
    def stub(self) -> Edit | None:
        """An edit that shows one message shorter: the longest of them that still shows."""
        stubs = [edit for edit in self.shown if len(edit.insert) == edit.stop - edit.start]
        return max(stubs, key=lambda edit: self.view.ground.tokens(edit.start, edit.stop), default=None)

    @property
    def summary(self) -> Edit | None:
        """The edit that shows a summary, if there is one."""
        return next((edit for edit in self.shown if any(map(summary_in, edit.insert))), None)

    @property
    def shown(self) -> list[Edit]:
        """The edits that show."""
        return [edit for edit, _ in self.view.top]


def trial(turns: int | None = None, watch: Callable[[list[Any]], Iterable[Any]] = iter) -> Trial:
    """Live through the demo's session (its first *turns* answers) with a store on disk.

    *watch* passes the entries through, for a progress bar.
    """
    history = session(turns)
    before = json.dumps(history)
    with tempfile.TemporaryDirectory() as directory, SQLiteStore(Path(directory) / "refold.db") as store:
        compactor = Compactor(default_strategies(), BUDGET, store, model=MODEL)
        views = list(_live(compactor, watch(history)))
        again = Compactor(default_strategies(), BUDGET, store, model=MODEL)(history)
    view = views[-1][0]
    proofs = tuple(_proofs(history, before, view, again, [request for _, request in views]))
    return Trial(history, tuple(request for _, request in views), tuple(_tally(views, compactor)), view, proofs)


def _live(compactor: Compactor, entries: Iterable[Any]) -> Iterator[tuple[View, Request]]:
    """Each request as its view, and what there is to say about it."""
    live, sent, new = compactor.session(), list[Any](), list[Any]()
    for entry in entries:
        new.append(entry)
        if entry["role"] == "user":
            view, new = live.append(*new), []
            payload = view.payload
            bad = len(check(payload, "anthropic"))
            yield view, Request(view.said, view.tokens, payload[: len(sent)] != sent, bad)
            sent = payload


def _tally(views: Sequence[tuple[View, Request]], compactor: Compactor) -> Iterator[Share]:
    """Per strategy, over all requests: edits made and tokens saved when they were made."""
    said = views[-1][0].revert()
    for strategy in compactor.local:
        saved = [saving(said, edit) for edit in first_sight(said, [strategy])]
        yield Share(repr(strategy), len(saved), sum(saved))
    runs = [attempt for view, _ in views for attempt in view.attempts if attempt.edits]
    for by in dict.fromkeys(map(repr, compactor.retrospective)):
        mine = [attempt for attempt in runs if attempt.by == by]
        ended = ("applied", "") if mine else ("noop", "was not needed")
        yield Share(by, sum(one.edits for one in mine), sum(one.before - one.after for one in mine), *ended)


# --- proofs ----------------------------------------------------------------------------------


def _proofs(history: list[Any], before: str, view: View, again: View, requests: Sequence[Request]) -> Iterator[Proof]:
    bad = sum(request.violations > 0 for request in requests)
    yield Proof("the history itself is untouched", json.dumps(history) == before, f"{len(before):,} bytes, compared")
    yield Proof(
        "view.revert().payload == history", view.revert().payload == history, f"{len(history)} messages, compared"
    )
    wrong = [edit.id for edit in view.edits if view.unfold(edit.id) != history[edit.start : edit.stop]]
    yield Proof("every edit unfolds to exactly what was said", not wrong, f"{len(view.edits)} edits, compared")
    yield Proof("the provider would accept every request", not bad, f"{len(requests)} requests, checked by rule")
    over = sum(request.sent >= TRIGGER for request in requests)
    yield Proof(
        "every request stayed under the trigger",
        not over,
        f"largest {max(r.sent for r in requests):,} of {TRIGGER:,} tokens",
    )
    yield Proof(
        "started anew from its store, it sends the same", again.payload == view.payload, "a second compactor, one file"
    )
    yield from _visible(history, view)


def _visible(history: list[Any], view: View) -> Iterator[Proof]:
    """The latest request and every rule that the user laid down are in what is sent."""
    sent = "\n".join(message.text for message in view.messages)
    asked = next(m.text for m in reversed(view.transcript.messages) if m.is_request)
    yield Proof("the latest request is sent word for word", asked in sent, _beginning(asked))
    said = json.dumps(history, ensure_ascii=False)
    rules = [words for words in lines.CONSTRAINTS if words in said]
    lost = [words for words in rules if words not in sent]
    yield Proof("what the user laid down is still in sight", not lost, "; ".join(lost) or _number(rules))


def _number(rules: list[str]) -> str:
    """How many rules, and whether they are in both languages."""
    both = len({words.isascii() for words in rules}) == 2
    return f"{len(rules)} {'rule' if len(rules) == 1 else 'rules'}" + ", two languages" * both


def _beginning(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 36 else line[:35] + "…"
