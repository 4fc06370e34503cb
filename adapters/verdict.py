"""Judges a framework's conversation by the requests that reached the model and the kept history."""

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
    """Number of requests that the model answered."""
    refused: int
    """Number of requests over the window."""
    invalid: int
    """Number of requests that a provider would refuse, alone or because of the request before."""
    compactions: int
    rewritten: int
    """Number of requests without the previous one as prefix: at most one per compaction."""
    forgetful: int
    """Number of compactions that began above the window, because earlier edits were lost."""
    missing: int
    """Number of texts that the framework's history lacks."""
    streamed: bool
    """Whether the streams delivered the model's text unchanged and in pieces."""
    reports: int
    """Number of usage reports of the compactor, in the process with the fewest."""
    errors: tuple[str, ...]
    """Distinct errors that Refold logged."""
    keeps: bool
    """Whether the framework keeps the whole history."""
    reporting: bool
    """Whether usage should be reported."""
    sent: int
    """Characters of the longest request."""

    @property
    def is_fine(self) -> bool:
        """Whether the conversation went as it should."""
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
    """Judge a conversation from the *results* of its parts, one per process.

    *keeps*: whether the framework keeps the whole history. *reporting*: whether usage should be
    reported.
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
    """Return the entries of a request without `cache_control`, which clients move.

    Names are left out too: Agent Framework sends the agent's name only from its next run on.
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
    """Return the tokens before each compaction."""
    rows = [row for row in SQLiteStore(place / "refold.db").ledger() if row.edit is not None]
    return list({row.run: row.before for row in reversed(rows)}.values())


def _is_streamed(deltas: Sequence[str]) -> bool:
    """Return whether the pieces add up to the model's text in the streamed turns."""
    per_turn = len(SCRIPT) // len(TURNS)
    expected = "".join(
        answer.text for at, answer in enumerate(SCRIPT) if TURNS[at // per_turn].streams
    )
    return "".join(deltas) == expected and len(deltas) > expected.count(".")
