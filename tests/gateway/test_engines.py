"""Custom inference engines: how they learn of sessions over real HTTP, and how their profile
affects compaction."""

import asyncio
import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, NamedTuple, cast
from urllib.error import HTTPError

import pytest

from refold.gateway import Config, Settings, Upstream, create_gateway
from refold.gateway.conversations.conversations import Conversation
from refold.gateway.exchange import HTTPException
from refold.gateway.http.request import UpstreamRequest
from refold.gateway.metrics import Counters
from refold.gateway.pipeline.engines import MAX_SESSIONS, EngineSession, SessionEnds
from refold.gateway.settings import Engine
from refold.testing.scripted_gateway import Serving
from refold.testing.scripted_provider import Reply, ScriptedProvider
from refold.tokens.model_table import EngineProfile, Window
from tests.support.agent_requests import chat_request, read_files
from tests.support.pipeline_driver import Driver

SMALL = EngineProfile(prefill_rate=9_000, cache_blocks=2_000)
"""A cache of 32,000 tokens, so that each call of a long session takes much of it."""


class Session(NamedTuple):
    """An agent's calls through a gateway to an engine that records its notifications."""

    engine: ScriptedProvider
    send: Callable[..., None]

    @property
    def calls(self) -> list[Any]:
        return [each for each in self.engine.received if each.json.get("max_tokens") != 1]

    def wait_for(self, path: str, times: int = 1) -> list[Any]:
        until = time.monotonic() + 120
        while len(requests := [each for each in self.engine.received if each.path == path]) < times:
            assert time.monotonic() < until, [each.path for each in self.engine.received]
            time.sleep(0.01)
        return requests


@contextmanager
def session(
    protocol: str, *, path: str = "", window: int = 12_000, **options: Any
) -> Iterator[Session]:
    engines = {"own": Engine(profile=SMALL, protocol=protocol, **options)}
    settings = Settings(
        engines=engines,
        windows={"m": Window(window)},
        economy=False,
        read_above_bytes=0,
        decide_timeout_seconds=60,
    )
    with ScriptedProvider() as engine:
        upstream = Upstream(name="own", url=engine.url + path)
        config = Config(upstreams=(upstream,), store=":memory:", settings=settings, salt=b"s")
        with Serving(create_gateway(config)) as gateway:

            def send(body: bytes, **headers: str) -> None:
                url = f"{gateway.url}{'' if path else '/v1'}/chat/completions"
                named = {name.replace("_", "-"): value for name, value in headers.items()}
                with urllib.request.urlopen(urllib.request.Request(url, body, named)) as answer:
                    answer.read()

            yield Session(engine, send)


LONG, LONGER = chat_request(12), chat_request(60)
"""The second request exceeds its window and begins with the first."""


def test_vllm_gets_the_session_id_in_a_header_and_an_unchanged_body() -> None:
    with session("vllm") as to:
        to.send(LONG)
        to.send(LONG, x_session_id="its-own")
        first, second = to.calls
    assert first.body == second.body == LONG
    assert len(first.header("x-session-id")) == 32
    assert second.all("x-session-id") == ["its-own"]


def test_vllm_gets_a_hint_to_retain_the_compacted_prefix_in_whole_blocks() -> None:
    with session("vllm", kv_hints=True) as to:
        to.send(LONGER)
        to.send(chat_request(61))
        first, second = (call.json for call in to.calls)
    assert len(json.dumps(first)) < len(LONGER) / 2  # it was compacted
    envelope = first["kv_hints"]
    assert set(envelope) == {"protocol_version", "message_id", "actions"}
    (action,) = envelope["actions"]
    assert (action["action_type"], action["action_version"]) == ("kv.retain", "1.0")
    (directive,) = action["payload"]["directives"]
    assert directive["start"] == 0 < directive["end"] and directive["end"] % 16 == 0
    assert 0 < directive["priority"] <= 100 and directive["duration"] == SMALL.lifetime
    assert action["payload"]["scope"] == to.calls[0].header("x-session-id")
    (again,) = second["kv_hints"]["actions"]
    assert again["payload"] == action["payload"]  # later messages are not claimed
    assert second["kv_hints"]["message_id"] != envelope["message_id"]


def test_sglang_gets_the_session_id_in_a_field_and_a_close_request() -> None:
    with session("sglang", path="/v1", end_seconds=0.3, key="k") as to:
        to.send(LONG)
        to.send(LONGER)
        (end,) = to.wait_for("/close_session")
        sent = [each.json for each in to.engine.received[:2]]
    assert {each["session_id"] for each in sent} == {end.json["session_id"]}
    assert end.header("authorization") == "Bearer k"
    assert {key: value for key, value in sent[0].items() if key != "session_id"} == json.loads(LONG)


def test_an_sglang_session_is_closed_only_if_a_compaction_changed_it() -> None:
    with session("sglang", kv_hints=True) as to:
        to.send(LONG)
        to.send(chat_request(14))
        to.send(LONGER)
        (end,) = to.wait_for("/close_session")
        ids = [each.json["session_id"] for each in to.engine.received if each.path != end.path]
    assert ids[0] == ids[1] == end.json["session_id"] != ids[2]


def test_sglang_sessions_changed_by_a_refused_request_are_closed_too() -> None:
    """The refused compaction had a session name of its own, and so had the history before it."""
    with session("sglang", kv_hints=True) as to:
        to.send(LONG)
        error = "This model's maximum context length is 4000 tokens."
        refused = iter([Reply(error, status=400)])
        to.engine.script = lambda asked: next(refused, Reply()) if "chat" in asked.path else "Done."
        to.send(LONGER)
        ends = to.wait_for("/close_session", 2)
        ids = [each.json["session_id"] for each in to.engine.received if each.path != ends[0].path]
    assert len(set(ids)) == len(ids) == 3
    assert {end.json["session_id"] for end in ends} == set(ids[:2])


def test_a_session_id_set_by_the_client_is_kept() -> None:
    with session("sglang", kv_hints=True) as to:
        body = chat_request(20, session_params={"id": "its-own"})
        to.send(body)
    assert to.calls[0].body == body


def test_dynamo_gets_the_session_id_in_headers_and_a_final_request() -> None:
    with session("dynamo", end_seconds=0.2) as to:
        to.send(LONG)
        to.send(LONG, x_claude_code_session_id="theirs")
        to.wait_for("/v1/chat/completions", 4)
        ends = [each for each in to.engine.received if each.header("x-dynamo-session-final")]
        first, second = (each for each in to.engine.received if each not in ends)
    assert first.body == LONG and not second.header("x-dynamo-session-id")
    named = {end.header("x-dynamo-session-id") for end in ends}
    assert named == {first.header("x-dynamo-session-id"), "theirs"}
    assert {end.header("x-dynamo-session-final") for end in ends} == {"true"}
    assert {end.json["model"] for end in ends} == {"m"}


def test_the_number_of_tracked_engine_sessions_is_limited() -> None:
    ended, ids = set[str](), {str(number) for number in range(MAX_SESSIONS)}

    async def run() -> None:
        are_told = asyncio.Event()

        async def send(request: UpstreamRequest) -> Any:
            assert isinstance(request.body, bytes)
            ended.add(json.loads(request.body)["session_id"])
            if ids <= ended:
                are_told.set()
            raise HTTPException(502, "No engine is there.")

        ends, upstream = SessionEnds(send, Counters()), Upstream(name="own", url="http://e.example")
        engine = Engine(profile=SMALL, protocol="sglang", end_seconds=0.5)
        unused = cast("Conversation", SimpleNamespace(engine_generations=range(1)))
        for id in ("first", *ids, "x" * 1_000):
            ends.note(EngineSession(engine, id, True, unused), upstream, "m")
        await are_told.wait()
        await ends.aclose()

    asyncio.run(run())
    assert ended == ids


def test_requests_succeed_if_an_engine_fails_to_close_a_session() -> None:
    with session("sglang", kv_hints=True) as to:
        to.engine.script = lambda asked: Reply(status=500 if "close" in asked.path else 200)
        to.send(LONG)
        to.send(LONGER)
        to.wait_for("/close_session")
        to.send(chat_request(61))
    assert len([each for each in to.engine.received if each.path != "/close_session"]) == 3


def test_an_engine_that_did_not_answer_is_not_told_of_an_end() -> None:
    """It was told that the session had ended, once, and so in vain."""
    engine = Engine(profile=SMALL, protocol="sglang", end_seconds=0.01)
    settings = Settings(engines={"own": engine}, read_above_bytes=0)
    upstream = Upstream(name="own", url="http://127.0.0.1:9")
    config = Config(upstreams=(upstream,), store=":memory:", settings=settings, salt=b"s")
    app = create_gateway(config)
    with Serving(app) as gateway:
        with pytest.raises(HTTPError, match="502") as refusal:
            urllib.request.urlopen(f"{gateway.url}/v1/chat/completions", LONG)
        refusal.value.close()
        time.sleep(0.2)
        assert app.pipeline.counters.get("engine_ends") == 0


def test_without_prices_the_engine_profile_decides_whether_compaction_pays() -> None:
    """The same session runs on engines with a small cache, a large cache and no profile."""
    start = {"role": "user", "content": "Fix the bug."}

    def compactions(engines: dict[str, Engine]) -> int:
        with Driver(windows={"m": Window(10**6)}, economy=True, engines=engines) as driver:
            calls = range(10, 90, 8)
            bodies = (
                json.dumps({"model": "m", "messages": [start, *read_files(n)]}).encode()
                for n in calls
            )
            return sum(driver(body, "openai_chat").reason == "pays" for body in bodies)

    large = EngineProfile(prefill_rate=9_000, cache_blocks=2_000_000)
    assert compactions({}) == 0
    assert compactions({"up": Engine(profile=SMALL)}) > 1
    assert compactions({"m": Engine(profile=large), "up": Engine(profile=SMALL)}) == 0
