"""Whatever a model is or does, an agent goes on (F6): in the library and in every preset, in sync and in async code."""

import asyncio
from collections.abc import Callable, Coroutine
from itertools import chain, repeat
from typing import Any

import pytest

from refold import Budget, Compactor
from refold.core.strategy import Answer, Ask
from refold.memory import ModelExtractor, ProcessMemories, aflush, flush
from refold.models.driver import as_model, as_text_model
from refold.presets.gemini import Settings
from refold.presets.gemini import compactor as gemini
from refold.presets.koog import LLM, NoAnswer
from refold.presets.prune_compact import Limits, PruneAndCompact, generate_summary
from refold.presets.soft_hard import CompactionConfig, SoftHardCompactor
from refold.presets.two_layer import ContextCompactor, ContextPolicy
from refold.stores import MemoryStore
from refold.strategies import Summarize
from refold.summarizers.heuristic import RuleSummary
from refold.summarizers.model import ModelSummary

SMALL = CompactionConfig(
    300, 600, 100, keep_recent_messages=2, summary_max_tokens=300, use_llm=True
)


def history() -> list[dict]:
    return [
        {
            "role": ("user", "assistant")[n % 2],
            "content": f"Step {n}: use port {5000 + n}. " + "words " * 60,
        }
        for n in range(20)
    ]


class UnsayableError(Exception):
    """An exception whose text cannot be made."""

    def __str__(self) -> str:
        raise AttributeError("response")


def raises(error: BaseException) -> Callable[[Ask], Answer]:
    def model(_: Ask) -> Answer:
        raise error

    return model


def araises(error: BaseException) -> Callable[[Ask], Any]:
    async def model(_: Ask) -> Answer:
        raise error

    return model


def later(error: BaseException) -> Callable[[Ask], Any]:
    """A sync function that gives something to await."""
    answer = araises(error)

    def model(ask: Ask) -> Any:
        return answer(ask)

    return model


FAULTS = {
    "raises": raises(ValueError("no such host")),
    "raises where async is expected": raises(TimeoutError()),
    "runs out of answers": raises(StopIteration()),
    "async and raises": araises(ConnectionError("cut")),
    "gives something to await that raises": later(OSError()),
    "answers with no answer": lambda _: {"choices": []},
    "takes no question": lambda: "text",
    "raises what cannot say itself": raises(UnsayableError()),
}


def finish(run: Coroutine[Any, Any, Any]) -> Any:
    """What *run* comes to; TimeoutError where it waits for ever, as for a thread that a StopIteration left."""
    return asyncio.run(asyncio.wait_for(run, 60))


def keep_all(view: Any) -> list[dict]:
    return list(view.payload)


async def agemini(model: Any) -> list[dict]:
    return keep_all(
        await gemini(
            Settings(1_500, summary_tokens=400, fallback=RuleSummary()), format="openai_chat"
        ).acompact(history(), model)
    )


async def koog(model: Any) -> list[dict]:
    llm = LLM(history(), ask=model)
    async with llm.write_session() as session:
        await session.replace_history_with_tldr()
    return llm.history


async def atwo_layer(model: Any) -> list[dict]:
    messages = history()
    await ContextCompactor(ContextPolicy(token_threshold=700, summary_max_tokens=300)).acompact(
        messages, model=model
    )
    return messages


def two_layer(model: Any) -> list[dict]:
    messages = history()
    ContextCompactor(ContextPolicy(token_threshold=700, summary_max_tokens=300), model).compact(
        messages
    )
    return messages


def prune_compact(model: Any) -> list[dict]:
    messages = history()
    PruneAndCompact(
        model, Limits(model_limit=1_000, reserved_output=200, summary_max_tokens=300)
    ).finish_step(messages)
    return messages


SUMMARIZE = Summarize(keep=2, max_tokens=300, summarizer=ModelSummary())
WAYS: dict[str, Callable[[Any], list[dict]]] = {
    "library": lambda model: keep_all(
        Compactor([SUMMARIZE], Budget(600, 300), ask=model)(history())
    ),
    "library, async": lambda model: keep_all(
        finish(Compactor([SUMMARIZE], Budget(600, 300)).acompact(history(), model))
    ),
    "session": lambda model: keep_all(
        Compactor([SUMMARIZE], Budget(600, 300), ask=model).session(history()).view
    ),
    "by hand": lambda model: keep_all(
        Compactor([SUMMARIZE], Budget(10_000, 300), ask=model).compact_now(history())
    ),
    "preview": lambda model: keep_all(
        Compactor([SUMMARIZE], Budget(10_000, 300), ask=model).preview(history())
    ),
    "gemini": lambda model: finish(agemini(model)),
    "koog": lambda model: finish(koog(model)),
    "two_layer": two_layer,
    "two_layer, async": lambda model: finish(atwo_layer(model)),
    "prune_compact": prune_compact,
    "soft_hard": lambda model: (
        SoftHardCompactor(SMALL, model=model).compact(history()).compacted_messages
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("way", WAYS)
def test_f6_a_model_that_raises_does_not_stop_the_agent(way, fault):
    """C1-13 S1-28 S2-10: an agent whose model function raised ended with its exception, and rules were never tried."""
    shown = WAYS[way](FAULTS[fault])
    assert len(shown) < len(history())
    assert "earlier-conversation" in str(shown)


def test_f6_an_async_model_in_sync_code_within_an_event_loop_falls_back_to_rules():
    """In a notebook the cell ended with a TypeError, and nothing was compacted."""

    async def cell() -> list[dict]:
        return WAYS["library"](araises(ConnectionError("cut")))

    assert "earlier-conversation" in str(finish(cell()))


@pytest.mark.parametrize("fault", FAULTS)
def test_f6_without_a_fallback_nothing_is_changed(fault):
    """S2-10: `llm_fallback_to_rules = False`."""
    strict = CompactionConfig(
        300, 600, 100, keep_recent_messages=2, use_llm=True, llm_fallback_to_rules=False
    )
    assert (
        SoftHardCompactor(strict, model=FAULTS[fault]).compact(history()).compacted_messages
        == history()
    )


def test_f6_the_attempt_names_the_exception():
    """In the attempt, and so in ledger and events: what was raised, never what the conversation said."""
    view = Compactor([SUMMARIZE], Budget(600, 300), ask=raises(ValueError("no such host")))(
        history()
    )
    assert view.attempts[0].outcome == "degraded"
    assert "ValueError: no such host" in view.attempts[0].reason


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit()])
def test_f6_an_interrupt_is_raised(error):
    """Ctrl-C while a model is asked ends the program; nothing is compacted."""
    with pytest.raises(type(error)):
        WAYS["library"](raises(error))


def test_f6_a_cancellation_is_raised():
    """A task that is cancelled while its model answers is cancelled."""

    async def main() -> None:
        asked = asyncio.Event()

        async def slow(_: Ask) -> Answer:
            asked.set()
            await asyncio.Event().wait()
            return Answer("never")

        task = asyncio.create_task(
            Compactor([SUMMARIZE], Budget(600, 300)).acompact(history(), slow)
        )
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    finish(main())


@pytest.mark.parametrize("fault", FAULTS)
def test_f6_memory_extraction_and_single_calls_survive_a_failing_model(fault):
    """What asks beside a compaction: memories by a model, `generate_summary`, koog's request without tools."""
    model = FAULTS[fault]
    view = Compactor([Summarize(keep=2)], Budget(600, 300))(history())
    sink = ProcessMemories()
    assert not flush(None, view, sink, extract=ModelExtractor(), ask=model).failed
    assert not finish(aflush(None, view, sink, extract=ModelExtractor(), ask=model)).failed
    assert "5019" in generate_summary(history(), model)

    async def request() -> None:
        async with LLM(history(), ask=model).write_session() as session:
            with pytest.raises(NoAnswer):
                await session.request_llm_without_tools()

    finish(request())


@pytest.mark.parametrize("wrap", [as_model, as_text_model])
@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (raises(ValueError("no such host")), "ValueError: no such host"),
        (araises(TimeoutError()), "TimeoutError:"),
        (later(OSError("away")), "OSError: away"),
    ],
)
def test_f6_an_exception_of_a_function_becomes_an_error_answer(
    wrap: Any, fault: Callable[[Any], Any], error: str
) -> None:
    """Also where it is asked by hand, or stands in a ladder of models."""
    for answer in (wrap(fault)(Ask("Summarise.")), finish(wrap(fault).acall(Ask("Summarise.")))):
        assert (answer.finish, answer.text, answer.error) == ("error", "", error)


def test_f6_a_stop_iteration_from_a_store_is_an_error_in_async_code():
    """`next` without a default in a store of one's own: `acompact` waited for ever."""

    class Empty(MemoryStore):
        def load(self, tips: Any) -> Any:
            return next(iter(()))

    with pytest.raises(RuntimeError, match="StopIteration"):
        finish(Compactor(store=Empty()).acompact(history()))


def test_f6_a_function_of_an_ask_may_return_plain_text():
    """A function of an `Ask` that gives a plain text, as one writes it first."""
    texts = chain(["They choose ports, and 5000 is the first."], repeat(""))
    view = Compactor(
        [Summarize(keep=2, summarizer=ModelSummary(headings=()))],
        Budget(600, 300),
        ask=lambda _: next(texts),
    )(history())
    assert "They choose ports" in str(view.payload)
