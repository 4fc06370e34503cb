"""Conformance cases 1 to 12: where a conversation is split. U user, A assistant, C call, R result, S summary."""

import pytest

from refold.budget.budget import Budget
from refold.compactor.run import compact_if_due
from refold.core.profile import Profile
from refold.core.strategy import Ask
from refold.core.view import View
from refold.messages import Message, Text, ToolCall, ToolResult, user
from refold.models.driver import drive
from refold.rules import anthropic, openai_chat
from refold.rules.rule import Rules
from refold.strategies.summarize import Summarize
from refold.summarizers.tail import find_tail_start
from refold.text.summary_wrapper import is_only_summary, summary_in
from tests.support.summaries import read_summary

MESSAGES_API = Rules(anthropic.RULES, alternate=True)
CHAT_API = Rules(openai_chat.RULES)


def U(text="Please look into it."):  # noqa: N802 - the notation of the cases
    return user(text)


def A(text="I have looked into it."):  # noqa: N802 - the notation of the cases
    return Message("assistant", (Text(text),))


def C(*ids, text="", path="src/a.py"):  # noqa: N802 - the notation of the cases
    texts = (Text(text),) if text else ()
    return Message(
        "assistant", (*texts, *(ToolCall(name, "read", f'{{"path":"{path}"}}') for name in ids))
    )


def R(*ids, text="contents of the file"):  # noqa: N802 - the notation of the cases
    return Message("user", tuple(ToolResult(name, (Text(text),)) for name in ids))


def even(message):
    """Every message costs the same."""
    return 10


def see(*messages, rules=MESSAGES_API, count=even):
    return View.of(messages, profile=Profile(count=count, rules=rules))


def compact(view, **settings):
    """The view after `Summarize`, forced; and whether a model was asked."""
    run = compact_if_due(view, [Summarize(**settings)], Budget(0, 0))
    asked = []
    return drive(run, asked.append).view, asked


def by_length(message):
    return 4 + len(str(message.parts)) // 4


def test_conformance_01_an_empty_history_is_left_alone():
    view = see()
    assert find_tail_start(view, 0.3) == find_tail_start(view, 8) == 0
    after, asked = compact(view)
    assert after.edits == ()
    assert asked == []
    assert after.messages == ()


def test_conformance_02_a_single_request_is_left_alone():
    view = see(U())
    assert find_tail_start(view, 0.3) == find_tail_start(view, 1) == find_tail_start(view, 0) == 0
    assert compact(view)[0].messages == (U(),)


def test_conformance_03_equal_sizes_are_cut_at_the_last_request():
    assert find_tail_start(see(U(), A(), U(), A(), U()), 0.5) == 4


def test_conformance_04_a_conversation_that_ends_in_an_answer_may_be_folded_whole():
    assert find_tail_start(see(U(), A(), U(), A()), 0.3) == 4


def test_conformance_05_an_open_call_stays_with_its_turn():
    view = see(U(), A(), U(), C("c1"), rules=CHAT_API)
    assert find_tail_start(view, 0.1) == 2
    assert view.messages[2:] == (U(), C("c1"))


@pytest.mark.parametrize("keep", [1, 0.2, 0.3, 0.4])
def test_conformance_06_a_call_and_its_result_stay_on_one_side(keep):
    view = see(U(), A(), U(), C("c1"), R("c1"))
    start = find_tail_start(view, keep)
    assert start in view.cuts
    assert start != 4
    assert start in {2, 3}


@pytest.mark.parametrize(
    "results", [(R("a", "b", "c"),), (R("a"), R("b"), R("c"))], ids=["one message", "several"]
)
@pytest.mark.parametrize("keep", [1, 2, 3, 0.1, 0.3, 0.5])
def test_conformance_07_parallel_calls_are_atomic(results, keep):
    rules = MESSAGES_API if len(results) == 1 else CHAT_API
    view = see(U(), A(), C("a", "b", "c"), *results, A(), rules=rules)
    start = find_tail_start(view, keep)
    assert not 2 < start < 3 + len(results)


def test_conformance_08_one_giant_turn_is_cut_before_an_assistant_message_and_its_request_restated():
    request = "Rename `load` to `read` everywhere; 不要改动测试。"
    turn = [m for n in range(200) for m in (C(f"c{n}"), R(f"c{n}", text="x = 1\n" * 50))]
    view = see(U(request), *turn, count=by_length)
    for keep in (8, 0.2):
        start = find_tail_start(view, keep)
        assert 0 < start < len(turn)
        assert view.transcript.messages[start].role == "assistant"
        after, _ = compact(view, keep=keep)
        assert len(after.edits) == 1
        assert request in after.messages[0].text
        assert not MESSAGES_API.check(after.messages)


def test_conformance_09_a_summary_at_the_beginning_becomes_the_previous_summary():
    messages = [
        m
        for n in range(12)
        for m in (U(f"Request number {n} about module_{n}."), A("I have changed it. " * 20))
    ]
    first, _ = compact(see(*messages, count=by_length))
    fed_back = [
        *first.messages,
        *(m for n in range(12, 20) for m in (U(f"Request number {n}."), A("Done. " * 50))),
    ]
    again, _ = compact(see(*fed_back, count=by_length))
    text = summary_in(again.messages[0])
    assert text is not None
    digest = read_summary(text)
    assert "Request number 11 about module_11." in text
    assert not any(
        "earlier-conversation" in part or "## " in part
        for part in (*digest.requests, *digest.notes)
    )
    assert sum(summary_in(message) is not None for message in again.messages) == 1


def test_conformance_09_a_summary_is_not_taken_for_a_request():
    first, _ = compact(
        see(U("One."), A("x " * 500), U("Two."), A(), rules=CHAT_API, count=by_length), keep=2
    )
    assert [is_only_summary(message) for message in first.messages] == [True, False, False]
    assert find_tail_start(see(*first.messages, rules=CHAT_API, count=by_length), 1.0) == 0


@pytest.mark.parametrize("keep", [1, 0.01])
def test_conformance_10_the_newest_message_stays_even_if_it_is_larger_than_the_tail(keep):
    huge = U("word " * 5_000)
    view = see(U(), A(), huge, count=by_length)
    assert find_tail_start(view, keep) == 2
    assert compact(view, keep=keep)[0].messages[-1].parts[-1] == huge.parts[0]


def test_conformance_10_a_huge_result_stays_with_its_call():
    view = see(U(), C("c1"), R("c1"), C("c2"), R("c2", text="word " * 5_000), count=by_length)
    assert find_tail_start(view, 0.01) == 3


@pytest.mark.parametrize("keep", [1.0, 100])
def test_conformance_11_when_all_fits_the_tail_only_the_latest_exchange_is_kept(keep):
    assert find_tail_start(see(U(), A(), U(), A(), U(), A()), keep) == 4


def test_conformance_12_the_second_summary_replaces_the_first():
    messages = [m for n in range(20) for m in (U(f"Request {n}."), A("I have changed it. " * 20))]
    first, _ = compact(see(*messages, rules=CHAT_API, count=by_length), keep=4)
    assert len(first.messages) == 5
    continuation = [
        m for n in range(20, 25) for m in (U(f"Request {n}."), A("I have changed it. " * 20))
    ]
    second, _ = compact(first.extend(continuation), keep=4)
    assert len(second.edits) == 2
    assert len(second.visible_edits) == 1
    assert second.messages[1:] == tuple(continuation[-4:])


def test_conformance_12_reverting_the_second_summary_shows_the_first():
    messages = [m for n in range(20) for m in (U(f"Request {n}."), A("I have changed it. " * 20))]
    first, _ = compact(see(*messages, rules=CHAT_API, count=by_length), keep=4)
    second, _ = compact(first.extend(messages), keep=4)
    assert second.revert(second.edits[-1].id).messages == (*first.messages, *messages)


@pytest.mark.parametrize("keep", [-1, -0.5, 1.5])
def test_an_invalid_keep_is_refused(keep):
    with pytest.raises(ValueError, match="keep is a number"):
        find_tail_start(see(U(), A()), keep)


def test_summarize_asks_no_model_by_default():
    view = see(*[m for _ in range(20) for m in (U(), A("word " * 50))], count=by_length)
    assert not any(isinstance(step, Ask) for step in Summarize()(view))
