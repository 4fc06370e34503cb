"""Start of the kept tail, over random conversations."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.core.profile import Profile
from refold.core.view import View
from refold.messages import Message, Text, ToolCall, ToolResult, user
from refold.rules import anthropic, openai_chat
from refold.rules.rule import Rules
from refold.summarizers.tail import find_tail_start
from refold.testing import transcripts
from tests.support.messages import assistant

RULES = st.sampled_from([Rules(), Rules(openai_chat.RULES), Rules(anthropic.RULES, alternate=True)])


def call(id):
    return Message("assistant", (ToolCall(id, "read", "{}"),))


def result(id):
    return Message("user", (ToolResult(id, (Text("x"),)),))


KEEP = st.one_of(st.integers(0, 30), st.floats(0, 1))


@given(transcripts(), RULES, KEEP)
def test_the_tail_begins_at_a_legal_cut_or_is_the_whole_conversation(messages, rules, keep):
    view = View.of(messages, profile=Profile(rules=rules))
    start = find_tail_start(view, keep)
    assert start == 0 or start in view.cuts


@given(transcripts(tidy=False), RULES, KEEP)
def test_the_start_of_the_tail_is_in_range_for_malformed_conversations(messages, rules, keep):
    view = View.of(messages, profile=Profile(rules=rules))
    assert 0 <= find_tail_start(view, keep) <= len(messages)


@given(transcripts(max_turns=6), RULES, st.integers(1, 30))
def test_at_least_keep_messages_stay_if_older_ones_can_be_hidden(messages, rules, keep):
    view = View.of(messages, profile=Profile(rules=rules))
    older = [cut for cut in view.cuts if 0 < cut <= len(messages) - keep]
    assert find_tail_start(view, keep) == max(older) if older else True


@given(transcripts(), RULES, KEEP)
def test_the_tail_does_not_begin_inside_a_fold(messages, rules, keep):
    view = View.of(messages, profile=Profile(rules=rules))
    cuts = sorted(view.cuts)
    if len(cuts) < 3 or any(m.calls or m.results for m in messages[: cuts[1]]):
        return
    stop = cuts[len(cuts) // 2]
    if stop == 0:
        return
    folded = view.apply(view.fold(0, stop, messages[0]))
    assert not 0 < find_tail_start(folded, keep) < stop


@pytest.mark.parametrize("keep", [0.3, 0.5, 0.8])
def test_a_request_near_the_end_does_not_make_the_tail_much_too_short(keep):
    """Once a session of 155,000 tokens shrank to 4,000 instead of 100,000."""
    work = [message for n in range(60) for message in (call(str(n)), result(str(n)))]
    view = View.of(
        [user("Do it."), *work, user("Thanks."), assistant("You are welcome.")],
        profile=Profile(lambda _: 10),
    )
    tail = view.base.tokens(find_tail_start(view, keep), len(view.transcript))
    assert 0.9 * keep <= tail / view.tokens <= keep


def test_the_tail_begins_at_a_request_close_to_the_wanted_size():
    work = [message for n in range(60) for message in (call(str(n)), result(str(n)))]
    view = View.of(
        [user("Do it."), *work[:80], user("And that."), *work[80:], assistant()],
        profile=Profile(lambda _: 10),
    )
    assert find_tail_start(view, 0.5) == 81
