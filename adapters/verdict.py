"""What came of a framework's conversation: judged by what reached the model, and by what was kept."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adapters.session import SCRIPT, TURNS, WINDOW, Model, texts_said
from refold import SQLiteStore, check
from refold.testing.scripted_provider import Received

APIS = {
    "/chat/completions": "openai_chat",
    "/responses": "openai_responses",
    "/messages": "anthropic",
    "enerateContent": "gemini",
}
FIELDS = {
    "openai_chat": "messages",
    "openai_responses": "input",
    "anthropic": "messages",
    "gemini": "contents",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Counts over one conversation."""

    api: str
    answers: int
    """Requests that the model answered."""
    refused: int
    """Requests that were over its window."""
    invalid: int
    """Requests that a provider would refuse, alone or for what they do not keep of the one before."""
    compactions: int
    rewritten: int
    """Requests that do not begin with the one before: one a compaction at most."""
    forgetful: int
    """Compactions of more than the window holds: the edits made before were lost, as by a
    restart."""
    missing: int
    """Texts that were said and are not in the framework's history."""
    streamed: bool
    """Did the stream bring the model's words as they were, in pieces?"""
    reports: int
    """Figures of usage that the compactor has, in the process where they are fewest."""
    errors: tuple[str, ...]
    """What Refold logged, different ones."""
    keeps: bool
    """Does the framework keep the whole history?"""
    reporting: bool
    """Is usage to be reported?"""
    sent: int
    """Characters of the longest request."""

    @property
    def is_fine(self) -> bool:
        """Did it go as it should?"""
        faults = self.refused, self.invalid, self.forgetful, self.errors
        return (
            not any(faults)
            and self.answers == len(SCRIPT)
            and 0 < self.rewritten <= self.compactions
            and self.streamed
            and not (self.keeps and self.missing)
            and self.reporting == (self.reports > 0)
        )


def judge(
    model: Model,
    place: Path,
    results: Sequence[dict[str, Any]],
    *,
    keeps: bool = True,
    reporting: bool = True,
) -> Verdict:
    """Judge a conversation whose parts, one a process, gave *results*.

    *keeps*: does the framework keep the whole history? *reporting*: is usage to be reported?
    """
    asked = model.asked
    api = next((name for part, name in APIS.items() if asked and part in asked[0].path), "")
    entries = [_entries(received, api) for received in asked]
    rewritten = [
        at for at in range(1, len(asked)) if entries[at][: len(entries[at - 1])] != entries[at - 1]
    ]
    befores = _read_compactions(place)
    history = "\n".join(results[-1]["texts"])
    return Verdict(
        api=api,
        answers=len(asked),
        refused=model.refused,
        invalid=sum(
            bool(check(received.json, api, before=asked[at - 1].json if at else None))
            for at, received in enumerate(asked)
        ),
        compactions=len(befores),
        rewritten=len(rewritten),
        forgetful=sum(tokens > WINDOW for tokens in befores),
        missing=sum(text not in history for text in texts_said()),
        streamed=_is_streamed([each for result in results for each in result["deltas"]]),
        reports=min(result["reports"] for result in results),
        errors=tuple({error for result in results for error in result["errors"]}),
        keeps=keeps,
        reporting=reporting,
        sent=max((len(received.body) for received in asked), default=0),
    )


def _entries(received: Received, api: str) -> list[Any]:
    """Return the entries of a request, without the marks that clients move.

    Nor with the name of who speaks: Agent Framework gives the agent's only from its next run on.
    """
    return [
        {k: v for k, v in _unmark(entry).items() if k != "name"}
        for entry in received.json[FIELDS[api]]
    ]


def _unmark(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _unmark(inner) for key, inner in value.items() if key != "cache_control"}
    return [_unmark(inner) for inner in value] if isinstance(value, list) else value


def _read_compactions(place: Path) -> list[int]:
    """Return the tokens that each compaction began with."""
    rows = [row for row in SQLiteStore(place / "refold.db").ledger() if row.edit is not None]
    return list({row.run: row.before for row in reversed(rows)}.values())


def _is_streamed(deltas: Sequence[str]) -> bool:
    """Do the pieces together say what the model said in the turns that stream?"""
    per_turn = len(SCRIPT) // len(TURNS)
    expected = "".join(
        answer.text for at, answer in enumerate(SCRIPT) if TURNS[at // per_turn].streams
    )
    return "".join(deltas) == expected and len(deltas) > expected.count(".")
