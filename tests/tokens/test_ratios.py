"""The expected tokens of a model without a known usage report: by the prior of its family (F15)."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold import Budget, Compactor
from refold.budget.triggers import Fraction
from refold.codecs.detect import open_payload
from refold.compactor.calibration import Reports, no_prior
from refold.gateway import Outgoing
from refold.presets.measures import quarter
from refold.session_files import read
from refold.session_files.edited import open_edited
from refold.tokens.count import count_fixed, count_message, counter, estimate, is_estimator
from refold.tokens.model_table import PRIORS, Window, prior_of
from tests.support.agent_requests import chat_request, gemini_request
from tests.support.pipeline_driver import Driver, build_incoming

OLDER = "claude-sonnet-4-5-20250929"
NAMES = [
    OLDER,
    "claude-opus-5-5",
    "google/gemini-3-pro-preview",
    "gpt-5",
    "deepseek-chat",
    "my-own-model",
]
NEVER = Budget(10**9, 10**9)


def talk(turns: int) -> list[dict[str, str]]:
    return [
        {
            "role": "user" if n % 2 == 0 else "assistant",
            "content": f"{n} says " + "this and that " * 100,
        }
        for n in range(turns)
    ]


def estimate_body(body: dict[str, Any], format: str) -> int:
    """Return the estimated tokens of a request, counted from its parts."""
    envelope = open_payload(body, format)
    return count_fixed(envelope.system, envelope.tools) + sum(map(count_message, envelope.decode()))


# --- the table ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "least", "most"),
    [
        (
            (
                "claude-sonnet-4-5",
                "anthropic/claude-opus-4.6",
                "us.anthropic.claude-haiku-4-5-20251001-v1:0",
            ),
            1.2,
            1.3,
        ),
        (
            (
                "claude-opus-4-20250514",
                "claude-opus-4@20250514",
                "claude-opus-4",
                "Claude-3-5-Sonnet",
            ),
            1.2,
            1.3,
        ),
        (("claude-opus-4-7", "claude-opus-5-5", "claude-sonnet-5", "claude-fable-5"), 1.5, 1.7),
        (("google/gemini-3-pro-preview", "models/gemini-3.1-pro"), 1.1, 1.2),
        (("gpt-5", "gemini-2.5-pro", "deepseek-chat", "qwen3-coder", "llama-claude", ""), 1.0, 1.0),
    ],
)
def test_f15_a_family_has_one_prior_in_every_spelling_and_unmeasured_ones_have_1(
    names, least, most
):
    assert {prior_of(name) for name in names} <= {prior_of(names[0])}
    assert least <= prior_of(names[0]) <= most
    assert PRIORS.date >= "2026-11-22"


def test_f15_the_prior_applies_only_to_the_built_in_estimator():
    assert is_estimator(count_message)
    assert is_estimator(counter(estimate))
    assert is_estimator(counter(estimate, lambda media: 7))
    assert not is_estimator(counter(quarter))
    assert not is_estimator(lambda message: 7)
    body = {"model": OLDER, "messages": talk(5)}
    for count in (counter(quarter), counter(len), lambda message: 7):
        view = Compactor([], NEVER, count=count)(body)
        assert view.tokens == view.profile.fixed_tokens + view.estimate
    view = Compactor([], NEVER, count=counter(estimate))(body)
    assert view.tokens == round(prior_of(OLDER) * view.estimate) > view.estimate


# --- without a report and with one ----------------------------------------------------------------


@given(
    st.sampled_from(NAMES), st.integers(1, 6), st.text(max_size=400), st.booleans(), st.booleans()
)
def test_f15_law_without_a_report_all_tokens_are_the_estimate_times_the_prior(
    model, turns, system, tools, named
):
    body = {"messages": talk(turns), "system": system}
    if tools:
        body["tools"] = [
            {"name": "read", "description": system, "input_schema": {"type": "object"}}
        ]
    if named:
        body["model"] = model
    compact = Compactor([], NEVER, format="anthropic", model="" if named else model)
    view, raw = compact(body), estimate_body(body, "anthropic")
    assert view.profile.fixed_tokens + view.estimate == raw
    assert (
        view.tokens
        == view.tokens_unedited
        == compact.check(body).tokens
        == round(prior_of(model) * raw)
    )
    assert compact.check(body, pending=1_000).tokens == round(prior_of(model) * (raw + 1_000))
    assert compact.preview(body).before.tokens == view.tokens


def test_f15_a_list_of_messages_has_the_prior_and_window_of_the_compactors_model():
    view = Compactor([], NEVER, model=OLDER)(talk(5))
    assert view.tokens == round(prior_of(OLDER) * view.estimate)
    assert Compactor([], NEVER)(talk(5)).tokens == view.estimate
    check = Compactor([], Budget(Fraction(0.5), Fraction(0.2)), model=OLDER).check(talk(5))
    assert check.threshold == 100_000
    named = Compactor([], NEVER, model=OLDER)({"model": "gpt-5", "messages": talk(5)})
    assert named.tokens == named.estimate, "what the request names comes first"


@given(st.sampled_from(NAMES), st.floats(0.7, 2.5))
def test_f15_law_a_report_of_usage_replaces_the_prior(model, real):
    compact = Compactor([], NEVER, format="openai_chat")
    body = {"model": model, "messages": talk(9)}
    view = compact(body)
    billed = round(real * view.estimate)
    compact.report(view, {"prompt_tokens": billed, "completion_tokens": 1})
    assert compact(body).tokens == billed
    shorter = compact({"model": model, "messages": talk(4)[1:]})
    assert shorter.tokens == pytest.approx(real * shorter.estimate, abs=2)


def test_f15_an_implausible_report_is_ignored_and_the_prior_remains():
    compact = Compactor([], NEVER)
    view = compact({"model": OLDER, "messages": talk(9)})
    compact.report(view, {"prompt_tokens": 100 * view.estimate, "completion_tokens": 1})
    assert compact({"model": OLDER, "messages": talk(9)}).tokens == round(
        prior_of(OLDER) * view.estimate
    )


def test_f15_compactors_that_share_reports_share_their_calibration():
    reports = Reports()
    first, second = (Compactor([], NEVER, reports=reports) for _ in range(2))
    view = first({"model": OLDER, "messages": talk(9)})
    first.report(view, {"prompt_tokens": 2 * view.estimate, "completion_tokens": 1})
    assert second({"model": OLDER, "messages": talk(9)}).tokens == 2 * view.estimate
    assert (
        Compactor([], NEVER, reports=Reports(no_prior))(
            {"model": OLDER, "messages": talk(9)}
        ).tokens
        == view.estimate
    )


# --- windows --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "real"), [(OLDER, 1.17), (OLDER, 1.25), ("claude-opus-5-5", 1.5)]
)
def test_f15_a_budget_of_the_window_acts_before_the_provider_refuses(model: str, real: float):
    """Requests that Claude counts 17 to 50 % higher than the estimate were once refused before a
    budget of 90 % fired."""
    window = 30_000
    compact = Compactor([], Budget(Fraction(0.9), Fraction(0.5), window=window))
    fired = []
    for turns in range(1, 201, 2):
        body = {"model": model, "messages": talk(turns)}
        billed = real * estimate_body(body, "anthropic")
        fired.append(compact.check(body).level == "hard")
        if billed > window:
            break
        assert not fired[-1] or billed > 0.65 * window, "but not far too early"
    assert billed > window
    assert fired[-2]


# --- the gateway ----------------------------------------------------------------------------------


WINDOWS = {name: Window(20_000) for name in (OLDER, "gemini-3-pro", "plain")}


def prepare(driver: Driver, model: str, steps: int, api: str) -> Outgoing:
    """Return the request sent for a session of this many steps. With Gemini the path names the
    model."""
    if api == "openai_chat":
        return driver(chat_request(steps, model=model), api)
    incoming = replace(
        build_incoming(gemini_request(steps), api), path=f"/v1beta/models/{model}:generateContent"
    )
    return driver.run(driver.pipeline.prepare(incoming))


def first_hard(model: str, api: str) -> int:
    """Return the number of steps at which a session is first compacted."""
    with Driver(windows=WINDOWS) as driver:
        return next(steps for steps in range(1, 90) if prepare(driver, model, steps, api).edits)


@pytest.mark.parametrize(("model", "api"), [(OLDER, "openai_chat"), ("gemini-3-pro", "gemini")])
def test_f15_the_hard_level_of_a_gateway_uses_the_prior_of_the_model(model: str, api: str):
    assert first_hard(model, api) == pytest.approx(
        first_hard("plain", api) / prior_of(model), abs=1
    )


def test_f15_a_gemini_request_is_sent_without_a_model_in_its_body():
    with Driver(windows=WINDOWS) as driver:
        out = prepare(driver, "gemini-3-pro", 80, "gemini")
    assert out.edits
    assert "model" not in json.loads(out.body)


# --- the command line -----------------------------------------------------------------------------


def test_f15_a_session_file_is_counted_by_the_estimate_without_a_prior(tmp_path):
    """Parts, edits and totals on one screen are counted alike (F17)."""
    file = tmp_path / "body.json"
    file.write_text(json.dumps({"model": OLDER, "max_tokens": 9, "messages": talk(9)}))
    work = open_edited(read(file), None, None)
    assert (
        work.view.tokens
        == work.view.profile.fixed_tokens + work.view.estimate
        == work.view.tokens_uncalibrated
    )
