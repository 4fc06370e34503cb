"""When an edit pays: the formulas and their figures."""

from dataclasses import replace
from math import exp, inf, isclose

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from refold.budget.planner import (
    RISK,
    EditEffect,
    best_growth,
    break_even,
    judge_edit,
    tokens_saved,
)
from refold.tokens.model_table import PRICES, Rates, find_rates

TENTH = Rates(1.0, 5.0, 0.1, 1.25)
RATES = st.builds(
    Rates,
    st.just(1.0),
    st.floats(1, 10),
    st.floats(0.01, 0.5),
    st.floats(1.0, 2.0),
    st.floats(60, 4000),
)
OFFERS = st.builds(
    EditEffect,
    removed=st.integers(1, 200_000),
    rewritten=st.integers(0, 200_000),
    tokens=st.integers(200_000, 900_000),
    growth=st.floats(0, 5_000),
    cache_alive=st.floats(0, 1),
    refetched=st.floats(0, 0.5),
)


def offer(removed: int, rewritten: int, **fields: float) -> EditEffect:
    return replace(EditEffect(removed=removed, rewritten=rewritten, tokens=150_000), **fields)


@pytest.mark.parametrize(
    ("write", "read", "ratio"),
    [
        (1.25, 0.1, 11.5),
        (2.0, 0.1, 19),
        (1.25, 0.05, 24),
        (2.0, 0.05, 39),
        (1.25, 0.025, 49),
        (1, 0.1, 9),
        (1, 0.5, 1),
        (1, 0.02, 49),
    ],
)
def test_break_even_follows_from_the_prices_of_cache_writes_and_reads(
    write: float, read: float, ratio: float
):
    rates = Rates(1.0, 5.0, read, write)
    assert isclose(break_even(offer(1_000, 1_000), rates), ratio)


def test_the_published_break_even_figures_are_reproduced():
    """Clearing one result a call needs 144 more calls; in a batch of thirty, 1.4; growth of 49,000 tokens is best."""
    assert isclose(break_even(offer(2_000, 25_000), TENTH), 143.75)
    assert isclose(break_even(offer(60_000, 7_500), TENTH), 1.4375)
    cycle = offer(60_000, 0, growth=2_500, refetched=49 / 75)  # 49,000 tokens of cost
    assert 49_000 < best_growth(cycle, TENTH) < 50_000


@given(OFFERS, RATES)
def test_the_saving_is_zero_at_the_break_even_and_positive_after_it(
    bargain: EditEffect, rates: Rates
):
    after = break_even(bargain, rates)
    assert tokens_saved(bargain, rates, after + 1) > 0
    if after > 0:
        assert isclose(tokens_saved(bargain, rates, after), 0, abs_tol=1e-3)


@given(OFFERS, RATES, st.floats(1, 200))
def test_an_offer_that_pays_saves_tokens_and_breaks_even_early(
    bargain: EditEffect, rates: Rates, calls: float
):
    worth = judge_edit(bargain, rates, calls)
    if worth.pays:
        assert worth.tokens_saved > 0 and worth.after <= RISK * calls
    assert worth.expected == calls
    assert "pays after" in worth.reason and "expected" in worth.reason


CYCLES = st.tuples(
    st.floats(100, 5_000),  # growth a call
    st.floats(1_000, 200_000),  # tokens that are left
    st.floats(0.001, 0.3),  # the chance that it ends
    st.floats(0.02, 0.5),  # what reading costs
)


@given(CYCLES, st.floats(0.5, 2.0))
def test_no_distance_between_compactions_is_cheaper_than_best_growth(
    cycle: tuple[float, float, float, float], off: float
):
    """By the sum of a renewal: what cycles of a length cost, each begun unless it has ended."""
    growth, rewritten, chance, read = cycle
    rates = Rates(1.0, 5.0, read, 1.25)
    each = offer(1, int(rewritten), growth=growth, ends=chance)

    def cost(distance: float) -> float:
        calls = distance / growth
        alive = exp(-chance * calls)
        reads = read * growth * ((1 - alive) / chance - calls * alive) / chance
        return (reads + alive * (1.25 - read) * int(rewritten)) / (1 - alive)

    best = best_growth(each, rates)
    assert cost(best) <= cost(off * best) * (1 + 1e-6)


@given(OFFERS, RATES)
@example(
    EditEffect(removed=1, rewritten=0, tokens=200_000, growth=10.0, cache_alive=0.0),
    Rates(1.0, 1.0, 0.5, 1.0, 60.0),
)
def test_best_growth_without_an_end_is_close_to_that_with_a_very_rare_end(
    bargain: EditEffect, rates: Rates
):
    endless, nearly = best_growth(bargain, rates), best_growth(replace(bargain, ends=1e-7), rates)
    part_of_a_call = max(1.0, 0.2 * bargain.growth)  # where no cut is possible
    assert isclose(endless, nearly, rel_tol=0.02, abs_tol=part_of_a_call)
    assert best_growth(replace(bargain, ends=0.1), rates) >= 0.999 * endless


def test_best_growth_without_an_end_rises_with_the_square_root_of_growth():
    endless = offer(20_000, 40_000, growth=400.0, ends=0.0)
    slow, fast = best_growth(endless, TENTH), best_growth(replace(endless, growth=1_600.0), TENTH)
    assert slow > 0 and fast == pytest.approx(2 * slow)


@given(OFFERS, RATES)
def test_an_expired_cache_never_raises_the_break_even(bargain: EditEffect, rates: Rates):
    assert break_even(replace(bargain, cache_alive=0.0), rates) <= break_even(
        replace(bargain, cache_alive=1.0), rates
    )


def test_an_offer_that_removes_nothing_never_pays():
    worth = judge_edit(offer(0, 0), TENTH, 100.0)
    assert (worth.pays, worth.after) == (False, inf)
    assert "never pays" in worth.reason


def test_an_edit_that_gets_below_a_price_cliff_pays_at_once():
    steep = replace(TENTH, cliffs=((100_000, 5.0),))
    worth = judge_edit(offer(60_000, 90_000), steep, 5)
    assert worth.pays and "cliff" in worth.reason
    assert not judge_edit(offer(60_000, 90_000), TENTH, 5).pays
    assert not judge_edit(offer(10_000, 90_000), steep, 5).pays  # still above it
    dear = replace(TENTH, cliffs=((100_000, 5.0, 2.0),))  # output, too
    assert judge_edit(offer(60_000, 90_000), dear, 5).tokens_saved > worth.tokens_saved


@pytest.mark.parametrize(
    ("model", "tokens", "figures"),
    [
        ("gpt-5.4", 272_001, (5, 22.5, 0.5, 5)),
        ("gpt-6.2-sol", 300_000, (4, 15, 0.2, 5)),
        ("gemini-3-pro", 200_001, (4, 18, 0.4, 4)),
        ("grok-4.7", 250_000, (4, 12, 1, 4)),
        ("claude-haiku-5-5", 100_001, (0.5, 2.5, 0.05, 0.625)),
        ("qwen3-max", 33_000, (2.4, 12, 0.48, 2.4)),
        ("qwen3-max", 200_000, (3, 15, 0.6, 3)),
    ],
)
def test_all_prices_rise_above_a_cliff_as_their_provider_raises_them(model, tokens, figures):
    rates = find_rates(model)
    assert rates is not None and rates.for_request(20_000) is rates
    long = rates.for_request(tokens)
    assert (long.input, long.output, long.read, long.write) == pytest.approx(figures)
    if rates.hour is not None:
        assert long.for_an_hour().write == pytest.approx(5 * rates.hour)


def test_the_price_table_has_a_date_and_knows_several_spellings_of_a_model():
    opus = find_rates("claude-opus-5-5-20261001")
    assert opus is not None
    assert (opus.r, opus.w, opus.o) == (0.05, 1.25, 5.0)
    assert opus.for_an_hour().w == 2.0 and opus.for_an_hour().lifetime == 3600
    assert (
        find_rates("anthropic/claude-opus-5-5")
        == find_rates("us.anthropic.claude-opus-5-5-v1:0")
        == opus
    )
    assert find_rates("claude-opus-5-1") != opus
    for unknown in ("claude-opus-5-6-20270101", "us.anthropic.claude-sonnet-5-6-20270101-v1:0"):
        assert find_rates(unknown) is None  # not the prices of 5
    assert find_rates("claude-opus-5-20260801") == find_rates("claude-opus-5")
    assert find_rates("nobody-knows-it") is None
    assert find_rates("x", TENTH) is TENTH
    assert find_rates("x", lambda model: TENTH if model == "x" else None) is TENTH
    assert PRICES.date >= "2026-11-01"
    haiku = find_rates("claude-haiku-5-5")
    assert haiku is not None and [haiku.for_request(n).input for n in (100_000, 100_001)] == [
        0.1,
        0.5,
    ]


def test_impossible_prices_are_refused():
    for figures in ((0.0, 1.0, 1.0, 1.0), (1.0, 1.0, -1.0, 1.0)):
        with pytest.raises(ValueError, match="nothing"):
            Rates(*figures)
    for cliff in ((200_000.0,), (200_000.0, 2.0, 1.5, 1.0)):
        with pytest.raises(ValueError, match=r"^cliffs are \(tokens, factor"):
            Rates(1.0, 5.0, 0.1, 1.25, cliffs=(cliff,))
