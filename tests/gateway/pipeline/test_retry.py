"""The retry after a context error uses the upstream's figures and is valid."""

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.gateway import Incoming, Outgoing, Pipeline, Settings
from refold.gateway.pipeline.request_kind import (
    SMALLEST_CAP,
    Cap,
    lower_caps,
    read_cap,
    thinking_budget,
    write_caps,
)
from refold.stores.store import MemoryStore
from refold.tokens.model_table import Window

CHAT, ANTHROPIC = "/v1/chat/completions", "/v1/messages"


class Gateway:
    """A pipeline that handles requests and their context errors."""

    def __init__(self, **settings: Any) -> None:
        self.pipeline = Pipeline(
            Settings(**{"windows": {}, "economy": False, "decide_timeout_seconds": 60, **settings}),
            MemoryStore(),
        )
        self.loop = asyncio.new_event_loop()

    def prepare(self, body: dict[str, Any], api: str, path: str) -> tuple[Incoming, Outgoing]:
        incoming = Incoming(api, "up", path, (), json.dumps(body).encode(), "c")
        return incoming, self.loop.run_until_complete(self.pipeline.prepare(incoming))

    def again(
        self, body: dict[str, Any], message: str, api: str = "openai_chat", path: str = CHAT
    ) -> Outgoing | None:
        incoming, outgoing = self.prepare(body, api, path)
        error = json.dumps({"error": {"message": message}}).encode()
        return self.loop.run_until_complete(self.pipeline.shrink(incoming, outgoing, error))

    def close(self) -> None:
        self.loop.run_until_complete(self.pipeline.aclose())
        self.loop.close()


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    opened_gateway = Gateway()
    yield opened_gateway
    opened_gateway.close()


def chat(steps: int, **fields: Any) -> dict[str, Any]:
    messages: list[Any] = [{"role": "user", "content": "Find the bug. " + "details of it " * 600}]
    for at in range(steps):
        call = {"id": f"c{at}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append(
            {"role": "tool", "tool_call_id": f"c{at}", "content": f"{at} " + "lorem ipsum " * 200}
        )
    return {"model": "nobody-knows", "messages": messages, **fields}


def body_of(outgoing: Outgoing | None) -> dict[str, Any]:
    assert outgoing is not None and (outgoing.outcome, outgoing.reason) == ("retried", "context")
    body: dict[str, Any] = json.loads(outgoing.body)
    return body


def test_a_body_that_is_signed_is_not_changed(caplog: pytest.LogCaptureFixture) -> None:
    """SigV4 covers the body, and Amazon refuses any other."""
    signature = ("authorization", "AWS4-HMAC-SHA256 Credential=AKIA1/20261129, Signature=0")
    count = "/v1/messages/count_tokens"
    gateway = Gateway(windows={"nobody-knows": Window(4_000)})

    def run(api: str, path: str, *headers: tuple[str, str]) -> tuple[Incoming, Outgoing, Any]:
        body = json.dumps(chat(12)).encode()
        incoming, pipeline = Incoming(api, "up", path, headers, body, "c"), gateway.pipeline
        prepare = pipeline.prepare_count if path == count else pipeline.prepare
        outgoing = gateway.loop.run_until_complete(prepare(incoming))
        error = b'{"error": {"message": "maximum context length is 4000 tokens"}}'
        again = gateway.loop.run_until_complete(pipeline.shrink(incoming, outgoing, error))
        return incoming, outgoing, again

    incoming, outgoing, again = run("openai_chat", CHAT, signature)
    assert (outgoing.outcome, outgoing.reason) == ("opaque", "signed")
    assert outgoing.body is incoming.body and again is None
    labels = {"api": "openai_chat", "outcome": "opaque", "reason": "signed"}
    assert gateway.pipeline.counters.get("requests", **labels) == 1
    assert any(getattr(record, "event", "") == "passed through" for record in caplog.records)
    incoming, outgoing, _ = run("anthropic", count, signature)
    assert outgoing.body is incoming.body
    unsigned = ("x-amz-content-sha256", "UNSIGNED-PAYLOAD")
    assert run("openai_chat", CHAT, signature, unsigned)[1].edits
    gateway.close()


# --- only the cap is too large --------------------------------------------------------------------

TOO_LARGE = [
    (
        "'max_tokens' or 'max_completion_tokens' is too large: 30000. This model's maximum context length is 32768 tokens and your "
        "request has 2900 input tokens (30000 > 32768 - 2900)."
    ),
    (
        "This endpoint's maximum context length is 32768 tokens. However, you requested about 32900 tokens (2600 of text input, 300 of "
        "tool input, 30000 in the output). Please reduce the length of either one."
    ),
    (
        "This model's maximum context length is 32768 tokens. However, you requested 32900 tokens (2900 in the messages, 30000 in the "
        "completion). Please reduce the length of the messages or completion."
    ),
    "`inputs` tokens + `max_new_tokens` must be <= 32768. Given: 2900 `inputs` tokens and 30000 `max_new_tokens`",
]


@pytest.mark.parametrize("message", TOO_LARGE)
@pytest.mark.parametrize("steps", [0, 8])
@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
def test_only_max_tokens_is_lowered_by_the_upstreams_figures(
    gateway: Gateway, message: str, steps: int, field: str
) -> None:
    body = chat(steps, **{field: 30_000})
    assert body_of(gateway.again(body, message)) == {**body, field: 32_768 - 2_900 - 1_000}


@pytest.mark.parametrize("message", TOO_LARGE)
@pytest.mark.parametrize("fields", [{}, {"max_tokens": 500}])
def test_the_history_is_cut_if_max_tokens_cannot_be_lowered(
    gateway: Gateway, message: str, fields: dict[str, int]
) -> None:
    """A server may reserve room for the answer whatever the request says."""
    body = chat(40, **fields)
    retried = gateway.again(body, message)
    sent = body_of(retried)
    assert retried is not None and retried.tokens_after < 0.6 * 32_768
    assert len(sent["messages"]) < len(body["messages"]) and sent.get("max_tokens") == fields.get(
        "max_tokens"
    )
    assert fields or retried.tokens_after < 32_768 - 30_000


def test_a_minimum_token_count_is_not_used_as_the_exact_count(gateway: Gateway) -> None:
    """vLLM stops counting where the request is too long by one token, so one token less would not
    be enough."""
    body = chat(8, max_tokens=30_000)
    message = (
        "This model's maximum context length is 32768 tokens. However, you requested 30000 output tokens and your prompt contains "
        "at least 2769 input tokens, for a total of at least 32769 tokens."
    )
    incoming, outgoing = gateway.prepare(body, "openai_chat", CHAT)
    cap = body_of(gateway.again(body, message))["max_tokens"]
    assert incoming.body == outgoing.body and cap <= 32_768 - 1.25 * outgoing.tokens_after < 30_000


def test_max_tokens_after_a_compaction_fits_by_the_upstreams_token_count(gateway: Gateway) -> None:
    """The upstream counts twice the estimate."""
    body = chat(40, max_tokens=20_000)
    _, outgoing = gateway.prepare(body, "openai_chat", CHAT)
    really, limit = 2 * outgoing.tokens_after, 40_000
    retried = gateway.again(body, f"prompt is too long: {really} tokens > {limit} maximum")
    sent = body_of(retried)
    assert retried is not None and 2 * retried.tokens_after + sent["max_tokens"] <= limit
    assert sent["max_tokens"] >= SMALLEST_CAP


# --- thinking -------------------------------------------------------------------------------------


def thinking(budget: int, cap: int, words: int = 3_500, steps: int = 0) -> dict[str, Any]:
    messages: list[Any] = [{"role": "user", "content": "x " * words}]
    for at in range(steps):
        messages.append({"role": "assistant", "content": f"Step {at}. " + "and so on " * 300})
        messages.append({"role": "user", "content": f"Go on with {at + 1}."})
    return {
        "model": "nobody-knows",
        "max_tokens": cap,
        "thinking": {"type": "enabled", "budget_tokens": budget},
        "messages": messages,
    }


def overflow(tokens: int, cap: int, limit: int) -> str:
    return f"input length and `max_tokens` exceed context limit: {tokens} + {cap} > {limit}, decrease input length or `max_tokens`"


def test_the_thinking_budget_is_kept_if_max_tokens_stays_above_it(gateway: Gateway) -> None:
    body = thinking(20_000, 60_000)
    sent = body_of(gateway.again(body, overflow(150_000, 60_000, 200_000), "anthropic", ANTHROPIC))
    assert sent == {**body, "max_tokens": 49_000}


def test_a_thinking_budget_above_the_lowered_max_tokens_is_lowered_too(gateway: Gateway) -> None:
    body = thinking(198_000, 199_000)
    sent = body_of(gateway.again(body, overflow(3_500, 199_000, 200_000), "anthropic", ANTHROPIC))
    budget = {"type": "enabled", "budget_tokens": 195_500 - SMALLEST_CAP}
    assert sent == {**body, "max_tokens": 195_500, "thinking": budget}


def test_the_history_is_cut_before_thinking_loses_half_of_its_budget(gateway: Gateway) -> None:
    body = thinking(60_000, 64_000, steps=60)
    sent = body_of(gateway.again(body, overflow(175_000, 64_000, 200_000), "anthropic", ANTHROPIC))
    assert len(sent["messages"]) < len(body["messages"])
    assert (sent["max_tokens"], sent["thinking"]) == (64_000, body["thinking"])


def test_thinking_loses_more_of_its_budget_if_no_history_can_be_cut(gateway: Gateway) -> None:
    body = thinking(60_000, 64_000)
    sent = body_of(gateway.again(body, overflow(175_000, 64_000, 200_000), "anthropic", ANTHROPIC))
    assert sent == {
        **body,
        "max_tokens": 24_000,
        "thinking": {"type": "enabled", "budget_tokens": 24_000 - SMALLEST_CAP},
    }


CAPS = st.integers(1, 300_000)


@given(
    cap=CAPS,
    budget=st.integers(0, 300_000),
    room=st.integers(-10_000, 300_000),
    keep=st.sampled_from([0.0, 0.5, 1.0]),
)
def test_lowered_max_tokens_and_thinking_budget_are_valid_for_providers(
    cap: int, budget: int, room: int, keep: float
) -> None:
    body = {"max_tokens": cap, "thinking": {"budget_tokens": budget}, "messages": []}
    source = json.dumps(body).encode()
    changed = lower_caps("anthropic", body, room, keep)
    after = json.loads(write_caps(source, changed))
    if not changed:
        assert after == body
        return
    assert SMALLEST_CAP <= after["max_tokens"] == room < cap
    budget_left = after["thinking"]["budget_tokens"]
    assert budget_left == budget or (
        SMALLEST_CAP <= budget_left < budget and budget_left >= keep * budget
    )
    assert budget_left < after["max_tokens"]


# --- an error without figures ---------------------------------------------------------------------

NO_FIGURES = "the request exceeds the available context size. try increasing the context size or enable context shift"


@pytest.mark.parametrize("times", [1.2, 2.0, 5.0])
def test_a_retry_with_an_unknown_window_is_cut_to_less_than_a_fifth(
    gateway: Gateway, times: float
) -> None:
    """A long history is sent to a server with a small, unknown window."""
    body = chat(90)
    _, outgoing = gateway.prepare(body, "openai_chat", CHAT)
    retried = gateway.again(body, NO_FIGURES)
    assert retried is not None and retried.tokens_after < outgoing.tokens_after / times


def is_half(body: dict[str, Any], outgoing: Outgoing, retried: Outgoing) -> bool:
    """Return whether a share is that of a goal of half the tokens. At least a quarter of the steps
    stays. It is 0.29 of the tokens here, where a goal of 0.1 had 0.31: the request stands once,
    word for word beside the summary (D3) and no longer in it, and the same steps stay."""
    sent = body_of(retried)["messages"]
    request = body["messages"][0]["content"]
    steps = [message for message in sent if message["role"] == "tool"]
    return (
        0.25 * outgoing.tokens_after < retried.tokens_after <= 0.6 * outgoing.tokens_after
        and steps == body["messages"][-2 * len(steps) + 1 :: 2]
        and len(steps) > 0.25 * 90
        and sum(message["content"] == request for message in sent) == 1
        and json.dumps(sent).count(request[: len(request) // 4]) == 1
    )


def test_a_retry_after_a_smaller_request_was_answered_is_cut_to_about_half(
    gateway: Gateway,
) -> None:
    incoming, outgoing = gateway.prepare(chat(60), "openai_chat", CHAT)
    gateway.pipeline.record_answer(
        incoming, outgoing, {"prompt_tokens": outgoing.tokens_after, "completion_tokens": 5}
    )
    body = chat(90)
    _, outgoing = gateway.prepare(body, "openai_chat", CHAT)
    retried = gateway.again(body, NO_FIGURES)
    assert retried is not None and is_half(body, outgoing, retried)


def test_an_unknown_window_or_price_of_a_model_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    gateway = Gateway()
    for model in ("nobody-knows", "nobody-knows", "claude-opus-5-5"):
        gateway.prepare({**chat(2), "model": model}, "openai_chat", CHAT)
    gateway.close()
    lines = [(record.levelname, vars(record)["fields"]["set"]) for record in caplog.records]
    assert lines == [
        ("WARNING", '[windows] "nobody-knows" = its tokens, in refold.toml'),
        ("INFO", '[prices."nobody-knows"] in refold.toml'),
    ]


def test_a_retry_with_a_configured_window_is_cut_to_about_half() -> None:
    gateway = Gateway(windows={"nobody-knows": Window(100_000)})
    body = chat(90)
    _, outgoing = gateway.prepare(body, "openai_chat", CHAT)
    retried = gateway.again(body, NO_FIGURES)
    assert retried is not None and is_half(body, outgoing, retried)
    gateway.close()


# --- caps and models in any field ----------------------------------------------------------------


@pytest.mark.parametrize("outer", ["generationConfig", "generation_config"])
@pytest.mark.parametrize("inner", ["maxOutputTokens", "max_output_tokens"])
@pytest.mark.parametrize("value", ["29000", "29000.0", "2.9e4"])
def test_every_spelling_of_geminis_max_output_tokens_is_read_and_lowered(
    outer: str, inner: str, value: str
) -> None:
    source = f'{{"contents": [], "{outer}": {{"topK": 1, "{inner}": {value}}}}}'.encode()
    cap = read_cap("gemini", json.loads(source))
    assert cap == Cap((outer, inner), 29_000) and type(cap.tokens) is int
    assert json.loads(write_caps(source, [cap._replace(tokens=9)]))[outer] == {"topK": 1, inner: 9}


@pytest.mark.parametrize("value", [1.5, float("inf"), float("nan"), -2.0, 0.0, "9", True])
def test_max_tokens_that_is_not_a_positive_whole_number_is_ignored(value: object) -> None:
    assert read_cap("openai_chat", {"max_tokens": value}) is None
    assert thinking_budget({"thinking": {"budget_tokens": value}}) == 0


def test_the_reasoning_budget_of_openrouter_counts_as_a_thinking_budget() -> None:
    body = {"max_tokens": 20_000, "reasoning": {"max_tokens": 15_000}}
    assert thinking_budget(body) == 15_000
    assert lower_caps("openai_chat", body, 15_000) == ()
    assert lower_caps("openai_chat", body, 15_000, 0.5) == (
        Cap(("max_tokens",), 15_000),
        Cap(("reasoning", "max_tokens"), 13_976),
    )


def test_an_azure_deployments_window_is_respected() -> None:
    gateway = Gateway(windows={"small": Window(20_000)})
    body = {name: value for name, value in chat(40).items() if name != "model"}
    path = "/openai/deployments/small/chat/completions?api-version=2024-10-21"
    _, outgoing = gateway.prepare(body, "openai_chat", path)
    assert (outgoing.outcome, outgoing.model) == (
        "edited",
        "small",
    ) and outgoing.tokens_after < 20_000
    _, capped = gateway.prepare(
        {"messages": [{"role": "user", "content": "hello " * 5_000}], "max_tokens": 19_000},
        "openai_chat",
        path,
    )
    assert (capped.outcome, capped.reason) == ("edited", "cap")
    assert re.search(rb'"max_tokens": 1[0-5]\d{3}\b', capped.body)
    gateway.close()
