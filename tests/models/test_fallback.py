"""Retries, fallback models, deadline and circuit breaker, with a clock that the test controls."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold import Budget, Compactor
from refold.core.strategy import Answer, Ask, Failure, FailureKind, Summary
from refold.models import CircuitBreaker, Fallback, HTTPModel, OpenAIModel
from refold.models.fallback import Clock
from refold.strategies import Summarize
from refold.testing import ScriptedModel
from refold.testing.scripted_provider import Reply, ScriptedProvider
from refold.tokens.usage import Usage
from tests.support.sdks import LazyModule

openai = LazyModule("openai")

ASK = Ask("Summarise.")


@dataclass
class Time:
    """A clock that advances only by sleeping."""

    now: float = 0.0
    slept: list[float] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    async def asleep(self, seconds: float) -> None:
        self.sleep(seconds)

    @property
    def clock(self) -> Clock:
        return Clock(lambda: self.now, self.sleep, self.asleep)


def error(kind: FailureKind, retry_after: float | None = None) -> Answer:
    return Answer("", "error", f"it was {kind}", failure=Failure(kind, retry_after))


@dataclass
class Mode:
    """Runs a fallback in sync or async mode."""

    name: str

    def run(self, fallback: Fallback, ask: Ask = ASK) -> Answer | None:
        return asyncio.run(fallback.acall(ask)) if self.name == "async" else fallback(ask)


both_modes = pytest.mark.parametrize(
    "mode", [Mode("sync"), Mode("async")], ids=lambda mode: mode.name
)


@both_modes
def test_transient_failures_are_retried_with_growing_pauses(mode: Mode) -> None:
    """S2-10: a busy provider causes a pause and not the loss of the summary."""
    time, model = Time(), ScriptedModel([error("rate"), error("overload"), "a summary"])
    answer = mode.run(Fallback(model, first_pause=1, clock=time.clock))
    assert answer is not None
    assert (answer.text, answer.calls) == ("a summary", 3)
    assert len(time.slept) == 2
    assert 0.5 <= time.slept[0] <= 1 <= time.slept[1] <= 2


@both_modes
def test_a_pause_is_as_long_as_retry_after(mode: Mode) -> None:
    time, model = Time(), ScriptedModel([error("rate", 7), "a summary"])
    mode.run(Fallback(model, clock=time.clock))
    assert time.slept == [7]


def test_seeded_pauses_are_the_same_for_every_ask() -> None:
    times = [Time(), Time(), Time()]
    first, second, differing = (
        Fallback(ScriptedModel([error("rate")] * 9), seed=seed, clock=time.clock)
        for seed, time in zip((4, 4, 5), times, strict=True)
    )
    for fallback in (first, first, second, differing):
        fallback.manual(ASK)
    assert times[0].slept == times[1].slept * 2
    assert times[1].slept != times[2].slept


@both_modes
@pytest.mark.parametrize("kind", ["auth", "quota", "request", "overflow", "other"])
def test_the_next_model_is_asked_at_once_after_a_permanent_failure(
    mode: Mode, kind: FailureKind
) -> None:
    time, first, second = (
        Time(),
        ScriptedModel([error(kind)] * 9),
        ScriptedModel(["from the second"]),
    )
    answer = mode.run(Fallback(first, second, clock=time.clock))
    assert answer is not None
    assert (answer.text, answer.calls, len(first.asked), time.slept) == (
        "from the second",
        2,
        1,
        [],
    )


@both_modes
def test_the_next_model_is_asked_if_retry_after_exceeds_longest_pause(mode: Mode) -> None:
    time = Time()
    answer = mode.run(
        Fallback(
            ScriptedModel([error("rate", 600)]),
            ScriptedModel(["from the second"]),
            longest_pause=60,
            clock=time.clock,
        )
    )
    assert answer is not None
    assert (answer.text, time.slept) == ("from the second", [])


@both_modes
def test_conformance_36_calls_are_bounded_and_the_last_failure_is_typed(mode: Mode) -> None:
    time = Time()
    models = [ScriptedModel([error("overload")] * 99) for _ in range(5)]
    answer = mode.run(Fallback(*models, tries=3, max_calls=4, clock=time.clock))
    assert answer is not None
    assert sum(len(model.asked) for model in models) == answer.calls == 4
    assert (answer.finish, answer.error) == ("error", "it was overload")
    assert len(time.slept) == 2  # none before the fallback, none after the last call


@both_modes
def test_conformance_36_an_overflow_is_reported_though_another_model_failed_later(
    mode: Mode,
) -> None:
    """It is the only failure that a summarizer can react to."""
    answer = mode.run(Fallback(ScriptedModel([error("overflow")]), ScriptedModel([error("auth")])))
    assert answer is not None and answer.failure is not None
    assert (answer.failure.kind, answer.calls) == ("overflow", 2)


@both_modes
@pytest.mark.parametrize("finish", ["length", "filter", "tool", "pause_turn"])
def test_an_answer_is_not_retried_whatever_its_finish_reason(mode: Mode, finish: str) -> None:
    model = ScriptedModel([Answer("half a", finish), "whole"])
    answer = mode.run(Fallback(model, ScriptedModel(["other"])))
    assert answer is not None
    assert (answer.finish, len(model.asked)) == (finish, 1)


@both_modes
def test_calls_tokens_and_cost_add_up(mode: Mode) -> None:
    first = ScriptedModel(
        [Answer("", "error", "cut", usage=Usage(10, 2), cost=0.25, failure=Failure("connection"))]
        * 9
    )
    second = ScriptedModel([Answer("ok", usage=Usage(100, 20, 50), cost=0.5, model="m-2")])
    answer = mode.run(Fallback(first, second, tries=2, clock=Time().clock))
    assert answer is not None
    assert (answer.calls, answer.cost, answer.model) == (3, 1.0, "m-2")
    assert answer.usage == Usage(120, 24, 50, 0, 3)


@both_modes
@pytest.mark.parametrize(("hours", "total"), [((3, 4), 7), ((None, 4), 4), ((None, None), None)])
def test_tokens_that_a_cache_keeps_for_an_hour_add_up(
    mode: Mode, hours: tuple[int | None, int | None], total: int | None
) -> None:
    first, second = (Usage(10, 2, written=5, hour=hour) for hour in hours)
    failed = Answer("", "error", "cut", usage=first, failure=Failure("other"))
    answer = mode.run(Fallback(ScriptedModel([failed]), ScriptedModel([Answer("", usage=second)])))
    assert answer is not None
    assert answer.usage == Usage(20, 4, 0, 10, 2, total)


@both_modes
def test_no_call_begins_after_the_deadline(mode: Mode) -> None:
    time = Time()
    asked: list[float] = []

    def slow(ask: Ask) -> Answer:
        asked.append(time.now)
        time.now += 40
        return error("timeout")

    def slow_too(ask: Ask) -> Answer:
        return slow(ask)

    answer = mode.run(
        Fallback(
            slow, slow_too, deadline=100, first_pause=0.1, max_calls=99, tries=9, clock=time.clock
        )
    )
    assert answer is not None and answer.finish == "error"
    assert len(asked) == 3
    assert max(asked) < 100


def test_a_pause_beyond_the_deadline_is_not_begun() -> None:
    time = Time()
    Fallback(
        ScriptedModel([error("rate", 30)] * 9), deadline=20, longest_pause=60, clock=time.clock
    )(ASK)
    assert time.slept == []


def test_a_slow_model_is_cancelled_at_the_deadline() -> None:
    ended = []

    async def slow(ask: Ask) -> Answer:
        try:
            await asyncio.sleep(3_600)
        finally:
            ended.append(True)
        return Answer("late")

    answer = asyncio.run(Fallback(slow, deadline=1.0).acall(ASK))
    assert answer is not None and answer.failure is not None
    assert (answer.failure.kind, ended) == ("timeout", [True])


def test_the_remaining_time_is_the_clients_timeout() -> None:
    with ScriptedProvider([Reply("late", delay=3_600)], keep_alive=False) as server:
        answer = Fallback(HTTPModel(f"{server.url}/v1", model="m"), deadline=1.0)(ASK)
    assert answer is not None and answer.failure is not None and answer.failure.kind == "timeout"


@both_modes
def test_a_fallback_returns_none_if_no_model_answers(mode: Mode) -> None:
    assert mode.run(Fallback(ScriptedModel(), ScriptedModel())) is None


def test_a_fallback_needs_a_model() -> None:
    with pytest.raises(ValueError, match="at least one model"):
        Fallback()


# --- the breaker -------------------------------------------------------------------------------


@both_modes
def test_conformance_50_the_breaker_opens_for_automatic_runs_only_and_success_closes_it(
    mode: Mode,
) -> None:
    model = ScriptedModel([error("auth")] * 4 + ["by hand", "by itself"])
    fallback = Fallback(model, clock=Time().clock)
    assert [mode.run(fallback).error for _ in range(3)] == ["it was auth"] * 3
    refused = mode.run(fallback)
    assert refused is not None
    assert (refused.calls, refused.failure, len(model.asked)) == (0, Failure("breaker"), 3)
    assert refused.error == "not asked: 3 failures in a row, the last: it was auth"
    assert mode.run(fallback.manual).error == "it was auth"
    assert fallback.breaker.is_open
    assert mode.run(fallback.manual).text == "by hand"
    assert not fallback.breaker.is_open
    assert mode.run(fallback).text == "by itself"


def test_conformance_50_a_success_resets_the_count_of_failures() -> None:
    fallback = Fallback(
        ScriptedModel([error("auth")] * 2 + ["ok"] + [error("auth")] * 2 + ["ok"]),
        clock=Time().clock,
    )
    assert [fallback(ASK).finish for _ in range(6)] == [
        "error",
        "error",
        "stop",
        "error",
        "error",
        "stop",
    ]


@both_modes
def test_a_request_that_is_too_long_does_not_open_the_breaker(mode: Mode) -> None:
    fallback = Fallback(ScriptedModel([error("auth"), *[error("overflow")] * 5]))
    assert mode.run(fallback).error == "it was auth"
    assert [mode.run(fallback).error for _ in range(5)] == ["it was overflow"] * 5
    assert fallback.breaker.failures_in_a_row == 1


def test_a_breaker_with_a_cooldown_lets_one_run_through() -> None:
    time = Time()
    breaker = CircuitBreaker(1, cooldown=60, clock=lambda: time.now)
    breaker.record_failure("busy")
    assert not breaker.allows()
    time.now = 61
    assert breaker.allows()
    assert not breaker.allows()
    breaker.record_success()
    assert breaker.allows()
    assert breaker.allows()


def test_fallbacks_may_share_a_breaker() -> None:
    breaker = CircuitBreaker(failures=1)
    Fallback(ScriptedModel([error("auth")]), breaker=breaker)(ASK)
    sharing = ScriptedModel(["ok"])
    assert Fallback(sharing, breaker=breaker)(ASK).failure == Failure("breaker")
    assert sharing.asked == []


# --- interruption ------------------------------------------------------------------------------


def interrupt(*_: Any) -> Any:
    raise KeyboardInterrupt


@pytest.mark.parametrize("where", ["call", "pause"])
def test_conformance_37_an_interrupt_is_raised_and_not_counted_as_a_failure(where: str) -> None:
    model: Callable[[Ask], Any] = (
        interrupt if where == "call" else ScriptedModel([error("rate")] * 9)
    )
    fallback = Fallback(model, clock=Clock(sleep=interrupt))
    with pytest.raises(KeyboardInterrupt):
        fallback(ASK)
    assert fallback.breaker.failures_in_a_row == 0


@pytest.mark.parametrize("where", ["call", "pause"])
def test_conformance_37_a_cancellation_is_raised_and_leaves_no_task_or_failure(where: str) -> None:
    async def forever(*_: Any) -> Any:
        started.set()
        await asyncio.Event().wait()

    async def busy(ask: Ask) -> Answer:
        return error("rate")

    async def main() -> None:
        task = asyncio.create_task(fallback.acall(ASK))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asyncio.all_tasks() == {asyncio.current_task()}

    started = asyncio.Event()
    fallback = Fallback(forever if where == "call" else busy, clock=Clock(asleep=forever))
    asyncio.run(main())
    assert fallback.breaker.failures_in_a_row == 0


def by_model(view: Any, start: int, stop: int, max_tokens: int) -> Any:
    """Summarise with a single ask to a model."""
    answer = yield Ask("Summarise.", max_tokens, view=view)
    return Summary(answer.text if answer and answer.finish == "stop" else "")


HISTORY = [
    message
    for n in range(30)
    for message in (
        {"role": "user", "content": f"question {n} " * 30},
        {"role": "assistant", "content": f"answer {n} " * 30},
    )
]


def test_conformance_37_a_cancelled_compaction_keeps_the_history_and_stores_nothing() -> None:
    async def main() -> None:
        task = asyncio.create_task(compactor.acompact(HISTORY))
        while not server.received:  # noqa: ASYNC110 - the server is in another thread
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await client.close()

    with ScriptedProvider(
        [Reply("late", delay=3_600), "A short summary."], keep_alive=False
    ) as server:
        client = openai.AsyncOpenAI(api_key="k", base_url=f"{server.url}/v1")
        fallback = Fallback(OpenAIModel(client, model="m"))
        compactor = Compactor(
            [Summarize(keep=4, summarizer=by_model)], Budget(1_000, 800), ask=fallback
        )
        asyncio.run(main())
        tips = Compactor([], Budget(10**9, 10**9))(HISTORY).transcript.tips
        assert list(compactor.settings.store.load(tips[1:])) == []
        sync = Fallback(HTTPModel(f"{server.url}/v1", model="m"))
        view = Compactor(
            compactor.settings.strategies,
            compactor.settings.budget,
            compactor.settings.store,
            ask=sync,
        )(HISTORY)
    assert len(view.edits) == 1
    assert list(compactor.settings.store.load(tips[1:])) == list(view.edits)
    assert "A short summary." in str(view.payload[0])
    assert view.attempts[0].calls == 1


def test_sync_and_async_compaction_give_the_same_view() -> None:
    """`acompact` uses an async client. A fallback around a sync model serves both."""

    async def by_async_client() -> Any:
        async with openai.AsyncOpenAI(api_key="k", base_url=f"{server.url}/v1") as client:
            model = OpenAIModel(client, model="m")
            return await Compactor(strategies, Budget(1_000, 800), ask=model).acompact(HISTORY)

    strategies = [Summarize(keep=4, summarizer=by_model)]
    with ScriptedProvider(["A short summary."] * 3, keep_alive=False) as server:
        fallback = Fallback(HTTPModel(f"{server.url}/v1", model="m"))
        views = [
            asyncio.run(by_async_client()),
            asyncio.run(Compactor(strategies, Budget(1_000, 800), ask=fallback).acompact(HISTORY)),
            Compactor(strategies, Budget(1_000, 800), ask=fallback)(HISTORY),
        ]
    assert views[0] == views[1] == views[2]
    assert len(views[0].edits) == 1


OUTCOMES = st.one_of(
    st.just("text"),
    st.none(),
    st.builds(
        error,
        st.sampled_from(["rate", "overload", "timeout", "connection", "overflow", "auth"]),
        st.floats(0, 90),
    ),
)


@given(
    st.lists(st.lists(OUTCOMES, max_size=6), min_size=1, max_size=3),
    st.integers(1, 4),
    st.integers(1, 8),
)
def test_sync_and_async_fallbacks_make_the_same_calls_and_pauses(
    scripts: list[list[Any]], tries: int, calls: int
) -> None:
    """They also give the same answer, and never make more calls than stated."""
    seen = []
    for name in ("sync", "async"):
        time, models = Time(), [ScriptedModel(script) for script in scripts]
        fallback = Fallback(*models, tries=tries, max_calls=calls, seed=1, clock=time.clock)
        answer = Mode(name).run(fallback)
        asked = [len(model.asked) for model in models]
        assert answer is None or answer.calls <= calls
        seen.append((answer, asked, time.slept))
    assert seen[0] == seen[1]
