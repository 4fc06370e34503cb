"""A compaction that is done is done: a new process with the same store makes no edit of its own (C14)."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from refold import Budget, Compactor, MemoryStore
from refold.compactor.run import MAX_ASKING_ROUNDS, MAX_ROUNDS
from refold.compactor.settings import default_strategies
from refold.core.strategy import Answer, Ask, Summary
from refold.core.view import View
from refold.messages import Message, Text
from refold.strategies import Summarize, SummarizeTo
from tests.support.signed_histories import agent_histories


def compactor(to: int, store: MemoryStore) -> Compactor:
    return Compactor(default_strategies(to), Budget(to, to), store)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(agent_histories(), st.integers(20, 600))
def test_c14_law_a_new_process_does_not_compact_a_compacted_history_again(
    bodies: list[Any], to: int
) -> None:
    """Where the target was not reached, every process made another edit, though nothing had been said since."""
    store = MemoryStore()
    view = compactor(to, store)(bodies[-1])
    again = compactor(to, store)(bodies[-1])
    assert again.edits == view.edits
    assert again.payload == view.payload


def chat(turns: int) -> list[dict[str, str]]:
    return [
        {
            "role": "user" if n % 2 == 0 else "assistant",
            "content": f"{n} says " + "this and that " * 60,
        }
        for n in range(turns)
    ]


def test_c14_one_run_repeats_its_strategies_until_the_request_fits() -> None:
    history, store = chat(21), MemoryStore()
    view = Compactor([Summarize(keep=12, max_tokens=200)], Budget(800, 800), store)(history)
    assert view.tokens <= 800
    assert [attempt.outcome for attempt in view.attempts] == ["applied", "applied"]
    assert (
        Compactor([Summarize(keep=12, max_tokens=200)], Budget(800, 800), store)(history).edits
        == view.edits
    )


def test_a_summary_is_not_replaced_by_one_that_saves_almost_nothing() -> None:
    """Behind a long answer the request stays over its goal: a shorter summary gained 4 %, and took half
    of what had been kept. The next process does not do it either."""
    parts = (f"{n} says that part {n} weighs {n * 37} kilograms, in hall {n}" for n in range(90))
    texts = [*parts, "Why?", "I think. " * 30, "And?", "Because of the light. " * 1_500]
    history = [
        {"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)
    ]
    strategies = [SummarizeTo(share=0.9), Summarize(keep=1, max_tokens=1_000)]
    store, budget = MemoryStore(), Budget(2_000, 2_000)
    view = Compactor(strategies, budget, store)(history)
    first, second = view.attempts[:2]
    assert (first.outcome, second.outcome) == ("applied", "rejected") and view.tokens > 2_000
    assert second.reason == "it would replace a summary and gain next to nothing"
    assert [edit.by.split("(")[0] for edit in view.edits] == ["SummarizeTo"]
    assert Compactor(strategies, budget, store)(history).edits == view.edits


@pytest.mark.parametrize("to", [100, 600, 2_000])
def test_c14_model_requests_are_bounded_and_a_new_process_makes_none(to: int) -> None:
    """The first process left a request over its trigger; the next asked the model again."""
    asked, store = list[Ask](), MemoryStore()

    def ask(question: Ask) -> Answer:
        asked.append(question)
        return Answer("word " * 300)

    def summarize(view: View, start: int, stop: int, cap: int) -> Any:
        answer = yield Ask("Summarise.")
        return Summary(answer.text if answer else "")

    def compact() -> View:
        strategies = [Summarize(keep=12, summarizer=summarize)]
        return Compactor(strategies, Budget(to, to), store, ask=ask)(chat(21))

    first, asks = compact(), len(asked)
    assert first.edits and 1 <= asks <= MAX_ASKING_ROUNDS
    assert first.tokens <= max(to, 500), "at 100 only the last messages and the summary are left"
    assert compact().payload == first.payload
    assert len(asked) == asks


@pytest.mark.parametrize("goal", [0, 1])
def test_c14_a_strategy_that_always_saves_tokens_stops_after_max_rounds(goal: int) -> None:
    runs = 0

    def shorter(view: View) -> Any:
        nonlocal runs
        runs += 1
        remainder = view.messages[0].text.split()[:-5]
        yield view.replace(0, Message("user", (Text(" ".join(remainder)),)), by=f"{len(remainder)}")

    view = Compactor([shorter], Budget(goal, goal, progress=0))(
        [
            {"role": "user", "content": "words " * 15 * MAX_ROUNDS},
            {"role": "assistant", "content": "ok"},
        ]
    )
    assert runs == MAX_ROUNDS
    assert len(view.messages[0].text.split()) == 10 * MAX_ROUNDS, "what was gained until then stays"
