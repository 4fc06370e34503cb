"""Placements of a summary (X-2), and that each is recognised when it is sent back."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.budget.budget import Budget
from refold.compactor.compactor import Compactor
from refold.compactor.run import compact_if_due
from refold.core.profile import Profile
from refold.core.view import View
from refold.messages import Message, Text, ToolCall, ToolResult, user
from refold.models.driver import drive
from refold.rules import anthropic, gemini, openai_chat, openai_responses
from refold.rules.rule import Rules
from refold.strategies.summarize import Summarize
from refold.summarizers.model import HEADINGS, ModelSummary
from refold.summarizers.placement import (
    PLACEMENTS,
    Placement,
    TaggedMemory,
    find_kept,
    keep_behind,
    remember,
)
from refold.summarizers.tail import find_tail_start
from refold.testing import ScriptedModel, check_strategy, transcripts
from refold.text.summary_wrapper import (
    ACK,
    CONTINUE,
    QUESTION,
    belongs_to_summary,
    is_only_summary,
    opening_length,
    summary_in,
    wrap_summary,
)
from tests.support.messages import assistant, talk
from tests.support.summaries import read_summary

GOOD = "\n".join(f"## {title}\n- something about {title.lower()}" for title in HEADINGS)
DIALECTS = {
    "none": Rules(),
    "chat": Rules(openai_chat.RULES),
    "responses": Rules(openai_responses.RULES, thinking="fixed"),
    "anthropic": Rules(anthropic.RULES, alternate=True, thinking="bound"),
    "gemini": Rules(gemini.RULES, alternate=True, thinking="fixed"),
}
NAMES = sorted(PLACEMENTS)


def ran(id):
    return [
        Message("assistant", (ToolCall(id, "bash", "{}"),)),
        Message("tool", (ToolResult(id, (Text("out " * 40),)),)),
    ]


def summarize_at(messages, place, rules=None, keep=4, model=None, **settings):
    view = (
        messages
        if isinstance(messages, View)
        else View.of(messages, profile=Profile(rules=rules or Rules()))
    )
    strategy = Summarize(keep=keep, summarizer=ModelSummary(), place=place, **settings)
    return drive(
        compact_if_due(view, [strategy], Budget(0, 0)), model or ScriptedModel([GOOD])
    ).view


def pin(message):
    return "never" in message.text or "exit" in str(message)


@given(
    transcripts(), st.sampled_from(sorted(DIALECTS)), st.sampled_from(NAMES), st.sampled_from([0, 1, 4, 0.3]),
    st.sampled_from([None, pin]), st.sampled_from([120, 500]),
)  # fmt: skip
def test_every_placement_keeps_the_laws_of_every_dialect(
    messages, dialect, place, keep, pin, max_tokens
):
    """X-2: all five placements."""
    strategy = Summarize(keep=keep, max_tokens=max_tokens, place=place, pin=pin)
    check_strategy(strategy, DIALECTS[dialect], examples=[messages])


@given(
    transcripts(),
    st.sampled_from(sorted(DIALECTS)),
    st.sampled_from(NAMES),
    st.sampled_from([0, 1, 4, 0.3]),
)
def test_a_view_ends_with_an_assistant_message_only_if_the_conversation_does(
    messages, dialect, place, keep
):
    """C4-11: no accidental prefill."""
    view = View.of(messages, profile=Profile(rules=DIALECTS[dialect]))
    after = drive(
        compact_if_due(view, [Summarize(keep=keep, max_tokens=200, place=place)], Budget(0, 0))
    ).view
    assert after.messages[-1].role != "assistant" or messages[-1].role == "assistant"


# --- the five placements -------------------------------------------------------------------------


def shape(view):
    return [(m.role, "summary" if summary_in(m) is not None else m.text) for m in view.messages]


TAIL = [(m.role, m.text) for m in talk(10)[-4:]]


def test_the_summary_is_a_user_message_by_default():
    """X-2"""
    assert shape(summarize_at(talk(10), "user")) == [("user", "summary"), *TAIL]


def test_the_summary_may_be_followed_by_an_acknowledgement():
    """S0-15 S0-31 S0-46 X-2: user message with the snapshot, assistant acknowledgement, then the
    recent messages."""
    view = summarize_at(talk(10), "acknowledged", DIALECTS["anthropic"])
    assert shape(view) == [("user", "summary"), ("assistant", ACK), *TAIL]


def test_the_summary_may_be_a_second_system_message_if_the_rules_allow_one():
    """S1-29 C1-8 X-2: otherwise the default placement."""
    assert shape(summarize_at(talk(10), "system", DIALECTS["chat"])) == [
        ("system", "summary"),
        *TAIL,
    ]
    for name in ("anthropic", "gemini"):
        assert shape(summarize_at(talk(10), "system", DIALECTS[name]))[0] == ("user", "summary")


def test_the_summary_may_be_the_assistants_answer_to_a_question():
    """S4-13 S4-09 X-2: the user asks what was done, the assistant answers with the summary."""
    view = summarize_at(talk(10), "answer", DIALECTS["anthropic"])
    assert shape(view) == [("user", QUESTION), ("assistant", "summary"), *TAIL]
    fifty = [*talk(24), user("And now?"), assistant("Fine.")]
    assert len(summarize_at(fifty, "answer", keep=0).messages) == 2


def test_the_summary_may_be_an_assistant_message_after_the_first_request():
    """S3-14 C3-4 X-2: the first request stays verbatim."""
    view = summarize_at(talk(10), "after_first", DIALECTS["anthropic"])
    assert shape(view) == [("user", "Request 0: fix part 0."), ("assistant", "summary"), *TAIL]


def test_a_custom_placement_can_be_used():
    view = summarize_at(talk(10), Placement("assistant", "question", acknowledged=False))
    assert view.messages[0] == user(QUESTION)
    assert summarize_at(talk(10), Placement("assistant")).messages[0] == user(QUESTION)


def test_an_unknown_placement_is_refused():
    with pytest.raises(
        ValueError, match="no placement is called 'sideways'; there are user, acknowledged"
    ):
        Summarize(place="sideways")


@pytest.mark.parametrize("place", NAMES)
def test_a_cut_in_mid_turn_never_leaves_two_assistant_messages_in_a_row(place):
    history = [
        user("Fix everything. " + "Really. " * 5),
        *[m for n in range(12) for m in ran(f"c{n}")],
    ]
    view = summarize_at(history, place, DIALECTS["gemini"], max_tokens=400)
    roles = [m.role for m in view.messages]
    assert ("assistant", "assistant") not in list(pairwise(roles))
    assert not DIALECTS["gemini"].check(view.messages)
    assert view.messages[-1].role == "tool"


def test_the_latest_request_or_else_a_prompt_to_continue_follows_the_summary():
    """C4-11"""
    history = [*talk(6), user("Look at it."), *ran("c1"), *ran("c2")]
    view = View.of(history)
    for text in ("text", "text\n- Look at it."):
        surroundings = keep_behind(view, len(history), PLACEMENTS["answer"])
        assert surroundings.around_summary(text)[-1] == user("Look at it.")
    view = View.of(history[-4:])
    assert keep_behind(view, 4, PLACEMENTS["answer"]).around_summary("text")[-1].text == CONTINUE


# --- sent back -----------------------------------------------------------------------------------


@pytest.mark.parametrize("place", NAMES)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_summary_in_any_placement_is_recognised_when_it_is_sent_back(place, dialect):
    """C0-9 C1-8 conformance 9: it is never a request, never summarised as conversation, and never
    doubled."""
    rules = DIALECTS[dialect]
    view = summarize_at(
        talk(10), place, rules, model=ScriptedModel([GOOD.replace("done", "KEY-77 done")])
    )
    for n in range(3):
        history = [
            *view.messages,
            user(f"More {n}?"),
            assistant("well " * 60),
            user(f"Yet more {n}?"),
            assistant("fine " * 60),
        ]
        start = opening_length(history)
        assert start == ((0 if rules.alternate else 1) if place in ("user", "system") else 2)
        assert find_tail_start(View.of(history, profile=Profile(rules=rules)), 0.99) > start
        model = ScriptedModel([GOOD.replace("done", "KEY-77 done")])
        view = summarize_at(history, place, rules, keep=2, model=model)
        before, _, record = model.asked[0].messages[0].text.partition("</previous-summary>")
        assert "KEY-77" in before
        assert all(
            words not in record
            for words in ("KEY-77", QUESTION, ACK, CONTINUE, "earlier-conversation")
        )
        assert sum(summary_in(m) is not None for m in view.messages) == 1
        assert not rules.check(view.messages)
        requests = read_summary(
            next(text for text in map(summary_in, view.messages) if text)
        ).requests
        shown = (view.messages[0].text, next(iter(requests)))
        assert "Request 0: fix part 0." in shown
        assert not {QUESTION, ACK, CONTINUE} & set(requests)


ENCODERS = {
    "openai_chat": [
        {"role": "system", "content": "You help."},
        *({"role": m.role, "content": m.text} for m in talk(10)),
    ],
    "anthropic": [
        {"role": m.role, "content": [{"type": "text", "text": m.text}]} for m in talk(10)
    ],
    "openai_responses": [{"type": "message", "role": m.role, "content": m.text} for m in talk(10)],
    "gemini": [
        {"role": m.role.replace("assistant", "model"), "parts": [{"text": m.text}]}
        for m in talk(10)
    ],
}


@pytest.mark.parametrize("place", NAMES)
@pytest.mark.parametrize("format", ENCODERS)
def test_a_compacted_payload_can_be_compacted_again_in_every_wire_format(place, format):
    """S4-22 C4-8 C1-6: the system prompt stays. A second one of ours is not part of it when it is
    sent back."""
    payload = ENCODERS[format]
    for n in range(3):
        model = ScriptedModel([GOOD])
        compact = Compactor(
            [Summarize(keep=2, summarizer=ModelSummary(), place=place)],
            Budget(1, 0),
            ask=model,
            format=format,
        )
        view = compact(payload)
        assert len(view.edits) == 1
        assert n == 0 or "<previous-summary>" in model.asked[0].messages[0].text
        assert str(view.payload).count("<earlier-conversation>") == 1
        assert not view.profile.rules.check(view.messages)
        if format == "openai_chat":
            assert view.payload[0] == {"role": "system", "content": "You help."}
        payload = [*view.payload, *ENCODERS[format][1 + (format == "openai_chat") :][1:5]]


def test_messages_that_only_resemble_a_summary_are_not_taken_for_one():
    """A user may ask "what did we do so far", and an assistant may say that it understood."""
    history = [user(QUESTION), assistant("Nothing yet."), user(CONTINUE), assistant(ACK)]
    assert not any(belongs_to_summary(history, at) for at in range(4))
    assert opening_length(history) == 0
    assert not is_only_summary(assistant("x" + wrap_summary("y").text))


@given(transcripts(max_turns=4), st.sampled_from(NAMES))
def test_no_message_is_taken_for_a_summary_in_a_history_without_one(messages, place):
    assert opening_length(messages) == 0
    assert not any(belongs_to_summary(messages, at) for at in range(len(messages)))


def test_a_repeated_memory_is_kept_only_once():
    messages = [remember("the port is 8080"), Message("assistant", (Text("noted"),))] * 3
    view = View.of([user("start"), Message("assistant", (Text("yes"),)), *messages])
    assert find_kept(view, 0, len(messages) + 2, TaggedMemory()) == [0, 2]
    assert find_kept(view, 3, len(messages) + 2, TaggedMemory()) == [], (
        "what stands before the span is an earlier one too"
    )
