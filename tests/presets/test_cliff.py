"""CliffCompaction's recipe: messages stay, long results are cleared, and no model is called."""

import copy

import pytest
from hypothesis import given, settings

import refold
from refold.core.view import View
from refold.messages import Message, Text, Thinking, ToolCall, ToolResult, user
from refold.presets.cliff import (
    TITLE,
    Cliff,
    CliffConfig,
    MechanicalSummary,
    cliff,
    cliff_compactor,
)
from refold.testing import check_strategy, proposals, transcripts
from refold.text.summary_wrapper import summary_in, wrap_summary

LONG = "line of the log\n" * 200


def answer(*parts) -> Message:
    return Message("assistant", parts)


def step(n: int, result: str, arguments: str = '{"path":"src/pay.py"}') -> list[Message]:
    """Return an assistant message with thinking, text and a call, and the call's result."""
    call = ToolCall(f"c{n}", "read", arguments)
    return [
        answer(Thinking(f"thought {n}"), Text(f"remark {n}"), call),
        Message("tool", (ToolResult(f"c{n}", (Text(result),)),)),
    ]


HISTORY = [
    user("Mend the payment."),
    *step(0, LONG),
    *step(1, "2 passed"),
    *step(2, LONG, '{"text":"' + "x" * 400 + '"}'),
    *(message for n in range(3, 6) for message in step(n, LONG)),
]


RECIPE = Cliff()


def summary_of(messages: list[Message], strategy: Cliff = RECIPE) -> str:
    shown = proposals(View.of(messages), strategy).messages
    return next(text for text in map(summary_in, shown) if text is not None)


def test_the_default_settings_are_those_of_the_recipe():
    config = CliffConfig()
    assert (config.threshold_tokens, config.keep_recent) == (200_000, 3)
    assert (config.cmd_max_chars, config.result_max_chars) == (150, 500)
    assert (config.human_max_chars, config.thought_max_chars) == (20_000, 0)


def test_messages_are_kept_in_order_and_long_results_are_dropped():
    text = summary_of(HISTORY)
    assert text.startswith(TITLE)
    order = [
        "user: Mend",
        "thinking: thought 0",
        "assistant: remark 0",
        "[read] {",
        "result: 2 passed",
    ]
    places = [text.index(words) for words in order]
    assert places == sorted(places)
    assert "line of the log" not in text
    assert "x" * 100 in text and "x" * 150 not in text


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_the_newest_assistant_messages_are_kept_with_their_results(keep):
    shown = proposals(View.of(HISTORY), Cliff(CliffConfig(keep_recent=keep))).messages
    assert list(shown[-2 * keep :]) == HISTORY[-2 * keep :]
    assert f"remark {5 - keep}" in summary_of(HISTORY, Cliff(CliffConfig(keep_recent=keep)))


def test_no_edit_is_made_if_no_answer_is_older_than_keep_recent():
    assert proposals(View.of(HISTORY[:7]), Cliff()).edits == ()


def test_a_summary_that_is_too_long_keeps_the_first_request_and_newest_parts():
    remarks = [user("Go on."), *(m for n in range(60) for m in (answer(Text(f"remark {n} " * 9)),))]
    talk = [user("Mend the payment."), *(m for n in remarks for m in (n, user("And?")))]
    text = summary_of(talk, Cliff(CliffConfig(keep_recent=1), 400))
    assert "Mend the payment." in text
    assert "remark 57" in text
    assert "remark 3 " not in text


def test_a_result_at_the_limit_is_kept_and_a_longer_one_is_dropped():
    config = CliffConfig(keep_recent=1, result_max_chars=400)
    history = [user("Go."), *step(0, "a" * 400), *step(1, "b" * 401), *step(2, LONG)]
    text = summary_of(history, Cliff(config))
    assert "result: " + "a" * 400 in text
    assert "b" * 20 not in text


def test_messages_injected_by_a_client_are_not_in_the_summary():
    injected = user("<task-notification>agent 7 is done</task-notification>")
    history = [HISTORY[0], *step(8, LONG), injected, *HISTORY[1:]]
    assert "user: <task-notification>" not in summary_of(history)


def test_an_earlier_summary_is_merged_into_the_next_one():
    first = proposals(View.of(HISTORY), Cliff()).messages
    again = [*first, *(message for n in range(6, 10) for message in step(n, LONG))]
    text = summary_of(again)
    assert text.count(TITLE) == 1
    assert "remark 0" in text and "remark 6" in text


def test_harsher_steps_follow_while_the_request_is_too_long():
    small = CliffConfig(threshold_tokens=900)
    shortest = cliff(small)[-1]
    assert [each.config.keep_recent for each in cliff(small)] == [3, 1, 1]
    assert (shortest.config.thought_max_chars, shortest.config.keep_thinking) == (300, False)
    compact = cliff_compactor(small)
    view = compact(
        [
            {"role": "user", "content": "Mend the payment."},
            *(
                {"role": role, "content": f"step {n}: " + "words of it " * 60}
                for n in range(9)
                for role in ("assistant", "user")
            ),
        ]
    )
    assert view.tokens <= 900
    assert [attempt.outcome for attempt in view.attempts].count("applied") >= 2


def test_reverting_a_compacted_history_restores_it_exactly():
    history = [
        {"role": "user", "content": "Mend the payment."},
        *(
            {"role": ("assistant", "user")[n % 2], "content": f"{n} " + "words " * 80}
            for n in range(40)
        ),
    ]
    before, compact = copy.deepcopy(history), cliff_compactor(CliffConfig(threshold_tokens=2_000))
    view = compact(history)
    assert view.tokens < 2_000 and view.edits
    assert history == before
    assert refold.check(view.payload) == ()
    assert compact.revert(history).payload == before


@settings(max_examples=15)
@given(transcripts())
def test_cliff_edits_are_valid_never_larger_deterministic_and_reversible(messages):
    """Law: edits are valid, never larger, deterministic and reversible."""
    check_strategy(Cliff(CliffConfig(keep_recent=1, result_max_chars=20)), examples=[messages])


@settings(max_examples=15)
@given(transcripts())
def test_the_summary_stays_within_its_token_limit(messages):
    """Law: a summary of any history stays within its token limit."""
    view = View.of(messages)
    for room in (40, 120, 1_000):
        writer = MechanicalSummary()(view, 0, len(messages), room)
        with pytest.raises(StopIteration) as done:
            next(writer)
        text = done.value.value.text
        assert not text or view.profile.count(wrap_summary(text)) <= room


@pytest.mark.parametrize(
    "wrong", [{"keep_recent": 0}, {"cmd_max_chars": -1}, {"threshold_tokens": 0}]
)
def test_invalid_settings_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        CliffConfig(**wrong)
