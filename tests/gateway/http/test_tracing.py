"""OpenTelemetry in the gateway, with the real SDK: one span per request, traceparent continued, no
message text."""

import json
import logging
import subprocess
import sys

import httpx
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode

from refold.gateway import Config, Gateway, Pipeline, Settings, Upstream
from refold.gateway.http.response import Tracing
from refold.stores import MemoryStore
from refold.testing.scripted_gateway import Serving
from refold.testing.scripted_provider import Reply, ScriptedProvider
from refold.tokens.model_table import Window
from tests.support.raw_http import eventually

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
STATE = "vendor=1"
SECRET = "geheimes Wort"


class Traced:
    """A gateway whose spans are kept in memory, in front of a scripted provider."""

    def __init__(self, script=None, provider: TracerProvider | None = None) -> None:
        self.spans = InMemorySpanExporter()
        self.provider = provider or TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.spans))
        reply = Reply("I say the " + SECRET, usage=(1_200, 34, 1_000))
        self.upstream = ScriptedProvider(script or [reply])
        settings = Settings(windows={"m": Window(15_000)}, decide_timeout_seconds=30)
        config = Config(
            upstreams=(Upstream(name="up", url=self.upstream.url),), settings=settings, salt=b"s"
        )
        gateway = Gateway(config, Pipeline(settings, MemoryStore()), traces=Tracing(self.provider))
        self.serving = Serving(gateway)

    def __enter__(self):
        self.upstream.__enter__()
        self.gateway = self.serving.__enter__()
        return self

    def __exit__(self, *_) -> None:
        self.serving.__exit__(None, None, None)
        self.upstream.__exit__(None, None, None)
        self.provider.shutdown()

    def post(
        self, body: dict, path: str = "/v1/chat/completions", **headers: str
    ) -> httpx.Response:
        headers = {"authorization": "Bearer sk-secret-key", **headers}
        return httpx.post(f"{self.gateway.url}{path}", json=body, headers=headers, timeout=60)

    def one(self):
        assert eventually(self.spans.get_finished_spans)
        (span,) = self.spans.get_finished_spans()
        return span


def chat(steps: int, **fields) -> dict:
    messages = [{"role": "user", "content": SECRET}]
    for n in range(steps):
        call = {"id": f"c{n}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append(
            {"role": "tool", "tool_call_id": f"c{n}", "content": f"file {n}: " + "text " * 500}
        )
    return {"model": "m", "messages": messages, **fields}


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_is_one_span_with_its_outcome_and_usage(stream: bool) -> None:
    with Traced() as traced:
        options = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
        answer = traced.post(chat(40, **options))
        assert answer.status_code == 200 and "Wort" in answer.text
        span = traced.one()
    attributes = dict(span.attributes)
    assert (span.name, span.kind, span.status.status_code) == (
        "chat m",
        SpanKind.CLIENT,
        StatusCode.UNSET,
    )
    assert (
        attributes["refold.tokens.before"] > attributes["refold.tokens.after"] > 0
        and attributes["refold.edits"] > 0
    )
    del (
        attributes["refold.tokens.before"],
        attributes["refold.tokens.after"],
        attributes["refold.edits"],
    )
    assert attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "m",
        "gen_ai.usage.input_tokens": 1_200,
        "gen_ai.usage.output_tokens": 34,
        "gen_ai.usage.cache_read.input_tokens": 1_000,
        "http.response.status_code": 200,
        "refold.upstream": "up",
        "refold.outcome": "edited",
        "refold.reason": "hard",
    }


def test_a_span_contains_no_conversation_text_and_no_key() -> None:
    with Traced() as traced:
        traced.post(chat(40), **{"x-session-id": "session-77"})
        span = traced.one()
    text = span.to_json()
    for secret in (SECRET, "geheim", "sk-secret", "session-77", "file 3"):
        assert secret not in text


def test_half_a_character_in_a_models_name_is_escaped() -> None:
    """No exporter could encode the span, and those sent with it were lost, too."""
    with Traced() as traced:
        body = json.dumps(chat(1) | {"model": "m\udcff"})
        httpx.post(f"{traced.gateway.url}/v1/chat/completions", content=body, timeout=60)
        span = traced.one()
    assert (span.name, span.attributes["gen_ai.request.model"]) == ("chat m\\udcff", "m\\udcff")


def test_the_clients_trace_is_continued_and_the_upstream_gets_our_span_id() -> None:
    with Traced() as traced:
        traced.post(chat(1), traceparent=PARENT, tracestate=STATE)
        span, asked = traced.one(), traced.upstream.received[0]
    assert f"{span.context.trace_id:032x}" == PARENT[3:35]
    assert f"{span.parent.span_id:016x}" == PARENT[36:52]
    assert asked.all("traceparent") == [f"00-{PARENT[3:35]}-{span.context.span_id:016x}-01"]
    assert asked.all("tracestate") == [STATE]
    assert json.loads(asked.body) == chat(1)


@pytest.mark.parametrize("how", ["declined", "not configured"])
def test_without_tracing_the_clients_trace_headers_are_passed_on(how: str) -> None:
    with Traced(provider=TracerProvider(sampler=ALWAYS_OFF)) as traced:
        if how == "not configured":
            traced.gateway.gateway._relay._tracing = (
                Tracing()
            )  # no tracing is configured in this process
        traced.post(chat(1), traceparent=PARENT, tracestate=STATE)
        asked = traced.upstream.received[0]
        assert asked.all("traceparent") == [PARENT] and asked.all("tracestate") == [STATE]
        assert traced.spans.get_finished_spans() == ()


def test_an_upstream_error_sets_the_error_status_of_the_span() -> None:
    with Traced([Reply("slow down, " + SECRET, status=429)]) as traced:
        assert traced.post(chat(1)).status_code == 429
        span = traced.one()
    assert span.status.status_code is StatusCode.ERROR and not span.status.description
    assert span.attributes["error.type"] == "429"
    assert span.events == () and SECRET not in span.to_json()


def test_a_truncated_response_sets_the_error_type_of_the_span() -> None:
    with Traced([Reply("word " * 500, cut_after=1)]) as traced:
        with pytest.raises(httpx.HTTPError):
            traced.post(chat(1, stream=True))
        assert traced.one().attributes["error.type"]


@pytest.mark.parametrize(
    ("path", "body", "operation", "provider"),
    [
        ("/v1/messages", {"model": "claude", "max_tokens": 5, "messages": [{"role": "user", "content": "x"}]}, "chat claude", "anthropic"),
        ("/v1/responses", {"model": "m", "input": "x", "store": False}, "chat m", "openai"),
        ("/v1beta/models/g:generateContent", {"contents": [{"role": "user", "parts": [{"text": "x"}]}]}, "generate_content g", "gcp.gemini"),
    ],
)  # fmt: skip
def test_a_span_names_the_provider_of_each_api(
    path: str, body: dict, operation: str, provider: str
) -> None:
    with Traced() as traced:
        assert traced.post(body, path).status_code == 200
        span = traced.one()
    assert (span.name, span.attributes["gen_ai.provider.name"]) == (operation, provider)
    assert span.attributes["gen_ai.usage.input_tokens"] == 1_200


def test_an_unreachable_upstream_is_no_internal_error_in_the_log(caplog) -> None:
    """With tracing its line was at level error, as if the gateway had failed."""
    provider, settings = TracerProvider(), Settings()
    config = Config(upstreams=(Upstream(name="up", url="http://127.0.0.1:9"),), salt=b"s")
    app = Gateway(config, Pipeline(settings, MemoryStore()), traces=Tracing(provider))
    with caplog.at_level(logging.INFO, "refold.gateway"), Serving(app) as gateway:
        answer = httpx.post(f"{gateway.url}/v1/chat/completions", json=chat(1), timeout=60)
    provider.shutdown()
    (line,) = (record for record in caplog.records if getattr(record, "event", "") == "request")
    assert answer.status_code == 502
    assert line.levelno == logging.WARNING and "internal_error" not in line.fields


def test_requests_to_other_paths_have_no_span() -> None:
    with Traced() as traced:
        httpx.get(f"{traced.gateway.url}/v1/models", headers={"traceparent": PARENT})
        assert traced.upstream.received[0].all("traceparent") == [PARENT]
        assert traced.spans.get_finished_spans() == ()


def test_tracing_does_nothing_without_the_opentelemetry_package() -> None:
    code = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from refold.gateway.logs import AccessLogEntry\nfrom refold.gateway.http.response import Tracing\n"
        "with Tracing().trace_request(None, 'anthropic', AccessLogEntry()) as headers: print(headers)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "()\n"
