"""A compactor that only gets a model: when it compacts by itself, and how far."""

from dataclasses import replace
from typing import Any

import pytest

from refold import Budget, Compactor, Transcript, View, compact
from refold.budget.budget import Pays, default_goal
from refold.budget.planner import DEFAULT_GOAL
from refold.strategies import ClearToolResults
from refold.tokens.model_table import Rates, find_window
from tests.support.agent_requests import WORDS

RATES = Rates(1.0, 5.0, 0.1, 1.25, lifetime=300.0)


def conversation(steps: int, words: str = WORDS) -> list[Any]:
    messages: list[Any] = [{"role": "user", "content": "Find the bug in calc.py and fix it."}]
    for i in range(steps):
        call = {
            "id": f"t{i}",
            "type": "function",
            "function": {"name": "read", "arguments": f'{{"path": "f{i}.py"}}'},
        }
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"t{i}", "content": f"file {i}\n{words}"},
        ]
    return messages


def run(compactor: Compactor, steps: int, system: str = "") -> list[tuple[int, bool]]:
    """Return the tokens of each request, and whether it was compacted in that turn."""
    history, sizes = conversation(steps), list[tuple[int, bool]]()
    head = [{"role": "system", "content": system}] if system else []
    for stop in range(1, len(history) + 1, 2):
        view = compactor([*head, *history[:stop]])
        sizes.append((view.tokens, any(attempt.outcome == "applied" for attempt in view.attempts)))
    return sizes


def test_a_compactor_with_only_a_model_compacts_when_that_pays():
    sizes = run(Compactor(model="claude-opus-5-5"), 300)
    acted = [size for size, has_acted in sizes if has_acted]
    assert 1 <= len(acted) <= 12
    assert all(size <= DEFAULT_GOAL + 1_000 for size in acted)
    assert max(size for size, _ in sizes) < 120_000  # in a window of a million


def test_a_model_without_known_prices_is_never_compacted_by_pays():
    budget = Budget(Pays(), 10_000)
    assert not any(has_acted for _, has_acted in run(Compactor(model="nobody-knows-it"), 200))
    check = Compactor(budget=budget, model="nobody-knows-it").check(conversation(3))
    assert check.level == "none" and "no prices are known of nobody-knows-it" in check.reason


def test_pays_accepts_custom_prices_for_an_unknown_model():
    compactor = Compactor(budget=Budget(Pays(RATES), 10_000), model="nobody-knows-it")
    assert any(has_acted for _, has_acted in run(compactor, 180))


def test_a_compacted_request_has_at_most_the_goal_plus_the_system_prompt():
    system = "You are careful. " * 3_000
    sizes = run(Compactor(model="claude-opus-5-5"), 240, system)
    acted = [size for size, has_acted in sizes if has_acted]
    fixed = sizes[0][0]
    assert fixed > 9_000 and acted
    assert all(size <= fixed + DEFAULT_GOAL + 1_000 for size in acted)


def test_the_default_goal_of_a_small_window_is_half_of_its_room():
    """Even if the model's prices are known."""
    window = find_window("gpt-4o").window
    assert window is not None
    view = Compactor(model="gpt-4o")(conversation(60), budget=Budget(10_000, 5_000))
    head = View.of(Transcript.of(()), profile=replace(view.profile, fixed_tokens=120_000))
    assert default_goal(head) == window.room // 2 < 120_000
    assert default_goal(view) == DEFAULT_GOAL


def test_custom_strategies_or_budgets_are_not_replaced():
    own = Compactor([ClearToolResults(keep=3)], model="claude-opus-5-5")
    assert {edit.by.partition("(")[0] for edit in own(conversation(400)).edits} == {
        "ClearToolResults"
    }
    given = Compactor(budget=Budget(20_000, 8_000), model="claude-opus-5-5")
    view = given(conversation(60))
    assert view.tokens <= 8_000 and view.edits
    assert any("8000" in edit.by for edit in view.edits)


def test_an_expired_cache_makes_a_compaction_due_that_was_not_due_before():
    class Clock:
        now = 1_000_000.0

        def __call__(self) -> float:
            return self.now

    clock = Clock()
    compactor = Compactor(model="claude-opus-5-5", clock=clock)
    before = compactor(conversation(60))
    assert not before.edits and before.tokens > 1.5 * DEFAULT_GOAL
    clock.now += 200
    assert not compactor(conversation(61)).edits
    clock.now += 301
    view = compactor(conversation(62))
    assert view.edits and view.tokens <= DEFAULT_GOAL + 1_000


def test_f37_the_docstring_of_compact_says_that_it_is_not_for_loops():
    assert "Not for loops" in (compact.__doc__ or "")


@pytest.mark.parametrize("steps", [10, 40])
def test_short_sessions_are_left_alone(steps: int):
    assert not any(has_acted for _, has_acted in run(Compactor(model="claude-opus-5-5"), steps))
