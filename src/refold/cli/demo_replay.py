"""The demo's session, replayed: what each request would be, and proofs that nothing is lost."""

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from refold.budget.budget import Budget
from refold.cli.edited_session import Share
from refold.cli.terminal import plural, short
from refold.codecs.repair import check
from refold.compactor.compactor import Compactor
from refold.compactor.loading import make_local_edits
from refold.compactor.settings import default_strategies
from refold.core.view import View
from refold.core.view_lines import tokens_saved
from refold.edits import Edit
from refold.session_files import demo_session
from refold.speakers import is_request
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


@dataclass(frozen=True, slots=True)
class Request:
    """One request that a client would send."""

    unedited: int
    """Tokens of the whole conversation so far."""
    sent: int
    """Tokens of what is sent instead."""
    breaks_cache: bool
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
    return Compactor(default_strategies(TARGET), Budget(TRIGGER, TARGET), store, model=MODEL)


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
    latest = [message.text for message in view.transcript.messages if is_request(message)][-1]
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
    return plural(len(rules), "rule") + languages
