"""The whole gateway over real HTTP, with a model whose window is too small for its session."""

import json

import httpx
import pytest

from refold.gateway import Config, Gateway, Pipeline, Settings, Upstream
from refold.stores import MemoryStore
from refold.testing.scripted_gateway import Serving
from refold.testing.scripted_provider import Received, Reply, ScriptedProvider
from refold.tokens.model_table import Window
from tests.support.raw_http import eventually

LIMIT = 60_000
"""Number of characters that the scripted provider accepts."""


def provider(asked: Received) -> Reply:
    """Simulate a provider that refuses requests over its window, as Anthropic or OpenAI does."""
    if len(asked.body) > LIMIT:
        if "/messages" in asked.target:
            return Reply("prompt is too long: 20000 tokens > 15000 maximum", status=400)
        message = "This model's maximum context length is 15000 tokens."
        return Reply(message, status=400, code="context_length_exceeded")
    return Reply("Go on.", usage=(len(asked.body) // 4, 5, 0))


def chat(steps: int) -> dict:
    messages = [{"role": "user", "content": "Find the bug."}]
    for n in range(steps):
        call = {"id": f"c{n}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append(
            {"role": "tool", "tool_call_id": f"c{n}", "content": f"file {n}: " + "text " * 500}
        )
    return {"model": "local", "messages": messages}


def anthropic(steps: int) -> dict:
    messages = [{"role": "user", "content": "Find the bug."}]
    for n in range(steps):
        messages.append(
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": f"c{n}", "name": "read", "input": {}}],
            }
        )
        result = {
            "type": "tool_result",
            "tool_use_id": f"c{n}",
            "content": f"file {n}: " + "text " * 500,
        }
        messages.append({"role": "user", "content": [result]})
    return {"model": "local", "max_tokens": 100, "messages": messages}


APIS = {"/v1/chat/completions": chat, "/v1/messages": anthropic}


@pytest.fixture(params=[True, False], ids=["window known", "window unknown"])
def place(request):
    windows = {"local": Window(15_000)} if request.param else {}
    settings = Settings(windows=windows, decide_timeout_seconds=30)
    with ScriptedProvider(provider) as upstream:
        config = Config(
            upstreams=(Upstream(name="up", url=upstream.url),), settings=settings, salt=b"s"
        )
        with Serving(Gateway(config, Pipeline(settings, MemoryStore()))) as gateway:
            yield upstream, gateway, request.param


@pytest.mark.parametrize("path", APIS)
def test_a_session_longer_than_the_window_continues_without_an_error(place, path: str) -> None:
    """A known window is never exceeded. An unknown one is exceeded once, and the client does not
    notice."""
    upstream, gateway, is_known = place
    edited = []
    with httpx.Client(base_url=gateway.url, timeout=60) as client:
        for steps in range(5, 61, 5):
            body = APIS[path](steps)
            answer = client.post(path, json=body, headers={"authorization": "Bearer k"})
            assert answer.status_code == 200, answer.text
            if int(answer.headers.get("refold-edits", "0")):
                edited.append(steps)
                assert int(answer.headers["refold-tokens-after"]) < int(
                    answer.headers["refold-tokens-before"]
                )
            else:
                assert json.loads(upstream.received[-1].body) == body, "nothing was due"
        refused = [request for request in upstream.received if len(request.body) > LIMIT]
        assert edited and edited[0] > 5
        assert len(refused) == 0 if is_known else len(refused) >= 1
        metrics = client.get("/metrics").text
    assert "refold_tokens_before_total" in metrics or "refold_requests_total" in metrics
    assert eventually(
        lambda: gateway.gateway.pipeline.counters.get("http_tokens", kind="input") > 0
    )
