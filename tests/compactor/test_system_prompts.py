"""A conversation is recognised by its whole system prompt, which is never lost and always
counted."""

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import refold
from refold.messages import user
from tests.support.pipeline_driver import Driver

LONG = "You are careful. Never touch production. " * 400
FORMATS = ("openai_chat", "openai_responses", "anthropic", "gemini")


def system(text, format="openai_chat"):
    """Return a leading system entry in a wire format."""
    if format == "gemini":
        return {"role": "system", "parts": [{"text": text}]}
    return {"role": "system", "content": text}


def write_message(role, text, format="openai_chat"):
    """Return an entry in a wire format."""
    if format == "gemini":
        return {"role": "model" if role == "assistant" else role, "parts": [{"text": text}]}
    return {"role": role, "content": text}


def talk(turns, format="openai_chat"):
    """Return this many exchanges."""
    return [
        entry
        for n in range(turns)
        for entry in (
            write_message("user", f"question {n}", format),
            write_message("assistant", f"answer {n} " * 60, format),
        )
    ]


def compactor(trigger=10**6, target=None, **settings):
    return refold.Compactor(
        refold.default_strategies(target or trigger),
        refold.Budget(trigger, target or trigger),
        **settings,
    )


@pytest.mark.parametrize("format", FORMATS)
def test_c2_a_system_prompt_is_counted_and_kept_after_an_empty_history(format):
    """After `compact([])`, the system prompt of the real history was once summarised away."""
    history = [system(LONG, format), *talk(30, format), write_message("user", "And now?", format)]
    fresh, used = compactor(3_000, 2_000, format=format), compactor(3_000, 2_000, format=format)
    used([])
    view = used(history)
    assert view.payload[0] == history[0]
    assert view.payload == fresh(history).payload
    assert view.tokens == fresh(history).tokens > 3_500, (
        "the system prompt alone has more than the budget"
    )


def test_c2_a_session_counts_the_system_prompt_that_it_gets_first():
    """`Compactor.session()` as in README: with a budget of 8,000 it once reported 7,811 of 31,629
    tokens."""
    session = compactor().session()
    session.append(system(LONG))
    session.append(*talk(3))
    session.append(write_message("user", "And now?"))
    whole = compactor()([system(LONG), *talk(3), write_message("user", "And now?")])
    assert session.view.profile.fixed_tokens == whole.profile.fixed_tokens > 3_000
    assert session.view.tokens == whole.tokens
    assert len(session.view.transcript) == 7


def test_c2_a_session_with_only_a_system_prompt_accepts_another_one():
    session = compactor().session([system(LONG)])
    session.append(system("Answer in Latin."), write_message("user", "Salve!"))
    assert (
        session.view.profile.fixed_tokens
        == compactor()(
            [system(LONG), system("Answer in Latin."), write_message("user", "x")]
        ).profile.fixed_tokens
    )
    assert len(session.view.transcript) == 1


def test_c2_usage_of_a_system_prompt_alone_is_not_used_for_other_histories():
    """Every history begins like an empty one: its usage was once used for any other history."""
    compact = compactor()
    compact.report(compact([system("Be brief.")]), {"prompt_tokens": 1_900, "completion_tokens": 1})
    assert compact([system(LONG), *talk(2)]).tokens == compactor()([system(LONG), *talk(2)]).tokens


def test_c2_an_empty_history_does_not_replace_a_known_conversation():
    """A conversation of an hour, re-serialised by its client, was once taken for the empty one seen
    since."""
    now = [0.0]
    budget = refold.Budget(refold.budget.triggers.Elapsed(3_600), 500)
    compact = refold.Compactor(refold.default_strategies(500), budget, clock=lambda: now[0])
    history = talk(30)
    assert compact(history).payload == history
    now[0] = 3_000.0
    compact([])
    now[0] = 3_700.0
    respelled = {**history[0], "content": [{"type": "text", "text": history[0]["content"]}]}
    assert compact([respelled, *history[1:], write_message("user", "And now?")]).visible_edits


@pytest.mark.parametrize("as_text", [False, True])
def test_c2_an_additional_leading_system_message_is_counted(as_text):
    """A gateway once counted 306 tokens for a body of 74 kB."""
    compact, first, question = (
        compactor(),
        [system("Be brief."), *talk(2)],
        write_message("user", "And now?"),
    )
    given_as = json.dumps if as_text else copy.deepcopy
    compact(given_as(first))
    grown = [system("Be brief."), system(LONG), *first[1:], question]
    view = compact(given_as(grown))
    assert view.tokens == compactor()(grown).tokens > 4_000
    assert view.payload == given_as(grown)
    back = compact(given_as([*first, question]))
    assert back.tokens == compactor()([*first, question]).tokens < 1_000


def test_c2_the_gateway_counts_a_leading_system_message_that_was_added():
    first = {
        "model": "m",
        "messages": [system("Be brief."), *talk(2), write_message("user", "And now?")],
    }
    grown = {"model": "m", "messages": [system("Be brief."), system(LONG), *first["messages"][1:]]}
    with Driver() as driver:
        assert driver(json.dumps(first).encode(), "openai_chat").tokens_before < 1_000
        assert driver(json.dumps(grown).encode(), "openai_chat").tokens_before > 4_000
        assert driver(json.dumps(first).encode(), "openai_chat").tokens_before < 1_000


def test_c2_an_unrelated_history_does_not_continue_a_conversation_seen_empty():
    with Driver() as driver:
        driver(json.dumps({"model": "m", "messages": talk(2)[:3]}).encode(), "openai_chat")
        (conversation,) = driver.pipeline.conversations
        unrelated = refold.View.of([user("Something else."), user("And more.")])
        assert not conversation.history.is_continued_by(unrelated)
        conversation.history.remember(refold.View.of([]))
        assert not conversation.history.is_continued_by(unrelated)


HEADS = st.lists(st.sampled_from(["Be brief.", "Answer in Latin.", LONG]), max_size=3)


@given(
    st.lists(st.tuples(HEADS, st.integers(0, 4)), min_size=2, max_size=6),
    st.sampled_from(FORMATS),
    st.booleans(),
)
def test_c2_law_earlier_requests_do_not_change_how_a_request_is_parsed_and_counted(
    calls, format, as_text
):
    """A compactor that has seen any other prompts and lengths counts and shows a history like a new
    one."""
    compact = compactor(format=format)
    for heads, turns in calls:
        history = [*(system(text, format) for text in heads), *talk(turns, format)]
        sent = json.dumps(history) if as_text else history
        view, fresh = compact(sent), compactor(format=format)(sent)
        assert (view.profile.fixed_tokens, view.tokens, len(view.transcript)) == (
            fresh.profile.fixed_tokens,
            fresh.tokens,
            len(fresh.transcript),
        )
        assert view.payload == sent
