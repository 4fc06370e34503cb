"""Validation, checks and targets of a budget. Figures are tokens. Triggers are in
test_triggers.py."""

from typing import Any

import pytest

from refold.budget.budget import Budget, Check, count_calls
from refold.budget.triggers import Elapsed, EveryN, Fraction, Messages, Moment, Never, Tokens
from refold.codecs.detect import open_payload
from refold.core.view import View
from refold.messages import user
from refold.tokens.model_table import Window, find_window

AMOUNT = r"must be a number of tokens or a trigger, such as refold.budget.triggers.Fraction\(0.8\)"
UNNAMED = "the request names no model and no window is given"


def moment(tokens: int, window: int | None = None) -> Moment:
    """Return a moment for a request and a window of these tokens."""
    context = find_window("", window)
    return Moment(View.of(()), tokens, context.window, context.reason)


def usage(tokens: int) -> dict[str, int]:
    """Return a provider's usage whose request and answer have this sum of tokens."""
    return {"prompt_tokens": tokens - 1, "completion_tokens": 1}


# --- invalid budgets -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("figures", "message"),
    [
        ({"trigger": "1k"}, f"trigger {AMOUNT}, not '1k'"),
        ({"trigger": None}, f"trigger {AMOUNT}, not None"),
        ({"soft": 1.5}, f"soft {AMOUNT}, not 1.5"),
        ({"soft": -1}, "soft must be a whole number of at least 0, not -1"),
        ({"trigger": -9, "target": -9}, "trigger must be a whole number of at least 0, not -9"),
        ({"window": -1}, "a window is a number of tokens, a Window or a function, not -1"),
        ({"progress": "5%"}, "progress and hysteresis are shares from 0 to below 1, not 5%, 0.05"),
    ],
)
def test_an_impossible_figure_of_a_budget_is_refused_by_name(
    figures: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        Budget(**{"trigger": 9, "target": 1, "soft": None, **figures})


@pytest.mark.parametrize("shares", [(1, 0.05), (-0.1, 0.05), (0.05, 1), (0.05, 1.5), (0.05, -0.1)])
def test_progress_and_hysteresis_must_be_from_0_to_below_1(shares: tuple[float, float]) -> None:
    """A hysteresis of 1 would wait for a request twice as large as the trigger: in effect forever."""
    progress, hysteresis = shares
    with pytest.raises(
        ValueError,
        match=f"^progress and hysteresis are shares from 0 to below 1, not {progress}, {hysteresis}$",
    ):
        Budget(5, 1, progress=progress, hysteresis=hysteresis)
    assert Budget(5, 1, progress=0, hysteresis=0) == Budget(5, 1, progress=0.0, hysteresis=0.0)


@pytest.mark.parametrize(
    ("window", "reserve", "message"),
    [
        (9, -1, "reserve must be a whole number of at least 0, not -1"),
        ("9", 1, "window must be a whole number of at least 1, not '9'"),
    ],
)
def test_a_budget_of_an_impossible_window_is_refused_by_name(
    window: Any, reserve: int, message: str
) -> None:
    """A negative reserve gave a trigger above the window."""
    with pytest.raises(ValueError, match=f"^{message}$"):
        Budget.of_window(window, reserve)


@pytest.mark.parametrize("target", ["x", 8_000])
def test_the_target_of_a_window_is_a_share(target: Any) -> None:
    with pytest.raises(ValueError, match="target must be a number from 0 to 1, not "):
        Budget.of_window(100_000, target=target)


@pytest.mark.parametrize("share", ["0.8", True])
def test_a_share_of_the_window_is_a_number(share: Any) -> None:
    with pytest.raises(ValueError, match="a share of the window lies between 0 and 1"):
        Fraction(share)


def test_a_target_that_is_not_a_number_of_tokens_is_named_in_the_error() -> None:
    wrong: Any = Messages(3)
    with pytest.raises(
        ValueError, match=r"^the target must be a number of tokens, not Messages\(count=3\)$"
    ):
        Budget(5, wrong)


def test_a_window_function_is_not_called_before_a_request_names_its_model() -> None:
    """It may know only its own models and raise for other names, or return a default that is not
    the window."""
    asked: list[str] = []

    def windows(model: str) -> Window:
        asked.append(model)
        return {"mine": Window(1_000)}[model]

    budget = Budget(Fraction(0.5), 900, window=windows)
    assert asked == []
    assert budget.check_usage(usage(500), "mine").threshold == 500
    assert asked == ["mine"]


def test_only_a_budget_with_numeric_trigger_and_soft_has_a_floor() -> None:
    """Below the floor no window, time or last compaction is looked up."""
    assert Budget(5, 1).floor == 5
    assert Budget(5, Fraction(0.5), soft=3).floor == 3
    assert Budget(5, 1, soft=Tokens(3)).floor == 0
    assert Budget(Tokens(5), 1).floor == 0
    assert Budget(Tokens(5), 1, soft=3).floor == 0


# --- moments ---------------------------------------------------------------------------------


def test_an_elapsed_trigger_does_not_fire_without_a_clock() -> None:
    """`check` of a view alone knows no time, so an elapsed trigger does not fire, not even after
    one second."""
    view = View.of([user("a")])
    assert Budget(Elapsed(1), 0).check(view) == "none"
    assert Budget(Elapsed(1), 0).observe(view).now == 0


def test_a_payload_without_a_model_has_no_window_and_the_reason_says_so() -> None:
    envelope = open_payload([{"role": "user", "content": "a"}], "anthropic")
    view = View.of(envelope.decode(), source=envelope)
    assert Budget(Fraction(0.5), 0).observe(view).window_source == UNNAMED


def test_a_check_tells_whether_its_trigger_counts_from_the_last_compaction() -> None:
    """The hysteresis (conformance 51) applies to token figures, not to what counts from the last
    compaction."""
    view = View.of([user("a")])
    assert Budget(EveryN(1), 0, soft=Elapsed(5)).judge(Moment(view, 1)).is_periodic
    assert not Budget(Tokens(1), 0).judge(Moment(view, 1)).is_periodic


# --- after a response ------------------------------------------------------------------------


def test_check_usage_without_a_usage_reports_that_there_is_none() -> None:
    """Conformance 45: a missing usage is reported as missing, not as a small request. There is no
    threshold either."""
    assert Budget(10, 5).check_usage(None) == Check(
        "none", 0, None, "there is no usage: nothing can be said"
    )


def test_check_usage_takes_the_window_of_the_model_that_answered() -> None:
    """S1-39: `gpt-5` takes requests of 272,000 tokens (table of windows)."""
    budget = Budget(Fraction(0.5), 0)
    assert budget.check_usage(usage(136_000), "gpt-5").level == "hard"
    assert budget.check_usage(usage(135_999), "gpt-5").level == "none"
    assert (
        budget.check_usage(usage(136_000)).reason == f"Fraction(share=0.5) never fires: {UNNAMED}"
    )


def test_check_usage_never_fires_a_trigger_of_messages() -> None:
    """A usage tells nothing of messages: a trigger of messages reads that there are none."""
    check = Budget(Messages(1), 0).check_usage(usage(10**6))
    assert (check.level, check.tokens, check.reason) == ("none", 10**6, "0 of 1 messages")


# --- targets ---------------------------------------------------------------------------------


def test_a_fraction_as_target_is_a_share_of_the_window() -> None:
    budget = Budget(Fraction(0.5), Fraction(0.4))
    now = moment(600, 1_000)
    assert budget.compute_goal(now, budget.judge(now)) == 400


def test_a_fraction_of_an_unknown_window_as_target_is_half_of_the_request() -> None:
    goal = Budget(Messages(1), Fraction(0.3)).compute_goal(moment(101))
    assert (goal, type(goal)) == (50, int)


@pytest.mark.parametrize(
    ("tokens", "target", "progress", "goal"),
    [
        (1_000, 400, 0.05, 400),
        (1_000, 1_000, 0.05, 950),
        (1_000, 1_000, 0.25, 750),
        (1_000, 1_000, 0, 999),
        (10, 10, 0.05, 9),
        (10, 0, 0.05, 0),
        (1, 10, 0.05, 0),
        (0, 10, 0.05, 0),
    ],
)
def test_a_forced_compaction_aims_below_the_current_size(
    tokens: int, target: int, progress: float, goal: int
) -> None:
    """S2-39, conformance 11: to the target, or, if it fits already, smaller by the share *progress*
    and at least one token, never below zero."""
    budget = Budget(10**6, target, progress=progress)
    assert budget.compute_goal(moment(tokens)) == goal
    assert budget.compute_goal(moment(tokens), budget.judge(moment(tokens))) == goal
    assert Budget(Never(), target, progress=progress).compute_goal(moment(tokens)) == goal


def test_a_token_trigger_aims_at_the_target_itself() -> None:
    budget = Budget(1_000, 1_000)
    assert budget.compute_goal(moment(1_000), budget.judge(moment(1_000))) == 1_000
    counted = Budget(Messages(1), 1_000)
    now = Moment(View.of([user("a")]), 1_000)
    assert counted.compute_goal(now, counted.judge(now)) == 950


def test_an_answer_of_several_items_is_one_call():
    """Of a session of Codex 57 calls were counted, where 20 were made."""
    answer = [
        {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "x"},
        {"role": "assistant", "content": [{"type": "output_text", "text": "Looking."}]},
        {"type": "function_call", "call_id": "a", "name": "ls", "arguments": "{}"},
        {"type": "function_call", "call_id": "b", "name": "ls", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "x"},
        {"type": "function_call_output", "call_id": "b", "output": "y"},
    ]
    items = [{"role": "user", "content": "List."}, *answer, answer[1]]
    messages = open_payload({"model": "m", "input": items}).decode()
    assert count_calls(View.of(messages)) == 2
    assert count_calls(View.of(())) == 0
