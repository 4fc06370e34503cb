"""What a compactor remembers of conversations between turns: edits in the store, and the format."""

import re
from collections.abc import Sequence
from typing import Any

import pytest

import refold
from refold.codecs import openai_chat
from refold.core.strategy import Answer
from refold.messages import user
from refold.stores import MemoryStore, SQLiteStore
from refold.strategies import Summarize
from refold.summarizers.model import ModelSummary


def talk(turns: int) -> list[dict[str, str]]:
    return [
        {"role": role, "content": f"{role} {n}: " + "some words of it " * 60}
        for n in range(turns)
        for role in ("user", "assistant")
    ]


@pytest.mark.parametrize("opened", [MemoryStore, SQLiteStore])
def test_edits_that_others_store_during_a_model_call_are_seen_at_the_next_turn(opened, tmp_path):
    """The store's version after a save does not show edits stored by others before it."""
    store = opened(tmp_path / "edits.db") if opened is SQLiteStore else opened()
    history, budget = talk(40), refold.Budget(6_000, 5_000)

    def ask(_: Any) -> Answer:
        view = refold.Compactor([], refold.Budget(10**9, 1), store)(history)
        store.save([view.fold(70, 76, user("By another process."), by="other")])
        return Answer("A summary of the beginning.")

    mine = refold.Compactor(
        [Summarize(keep=12, summarizer=ModelSummary(headings=()))], budget, store, ask=ask
    )
    mine(history)
    assert "other" in {edit.by for edit in mine([*history, *talk(1)]).edits}


def test_format_detection_of_a_growing_history_reads_only_the_new_messages(monkeypatch):
    """Bare strings may fit two formats for ever, and only new messages can change that."""
    looked = list[int]()
    fits = openai_chat.fits

    def counting(body: Any, items: Sequence[Any]) -> int:
        looked.append(len(items))
        return fits(body, items)

    monkeypatch.setattr(openai_chat, "fits", counting)
    compact = refold.Compactor([], refold.Budget(10**9, 10))
    history = talk(200)
    session = compact.session(history)
    compact(history)
    looked.clear()
    for _ in range(3):
        session.append(*talk(1))
        history += talk(1)
        compact(history)
    assert max(looked) <= 4


def test_a_session_of_plain_texts_takes_the_format_that_later_entries_show():
    compact = refold.Compactor([], refold.Budget(10**9, 10))
    session = compact.session(talk(3))
    assert session.view.source is not None and session.view.source.codec.NAME == "openai_chat"
    call = {"type": "tool_use", "id": "c", "name": "read", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "c", "content": "text"}
    view = session.append(
        {"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}
    )
    assert view.source is not None and view.source.codec.NAME == "anthropic"
    assert view.payload == [
        *talk(3),
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
    ]


def test_a_local_strategy_without_a_since_parameter_is_refused():
    class Local:
        local = True

        def __call__(self, view: refold.View) -> list[refold.Edit]:
            return []

    with pytest.raises(ValueError, match=re.escape("`since`")):
        refold.Compactor([Local()], refold.Budget(10, 10))
