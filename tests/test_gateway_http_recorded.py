"""Requests of real clients, replayed through the gateway."""

import json
from pathlib import Path

import httpx

from raw_http import statuses, talk
from refold.gateway.config import Config
from refold.gateway.scripted import ScriptedExchange, serving
from refold.gateway.upstreams import Upstream
from refold.scripted_upstream import ScriptedUpstream

OUR_OWN = {"host", "content-length", "connection", "transfer-encoding"}


def recorded(shared: Path) -> list[dict]:
    paths = sorted((shared / "fixtures/requests").glob("*.jsonl"))
    lines = (line for path in paths for line in path.read_text(encoding="utf-8").splitlines())
    return [one for one in map(json.loads, lines) if one["method"] in {"POST", "GET", "HEAD"}]


def test_recorded_requests_reach_the_upstream_byte_for_byte(shared: Path) -> None:
    """Every field, header, beta and query of 457 requests of 20 clients (clients.md), when nothing is due."""
    requests = recorded(shared)
    exchange = ScriptedExchange()
    with ScriptedUpstream(["Done."]) as upstream:
        config = Config(upstreams=(Upstream(name="up", url=upstream.url),), salt=b"s")
        with serving(config, exchange) as gateway, httpx.Client(base_url=gateway.url, timeout=60) as client:
            for one in requests:
                body = b"" if one["body"] is None else json.dumps(one["body"], ensure_ascii=False).encode()
                target = one["path"] + (f"?{one['query']}" if one.get("query") else "")
                sent = [(name, value) for name, value in one["headers"].items() if name not in OUR_OWN]
                request = httpx.Request(one["method"], gateway.url + target, headers=sent, content=body)
                assert client.send(request).status_code == 200
                came = upstream.asked.pop()
                assert (came.method, came.target, came.body) == (one["method"], target, body)
                passed = [(name.lower(), value) for name, value in came.headers if name.lower() not in OUR_OWN]
                assert passed == [pair for pair in sent if pair[0] not in OUR_OWN]
    assert len(requests) > 400
    assert len(exchange.incoming) == len(exchange.finishes) > 400
    assert {one.api for one in exchange.incoming} == {"anthropic", "openai_chat", "openai_responses", "gemini"}
    assert all(one.credential for one in exchange.incoming)


def test_recorded_websocket_upgrades_are_answered_with_426(shared: Path) -> None:
    lines = (shared / "fixtures/requests/codex_websocket.jsonl").read_text(encoding="utf-8").splitlines()
    upgrades = [one for one in map(json.loads, lines) if one["method"] == "GET-WS"]
    with ScriptedUpstream() as upstream:
        config = Config(upstreams=(Upstream(name="up", url=upstream.url),), salt=b"s")
        with serving(config) as gateway:
            for one in upgrades:
                fixed = {"host": "x", "connection": "Upgrade", "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ=="}
                lines = "".join(f"{name}: {value}\r\n" for name, value in {**one["headers"], **fixed}.items())
                answer = talk(gateway.port, f"GET {one['path']} HTTP/1.1\r\n{lines}\r\n".encode(), wait=1)
                assert statuses(answer) == [426]
    assert upgrades and upstream.asked == []
