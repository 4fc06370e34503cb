"""What a gateway leaves behind when it is stopped."""

import json
import shutil
import sqlite3
import subprocess
import sys

import httpx
import pytest

from refold.memory import SQLiteMemories
from refold.testing.scripted_provider import ScriptedProvider
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
    """Of a copy of *file* alone, without what stands beside it."""
    alone = shutil.copy(file, place / "alone.db")
    connection = sqlite3.connect(alone)
    try:
        return connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
    finally:
        connection.close()


@pytest.mark.parametrize("workers", ["1", "2"])
def test_c8_after_sigterm_the_file_of_the_store_alone_holds_everything(tmp_path, workers):
    """`cp refold.db backup.db` after a stop copied a file without any table: all was in the write-ahead log."""
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


def test_c8_the_command_line_leaves_the_file_alone_whole(tmp_path):
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


def test_f8_what_the_api_s_compact_hides_is_flushed_into_the_file_that_refold_toml_names(tmp_path):
    """S2-55: `flushed_memories` was 0 whatever was done: nothing could name a sink. Agents stay apart, content counts once."""
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


def test_f8_a_sink_that_cannot_be_opened_stops_the_gateway_at_its_start(tmp_path):
    (tmp_path / "facts.db").mkdir()
    process = GatewayProcess(
        tmp_path, "memory", 'memory = "facts.db"\n[[upstream]]\nurl = "http://127.0.0.1:1"\n'
    )
    assert process.process.wait(300) != 0
    assert "facts.db: cannot open: it is a directory" in process.log.read_text()
