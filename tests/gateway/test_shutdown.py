"""What a gateway leaves behind when it stops, and which clients it still answers."""

import asyncio
import json
import shutil
import socket
import sqlite3
import subprocess
import sys

import httpx
import pytest

from refold.gateway import Config, Gateway, Limits, Pipeline, Settings, Upstream, create_server
from refold.memory import SQLiteMemories
from refold.stores import MemoryStore
from refold.testing.scripted_provider import Reply, ScriptedProvider
from tests.support.gateway_processes import GatewayProcess, run_processes


def session(steps: int) -> dict[str, object]:
    messages: list[object] = [{"role": "user", "content": "Read all the files."}]
    for i in range(steps):
        call = {
            "id": f"c{i}",
            "type": "function",
            "function": {"name": "read", "arguments": json.dumps({"n": i})},
        }
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append(
            {"role": "tool", "tool_call_id": f"c{i}", "content": f"file {i}: " + "text " * 500}
        )
    return {"model": "m", "messages": messages}


def rows(file, table: str, place) -> int:
    """Return the rows of a copy of *file* alone, without its side files."""
    alone = shutil.copy(file, place / "alone.db")
    connection = sqlite3.connect(alone)
    try:
        return connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
    finally:
        connection.close()


@pytest.mark.parametrize("workers", ["1", "2"])
def test_c8_after_sigterm_the_store_file_is_complete_without_its_wal(tmp_path, workers):
    """`cp refold.db backup.db` after a stop used to copy a file without tables: everything was in
    the write-ahead log."""
    with ScriptedProvider(["Hello."]) as upstream:
        config = f'[[upstream]]\nurl = "{upstream.url}"\n[windows]\nm = 16_000\n'
        process = GatewayProcess(tmp_path, "ending", config, "--workers", workers)
        with run_processes(process):
            answer = httpx.post(f"{process.url}/v1/chat/completions", json=session(60), timeout=60)
            assert answer.headers["refold-edits"] != "0"
            process.stop()
    assert rows(tmp_path / "refold.db", "edits", tmp_path) > 0
    assert rows(tmp_path / "refold.db.ledger", "refold_calls", tmp_path) > 0
    assert not list(tmp_path.glob("*-wal"))


def test_c8_after_a_cli_command_the_store_file_is_complete_without_its_wal(tmp_path):
    (tmp_path / "history.json").write_text(json.dumps(session(60)))
    command = [
        sys.executable,
        "-m",
        "refold",
        "compact",
        "history.json",
        "--to",
        "8000",
        "--store",
        "kept.db",
    ]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert rows(tmp_path / "kept.db", "edits", tmp_path) > 0
    assert not list(tmp_path.glob("*-wal"))


def write_talk(agent: str) -> dict[str, object]:
    words = ["I prefer tabs.", "我住在北京。"] if agent == "a" else ["Never touch src/main.py."]
    filler = " Here are the details of this step." * 40
    messages = [{"role": "user", "content": word + filler} for word in words]
    messages += [
        {"role": ("assistant", "user")[n % 2], "content": f"Step {n}.{filler}"} for n in range(40)
    ]
    return {"messages": messages, "agent_id": agent, "config": {"keep_recent_messages": 2}}


def test_f8_memories_of_the_compact_operation_are_flushed_to_the_configured_file(tmp_path):
    """S2-55: `flushed_memories` was always 0 because no sink could be configured. Agents are kept
    apart, and equal content counts once."""
    with ScriptedProvider(["Hello."]) as upstream:
        config = f'memory = "facts.db"\n[[upstream]]\nurl = "{upstream.url}"\n'
        process = GatewayProcess(tmp_path, "memory", config)
        with run_processes(process):
            asked = [
                httpx.post(
                    f"{process.url}/refold/api/compact", json=write_talk(agent), timeout=60
                ).json()["result"]
                for agent in ("a", "b", "a")
            ]
            process.stop()
    assert [result["flushed_memories"] > 0 for result in asked] == [True, True, False]
    with (
        SQLiteMemories(tmp_path / "facts.db", "a") as first,
        SQLiteMemories(tmp_path / "facts.db", "b") as second,
    ):
        assert {"I prefer tabs.", "我住在北京。"} <= {
            memory.text for memory in first.search("", 100)
        }
        assert [memory.text for memory in second.search("main.py")] == ["Never touch src/main.py."]
    assert not list(tmp_path.glob("facts.db-wal"))


def test_f8_a_memory_file_that_cannot_be_opened_stops_the_gateway_at_startup(tmp_path):
    (tmp_path / "facts.db").mkdir()
    process = GatewayProcess(
        tmp_path, "memory", 'memory = "facts.db"\n[[upstream]]\nurl = "http://127.0.0.1:1"\n'
    )
    assert process.process.wait(300) != 0
    assert "facts.db: cannot open: it is a directory" in process.log.read_text()


REQUEST = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}"


async def answers_of_a_server_that_stops(upstream: str, *, used: bool) -> list[bytes]:
    """Return the responses on ten connections that the server has not accepted yet, or has answered
    once, and that send a request just as it stops."""
    config = Config(
        upstreams=(Upstream(name="test", url=upstream),),
        salt=b"s",
        limits=Limits(parting_seconds=60),
    )
    server = create_server(config, Gateway(config, Pipeline(Settings(), MemoryStore())))
    server.config.load()
    server.lifespan = server.config.lifespan_class(server.config)
    listening, loop = (
        socket.create_server(("127.0.0.1", 0), backlog=128),
        asyncio.get_running_loop(),
    )
    await server.startup([listening])
    connections = [socket.create_connection(listening.getsockname()) for _ in range(10)]

    async def exchange(connection: socket.socket) -> bytes:
        connection.setblocking(False)
        await loop.sock_sendall(connection, REQUEST)
        answer = b""
        while not answer.endswith(b"0\r\n\r\n"):
            answer += (piece := await loop.sock_recv(connection, 65_536))
            assert piece, "closed without an answer"
        return answer

    if used:
        await asyncio.gather(*map(exchange, connections))
    stopping = asyncio.create_task(server.shutdown([listening]))
    try:
        if used:
            await asyncio.sleep(0.05)  # the server has noticed by now
        return await asyncio.gather(*map(exchange, connections))
    finally:
        for connection in connections:
            connection.close()
        await stopping


@pytest.mark.parametrize("used", [False, True])
def test_c8_connections_opened_before_a_shutdown_are_answered(used):
    """Load balancers answered 502 at each restart: waiting or kept connections were reset during a
    POST."""
    with ScriptedProvider(["Hello."] * 20) as upstream:
        answers = asyncio.run(answers_of_a_server_that_stops(upstream.url, used=used))
    assert all(answer.startswith(b"HTTP/1.1 200") for answer in answers)
    assert not used or all(b"connection: close" in answer for answer in answers)


def test_c8_responses_cut_off_by_a_shutdown_are_logged(tmp_path):
    """Such a request's log line used to say status 200 and no more, and the server added a
    traceback."""
    with ScriptedProvider([Reply("Hello. " * 50, pause=60)]) as upstream:
        limits = "[limits]\ngrace_seconds = 1\n"
        config = f'store = ":memory:"\n[[upstream]]\nurl = "{upstream.url}"\n{limits}'
        process = GatewayProcess(tmp_path, "cut", config)
        with run_processes(process):
            asked = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
            url = f"{process.url}/v1/chat/completions"
            with httpx.stream("POST", url, json=asked, timeout=60) as answer:
                process.process.terminate()
                with pytest.raises(httpx.RemoteProtocolError):
                    answer.read()
            process.process.wait(60)
    lines = [json.loads(line) for line in process.log.read_text().splitlines()[1:]]
    (request,) = [line for line in lines if line["event"] == "request"]
    assert request["stopped"] is True and request["level"] == "warning"
    assert not [line for line in lines if line["level"] == "error" and "error" in line]
