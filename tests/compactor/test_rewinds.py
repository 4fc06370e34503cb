"""A history that ends earlier than before, as after regenerate, retry or time travel: everything
that the model must answer is sent (F1)."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from refold import Budget, Compactor, MemoryStore
from refold.codecs.detect import open_payload
from refold.codecs.repair import check
from refold.compactor.late_edits import find_open_request, would_hide_unanswered
from refold.compactor.run import compact_to
from refold.core.strategy import Answer, Ask, Strategy
from refold.core.view import View
from refold.messages import Message, Text, ToolResult, user
from refold.models.driver import drive
from refold.presets.measures import KeepFrom, LastMessages, LastTurns, Unanswered
from refold.presets.two_layer import SummarizeTurns
from refold.scorers import Recency
from refold.speakers import segment_messages
from refold.strategies import (
    Chunked,
    ClearThinking,
    ClearToolInputs,
    ClearToolResults,
    ClipResults,
    FromLastN,
    KeepImportant,
    Summarize,
    SummarizeTo,
    WholeHistory,
)
from refold.text.summary_wrapper import without_summary
from refold.tokens.model_table import Window
from tests.support.agent_requests import FORMATS, chat_request, entries, violations
from tests.support.pipeline_driver import Driver, SummaryWriter
from tests.support.signed_histories import agent_histories

STRATEGIES: tuple[Strategy, ...] = (
    Summarize(keep=2),
    Summarize(keep=0),
    Summarize(keep=0.3, place="answer"),
    Summarize(keep=1, place="after_first"),
    SummarizeTo(60, share=0.5),
    ClearToolResults(keep=0),
    ClearToolInputs(keep=0),
    ClearThinking(keep=0),
    WholeHistory(),
    FromLastN(2),
    Chunked(4),
    KeepImportant(Summarize(keep=2), Recency()),
    KeepFrom(Summarize(), LastTurns(2)),
    KeepFrom(Summarize(), LastMessages(2, 400)),
    KeepFrom(Summarize(), Unanswered()),
    SummarizeTurns(),
)
LOCAL = (ClipResults(limit=400),)


def answer_summary(_: Ask) -> Answer:
    return Answer("A summary.")


def compactor(
    strategies: Sequence[Strategy], trigger: int, store: MemoryStore | None = None
) -> Compactor:
    budget = Budget(trigger, trigger // 3, progress=0, hysteresis=0)
    return Compactor((*LOCAL, *strategies), budget, store, ask=answer_summary)


def list_unseen_parts(body: Any, payload: Any) -> list[Any]:
    """Return the parts of *body* that the model must answer and that *payload* neither contains nor
    shows as at first sight."""
    view = Compactor(LOCAL, Budget(10**9, 10**9))(body)
    messages, seen, sent = (
        view.transcript.messages,
        view.messages,
        list_parts(payload, view.source.codec),
    )
    behind = next(
        (at + 1 for at in reversed(range(len(messages))) if messages[at].role == "assistant"), 0
    )
    asked = next((message for message in reversed(messages) if message.is_request), Message("user"))
    pairs = [
        (part, part) for part in asked.parts if not isinstance(part, Text) or part.text.strip()
    ]
    for full, short in zip(messages[behind:], seen[behind:], strict=True):
        pairs += [
            pair
            for pair in zip(full.parts, short.parts, strict=True)
            if isinstance(pair[0], ToolResult)
        ]
    return [
        full
        for full, short in pairs
        if drop_result_id(full) not in sent and drop_result_id(short) not in sent
    ]


def list_parts(payload: Any, format: Any = "anthropic") -> list[Any]:
    """Return the texts of a request without Refold's summaries."""
    messages = open_payload(payload, format).decode()
    return [drop_result_id(part) for message in messages for part in without_summary(message).parts]


def drop_result_id(part: Any) -> Any:
    """Return a part without an id that may be derived from its position, as with Gemini."""
    return replace(part, id="") if isinstance(part, ToolResult) else part


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    agent_histories(),
    st.lists(st.sampled_from(STRATEGIES), min_size=1, max_size=3),
    st.integers(20, 300),
    st.data(),
)
def test_f1_law_open_requests_and_unread_results_are_sent_after_any_rewind(
    bodies: list[Any], strategies: list[Strategy], trigger: int, data: st.DataObject
) -> None:
    """For all formats and strategies: the last request and all unread results are visible, the
    request is valid, every process shows the same, and requests stay prefixes of later ones."""
    store = MemoryStore()
    for body in bodies if data.draw(st.booleans()) else bodies[-1:]:
        compactor(strategies, trigger, store)(body)
    at = data.draw(st.integers(0, len(bodies) - 1))
    back, again = compactor(strategies, 10**9, store), data.draw(st.booleans())
    before = None
    for body in bodies[at:]:
        view = (compactor(strategies, 10**9, store) if again else back)(body)
        codec = view.source.codec  # the rest may look like another
        assert check(view.payload, format=codec) == () or check(body, format=codec)
        assert list_unseen_parts(body, view.payload) == []
        assert view.messages == compactor(strategies, 10**9, store)(body).messages, (
            "every process sees the same"
        )
        if before is not None:
            assert check(view.payload, format=codec, before=before) == () or check(
                body, format=codec
            )
        before = view.payload


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    agent_histories(),
    st.lists(st.sampled_from(STRATEGIES), min_size=1, max_size=3),
    st.integers(20, 300),
)
def test_f1_law_no_compaction_hides_open_requests_or_unread_results(
    bodies: list[Any], strategies: list[Strategy], trigger: int
) -> None:
    compact = compactor(strategies, trigger)
    for body in bodies:
        assert list_unseen_parts(body, compact(body).payload) == []


def agent(steps: int, ask: str = "Find the bug in `calc.py` and fix it.") -> list[dict[str, Any]]:
    """Return a tool loop in the Messages API that ends with a result."""
    history: list[dict[str, Any]] = [{"role": "user", "content": ask}]
    for n in range(steps):
        use = {"type": "tool_use", "id": f"t{n}", "name": "read", "input": {"path": f"f{n}.py"}}
        result = {
            "type": "tool_result",
            "tool_use_id": f"t{n}",
            "content": f"file {n}: " + f"word{n} " * 300,
        }
        history += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    return history


def open_with_summary(
    history: list[Any], stop: int, store: MemoryStore, **options: Any
) -> Compactor:
    """Return a compactor whose store has a summary of the first *stop* messages of *history*."""
    strategies = (Summarize(keep=len(history) - stop),)
    compact = Compactor(strategies, Budget(10**9, 10**9), store, format="anthropic", **options)
    view = compact.compact_now(history, to=compact(history).tokens * 9 // 10)
    assert [(placed.edit.start, placed.edit.stop) for placed in view.visible_edits] == [(0, stop)]
    return compact


def test_f1_a_retried_step_is_sent_with_the_tool_result_it_answers():
    """19,299 tokens once became 584: the model got only the summary, without the result to read."""
    store = MemoryStore()
    history = agent(15)
    compact = open_with_summary(history, 25, store)
    for resent in (
        compact,
        Compactor((Summarize(keep=6),), Budget(10**9, 10**9), store, format="anthropic"),
    ):
        view = resent(history[:25])
        assert view.payload == history[:25]
        assert resent(history).edits, "where it was made for it shows"


def test_f1_a_question_that_is_retried_is_sent_as_the_user_wrote_it():
    """In a chat, the last question was once only a bullet in a text that calls its quotes data."""
    chat = [
        {
            "role": "user" if n % 2 == 0 else "assistant",
            "content": f"{n} says " + "this and that " * 40,
        }
        for n in range(20)
    ]
    store = MemoryStore()
    compact = open_with_summary(chat, 15, store)
    assert compact(chat[:15]).payload == chat[:15]
    assert compact(chat).payload != chat


def test_f1_a_rewind_shows_the_earlier_summary_that_still_applies():
    store = MemoryStore()
    history = agent(20)
    open_with_summary(history[:22], 11, store)
    compact = open_with_summary(history, 25, store)
    back = compact(history[:25])
    assert [(placed.edit.start, placed.edit.stop) for placed in back.visible_edits] == [(0, 11)]
    assert back.payload[-14:] == history[11:25]


def test_f1_a_summary_held_back_is_shown_once_the_hidden_result_is_answered():
    """In this process and in a new one, and then for as long as the history grows."""
    store = MemoryStore()
    history = agent(15)
    compact = open_with_summary(history, 25, store)
    rewound = [
        *history[:25],
        {"role": "assistant", "content": "It is in f3.py."},
        {"role": "user", "content": "Fix it."},
    ]
    assert compact(rewound[:25]).edits == ()
    view = compact(rewound)
    assert [(edit.start, edit.stop) for edit in view.edits] == [(0, 25)]
    new = Compactor((Summarize(keep=6),), Budget(10**9, 10**9), store, format="anthropic")
    assert new(rewound).payload == view.payload
    assert view.payload[-1] == rewound[-1]


def test_f1_thinking_added_while_an_edit_is_held_back_is_dropped_once_it_shows():
    """AN-7: it was produced over the whole history, and its provider refuses it after the
    summary."""
    store, history = MemoryStore(), {"model": "claude-opus-5-5", "messages": agent(15)}
    compact = open_with_summary(history["messages"], 25, store)
    thought = {"type": "thinking", "thinking": "hm", "signature": "over all of it"}
    answer = {
        "role": "assistant",
        "content": [thought, {"type": "text", "text": "It is in f3.py."}],
    }
    rewound = {
        **history,
        "messages": [*history["messages"][:25], answer, {"role": "user", "content": "Fix it."}],
    }
    assert compact({**rewound, "messages": rewound["messages"][:25]}).edits == ()
    sent = compact(rewound).payload
    assert "over all of it" not in json.dumps(sent)
    assert len(sent["messages"]) < 10
    new = Compactor((Summarize(keep=6),), Budget(10**9, 10**9), store, format="anthropic")
    assert new(rewound).payload == sent
    later = {**thought, "signature": "over the summary"}
    grown = [
        *rewound["messages"],
        {"role": "assistant", "content": [later, {"type": "text", "text": "Done."}]},
    ]
    assert "over the summary" in json.dumps(
        new({**rewound, "messages": [*grown, {"role": "user", "content": "Thanks."}]}).payload
    )


def test_f1_a_rewound_history_over_the_budget_is_compacted_anew():
    history, store = agent(15), MemoryStore()
    open_with_summary(history, 25, store)
    compact = Compactor((Summarize(keep=2),), Budget(3_000, 3_000), store, format="anthropic")
    view = compact(history[:25])
    assert view.tokens < 3_000
    assert view.payload[-1] == history[24]
    assert "Find the bug" in json.dumps(
        [part.text for part in list_parts(view.payload) if isinstance(part, Text)]
    )


def test_f1_a_strategy_that_hides_the_open_request_is_rejected_with_a_reason():
    def hides(view: View) -> Any:
        yield view.fold(0, len(view.transcript), user("All is well."))

    view = View.of([user("A question. " * 50)])
    done = drive(compact_to(view, [hides], 0))
    assert done.view is view
    assert (done.attempts[0].outcome, "not answered" in done.attempts[0].reason) == (
        "rejected",
        True,
    )


@pytest.mark.parametrize("api", FORMATS)
def test_f1_the_gateway_sends_the_newest_result_after_a_rewind(api: str) -> None:
    """docs/gateway-decisions.md: forks and rewinds need no special handling."""
    with Driver() as driver:
        for steps in range(0, 60, 4):
            driver(FORMATS[api](steps), api)
        for steps in range(2, 60, 2):
            out = driver(FORMATS[api](steps), api)
            assert violations(out.body, api) == ()
            assert entries(out.body)[-1] == entries(FORMATS[api](steps))[-1]
            assert out.tokens_after < 20_000
        assert driver.count("failures") == 0


def test_f1_the_gateway_drops_a_prepared_summary_if_the_history_is_shorter() -> None:
    """If a step is retried with a smaller model, a summary prepared later hides the result it is
    about."""
    windows, session = {"m": Window(40_000), "small": Window(8_000)}, [("x-session-id", "s")]
    with Driver(windows=windows, ask=SummaryWriter(), soft=0.5, hard=0.9) as driver:
        for steps in range(1, 100):
            driver(chat_request(steps), "openai_chat", headers=session)
            driver.finish_background_work()
            if driver.count("prepared", result="ready"):
                break
        (conversation,) = driver.pipeline.conversations
        assert conversation.prefetch.preview is not None and conversation.latest is not None
        body = json.loads(chat_request(steps))
        head = len(body["messages"]) - len(conversation.latest.view.transcript)
        again = body["messages"][
            : head + max(edit.stop for edit in conversation.prefetch.preview.edits)
        ]
        assert again[-1]["role"] == "tool"
        cut = json.dumps({**body, "model": "small", "messages": again}).encode()
        out = driver(cut, "openai_chat", headers=session)
        assert (
            driver.count("prepared", result="stale"),
            driver.count("prepared", result="used"),
        ) == (1, 0)
        assert out.reason == "hard" and entries(out.body)[-1] == again[-1]


def test_f1_an_edit_that_hides_the_open_request_is_premature() -> None:
    messages = [
        user("A question. " * 50),
        Message("assistant", (Text("An answer."),)),
        user("Another. " * 50),
    ]
    view = View.of(messages)
    prepared = view.fold(0, 3, user("A summary."))
    assert would_hide_unanswered(prepared, messages)
    assert not would_hide_unanswered(prepared, [*messages, Message("assistant", (Text("Yes."),))])
    assert find_open_request(messages, segment_messages(messages))[0] == 2
    answered = [*messages, Message("assistant", (Text("Yes."),))]
    assert find_open_request(answered, segment_messages(answered))[0] == -1
