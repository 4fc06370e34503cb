"""Vendor-neutral conformance cases on triggers and loops: 44 to 52; 11, 54, 55 and 57 where they concern the core."""

from itertools import pairwise

import pytest

import refold
from refold.budget.triggers import Fraction, Reserve, Tokens
from refold.core.strategy import Answer
from refold.models import Fallback
from refold.strategies import ClearToolResults, Summarize
from refold.testing import ScriptedModel
from refold.tokens.model_table import Window
from tests.support.compaction import ModelSummarizer, conversation

FAR = 10**9


def body(history, model="m", **fields):
    return {"model": model, "messages": history, **fields}


def floor(size: int) -> str:
    """A system prompt that no strategy can make smaller."""
    return "Never touch the migrations. " * size


def outcomes(view) -> list[str]:
    return [attempt.outcome for attempt in view.attempts]


@pytest.mark.parametrize(
    "make", [lambda n: n, Tokens, lambda n: Fraction(n / 10_000), lambda n: Reserve(10_000 - n)]
)
def test_conformance_44_exactly_at_the_threshold_fires_and_one_below_does_not(make) -> None:
    """S0-12 S0-17 S1-19 S2-04 S4-14"""
    history = conversation(30)
    tokens = refold.Compactor([], refold.Budget(FAR, 0))(history).tokens
    ran = {}
    for at in (tokens, tokens + 1):
        budget = refold.Budget(make(at), 0, window=10_000)
        ran[at] = bool(refold.Compactor([ClearToolResults(keep=2)], budget)(history).attempts)
    assert ran == {tokens: True, tokens + 1: False}


@pytest.mark.parametrize("window", [None, 0])
def test_conformance_44_a_disabled_or_unknown_window_never_fires(window) -> None:
    compact = refold.Compactor(
        [ClearToolResults(keep=2)], refold.Budget(Fraction(0.01) | Reserve(10), 0, window=window)
    )
    assert compact(conversation(60)).attempts == ()
    assert "never fires" in compact.check(conversation(60)).reason


def test_conformance_45_cached_tokens_count_once_and_summed_usage_is_ignored() -> None:
    """S4-14 S4-15 S4-16: the usage of one response, cache and answer included."""
    budget = refold.Budget(Reserve(32_000), 10_000, window=128_000)
    cached = {
        "input_tokens": 1_000,
        "cache_read_input_tokens": 90_000,
        "cache_creation_input_tokens": 3_000,
    }
    assert budget.check_usage({**cached, "output_tokens": 1_999}).level == "none"
    assert budget.check_usage({**cached, "output_tokens": 2_000}).level == "hard"
    assert (
        budget.check_usage({"prompt_tokens": 95_000, "completion_tokens": 1_000}).tokens == 96_000
    )
    inside = {
        "prompt_tokens": 90_000,
        "prompt_tokens_details": {"cached_tokens": 80_000},
        "completion_tokens": 10,
    }
    assert budget.check_usage(inside).tokens == 90_010
    several = {
        "input_tokens": 9,
        "output_tokens": 9,
        "cache_read_input_tokens": 900_000,
        "iterations": [{"type": "compaction"}],
    }
    assert (
        budget.check_usage(several).level,
        budget.check_usage(several).reason.partition(":")[0],
    ) == (
        "none",
        "the usage is a sum over several calls",
    )
    assert budget.check_usage({}).level == "none"


def test_conformance_46_a_separate_input_limit_still_leaves_headroom_for_the_answer() -> None:
    limited = Window(context=400_000, input=272_000, output=128_000)
    assert Reserve(20_000).tokens(limited) == 252_000
    assert Reserve(20_000).tokens(Window(200_000, 200_000, 32_000)) == 180_000
    assert Fraction(1).tokens(limited) == 272_000
    check = refold.Compactor([], refold.Budget(Reserve(20_000), 0)).check(
        body(conversation(2), "gpt-5")
    )
    assert check.threshold == 252_000


def test_conformance_47_a_large_pending_prompt_triggers_compaction_before_sending() -> None:
    compact = refold.Compactor(
        [ClearToolResults(keep=2), Summarize(keep=4)], refold.Budget(8_000, 4_000)
    )
    history, prompt = conversation(40), {"role": "user", "content": "word " * 3_000}
    assert compact.check(history).level == "none"
    check = compact.check(history, pending=prompt)
    assert (check.level, check.threshold) == ("hard", 8_000)
    view = compact(history, pending=prompt)
    assert view.edits
    assert compact.check([*history, prompt]).tokens < 8_000
    assert compact([*history, prompt]).edits == view.edits


def test_conformance_48_usage_from_before_a_compaction_is_stale() -> None:
    history = conversation(60)
    small = refold.Compactor([], refold.Budget(FAR, 0))(history).tokens
    compact = refold.Compactor([ClearToolResults(keep=2)], refold.Budget(small + 2_000, small // 2))
    compact.report(compact(history), {"input_tokens": small + 2_000, "output_tokens": 5})
    compacted = compact(history)
    assert compacted.edits
    assert compact.check(history).level == "none"
    assert compact(history).attempts == ()


def test_conformance_49_a_request_that_cannot_fit_is_not_retried_until_it_grows() -> None:
    """X-4: what does not fit is said to have no headroom."""
    compact = refold.Compactor(
        [ClearToolResults(keep=2), Summarize(keep=4)], refold.Budget(2_000, 1_000)
    )
    history, system, tried = conversation(40, size=60), floor(4_000), []
    first = compact(body(history[:31], system=system))
    assert outcomes(first)[-1] == "no_headroom"
    assert first.attempts[-1].by == "budget"
    assert "system prompt and tools take" in first.attempts[-1].reason
    held = compact.check(body(history[:31], system=system))
    assert (held.level, bool(held.hold_reason)) == ("hard", True)
    for stop in range(32, len(history) + 1):
        view = compact(body(history[:stop], system=system))
        tried += [view.tokens] if view.attempts else []
    assert tried == []
    longer = [*history, {"role": "user", "content": "word " * 2_000}]
    assert compact(body(longer, system=system)).attempts


def test_conformance_49_the_same_request_again_is_not_compacted_again() -> None:
    asked = ScriptedModel()
    compact = refold.Compactor([ClearToolResults(keep=30)], refold.Budget(1_000, 500), ask=asked)
    history = conversation(20)
    assert outcomes(compact(history)) == ["noop", "no_headroom"]
    assert [outcomes(compact(history)) for _ in range(3)] == [[], [], []]
    talk = compact.session(history)
    assert outcomes(talk.view) == ["noop", "no_headroom"]
    assert outcomes(talk.append({"role": "assistant", "content": "ok"})) == []


def test_conformance_49_a_history_that_has_grown_enough_is_tried_again() -> None:
    compact = refold.Compactor([ClearToolResults(keep=8)], refold.Budget(1_000, 500))
    history = conversation(20)
    assert outcomes(compact(history[:17])) == ["noop", "no_headroom"]
    view = compact(history)
    assert view.edits
    assert "applied" in outcomes(view)


def test_conformance_49_the_required_progress_and_growth_are_settings() -> None:
    history = conversation(20)
    lax = refold.Compactor(
        [ClearToolResults(keep=30)], refold.Budget(1_000, 500, progress=0, hysteresis=0)
    )
    assert [outcomes(lax(history)) for _ in range(2)] == [["noop"], ["noop"]]
    strict = refold.Compactor([ClearToolResults(keep=16)], refold.Budget(1_000, 500, progress=0.9))
    ended = outcomes(strict(history))
    assert (ended[0], ended[-1]) == ("applied", "no_headroom")


def test_conformance_50_a_manual_compaction_is_allowed_after_failed_attempts() -> None:
    """S2-39. The breaker for automatic runs is the model ladder's; here the trigger waits, a person need not."""
    history = conversation(40)
    compact = refold.Compactor(
        [Summarize(keep=60), ClearToolResults(keep=100)], refold.Budget(1_000, 500)
    )
    compact(history)
    assert outcomes(compact(history)) == []
    assert outcomes(compact.compact_now(history))
    assert outcomes(compact(history)) == []


def test_conformance_50_a_successful_manual_run_closes_the_circuit_breaker() -> None:
    answers = [None, None, None, Answer("A summary."), Answer("Another summary.")]
    model = ScriptedModel(
        [Answer("", "error", "no route", calls=1) if a is None else a for a in answers]
    )
    ladder = Fallback(model, tries=1)
    strategy = Summarize(keep=6, summarizer=ModelSummarizer())
    compact = refold.Compactor([strategy], refold.Budget(1_000, 500, hysteresis=0), ask=ladder)
    history = conversation(40)
    for _ in range(5):
        assert compact(history).edits == ()
    assert ladder.breaker.is_open
    assert len(model.asked) == 3
    assert compact.compact_now(history).edits
    assert not ladder.breaker.is_open
    assert len(model.asked) == 4
    assert compact([*history, *conversation(60)[1:]]).edits
    assert model.asked[4:]  # automatic runs ask again


def test_conformance_11_a_forced_compaction_of_what_fits_keeps_the_latest_exchange() -> None:
    history = conversation(8)
    compact = refold.Compactor([Summarize(keep=0.99, max_tokens=200)], refold.Budget(FAR, FAR))
    view = compact.compact_now(history)
    assert view.edits
    assert view.payload[-2:] == history[-2:]
    assert compact(history).payload == view.payload


def test_conformance_51_growth_below_the_hysteresis_does_not_trigger_a_compaction() -> None:
    """The compaction ends just below the trigger: the next one waits for 5 % of it, not for the next message."""
    history, system = conversation(60, size=200), floor(150)
    compact = refold.Compactor([ClearToolResults(keep=3, at_least=0)], refold.Budget(4_000, 3_900))
    sizes = []
    for stop in range(1, len(history) + 1):
        view = compact(body(history[:stop], system=system))
        sizes += [(view.attempts[0].tokens_before, view.tokens)] if view.attempts else []
    assert len(sizes) >= 2
    assert all(before - after >= 200 for (_, after), (before, _) in pairwise(sizes))


def test_conformance_52_a_smaller_model_compacts_before_its_first_request() -> None:
    windows = {"large": Window(100_000), "small": Window(4_000)}.get
    budget = refold.Budget(90_000, 45_000, window=windows)
    compact = refold.Compactor([ClearToolResults(keep=2), Summarize(keep=4)], budget)
    history = conversation(60)
    assert compact(body(history, "large")).attempts == ()
    check = compact.check(body(history, "small"))
    assert (check.level, check.threshold) == ("hard", 3_600)
    assert "the model is small now" in check.reason
    compact(body(history, "large"))
    view = compact(body(history, "small"))
    assert view.tokens < 3_600
    grown = [*history, *conversation(80)[1:]]
    assert all(
        compact(body(grown[:stop], "small")).tokens < 4_000
        for stop in range(len(history), len(grown), 2)
    )
    back = refold.Compactor([Summarize(keep=4)], budget)
    back(body(history, "small"))
    assert back(body(history, "large")).attempts == ()


def test_conformance_52_a_switch_to_a_model_that_fits_or_is_unknown_does_not_compact() -> None:
    windows = {"large": Window(100_000), "small": Window(50_000)}.get
    compact = refold.Compactor([Summarize(keep=4)], refold.Budget(90_000, 45_000, window=windows))
    history = conversation(30)
    for model in ("large", "small", "nobody knows", "large"):
        assert compact(body(history, model)).attempts == ()


def test_conformance_54_a_rewind_before_a_summarys_end_shows_the_original_messages() -> None:
    history = conversation(60)
    compact = refold.Compactor([Summarize(keep=6, max_tokens=300)], refold.Budget(3_000, 1_500))
    edit = compact(history).edits[-1]
    assert compact(history[: edit.stop - 1][:9]).payload == history[:9]
    inside = compact(history[: edit.stop + 1])
    assert inside.edits[-1].id == edit.id


def test_conformance_55_two_runs_give_the_same_bytes() -> None:
    history = conversation(60)
    views = [
        refold.Compactor(
            [ClearToolResults(keep=3), Summarize(keep=6)],
            refold.Budget(Fraction(0.5), 1_000, window=6_000),
        )(history)
        for _ in range(2)
    ]
    assert views[0].payload == views[1].payload
    assert views[0].edits == views[1].edits


def test_conformance_57_one_pass_breaks_the_cached_prefix_once() -> None:
    """Between compactions the bytes hold; a turn that compacts changes them at one place, once."""
    compact = refold.Compactor(
        [ClearToolResults(keep=3), Summarize(keep=6)], refold.Budget(3_000, 1_500)
    )
    history, before, breaks, ran = conversation(80), [], 0, 0
    for stop in range(1, len(history) + 1):
        view = compact(history[:stop])
        breaks += view.payload[: len(before)] != before
        ran += bool(view.attempts)
        before = view.payload
    assert 1 <= breaks <= ran
