"""Lists of messages name no model: thinking that a model may need is kept (F14)."""

import warnings
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import refold
from refold import Budget, Compactor, MemoryStore
from refold.codecs.repair import check
from refold.errors import ModelNotNamed
from refold.session_files import demo_session
from refold.strategies import ClearThinking, ClearToolResults, Summarize
from tests.support.signed_histories import agent_histories

OLDER = "claude-sonnet-4-5"


def loop(steps: int) -> list[Any]:
    """Return a tool loop with thinking in every step."""
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
    """Return the signatures in a request."""
    messages = payload["messages"] if isinstance(payload, dict) else payload
    blocks = [block for m in messages if isinstance(m["content"], list) for block in m["content"]]
    return [block["signature"] for block in blocks if block["type"] == "thinking"]


def test_f14_a_tool_loop_in_a_bare_list_keeps_its_thinking_and_warns() -> None:
    """AN-6: an older model answered "thinking blocks in the latest assistant message cannot be
    modified"."""
    history = loop(10)
    with pytest.warns(ModelNotNamed, match="body, which names it") as warned:
        view = compactor()(history)
    assert len(warned) == 1
    assert view.edits
    shown = [m for m in view.payload if m in history and m["role"] == "assistant"]
    assert thoughts(view.payload)[-1] == "sig9"
    assert len(thoughts(view.payload)) == len(shown)


def test_f14_a_body_that_names_the_model_keeps_thinking_only_if_needed() -> None:
    for model, is_kept in (("claude-opus-5-5", False), (OLDER, True)):
        view = compactor()({"model": model, "messages": loop(10)})
        assert view.edits
        assert ("sig9" in thoughts(view.payload)) is is_kept


def test_f15_the_compactors_model_applies_to_bare_lists() -> None:
    for model, is_kept in (("claude-opus-5-5", False), (OLDER, True)):
        named = Compactor(
            (ClearToolResults(keep=1), Summarize(keep=4)), Budget(2_000, 1_000), model=model
        )
        assert ("sig9" in thoughts(named(loop(10)).payload)) is is_kept


def test_thinking_after_an_edit_is_dropped_once_a_model_refuses_it() -> None:
    """As when a router falls back: its second model once refused every request of the turn
    (AN-7)."""
    store, strategies = MemoryStore(), [Summarize(keep=4)]
    compact = Compactor(strategies, Budget(8_000, 4_000), store)

    def show(model: str, steps: int) -> list[str]:
        return thoughts(compact({"model": model, "messages": loop(steps)}).payload)

    assert show(OLDER, 24) == ["sig22", "sig23"]
    for newer in ("claude-opus-5-5", "claude-fable-5-1"):
        assert show(newer, 24) == []
    assert show("claude-opus-5-5", 25) == ["sig24"]  # produced over the view of that time
    assert show(OLDER, 25) == show("claude-opus-5-5", 25) == ["sig24"]
    elsewhere = Compactor(strategies, Budget(8_000, 4_000), store)
    for model in (OLDER, "claude-opus-5-5"):
        body = {"model": model, "messages": loop(25)}
        assert thoughts(elsewhere(body).payload) == ["sig24"]


def test_f14_older_thinking_is_dropped_and_a_revert_keeps_the_current_turns() -> None:
    answered = [
        *loop(5),
        {"role": "assistant", "content": "It is in f3.py."},
        {"role": "user", "content": "Fix it."},
    ]
    later = [{**m, "content": "Now this."} if n == 0 else m for n, m in enumerate(loop(2))][1:]
    history = [*answered, *[_rename_ids(message) for message in later]]
    compact = compactor()
    with pytest.warns(ModelNotNamed):
        view = compact(history)
    assert thoughts(view.payload) == ["new0", "new1"]
    assert thoughts(compact.revert(history).payload)[-2:] == ["new0", "new1"]


def _rename_ids(message: Any) -> Any:
    """Return a step with other ids."""
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
@given(agent_histories(), st.integers(30, 400))
def test_f14_law_a_list_without_a_model_keeps_thinking_that_older_models_need(
    bodies: list[Any], trigger: int
) -> None:
    """AN-6 for any strategies, in every request of a session."""
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


def test_f14_a_call_without_a_model_is_warned_how_to_name_it_and_others_are_not() -> None:
    with pytest.warns(ModelNotNamed, match=r"model=\.\.\. of refold.compact"):
        refold.compact(loop(10), to=1_000)
    for model, is_kept in (("claude-opus-5-5", False), (OLDER, True)):
        with warnings.catch_warnings(action="error"):
            view = refold.compact(loop(10), to=1_500, model=model)
        assert view.edits and view.profile.model == model
        assert ("sig9" in thoughts(view.payload)) is is_kept


# --- warnings of the default budget ------------------------------------------------------------


def test_the_default_budget_warns_once_of_an_unnamed_or_unknown_model(caplog):
    history = [{"role": "user", "content": "Find the bug. " * 90} for _ in range(9)]
    Compactor(model="house-model-1", budget=Budget(1_000, 500))(history)
    Compactor(model="claude-opus-5-5")(history)
    by_hand = Compactor()
    by_hand({"model": "claude-opus-5-5", "messages": history})
    by_hand.compact(history, budget=Budget(10**6, 10**6))
    by_hand.compact_now(history)
    assert not caplog.records
    for body in (history, {"model": "house-model-1", "messages": history}):
        by_hand(body)
        by_hand([*history, history[0]] if body is history else body)
    assert {record.name for record in caplog.records} == {"refold"}
    unnamed, unknown = (record.getMessage() for record in caplog.records)
    assert unnamed.startswith("no model is named") and "Compactor(model=...)" in unnamed
    assert unknown.startswith("no window is known for the model 'house-model-1'")
    assert unknown.endswith("nor prices: give a budget, else nothing of it is compacted")


def test_a_model_with_known_prices_only_is_compacted_when_that_pays(caplog):
    """A warning once said that nothing would be compacted, and then it was."""
    history = demo_session()
    view = Compactor(model="gpt-5.1-house")(history)
    assert view.tokens < 20_000 and view.tokens_unedited > 200_000
    (record,) = caplog.records
    assert "it is compacted when that pays, but not for being nearly full" in record.getMessage()


def test_thinking_of_a_finished_turn_is_dropped_alike_in_every_process() -> None:
    store, history = MemoryStore(), loop(8)
    strategies, budget = [ClearToolResults(keep=1)], Budget(1_000, 500, progress=0, hysteresis=0)
    compact = Compactor(strategies, budget, store)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ModelNotNamed)
        for stop in range(3, len(history) + 1, 2):
            compact(history[:stop])
    history += [
        {"role": "assistant", "content": "It is in f3.py."},
        {"role": "user", "content": "Mend it."},
    ]
    assert len(thoughts(compact.show(history[:-2]).payload)) == 8
    elsewhere = Compactor(strategies, budget, store).show(history)
    assert compact.show(history).payload == elsewhere.payload
    assert thoughts(elsewhere.payload) == ["sig0"]  # it precedes everything that was cleared


def test_two_answers_in_a_row_are_shown_alike_by_every_process() -> None:
    """As when the model is asked to continue after its answer was compacted."""
    store, model = MemoryStore(), "claude-opus-5-5"
    strategies, budget = [Summarize(keep=1)], Budget(10_000, 500)
    compact, history = Compactor(strategies, budget, store, model=model), loop(4)
    history.append({"role": "assistant", "content": "It is in f3.py."})
    assert compact.compact_now(history).edits
    history.append(loop(1)[1])
    elsewhere = Compactor(strategies, budget, store, model=model).show(history)
    assert compact.show(history).payload == elsewhere.payload
