"""The trigger algebra, the table of windows, and checks before sending."""

import asyncio
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import refold
from refold.budget.budget import Check
from refold.budget.triggers import (
    All,
    Any,
    Elapsed,
    EveryN,
    Fraction,
    LastAttempt,
    Messages,
    Moment,
    Never,
    Predicate,
    Reserve,
    Tokens,
    Turns,
)
from refold.core.view import View
from refold.messages import user
from refold.strategies import ClearToolResults, Summarize
from refold.tokens.model_table import PRICES, Window, find_window, lookup_window, table_date
from tests.support.compaction import conversation

EMPTY = View.of(())


def moment(tokens=0, window=None, view=EMPTY, **fields):
    context = find_window("", window)
    return Moment(view, tokens, context.window, context.reason, **fields)


def talk(turns: int) -> list[dict]:
    return [
        m
        for n in range(turns)
        for m in ({"role": "user", "content": f"q{n}"}, {"role": "assistant", "content": f"a{n}"})
    ]


@pytest.mark.parametrize(
    ("trigger", "window", "at"),
    [
        (Tokens(1_400), None, 1_400),
        (Fraction(0.7), 2_000, 1_400),
        (Fraction(0.55), 100, 55),
        (Fraction(0.7), 1_001, 701),
        (Fraction(1), 2_000, 2_000),
        (Reserve(32_000), 128_000, 96_000),
        (Reserve(), 200_000, 180_000),
    ],
)
def test_a_trigger_fires_exactly_at_its_threshold(trigger, window, at):
    """S0-03 S0-12 S0-17 S0-19 S1-19 S4-14: fires at the threshold, not one token below it
    (C0-4)."""
    assert [trigger(moment(n, window)).is_reached for n in (at - 1, at, at + 1)] == [
        False,
        True,
        True,
    ]
    assert trigger(moment(at, window)).threshold == at
    strict = Tokens(at + 1)  # `tokens > at` in a seed
    assert [strict(moment(n)).is_reached for n in (at, at + 1)] == [False, True]


def test_a_fraction_trigger_compacts_only_from_its_share_of_the_window():
    """S0-19: 1,399 tokens stay as they are, 1,400 are compacted."""
    history = conversation(12)
    tokens = refold.Compactor([], refold.Budget(10**9, 0))(history).tokens
    for window, runs in ((round(tokens / 0.7) - 10, True), (round(tokens / 0.7) + 10, False)):
        budget = refold.Budget(Fraction(0.7), Fraction(0.3), window=window)
        assert bool(refold.Compactor([Summarize(keep=4)], budget)(history).attempts) is runs


@pytest.mark.parametrize(
    ("window", "says"), [(None, "names no model"), (0, "switched off"), (16_000, "nothing is left")]
)
def test_reserve_never_fires_without_a_usable_window_and_says_why(window, says):
    """S1-39, conformance 44: an unknown or disabled window is not a number."""
    reading = Reserve(16_000)(moment(10**9, window))
    assert not reading.is_reached
    assert reading.threshold is None
    assert "never fires" in reading.reason
    assert says in reading.reason


def test_a_model_without_a_known_window_is_named_in_the_reason():
    budget = refold.Budget(Fraction(0.7), Fraction(0.3))
    compact = refold.Compactor([Summarize(keep=2)], budget)
    check = compact.check({"model": "house-model-1", "messages": conversation(50)})
    assert (check.level, check.threshold) == ("none", None)
    assert "no window is known for the model 'house-model-1'" in check.reason
    assert table_date() in check.reason
    short = compact.check({"model": "claude-haiku-4-5-20251001", "messages": conversation(2)})
    assert short.threshold == 140_000


def test_messages_and_turns_are_counted_in_the_edited_view():
    view = View.of(user(str(n)) for n in range(10))
    assert [Messages(n)(moment(view=view)).is_reached for n in (10, 11)] == [True, False]
    assert [Turns(n)(moment(view=view)).is_reached for n in (10, 11)] == [True, False]
    short = view.apply(view.fold(0, 8, user("summary")))
    assert [Messages(n)(moment(view=short)).is_reached for n in (3, 4)] == [True, False]
    assert [Turns(n)(moment(view=short)).is_reached for n in (3, 4)] == [True, False]


def test_every_n_steps_counts_from_the_last_compaction():
    """S0-49: a snapshot at intervals, however small the conversation is."""
    compact = refold.Compactor([Summarize(keep=2)], refold.Budget(EveryN(10), 0))
    history = conversation(45, size=300)
    ends = [stop for stop in range(1, len(history) + 1) if compact(history[:stop]).attempts]
    ran = [sum(m["role"] == "assistant" for m in history[:stop]) for stop in ends]
    assert ran == [10, 20, 30, 40]


def test_consecutive_assistant_messages_are_one_step():
    view = View.of(
        [user("a"), *(refold.Message("assistant", (refold.Text(str(n)),)) for n in range(3))]
    )
    assert EveryN(1)(moment(view=view)).is_reached
    assert not EveryN(2)(moment(view=view)).is_reached
    assert not EveryN(1)(moment(view=view, last=LastAttempt(length=2))).is_reached


def test_elapsed_counts_from_the_last_compaction_or_the_first_call():
    now = [1_000.0]
    compact = refold.Compactor(
        [Summarize(keep=2)], refold.Budget(Elapsed(60), 0), clock=lambda: now[0]
    )
    history = conversation(20)
    assert compact(history).attempts == ()
    now[0] += 59
    assert compact(history).attempts == ()
    now[0] += 1
    assert compact(history).attempts
    now[0] += 59
    assert compact(history).attempts == ()


def test_a_predicate_gets_the_view_and_is_named_in_the_reason():
    trigger = Predicate(lambda view: len(view.transcript) > 3, "more than three")
    assert trigger(moment()).reason == "more than three says no"
    assert trigger(moment(view=View.of(map(user, "abcd")))).is_reached


@given(st.lists(st.booleans(), min_size=1, max_size=5))
def test_any_is_logical_or_and_all_is_logical_and(values):
    """X-1: triggers of different units are combined."""
    terms = [Predicate(lambda _, v=v: v) for v in values]
    assert Any(*terms)(moment()).is_reached is any(values)
    assert All(*terms)(moment()).is_reached is all(values)
    assert (terms[0] | terms[-1])(moment()).is_reached is (values[0] or values[-1])
    assert (terms[0] & terms[-1])(moment()).is_reached is (values[0] and values[-1])


def test_a_combined_trigger_reports_the_threshold_and_reason_of_its_terms():
    trigger = Tokens(500) | Messages(3) | Fraction(0.5)
    assert trigger == Any(Tokens(500), Messages(3), Fraction(0.5))
    nothing = trigger(moment(100, 1_000))
    assert (nothing.is_reached, nothing.threshold) == (False, 500)
    hit = trigger(moment(600, 1_000))
    assert (hit.threshold, hit.reason) == (500, "600 of 500 tokens; 600 of 500 tokens")
    both = (Tokens(500) & Messages(3))(moment(600))
    assert (both.is_reached, both.reason) == (False, "0 of 3 messages")


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Tokens(-1), lambda: Fraction(0), lambda: Fraction(1.1), lambda: Reserve(-1), lambda: Messages(0), Any, All,
        lambda: Turns(0), lambda: EveryN(0), lambda: Elapsed(0), lambda: Window(0), lambda: Window(10, 11), lambda: Window(10, 0),
        lambda: refold.Budget(5, Messages(3)), lambda: refold.Budget(Fraction(0.5), Fraction(0.6), window=100),
        lambda: refold.Budget(100, 10, Reserve(10), window=200), lambda: refold.Budget(5, 1, progress=1),
        lambda: Tokens(True), lambda: Tokens(1.5), lambda: Reserve(True), lambda: Messages(True), lambda: Window(True),
        lambda: Window(10.5), lambda: Window(10, output=0), lambda: find_window("m", True), lambda: find_window("m", -1), lambda: find_window("m", lambda _: True),
        lambda: refold.Budget(True, 0), lambda: refold.Budget(5, True), lambda: refold.Budget(5, 1, True), lambda: refold.Budget(5, 1, window=True),
        lambda: refold.Budget(5, 1, hysteresis=-0.1), lambda: Fraction(0.8) | 100_000, lambda: Any(Messages(3), None),
    ],
)  # fmt: skip
def test_invalid_triggers_windows_and_budgets_are_refused(wrong):
    with pytest.raises(ValueError, match=r"."):
        wrong()


def test_soft_and_hard_levels_have_separate_triggers():
    """S2-03 S2-04 S2-11 S2-12 S2-13 S2-14: soft suggests, hard forces; the figure is the one
    crossed (C2-8, X-1)."""
    compact = refold.Compactor(
        [Summarize(keep=2)], refold.Budget(Tokens(10**6), 100, soft=Messages(5) | Tokens(400))
    )
    none, soft = compact.check(talk(1)), compact.check(talk(3))
    assert (none.level, none.is_due, none.threshold) == ("none", False, 400)
    assert (soft.level, soft.is_due, soft.reason) == ("soft", True, "6 of 5 messages")
    assert compact(talk(3)).attempts == ()
    compact = refold.Compactor([Summarize(keep=2)], refold.Budget(Tokens(soft.tokens), 10, soft=1))
    hard = compact.check(talk(3))
    assert (hard.level, hard.threshold, hard.tokens) == ("hard", soft.tokens, soft.tokens)
    assert compact(talk(3)).attempts


def test_never_allows_only_manual_compaction():
    """S2-39: with the automatic trigger switched off, a user can still request a compaction."""
    compact = refold.Compactor([Summarize(keep=2, max_tokens=300)], refold.Budget(Never(), 200))
    history = conversation(40)
    assert compact(history).attempts == ()
    assert "switched off" in compact.check(history).reason
    assert compact.compact_now(history).edits


def test_a_messages_trigger_reduces_the_number_of_messages():
    """S3: a condition such as `messages > 100`, even if the tokens are few."""
    compact = refold.Compactor(
        [ClearToolResults(keep=1), Summarize(keep=4)], refold.Budget(Messages(40), 10**6)
    )
    view = compact(conversation(30))
    assert len(view.messages) < 40
    assert compact(conversation(12)).attempts == ()


def test_a_fraction_of_an_unknown_window_as_target_halves_the_request():
    compact = refold.Compactor(
        [Summarize(keep=0.3, max_tokens=200)], refold.Budget(Messages(20), Fraction(0.3))
    )
    before, view = compact.check(conversation(40)).tokens, compact(conversation(40))
    assert view.edits
    assert view.tokens <= before // 2


def test_pending_may_be_tokens_a_text_a_message_or_a_list():
    compact = refold.Compactor([], refold.Budget(10**6, 10))
    history = talk(3)
    tokens = compact.check(history).tokens
    message = {"role": "user", "content": "word " * 300}
    whole = compact.check([*history, message]).tokens
    assert compact.check(history, pending=500).tokens == tokens + 500
    assert compact.check(history, pending=message).tokens == whole
    assert compact.check(history, pending=[message]).tokens == whole
    assert compact.check(history, pending=message["content"]).tokens == whole
    with pytest.raises(refold.FormatError):
        compact.check(history, pending=[3])


def test_acompact_counts_pending_tokens_too():
    compact = refold.Compactor([Summarize(keep=2)], refold.Budget(5_000, 500))
    history = conversation(10)
    assert asyncio.run(compact.acompact(history)).attempts == ()
    assert asyncio.run(compact.acompact(history, pending=5_000)).attempts


@pytest.mark.parametrize(
    ("model", "window"),
    [
        ("claude-opus-5-5", Window(1_000_000, None, 128_000)),
        ("anthropic/claude-sonnet-4-5-20250929", Window(200_000, None, 64_000)),
        ("us.anthropic.claude-haiku-4-5-20251001-v1:0", Window(200_000, None, 64_000)),
        ("gpt-5", Window(400_000, 272_000, 128_000)),
        ("openai/gpt-5-mini-2025-08-07", Window(400_000, 272_000, 128_000)),
        ("gpt-5-chat-latest", Window(128_000, None, 16_384)),
        ("gpt-5.5-2026-04-23", Window(1_050_000, 922_000, 128_000)),
        ("models/gemini-2.5-pro", Window(1_048_576, None, 65_536)),
        ("gpt-99", None),
        ("", None),
    ],
)
def test_windows_are_looked_up_by_model_name(model, window):
    """S1-39: the most specific pattern wins; a name without a row is unknown."""
    assert lookup_window(model) == window


ARN = "arn:aws:bedrock:eu-west-1:123456789012"


@pytest.mark.parametrize(
    ("name", "other"),
    [
        (f"{ARN}:inference-profile/eu.anthropic.claude-sonnet-5-5", "claude-sonnet-5-5"),
        ("anthropic.claude-sonnet-4-20250514-v1:0", "claude-sonnet-4"),
        ("claude-opus-4-1@20250805", "claude-opus-4-1"),
        ("publishers/google/models/gemini-2.5-pro", "gemini-2.5-pro"),
        ("global.openai.gpt-6.1-sol", "gpt-6.1-sol"),
        ("us.amazon.nova-pro-v1:0", "amazon/nova-pro-v1"),
        ("x-ai/grok-4.7", "grok-4.7"),
        ("moonshot/kimi-k3.1-pro", "kimi-k3.1-pro"),
        ("dashscope/qwen3-max", "qwen3-max"),
        ("claude-fable-5-20260701", "claude-fable-5"),
    ],
)
def test_every_spelling_of_a_model_has_the_same_window_and_price(name, other):
    assert lookup_window(name) == lookup_window(other) is not None
    assert PRICES.lookup(name) == PRICES.lookup(other) is not None


@pytest.mark.parametrize(
    "name",
    [
        f"{ARN}:application-inference-profile/abcdef123456",
        "my-azure-deployment",
        "gpt-4o-realtime-preview",
        "gpt-4o-mini-transcribe",
        "gemini-2.5-flash-preview-tts",
        "google/gemini-3-pro-image-preview",
        "qwen/qwen3.8-27b",
        "Qwen/Qwen3.8-Max",
        "@cf/zai-org/glm-5.2",
        "deepseek-ai/DeepSeek-V4-Flash",
        "mistralai/mistral-medium-3",
        "deepseek-v4-flash:4b",
    ],
)
def test_a_name_that_only_resembles_a_known_model_is_unknown(name):
    """Other kinds of models, and models whose window depends on the host."""
    assert lookup_window(name) is None
    assert PRICES.lookup(name) is None


def test_a_host_has_its_own_window_and_price():
    maker, host = "minimax-m3", "accounts/fireworks/models/minimax-m3"
    assert (lookup_window(maker).room, lookup_window(host).room) == (1_000_000, 512_000)
    assert PRICES.lookup("kimi-k3") and not PRICES.lookup("moonshotai/kimi-k3")


@pytest.mark.parametrize(
    "name", ["claude-opus-5-4", "claude-opus-4.8-fast", "openai/gpt-6-sol:batch"]
)
def test_a_variant_of_a_model_has_its_window_but_not_its_price(name):
    assert lookup_window(name)
    assert PRICES.lookup(name) is None


@pytest.mark.parametrize("part", ["a/", "a.", "a", ".", "/", "[", "*", "claude-"])
def test_a_name_of_100_000_characters_is_unknown(part):
    assert lookup_window(part * (100_000 // len(part))) is None


@pytest.mark.parametrize("row", [row for row, _ in PRICES._rows])
def test_a_model_with_a_price_has_a_window(row):
    """A budget needs both: without a window the hard level is unknown."""
    name = re.sub(r"\[-?(.).*?\]", r"\1", row).replace("*", "")
    assert PRICES.lookup(name), name
    assert lookup_window(name), name


@pytest.mark.parametrize(
    ("model", "figures"),
    [
        ("gpt-5.2", (1.75, 14, 0.175)),
        ("openai/gpt-5.2-codex", (1.75, 14, 0.175)),
        ("gpt-5-2025-08-07", (1.25, 10, 0.125)),
        ("anthropic/claude-opus-4.1", (15, 75, 1.5)),
        ("anthropic/claude-opus-4.7", (5, 25, 0.5)),
        ("claude-opus-4@20250514", (15, 75, 1.5)),
        ("github_copilot/claude-sonnet-5.5", (2, 10, 0.1)),
        ("moonshot/kimi-k2.7-code", (0.95, 4, 0.19)),
        ("gpt-5.2-pro", (21, 168, 21)),
        ("claude-fable-5-2", (8, 40, 0.2)),
        ("gpt-5.6-sol", (4, 20, 0.4)),
        ("kimi-k2.7-code-highspeed", (1.9, 8, 0.38)),
        ("gpt-5.9-pro", None),
    ],
)
def test_prices_are_looked_up_by_model_name(model, figures):
    rates = PRICES.lookup(model)
    assert figures == (rates and (rates.input, rates.output, rates.read))


def test_a_configured_window_overrides_the_table():
    """S1-39."""
    assert find_window("gpt-5", 1_000).window == Window(1_000)
    assert find_window("gpt-5", Window(9, 8)).window == Window(9, 8)
    mine = {"house-model-1": Window(32_000)}
    assert find_window("house-model-1", mine.get).window == Window(32_000)
    assert find_window("gpt-5", mine.get).window == lookup_window("gpt-5")


def test_judge_returns_a_check_that_compares_by_value():
    assert refold.Budget(10, 5).judge(moment(10)) == Check("hard", 10, 10, "10 of 10 tokens")


def test_a_check_of_a_view_takes_any_trigger():
    view = View.of([user("word " * 100)])
    assert refold.Budget(Tokens(view.tokens), 5).check(view) == "hard"
    assert refold.Budget(Tokens(view.tokens + 1), 5).check(view) == "none"
    assert refold.Budget(10**6, 5, soft=Tokens(view.tokens)).check(view) == "soft"
