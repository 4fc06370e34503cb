"""Counting from a reported usage, and when it is stale."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold import Budget, View
from refold.compactor.calibration import (
    Anchor,
    Ratios,
    Scale,
    choose_calibration,
    is_current,
    make_report,
)
from refold.core.profile import Profile
from refold.edits import Edit
from refold.messages import Message, Text, user
from refold.tokens.usage import Usage

WORDS = "some words that make a message long enough to matter "
TURNS = [
    user(WORDS * 40) if at % 2 == 0 else Message("assistant", (Text(WORDS * 60),))
    for at in range(12)
]


def test_an_anchor_estimates_only_the_difference():
    at = Anchor(reported=12_000, estimated=10_000, ratio=1.2)
    assert at(10_000) == 12_000
    assert at(11_000) == 13_200
    assert at(9_000) == 10_800
    assert at(0) == 0


def test_appended_messages_keep_a_usage_report_current():
    view = View.of(TURNS[:6])
    last = make_report(view, Usage(2_000))
    grown = view.extend(TURNS[6:])
    assert is_current(view, last)
    assert is_current(grown, last)
    assert choose_calibration(grown, last) == Anchor(2_000, view.estimate)


def test_a_view_counts_from_its_anchor():
    view = View.of(TURNS[:6])
    at = choose_calibration(view, make_report(view, Usage(2_000)), ratio=1.5)
    calibrated = View.of(TURNS, profile=Profile(calibrate=at))
    assert calibrated.tokens == round(2_000 + 1.5 * (calibrated.estimate - view.estimate))


def test_conformance_48_stale_usage_is_ignored_after_an_edit():
    view = View.of(TURNS)
    last = make_report(view, Usage(view.estimate * 2))
    edited = view.apply(view.fold(0, 6, user("What was said before.")))
    assert not is_current(edited, last)
    assert choose_calibration(edited, last, ratio=1.25) == Scale(1.25)
    assert is_current(edited.revert(), last)
    assert not is_current(view, make_report(edited, Usage(900)))


def test_an_amended_summary_makes_usage_stale():
    view = View.of(TURNS)
    first = view.fold(0, 6, user("Short."), by="me")
    amended = Edit(first.start, first.stop, (user("Much longer " * 100),), first.tip, first.by)
    assert first.id == amended.id
    assert not is_current(view.apply(amended), make_report(view.apply(first), Usage(900)))


def test_an_edit_after_the_reported_messages_keeps_a_report_current():
    view = View.of(TURNS[:6])
    last = make_report(view, Usage(2_000))
    grown = view.extend(TURNS[6:])
    assert is_current(grown.apply(grown.fold(6, 8, user("Later."))), last)
    assert not is_current(grown.apply(grown.fold(4, 8, user("Across."))), last)


def test_a_rewind_or_a_fork_makes_usage_stale():
    last = make_report(View.of(TURNS), Usage(9_000))
    assert not is_current(View.of(TURNS[:8]), last)
    assert not is_current(View.of([user("another beginning"), *TURNS[1:]]), last)


@pytest.mark.parametrize("usage", [Usage(60_000), Usage(0), Usage(1_000, calls=0)])
def test_conformance_45_implausible_or_summed_usage_is_not_used_as_an_anchor(usage):
    view = View.of(TURNS)
    assert choose_calibration(view, make_report(view, usage)) == Scale(1.0)
    assert choose_calibration(view, None) == Scale(1.0)


def test_conformance_44_exactly_at_the_threshold_fires():
    view = View.of(TURNS)
    at = choose_calibration(view, make_report(view, Usage(3_000)))
    calibrated = View.of(TURNS, profile=Profile(calibrate=at))
    assert calibrated.tokens == 3_000
    assert Budget(trigger=3_000, target=0).check(calibrated) == "hard"
    assert Budget(trigger=3_001, target=0).check(calibrated) == "none"


def test_conformance_46_the_reserve_is_subtracted_from_the_window():
    view = View.of(TURNS)
    at = choose_calibration(view, make_report(view, Usage(8_000)), window=10_000)
    calibrated = View.of(TURNS, profile=Profile(calibrate=at))
    assert Budget.of_window(10_000, reserve=2_000).check(calibrated) == "hard"
    assert Budget.of_window(10_000, reserve=1_999).check(calibrated) == "none"


def test_a_scale_multiplies():
    assert Scale(1.3)(1_000) == 1_300
    assert Scale()(17) == 17


def test_ratios_are_learned_for_each_model_without_changing_the_old_object():
    none = Ratios()
    learned = none.learn("claude", 10_000, 13_000)
    assert none.of("claude") == 1.0
    assert learned.of("claude") == pytest.approx(1.3)
    assert learned.of("gpt") == 1.0
    assert learned.learn("claude", 10_000, 11_000).of("claude") == pytest.approx(1.2)


@pytest.mark.parametrize(
    ("estimated", "reported"), [(0, 100), (10_000, 90_000), (10_000, 100), (10_000, 0)]
)
def test_implausible_token_counts_do_not_change_the_ratio(estimated, reported):
    learned = Ratios().learn("m", 1_000, 1_200)
    assert learned.learn("m", estimated, reported) == learned


def test_a_short_request_changes_the_ratio_only_a_little():
    learned = Ratios().learn("m", 100_000, 120_000).learn("m", 100, 290)
    assert learned.of("m") == pytest.approx(1.2, abs=0.01)


@given(st.lists(st.tuples(st.integers(0, 500_000), st.integers(0, 2_000_000)), max_size=20))
def test_a_ratio_stays_within_bounds(pairs):
    ratios = Ratios()
    for estimated, reported in pairs:
        ratios = ratios.learn("m", estimated, reported)
    assert 0.5 <= ratios.of("m") <= 3.0


def test_the_ratio_adapts_to_a_changed_tokenizer():
    ratios = Ratios()
    for reported in [100_000] * 20 + [140_000] * 20:
        ratios = ratios.learn("m", 100_000, reported)
    assert ratios.of("m") == pytest.approx(1.4, abs=0.01)
