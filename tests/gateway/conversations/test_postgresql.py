"""A gateway whose PostgreSQL is down, hangs or comes back: requests pass through, and the password
is never shown."""

import asyncio
import json

import httpx
import pytest

from refold.errors import StoreError
from refold.gateway import Config, Incoming, Pipeline, Settings, Upstream
from refold.gateway.config import parse_config, with_environment
from refold.gateway.serve import with_salt
from refold.stores.postgresql import PostgreSQLStore
from refold.testing.scripted_provider import ScriptedProvider
from refold.tokens.model_table import Window
from tests.support.gateway_processes import GatewayProcess, run_processes

SECRET = "s3cr3t-passw0rd"


def session(steps):
    messages = [{"role": "user", "content": "Fix the bug."}]
    for i in range(steps):
        call = {"id": f"c{i}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append(
            {"role": "tool", "tool_call_id": f"c{i}", "content": f"file {i} " + "some words " * 200}
        )
    return json.dumps({"model": "m", "messages": messages}).encode()


def incoming(steps):
    return Incoming("openai_chat", "up", "/v1/chat/completions", (), session(steps), "c")


def pipeline(store, **settings):
    settings = {
        "windows": {"m": Window(20_000)},
        "economy": False,
        "decide_timeout_seconds": 60,
        **settings,
    }
    return Pipeline(Settings(**settings), store)


def test_requests_flow_while_the_database_is_down_and_edits_are_kept_afterwards(server):
    url = server.database()

    async def story():
        with PostgreSQLStore(url, timeout=60) as store, PostgreSQLStore(url, timeout=60) as fresh:
            warm, cold = (
                pipeline(store, store_cooldown_seconds=0.0),
                pipeline(fresh, store_cooldown_seconds=0.0),
            )
            first = await warm.prepare(incoming(60))
            server.stop()
            held = await warm.prepare(incoming(61))
            short = await cold.prepare(incoming(3))
            server.start()
            after = await warm.prepare(incoming(62))
            await warm.aclose()
            await cold.aclose()
            return first, held, short, after

    first, held, short, after = asyncio.run(story())
    assert (first.outcome, held.outcome, held.reason) == ("edited", "failed", "store")
    assert held.edits == first.edits == after.edits  # shown from memory, then from the store again
    assert (short.outcome, short.reason, short.body) == ("failed", "store", session(3))
    assert after.outcome == "edited"


def test_while_the_database_hangs_requests_flow(server):
    url = server.database()

    async def story():
        with PostgreSQLStore(url, timeout=1) as store:
            warm = pipeline(store, decide_timeout_seconds=0.4)
            await warm.prepare(incoming(3))
            with server.frozen():
                out = await warm.prepare(incoming(4))
            await warm.aclose()
            return out

    out = asyncio.run(story())
    assert out.outcome == "failed"
    assert out.reason in {"deadline", "store", "busy"}
    assert out.body == session(4)


def test_replicas_of_one_database_have_one_salt(server):
    config = Config(
        upstreams=(Upstream(name="a", url="http://127.0.0.1:9"),), store=server.database()
    )
    first, second = with_salt(config), with_salt(config)
    assert first.salt == second.salt and len(first.salt) == 32


def test_an_invalid_database_address_error_does_not_suggest_a_salt(server):
    for wrong in ("postgresql://me:a/b@host/db", server.url("that_nobody_made")):
        with pytest.raises(StoreError) as caught:
            with_salt(Config(store=wrong))
        assert "REFOLD_SALT" not in str(caught.value)


def test_a_gateway_with_a_configured_salt_starts_while_its_database_is_down(server, tmp_path):
    url = server.database(password=SECRET)
    with ScriptedProvider(["Hello."]) as upstream:
        compaction = "[compaction]\nstore_cooldown_seconds = 0.1\ndecide_timeout_seconds = 60\n"
        config = f'[[upstream]]\nurl = "{upstream.url}"\n[windows]\nm = 20_000\n{compaction}'
        server.stop()
        with pytest.raises(StoreError, match="with REFOLD_SALT set") as caught:
            with_salt(Config(store=url))
        process = GatewayProcess(
            tmp_path, "gateway", config, REFOLD_SALT="the same for all", REFOLD_STORE=url
        )
        with run_processes(process):

            def ask(steps):
                answer = httpx.post(
                    f"{process.url}/v1/chat/completions", content=session(steps), timeout=60
                )
                assert answer.status_code == 200
                return answer.headers.get("refold-edits")

            ask(3)
            server.start()
            assert any(int(ask(60) or 0) for _ in range(50))
    assert "the store does not answer" in process.log.read_text()
    assert SECRET not in process.log.read_text() + str(caught.value) + repr(Config(store=url))


def test_the_store_can_be_set_by_an_environment_variable():
    """The address may hold a password, and a command line is visible to every user of the
    machine."""
    assert (
        with_environment(Config(), {"REFOLD_STORE": "postgresql://host/a"}).store
        == "postgresql://host/a"
    )
    assert parse_config('store = "a.db"\nworkers = 3', environment={}).workers == 3
