"""When a compaction pays off: laws of the planner, and simulated sessions."""

from collections.abc import Sequence
from dataclasses import replace
from math import inf

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from refold.budget.planner import (
    DEFAULT_GOAL,
    LATER_RISK,
    PRIOR,
    RISK,
    CallCounts,
    Figures,
    estimate_remaining_calls,
    find_goal,
    find_plan,
    is_hour_cheaper,
)
from refold.tokens.model_table import EngineProfile, Rates

TWENTIETH = Rates(1.0, 5.0, 0.05, 1.25)
RATES = st.builds(
    Rates, st.just(1.0), st.floats(1, 10), st.floats(0.02, 0.6), st.floats(1.0, 2.0), st.just(300.0)
)


@st.composite
def figures(draw: st.DrawFn) -> Figures:
    fixed = draw(st.integers(0, 60_000))
    tokens = fixed + draw(st.integers(0, 600_000))
    return Figures(
        tokens=tokens,
        unedited=tokens + draw(st.integers(0, 500_000)),
        fixed=fixed,
        past=draw(st.integers(0, 400)),
        floor=draw(st.integers(0, tokens)),
        refetched=draw(st.integers(0, 30_000)),
        is_cold=draw(st.booleans()),
        is_turn_start=draw(st.booleans()),
    )


@given(figures(), RATES)
def test_a_plan_makes_a_request_smaller_and_breaks_even_early(request: Figures, rates: Rates):
    plan = find_plan(request, rates)
    if plan is not None:
        assert request.past > 0 and request.fixed + DEFAULT_GOAL <= plan.goal < request.tokens
        assert plan.worth.pays and plan.worth.tokens_saved > 0
        assert plan.worth.after <= max(RISK, LATER_RISK) * plan.worth.expected


@settings(suppress_health_check=[HealthCheck.filter_too_much])
@given(figures(), RATES)
def test_a_plan_is_also_due_with_an_expired_cache_or_at_the_start_of_a_turn(
    request: Figures, rates: Rates
):
    assume(find_plan(request, rates) is not None)
    assert find_plan(replace(request, is_cold=True), rates) is not None
    assert find_plan(replace(request, is_turn_start=True), rates) is not None


@given(figures(), RATES, st.integers(1, 100_000))
def test_refetched_tokens_raise_the_goal_and_never_make_a_plan_due(
    request: Figures, rates: Rates, refetched: int
):
    """Refetched tokens never make it compact earlier, and make it compact less."""
    braked = replace(request, refetched=request.refetched + refetched)
    assert find_goal(braked) == find_goal(request) + refetched
    if find_plan(request, rates) is None:
        assert find_plan(braked, rates) is None


@given(figures(), RATES, st.integers(1, 1_024))
def test_goal_removed_and_rewritten_tokens_are_multiples_of_the_block_size(
    request: Figures, rates: Rates, block: int
):
    plan, whole = find_plan(request, rates), find_plan(request, replace(rates, block_tokens=block))
    if whole is not None:
        assert whole.goal % block == 0 <= whole.goal - find_goal(request) < block
        assert whole.offer.removed % block == whole.offer.rewritten % block == 0
    if plan is not None and whole is not None:
        assert abs(whole.offer.removed - plan.offer.removed) < 2 * block
        assert 0 <= whole.offer.rewritten - plan.offer.rewritten < 2 * block


@given(st.floats(100, 1e6), st.integers(1, 10**6), st.integers(1, 1_024), st.floats(0, 600))
def test_engine_rates_are_the_seconds_of_prefill_and_of_held_cache_blocks(
    rate: float, blocks: int, block: int, seconds: float
):
    profile = EngineProfile(
        prefill_rate=rate, cache_blocks=blocks, block_tokens=block, call_seconds=seconds
    )
    rates, cache = profile.rates, blocks * block
    assert rates.input * cache / 1e6 == pytest.approx(cache / rate)  # to fill the cache
    if seconds <= cache / rate:  # to hold all of it takes all of the engine
        assert rates.read * cache / 1e6 == pytest.approx(seconds)
    assert rates.r <= 1 == rates.w and rates.block_tokens == block


@given(figures(), st.integers(1_000, 10**6))
def test_a_plan_saves_at_least_as_much_with_half_of_the_engine_cache(request: Figures, blocks: int):
    def count_saved(blocks: int) -> float:
        rates = EngineProfile(prefill_rate=9_000, cache_blocks=blocks).rates
        plan = find_plan(replace(request, is_cold=True, is_turn_start=True), rates)
        return plan.worth.tokens_saved if plan else 0.0

    assert count_saved(blocks) >= count_saved(2 * blocks)


def test_a_compaction_within_a_tool_loop_is_due_at_a_larger_size():
    def due_at(**fields: bool) -> int:
        sizes = range(20_000, 400_000, 500)
        return next(
            size
            for size in sizes
            if find_plan(
                Figures(tokens=size, unedited=size + 200_000, fixed=0, past=200, **fields),
                TWENTIETH,
            )
        )

    assert due_at(is_turn_start=True) < due_at()


def test_a_longer_cache_lifetime_makes_more_sizes_due():
    """Waiting for a lapse of the cache that never comes is useless."""
    hour = replace(TWENTIETH, lifetime=3600.0)
    assert PRIOR.lapse_share(3600) < PRIOR.lapse_share(300) < PRIOR.lapse_share(10) == 1.0
    at = Figures(tokens=60_000, unedited=200_000, fixed=10_000, past=100)
    plans = [find_plan(replace(at, tokens=size), hour) for size in range(25_000, 90_000, 1_000)]
    later = [
        find_plan(replace(at, tokens=size), TWENTIETH) for size in range(25_000, 90_000, 1_000)
    ]
    assert sum(map(bool, plans)) > sum(map(bool, later)) > 0


def test_sessions_that_end_soon_are_left_alone():
    """Learned from a store in which no session had more than twenty calls."""
    ends_at_twenty = CallCounts(dict.fromkeys(range(20), 40))
    at = Figures(tokens=150_000, unedited=150_000, fixed=10_000, past=18)
    assert find_plan(at, TWENTIETH) is not None
    assert find_plan(at, TWENTIETH, ends_at_twenty) is None


def test_the_prior_is_dated_and_expects_less_of_large_requests():
    assert PRIOR.date >= "2026-07-12" and "Apache-2.0" in PRIOR.source
    assert PRIOR.remaining[-1][0] == inf
    calls = [estimate_remaining_calls(10, None, size) for size in (20_000, 120_000, 300_000)]
    assert calls == sorted(calls, reverse=True) and 20 < calls[-1] < calls[0] < 100
    assert estimate_remaining_calls(500) == estimate_remaining_calls(5)  # whatever its age


def bill(calls: Sequence[int], rates: Rates, *, plans: bool, fixed: int = 15_000) -> list[float]:
    """Return the total cost of a session after each call, each of which adds some tokens."""
    shown = unedited = fixed
    floor, total, totals = 0, 0.0, list[float]()
    for past, new in enumerate(calls):
        same, shown, unedited = shown if past else 0, shown + new, unedited + new
        at = Figures(tokens=shown, unedited=unedited, fixed=fixed, past=past, floor=floor)
        if plans and (plan := find_plan(at, rates)):
            same, shown = fixed, plan.goal
            floor = shown
        total += rates.r * same + rates.w * (shown - same) + 300 * rates.o
        totals.append(total)
    return totals


@pytest.mark.parametrize("read", [0.025, 0.05, 0.1])
@pytest.mark.parametrize("growth", [400, 1_000, 1_832, 4_000])
def test_f32_a_long_session_costs_less_and_no_session_costs_much_more(read: float, growth: int):
    """Version 0.1 lost up to 12.7 % if a session ended soon after a compaction."""
    rates = replace(TWENTIETH, read=read)
    calls = [growth] * 400
    ratios = [
        a / b
        for a, b in zip(
            bill(calls, rates, plans=True), bill(calls, rates, plans=False), strict=True
        )
    ]
    assert max(ratios) < 1.03
    assert sum(ratio > 1.01 for ratio in ratios) <= 4  # of 400 calls at which the session may end
    assert ratios[-1] < 0.8


def test_with_free_cache_reads_only_an_expired_cache_makes_a_plan_due():
    free = replace(TWENTIETH, read=0.0)
    at = Figures(tokens=400_000, unedited=400_000, fixed=0, past=300)
    assert find_plan(at, free) is None
    assert find_plan(replace(at, is_cold=True), free) is not None


# --- the cache's lifetime -------------------------------------------------------------------------

TWO_PRICES = replace(TWENTIETH, hour=2.0)


def bill_of_pauses(pauses: Sequence[float], tokens: int, rates: Rates) -> float:
    """Return the cost of calls of equal size after these pauses. The first finds nothing cached."""
    total = rates.w * tokens
    for pause in pauses:
        total += rates.w * tokens if pause > rates.lifetime else rates.r * tokens
    return total


@given(
    tokens=st.integers(30_000, 400_000),
    share=st.sampled_from([0.0, 0.3, 0.6]),
    read=st.sampled_from([0.025, 0.05, 0.1]),
)
def test_law_the_cheaper_cache_lifetime_is_chosen_for_known_pauses(tokens, share, read):
    """For sessions with no pauses or many pauses between five minutes and an hour."""
    rates = replace(TWO_PRICES, read=read)
    pauses = [900.0 if n % 10 < 10 * share else 20.0 for n in range(200)]
    short, hour = (bill_of_pauses(pauses, tokens, r) for r in (rates, rates.for_an_hour()))
    assert is_hour_cheaper(tokens, pauses, rates, len(pauses)) == (hour < short)


def test_without_known_pauses_the_request_size_decides_the_cache_lifetime():
    """5 % of recorded pauses are over five minutes. Their cost grows with the request."""
    chosen = [
        is_hour_cheaper(tokens, (), TWO_PRICES, 70) for tokens in range(5_000, 300_000, 5_000)
    ]
    assert not chosen[0] and chosen[-1]
    assert chosen == sorted(chosen)


def test_the_hour_lifetime_is_not_chosen_without_a_price_for_it():
    assert not is_hour_cheaper(300_000, [900.0] * 50, TWENTIETH, 70)
