"""Requests of real clients, replayed through the gateway."""

import json
from pathlib import Path

import httpx

from refold.gateway.config import Config
from refold.gateway.serve import create_gateway
from refold.gateway.settings import Settings, Upstream
from refold.testing.scripted_gateway import ScriptedPipeline, Serving, serving
from refold.testing.scripted_provider import Received, ScriptedProvider
from tests.support.raw_http import statuses, talk

OUR_OWN = {"host", "content-length", "connection", "transfer-encoding"}


def read_by_name(shared: Path) -> dict[str, dict]:
    """Return each request by its file and its position in it, from 1 on."""
    by_name = dict[str, dict]()
    for path in sorted((shared / "fixtures/requests").glob("*.jsonl")):
        for at, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            row = json.loads(line)
            if row["method"] in {"POST", "GET", "HEAD"}:
                by_name[f"{path.stem}:{at}"] = row
    return by_name


def read_rows(shared: Path) -> list[dict]:
    return list(read_by_name(shared).values())


def request_of(row: dict, url: str) -> httpx.Request:
    body = b"" if row["body"] is None else json.dumps(row["body"], ensure_ascii=False).encode()
    sent = [(name, value) for name, value in row["headers"].items() if name not in OUR_OWN]
    return httpx.Request(row["method"], url + target_of(row), headers=sent, content=body)


def target_of(row: dict) -> str:
    return row["path"] + (f"?{row['query']}" if row.get("query") else "")


def assert_as_sent(came: Received, row: dict) -> None:
    """Assert that every byte of the body, the target and every header in its place are
    unchanged."""
    sent = request_of(row, "http://up")
    assert (came.method, came.target, came.body) == (row["method"], target_of(row), sent.content)
    passed = [(name.lower(), value) for name, value in came.headers if name.lower() not in OUR_OWN]
    assert passed == [
        (name, value) for name, value in row["headers"].items() if name not in OUR_OWN
    ]


def test_recorded_requests_reach_the_upstream_byte_for_byte(shared: Path) -> None:
    """Every field, header, beta and query parameter of 457 requests of 20 clients (clients.md) is
    unchanged if no compaction is due."""
    requests = read_rows(shared)
    pipeline = ScriptedPipeline()
    with ScriptedProvider(["Done."]) as upstream:
        config = Config(upstreams=(Upstream(name="up", url=upstream.url),), salt=b"s")
        with serving(config, pipeline) as served, httpx.Client(timeout=60) as client:
            for row in requests:
                assert client.send(request_of(row, served.url)).status_code == 200
                assert_as_sent(upstream.received.pop(), row)
    assert len(requests) > 400
    assert len(pipeline.incoming) == len(pipeline.finishes) > 400
    assert {incoming.api for incoming in pipeline.incoming} == {
        "anthropic",
        "openai_chat",
        "openai_responses",
        "gemini",
    }
    assert all(incoming.credential for incoming in pipeline.incoming)


THREADS = {
    *(f"sdk_anthropic_threads:{at}" for at in range(1, 6)),
    "sdk_anthropic_threads_refused:1",
}
"""Requests with only a part of a history that the provider stores. They are refused so that the
client sends all of it."""


def test_the_real_pipeline_changes_no_byte_if_no_compaction_is_due(shared: Path) -> None:
    """Each request, also a short one, is decoded, identified, kept and checked, and sent
    unchanged."""
    requests, settings = (
        read_by_name(shared),
        Settings(read_above_bytes=0, decide_timeout_seconds=30.0),
    )
    with ScriptedProvider(["Done."]) as upstream, httpx.Client(timeout=60) as client:
        up = Upstream(name="up", url=upstream.url)
        core = create_gateway(
            Config(upstreams=(up,), salt=b"s", store=":memory:", settings=settings)
        )
        with Serving(core) as served:
            for name, row in requests.items():
                answer = client.send(request_of(row, served.url))
                if name in THREADS:
                    assert (answer.status_code, upstream.received) == (400, [])
                    assert (
                        answer.json()["error"]["details"]["error_code"]
                        == "thread_unsupported_request"
                    )
                else:
                    assert answer.status_code == 200, name
                    assert_as_sent(upstream.received.pop(), row)
    assert requests.keys() >= THREADS and len(requests) > 450
    count = core.pipeline.counters.get
    assert count("requests", outcome="refused") == len(THREADS)
    assert count("requests", outcome="untouched", reason="") > 380
    assert (
        sum(count("requests", outcome=outcome) for outcome in ("edited", "retried", "failed")) == 0
    )


def test_recorded_websocket_upgrades_are_answered_with_426(shared: Path) -> None:
    lines = (
        (shared / "fixtures/requests/codex_websocket.jsonl")
        .read_text(encoding="utf-8")
        .splitlines()
    )
    upgrades = [row for row in map(json.loads, lines) if row["method"] == "GET-WS"]
    with ScriptedProvider() as upstream:
        config = Config(upstreams=(Upstream(name="up", url=upstream.url),), salt=b"s")
        with serving(config) as served:
            for row in upgrades:
                fixed = {
                    "host": "x",
                    "connection": "Upgrade",
                    "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
                }
                lines = "".join(
                    f"{name}: {value}\r\n" for name, value in {**row["headers"], **fixed}.items()
                )
                request = f"GET {row['path']} HTTP/1.1\r\n{lines}\r\n".encode()
                answer = talk(served.port, request, close_write=True)
                assert statuses(answer) == [426]
    assert upgrades and upstream.received == []
