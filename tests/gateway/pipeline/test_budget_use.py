"""How close a compacted request comes to its target, at every session length and after a change of
model."""

import pytest

from refold.stores import MemoryStore
from refold.tokens.model_table import Window
from tests.support.agent_requests import chat_request
from tests.support.pipeline_driver import Driver

WINDOWS = {"small": Window(20_000), "large": Window(100_000)}
SHARE = 0.4 * 0.8
"""Target of a small window, as a share of the tokens that are left beside the answer."""


@pytest.mark.parametrize("steps", [60, 150, 400])
def test_a_session_of_any_length_is_compacted_to_near_the_target(steps: int):
    """The target is not a share of the session, which would be too much for a long session and then
    too little."""
    with Driver(windows=WINDOWS) as driver:
        out = driver(chat_request(steps, model="small"), "openai_chat")
        assert out.tokens_before > 0.95 * 0.8 * 20_000
        assert 0.6 < out.tokens_after / (SHARE * 20_000) <= 1
        assert len(out.edits) == 1


def test_after_a_model_change_the_target_of_the_new_model_applies():
    with Driver(MemoryStore(), windows=WINDOWS) as driver:
        first = driver(chat_request(150, model="large"), "openai_chat")
        assert (first.outcome, first.edits) == ("untouched", ())
        second = driver(chat_request(151, model="small"), "openai_chat")
        assert 0.6 < second.tokens_after / (SHARE * 20_000) <= 1
        third = driver(chat_request(152, model="large"), "openai_chat")
        assert third.edits == second.edits, "what was decided stays"


@pytest.mark.parametrize("words", [500, 1_500, 2_700, 4_500])
def test_large_tool_definitions_leave_room_for_the_conversation(words: int):
    """They used to take up the whole target: results were cleared, the summary was short, each
    compaction gained little, and the next came soon."""
    text = " ".join(f"{n:x}" for n in range(words))
    tools = [{"type": "function", "function": {"name": "read", "description": text}}]
    with Driver(windows=WINDOWS) as driver:
        bare = driver(chat_request(0, model="small", tools=tools), "openai_chat").tokens_after
        out = driver(chat_request(60, model="small", tools=tools), "openai_chat")
        applied = [row for row in driver.store.ledger() if row.outcome == "applied"]
        assert [row.by.partition("(")[0] for row in applied] == ["SummarizeTo"]
        hard = 0.95 * 0.8 * 20_000
        assert 0.3 * (hard - bare) < out.tokens_after - bare < 0.5 * (hard - bare)


def test_a_conversation_is_compacted_though_its_tools_alone_exceed_the_hard_level():
    """The target was then above that level, which no budget may be: every request failed with an
    internal error. A window that is set too low, or that an upstream has named, makes it so."""
    text = " ".join(f"{n:x}" for n in range(12_000))
    tools = [{"type": "function", "function": {"name": "read", "description": text}}]
    with Driver(windows=WINDOWS) as driver:
        bare = driver(chat_request(0, model="small", tools=tools), "openai_chat").tokens_after
        assert bare > 20_000
        out = driver(chat_request(60, model="small", tools=tools), "openai_chat")
        assert (out.outcome, out.reason) == ("edited", "hard")
        assert out.tokens_after - bare < 0.3 * (out.tokens_before - bare)
