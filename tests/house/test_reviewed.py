"""Faults that readers of the code found, one test each."""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

import refold
from refold.codecs import openai_chat
from refold.core.strategy import Answer
from refold.messages import Message, Text, user
from refold.stores import MemoryStore, SQLiteStore
from refold.strategies import Summarize
from refold.summarizers.memory_messages import TaggedMemory, remember
from refold.summarizers.model import ModelSummary
from refold.summarizers.placement import find_kept


def talk(turns: int) -> list[dict[str, str]]:
    return [
        {"role": role, "content": f"{role} {n}: " + "some words of it " * 60}
        for n in range(turns)
        for role in ("user", "assistant")
    ]


@pytest.mark.parametrize("opened", [MemoryStore, SQLiteStore])
def test_what_others_write_while_a_model_is_asked_is_seen_at_the_next_turn(opened, tmp_path):
    """The version that a store has after a save of one's own says nothing of what came in between."""
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


def test_the_format_of_plain_texts_is_not_recognised_anew_over_all_of_them(monkeypatch):
    """A session of bare strings may be of two formats for ever; what is new alone may change that."""
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


def test_a_memory_that_was_said_before_stays_once():
    messages = [remember("the port is 8080"), Message("assistant", (Text("noted"),))] * 3
    view = refold.View.of([user("start"), Message("assistant", (Text("yes"),)), *messages])
    assert find_kept(view, 0, len(messages) + 2, TaggedMemory()) == [0, 2]
    assert find_kept(view, 3, len(messages) + 2, TaggedMemory()) == [], (
        "what stands before the span is an earlier one too"
    )


def test_edits_are_found_by_beginnings_of_ids_as_long_as_they_are_unique():
    view = refold.compact(talk(150), to=3_000)
    by_ids = {edit.id: edit for edit in view.edits}
    assert view.find_all(by_ids) == list(by_ids.values())
    assert view.find_all(id[:12] for id in by_ids) == list(by_ids.values())
    for wrong in ("", "xyz"):
        with pytest.raises(refold.EditError, match="no edit"):
            view.find_all([wrong])


def test_a_beginning_that_several_ids_have_is_refused():
    messages = [user(f"{n} " + "words " * 50) for n in range(40)]
    view = refold.View.of(messages)
    view = view.apply(*(view.replace(at, user("short"), by="a hand") for at in range(40)))
    ids = sorted(edit.id for edit in view.edits)
    first = next(one[0] for one, other in pairwise(ids) if one[0] == other[0])
    with pytest.raises(refold.EditError, match="more than one"):
        view.find(first)


class Pairs:
    """A format of one's own: `[who, text]`, in a field of its own."""

    NAME, FIELD = "pairs", "talk"

    def rules(self, body: Any) -> Any:
        return openai_chat.rules({})

    def fits(self, body: Any, items: Sequence[Any]) -> int:
        return int(all(isinstance(item, list) for item in items))

    def is_system(self, item: Any) -> bool:
        return False

    def system(self, body: Any) -> tuple[()]:
        return ()

    def tools(self, body: Any) -> tuple[()]:
        return ()

    def decode(self, item: Any, prior: Sequence[Message]) -> Message:
        return Message(item[0], (Text(item[1]),))

    def encode(self, message: Message) -> Any:
        return [message.role, message.text]

    def patch(self, item: Any, message: Message) -> Any:
        return self.encode(message)

    def merge(self, first: Any, second: Any) -> Any:
        return [first[0], first[1] + "\n" + second[1]]


@pytest.mark.parametrize("form", ["list", "body", "text"])
def test_a_codec_of_ones_own_reads_bodies_with_a_field_of_its_own(form):
    pairs = [[one["role"], one["content"]] for one in talk(60)]
    payload = {
        "list": pairs,
        "body": {"talk": pairs, "model": "m"},
        "text": refold.codecs.json_text.dump({"talk": pairs}),
    }[form]
    view = refold.compact(payload, to=2_000, format=Pairs())
    assert view.tokens <= 2_000 and view.revert().payload == payload
    assert not isinstance(payload, dict) or view.payload["model"] == "m"


def test_a_local_strategy_that_takes_no_position_is_refused_at_once():
    class Local:
        local = True

        def __call__(self, view: refold.View) -> list[refold.Edit]:
            return []

    with pytest.raises(ValueError, match=re.escape("`since`")):
        refold.Compactor([Local()], refold.Budget(10, 10))
