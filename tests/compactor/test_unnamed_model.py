"""Lists of messages name no model: what its thinking needs is not known, and nothing that may be needed goes (F14)."""

import warnings
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from refold import Budget, Compactor, MemoryStore
from refold.codecs.repair import check
from refold.errors import ModelNotNamed
from refold.strategies import ClearThinking, ClearToolResults, Summarize
from tests.support.signed_histories import signed_histories

OLDER = "claude-sonnet-4-5"


def loop(steps: int) -> list[Any]:
    """A tool loop in which every step is thought about."""
    history: list[Any] = [{"role": "user", "content": "Find the bug."}]
    for n in range(steps):
        thought = {"type": "thinking", "thinking": f"about {n}", "signature": f"sig{n}"}
        use = {"type": "tool_use", "id": f"t{n}", "name": "read", "input": {"path": f"f{n}.py"}}
        result = {
            "type": "tool_result",
            "tool_use_id": f"t{n}",
            "content": f"file {n}: " + "word " * 300,
        }
        history += [
            {"role": "assistant", "content": [thought, use]},
            {"role": "user", "content": [result]},
        ]
    return history


def compactor(trigger: int = 2_000, store: MemoryStore | None = None) -> Compactor:
    strategies = (ClearThinking(keep=0), ClearToolResults(keep=1), Summarize(keep=4))
    return Compactor(strategies, Budget(trigger, trigger // 2, progress=0, hysteresis=0), store)


def thoughts(payload: Any) -> list[str]:
    """The signatures that a request holds."""
    messages = payload["messages"] if isinstance(payload, dict) else payload
    blocks = [block for m in messages if isinstance(m["content"], list) for block in m["content"]]
    return [block["signature"] for block in blocks if block["type"] == "thinking"]


def test_f14_a_tool_loop_in_a_bare_list_keeps_the_thinking_of_its_turn_and_says_to_name_the_model() -> (
    None
):
    """AN-6: "thinking blocks in the latest assistant message cannot be modified" was what an older model answered."""
    history = loop(10)
    with pytest.warns(ModelNotNamed, match="body, which names the model") as told:
        view = compactor()(history)
    assert len(told) == 1
    assert view.edits
    shown = [m for m in view.payload if m in history and m["role"] == "assistant"]
    assert thoughts(view.payload)[-1] == "sig9"
    assert len(thoughts(view.payload)) == len(shown)


def test_f14_where_the_model_is_named_it_is_as_before() -> None:
    for model, kept in (("claude-opus-5-5", False), (OLDER, True)):
        view = compactor()({"model": model, "messages": loop(10)})
        assert view.edits
        assert ("sig9" in thoughts(view.payload)) is kept


def test_f15_the_model_that_a_compactor_names_is_that_of_its_lists() -> None:
    for model, kept in (("claude-opus-5-5", False), (OLDER, True)):
        named = Compactor(
            (ClearToolResults(keep=1), Summarize(keep=4)), Budget(2_000, 1_000), model=model
        )
        assert ("sig9" in thoughts(named(loop(10)).payload)) is kept


def test_f14_older_thinking_goes_as_it_did_and_a_revert_leaves_the_turn_alone() -> None:
    answered = [
        *loop(5),
        {"role": "assistant", "content": "It is in f3.py."},
        {"role": "user", "content": "Fix it."},
    ]
    later = [{**m, "content": "Now this."} if n == 0 else m for n, m in enumerate(loop(2))][1:]
    history = [*answered, *[_renamed(message) for message in later]]
    compact = compactor()
    with pytest.warns(ModelNotNamed):
        view = compact(history)
    assert thoughts(view.payload) == ["new0", "new1"]
    assert thoughts(compact.revert(history).payload)[-2:] == ["new0", "new1"]


def _renamed(message: Any) -> Any:
    """A step under other ids."""
    names = {"id": "n{}", "tool_use_id": "n{}", "signature": "new{}"}
    blocks = [
        {
            key: names[key].format(value[-1]) if key in names else value
            for key, value in block.items()
        }
        for block in message["content"]
    ]
    return {**message, "content": blocks}


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(signed_histories(), st.integers(30, 400))
def test_f14_law_a_list_that_names_no_model_keeps_what_an_older_one_wants_back(
    bodies: list[Any], trigger: int
) -> None:
    """AN-6 over any strategies, in every request of a session."""
    compact, before = compactor(trigger), None
    for body in bodies:
        messages = body.get("messages")
        if messages is None or any(
            "reasoning_content" in m and "thinking_blocks" not in m for m in messages
        ):
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ModelNotNamed)
            after = {"model": OLDER, "messages": compact(list(messages)).payload}
        if before is not None:
            assert check(after, before=before) == check(after)
        before = after


def test_a_model_without_a_known_window_and_a_budget_is_warned_of(caplog):
    Compactor(model="house-model-1", budget=Budget(1_000, 500))
    Compactor(model="claude-opus-5-5")
    Compactor()
    assert not caplog.records
    Compactor(model="house-model-1")
    (record,) = caplog.records
    assert record.name == "refold" and "no window is known for the model" in record.getMessage()
