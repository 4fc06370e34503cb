"""The model that a request names, read by one function for all callers."""

import json
import tracemalloc

import pytest

import refold
from refold.gateway.config import Config
from refold.gateway.http.request import read_model_field, request_model
from refold.gateway.settings import Upstream
from refold.testing.scripted_gateway import serving
from refold.testing.scripted_provider import ScriptedProvider
from refold.tokens.model_table import LONGEST_NAME
from tests.support.raw_http import statuses, talk

VERTEX = "/v1/projects/p/locations/l"
NAMES = {
    "/v1/chat/completions": "",
    "/v1/responses": "",
    "/v1/messages": "",
    "/v1/models": "",
    "/v1/models/gpt-4o": "gpt-4o",
    "/v1/models/ft:gpt-4o:acme": "ft:gpt-4o:acme",
    "/v1/models/ft:gpt-4o-mini-2024-07-18:acme:suffix:AbC123": "ft:gpt-4o-mini-2024-07-18:acme:suffix:AbC123",
    "/v1/models/org/name": "org/name",
    "/v1/models/org%2Fname": "org/name",
    "/v1/models/org/name:free": "org/name:free",
    "/models/org/name/v1/chat/completions": "org/name",
    "/v1beta/models/gemini-3-pro:generateContent": "gemini-3-pro",
    "/v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse&key=": "gemini-3-pro",
    "/v1beta/models/gemini-3-pro:countTokens": "gemini-3-pro",
    "/v1beta/models/gemini%2D3:generateContent": "gemini-3",
    "/v1/models/org/name:generateContent": "org/name",
    "/v1/models/ft:gpt-4o:acme:generateContent": "ft:gpt-4o:acme",
    "/gemini/v1beta/models/a/models/gemini-x:generateContent": "gemini-x",
    "/v1beta/tunedModels/my-tuned-1:generateContent": "my-tuned-1",
    f"{VERTEX}/publishers/google/models/gemini-3-pro:generateContent": "gemini-3-pro",
    f"{VERTEX}/publishers/anthropic/models/claude-opus-5@20261101:streamRawPredict": "claude-opus-5@20261101",
    f"{VERTEX}/publishers/anthropic/models/count-tokens:rawPredict": "",
    f"{VERTEX}/endpoints/4711:generateContent": "4711",
    f"{VERTEX}/endpoints/openapi/chat/completions": "",
    "/openai/deployments/gpt-4o/chat/completions?api-version=2024-10-21": "gpt-4o",
    "/openai/deployments/my%20own/chat/completions": "my own",
    "/openai/deployments/o3/responses": "o3",
    "/openai/deployments/o3": "o3",
    "/model/anthropic.claude-opus-5-v1%3A0/converse": "anthropic.claude-opus-5-v1:0",
    "/model/arn%3Aaws%3Abedrock%3Aus%3A1%3Aprofile%2Fx/invoke-with-response-stream": "arn:aws:bedrock:us:1:profile/x",
    "/v1/files": "",
    "/": "",
    "": "",
}


@pytest.mark.parametrize("path", NAMES)
def test_f12_the_model_of_a_request_is_read_from_its_path(path: str) -> None:
    """Such a model was routed by one name and counted by another: `org/name` and `org`, `ft:gpt-4o`
    and `ft`."""
    assert request_model(path, {}) == NAMES[path]
    assert request_model(path, {"model": 3}) == request_model(path, {"model": ""}) == NAMES[path]


@pytest.mark.parametrize("path", NAMES)
def test_f12_the_body_names_the_model_unless_the_path_calls_one(path: str) -> None:
    asks = any(sign in path for sign in (":generate", ":stream", ":count", "/converse", "/invoke"))
    assert request_model(path, {"model": "named"}) == (NAMES[path] if asks else "named")


def test_a_too_long_model_name_is_truncated() -> None:
    """Names are cached in several tables, which held a thousand names of 5 MB."""
    name = "local-" + "x" * 10_000
    short = name[:LONGEST_NAME]
    assert request_model("/v1/chat/completions", {"model": name}) == short
    assert request_model(f"/v1/models/{name}:generateContent", {}) == short
    assert request_model(f"/v1/models/{name}", {}) == short
    compact = refold.Compactor([], refold.Budget(9, 9))
    body = {"modelId": name, "messages": [{"role": "user", "content": "Go."}]}
    assert compact.show(body).profile.model == short


def test_f12_a_body_that_is_not_a_json_object_names_no_model() -> None:
    for text in (None, b"", b"[]", b"3", b"{", b"[" * 100_000, b"\xff"):
        assert read_model_field(text) == {}


BODIES = {
    b'{"model": "m"}': "m",
    b'\xef\xbb\xbf {"model": "m"}': "m",
    b'{"model": "first", "model": "m"}': "m",
    b'{"x": "\\udcff \\\\ud", "model": "m"}': "m",
    b'{"x": "\xff", "model": "m"}': "m",
    b'{"x": [NaN, 1e999], "mod\\u0065l": "m"}': "m",
    b'{"model": 3}': "",
    b'{"x": {"model": "m"}}': "",
}


@pytest.mark.parametrize("text", BODIES)
def test_the_model_is_read_from_any_body_that_python_reads(text: bytes) -> None:
    assert request_model("/v1/messages", read_model_field(text)) == BODIES[text]


def test_the_other_fields_of_a_large_body_are_not_parsed() -> None:
    """Parsing 42 MiB of empty objects held up all requests of a process for ten seconds."""
    many = b'{"messages": [%s], "x": "\\udcff", "model": "m"}' % b",".join([b"{}"] * 700_000)
    tracemalloc.start()
    try:
        assert read_model_field(many) == {"model": "m"}
        assert tracemalloc.get_traced_memory()[1] < 3 * len(many)  # 24 times as many if parsed
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["org/name", "ft:gpt-4o:acme"])
def test_f12_a_model_is_routed_by_its_whole_name(name: str) -> None:
    body = json.dumps({"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}).encode()
    with ScriptedProvider(["Hello."]) as upstream, ScriptedProvider(["No."]) as stranger:
        ups = (
            Upstream(name="up", url=upstream.url, models=(name,)),
            Upstream(name="other", url=stranger.url, models=("*",)),
        )
        with serving(Config(upstreams=ups, salt=b"s")) as gateway:
            head = f"POST /v1/models/{name}:generateContent HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
            assert statuses(
                talk(gateway.port, f"{head}Connection: close\r\n\r\n".encode() + body, wait=60)
            ) == [200]
        assert len(upstream.received) == 1 and stranger.received == []
