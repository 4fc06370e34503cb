"""Requests that are short enough to pass unread lose nothing by it."""

import asyncio
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.gateway.exchange import Incoming, Outgoing
from refold.gateway.pipeline.pipeline import Pipeline
from refold.gateway.pipeline.turns import MAX_JSON_SIGNS, MAX_MESSAGES
from refold.gateway.settings import Settings
from refold.stores.store import MemoryStore
from refold.strategies import ClipResults
from refold.tokens.model_table import Window
from tests.support.agent_requests import FORMATS, PATHS
from tests.support.recordings import read_requests

ROLES = st.sampled_from(["user", "assistant", "system"])
CHATS = st.lists(
    st.fixed_dictionaries({"role": ROLES, "content": st.text(max_size=300)}), min_size=1, max_size=6
)


def prepare(body: bytes, api: str = "anthropic", **settings: object) -> Outgoing:
    """Return the outcome of one request."""

    async def run() -> Outgoing:
        pipeline = Pipeline(
            Settings(
                **{"windows": {"m": Window(200_000)}, "decide_timeout_seconds": 60, **settings}
            ),
            MemoryStore(),
        )
        try:
            return await pipeline.prepare(Incoming(api, "up", PATHS[api], (), body, "c"))
        finally:
            await pipeline.aclose()

    return asyncio.run(run())


@given(CHATS)
def test_requests_that_are_sent_unread_would_also_be_unchanged_if_read(messages):
    """Law: reading a light request changes no byte of it."""
    body = json.dumps({"model": "m", "max_tokens": 1_000, "messages": messages}).encode()
    light, read = prepare(body, "openai_chat"), prepare(body, "openai_chat", read_above_bytes=0)
    assert light.body is body
    if light.reason == "light":
        assert read.body is body


@pytest.mark.parametrize("api", FORMATS)
def test_requests_with_tool_results_are_read_however_short(api):
    assert prepare(FORMATS[api](0), api).reason == "light"
    with_result = FORMATS[api](1).replace(b"word", b"w")
    assert prepare(with_result, api, read_above_bytes=len(with_result)).reason != "light"


@pytest.mark.parametrize(
    "fields",
    [
        {"thread": {"id": "t"}},
        {"max_tokens": 200_000},
        {
            "messages": [
                {
                    "role": "assistant",
                    "content": [{"type": "thinking", "thinking": "", "signature": "s"}],
                }
            ]
        },
    ],
)
def test_requests_with_a_delta_large_max_tokens_or_thinking_are_read(fields):
    """A delta is refused, a cap that leaves no room is lowered, and signed thinking is checked
    (AN-7)."""
    body = json.dumps(
        {"model": "m", "messages": [{"role": "user", "content": "Hello."}], **fields}
    ).encode()
    assert prepare(body).reason != "light"


def test_requests_are_read_if_long_near_the_window_or_with_custom_strategies():
    body = json.dumps(
        {"model": "m", "messages": [{"role": "user", "content": "x" * 5_000}]}
    ).encode()
    assert prepare(body).reason != "light"
    assert prepare(body, read_above_bytes=10_000).reason == "light"
    assert prepare(body, read_above_bytes=10_000, windows={"m": Window(4_000)}).reason != "light"
    assert prepare(body, read_above_bytes=10_000, strategies=(ClipResults(),)).reason != "light"


def test_invalid_json_is_reported_as_unreadable():
    assert prepare(b"{").reason == "unreadable"


def test_requests_with_too_many_messages_are_sent_unread():
    messages = [{"role": "user", "content": "x"}] * (MAX_MESSAGES + 1)
    body = json.dumps({"model": "m", "messages": messages}).encode()
    assert (prepare(body).reason, prepare(body).body) == ("unreadable", body)


def test_requests_with_too_many_values_are_sent_unread():
    """Parsing them holds up all requests of a process: 60 MB of `[]` took a minute and 4 GB."""

    def read_reason(entries: int) -> str:
        values = b",".join([b"[]"] * entries)
        return prepare(b'{"messages":[{"role":"user","content":"x","n":[' + values + b"]}]}").reason

    assert read_reason(MAX_JSON_SIGNS // 2) == "unreadable"
    assert read_reason(1_000) != "unreadable"


@pytest.mark.parametrize("name", ["sdk_openai_chat", "pi_anthropic", "litellm_gemini", "aider"])
def test_recorded_requests_are_sent_the_same_unread_as_read(shared: Path, name: str):
    requests = list(read_requests(shared, name))
    assert requests

    async def bodies(floor: int) -> list[bytes]:
        pipeline = Pipeline(
            Settings(read_above_bytes=floor, economy=False, decide_timeout_seconds=60),
            MemoryStore(),
        )
        try:
            return [(await pipeline.prepare(request)).body for request in requests]
        finally:
            await pipeline.aclose()

    assert asyncio.run(bodies(100_000)) == asyncio.run(bodies(0))
