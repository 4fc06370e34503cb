"""Finding sessions in a home directory made here."""

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from refold.session_files import discover


def put(path: Path, *records, age=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(map(json.dumps, records)))
    os.utime(path, (1_800_000_000 - age, 1_800_000_000 - age))
    return path


def database(path: Path):
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as base:
        base.execute("CREATE TABLE session (id, directory, title, time_updated)")
        base.execute("CREATE TABLE message (id, session_id, data)")
        base.execute("CREATE TABLE part (id, message_id, session_id, data)")
        base.execute("INSERT INTO session VALUES ('ses_1', '/o', 'a title', 1700000000000)")
        base.execute("INSERT INTO part VALUES ('p', 'm', 'ses_1', '12345678')")
        base.commit()
    return path


def test_the_sessions_of_every_client_are_found_in_its_default_directory(tmp_path):
    claude = put(tmp_path / ".claude/projects/-w/s1.jsonl", {"type": "x"}, {"cwd": "/c"}, age=1)
    put(tmp_path / ".claude/projects/-w/s1/subagents/agent-1.jsonl", {})
    put(tmp_path / ".claude/history.jsonl", {})
    elsewhere = put(tmp_path / ".config/claude/projects/-w/s2.jsonl", age=2)
    codex = put(
        tmp_path / ".codex/sessions/2026/05/12/rollout-1.jsonl", {"payload": {"cwd": "/x"}}, age=3
    )
    cold = put(tmp_path / ".codex/archived_sessions/rollout-2.jsonl.zst", age=4)
    put(tmp_path / ".codex/history.jsonl", {})
    gemini = put(tmp_path / ".gemini/tmp/ab/chats/session-1.jsonl", {}, age=5)
    (tmp_path / ".gemini/tmp/ab/.project_root").write_text("/g\n")
    qwen = put(tmp_path / ".qwen/projects/p/chats/q.jsonl", {"cwd": "/q"}, age=6)
    pi = put(tmp_path / ".pi/agent/sessions/--w--/p.jsonl", {"cwd": "/p"}, age=7)
    place = {"data": {"context": {"cwd": "/l"}}}
    copilot = put(tmp_path / ".copilot/session-state/c-1/events.jsonl", place, age=8)
    opencode = database(tmp_path / ".local/share/opencode/opencode.db")
    sessions = discover(tmp_path, {})
    assert [(session.client, session.path, session.cwd) for session in sessions] == [
        ("claude_code", claude, "/c"),
        ("claude_code", elsewhere, ""),
        ("codex", codex, "/x"),
        ("codex", cold, ""),
        ("gemini_cli", gemini, "/g"),
        ("qwen", qwen, "/q"),
        ("pi", pi, "/p"),
        ("copilot", copilot, "/l"),
        ("opencode", opencode, "/o"),
    ]
    assert [session.size_bytes for session in sessions[:-1]] == [
        session.path.stat().st_size for session in sessions[:-1]
    ]
    assert sessions[-2].id == "c-1"
    assert (sessions[-1].id, sessions[-1].title) == ("ses_1", "a title")
    assert sessions[-1].size_bytes == (8 if sqlite3.sqlite_version_info >= (3, 43) else -1)


@pytest.mark.parametrize(
    ("name", "client", "path"),
    [
        ("CLAUDE_CONFIG_DIR", "claude_code", "projects/-w/s.jsonl"),
        ("CODEX_HOME", "codex", "sessions/2026/01/01/rollout-1.jsonl"),
        ("GEMINI_CLI_HOME", "gemini_cli", ".gemini/tmp/ab/chats/session-1.json"),
        ("KIMI_SHARE_DIR", "kimi", "sessions/d/k-1/context.jsonl"),
        ("PI_CODING_AGENT_DIR", "pi", "sessions/--w--/p.jsonl"),
        ("QWEN_HOME", "qwen", "projects/p/chats/q.jsonl"),
        ("QWEN_RUNTIME_DIR", "qwen", "projects/p/chats/q.jsonl"),
        ("COPILOT_HOME", "copilot", "session-state/c-1/events.jsonl"),
    ],
)
def test_environment_variables_set_the_directories_of_clients(tmp_path, name, client, path):
    put(tmp_path / "elsewhere" / path, {})
    assert [
        session.client for session in discover(tmp_path, {name: str(tmp_path / "elsewhere")})
    ] == [client]
    assert discover(tmp_path, {}) == []


def test_what_qwen_code_writes_is_found_apart_from_its_settings(tmp_path):
    put(tmp_path / "settings/projects/p/chats/old.jsonl", {})
    new = put(tmp_path / "runtime/projects/p/chats/new.jsonl", {})
    env = {"QWEN_HOME": str(tmp_path / "settings"), "QWEN_RUNTIME_DIR": str(tmp_path / "runtime")}
    assert [session.path for session in discover(tmp_path, env)] == [new]


def test_the_working_directory_is_found_behind_an_image_in_the_first_message(tmp_path):
    image = {"type": "image", "source": {"type": "base64", "data": "A" * 1_000_000}}
    first = {"type": "user", "message": {"content": [image]}, "cwd": "/w"}
    put(tmp_path / ".claude/projects/-w/s.jsonl", {"type": "mode"}, first)
    assert [session.cwd for session in discover(tmp_path, {})] == ["/w"]


def test_a_session_that_moved_into_the_database_is_listed_only_from_there(tmp_path):
    share = tmp_path / ".local/share/opencode"
    for id in ("ses_1", "ses_2"):
        put(share / f"storage/session/p/{id}.json", {"id": id, "directory": "/o"})
    assert [session.path.name for session in discover(tmp_path, {})] == ["ses_2.json", "ses_1.json"]
    database(share / "opencode.db")
    assert [(session.path.name, session.id) for session in discover(tmp_path, {})] == [
        ("ses_2.json", "ses_2"),
        ("opencode.db", "ses_1"),
    ]


def test_environment_variables_set_the_path_of_databases(tmp_path):
    database(tmp_path / "data/opencode/opencode-dev.db")
    database(tmp_path / "named.db")
    assert [
        session.path.name
        for session in discover(tmp_path, {"XDG_DATA_HOME": str(tmp_path / "data")})
    ] == ["opencode-dev.db"]
    assert [
        session.path.name
        for session in discover(tmp_path, {"OPENCODE_DB": str(tmp_path / "named.db")})
    ] == ["named.db"]
    below = {"OPENCODE_DB": "opencode-dev.db", "XDG_DATA_HOME": str(tmp_path / "data")}
    assert [session.path.name for session in discover(tmp_path, below)] == ["opencode-dev.db"]


def test_unreadable_files_are_skipped(tmp_path):
    put(tmp_path / ".claude/projects/-w/dead.jsonl").unlink()
    (tmp_path / ".claude/projects/-w/dead.jsonl").symlink_to(tmp_path / "nowhere")
    (tmp_path / ".claude/projects/-w/folder.jsonl").mkdir()
    binary = put(tmp_path / ".claude/projects/-w/binary.jsonl")
    binary.write_bytes(b"\0\xff\n{")
    (tmp_path / ".local/share/opencode").mkdir(parents=True)
    (tmp_path / ".local/share/opencode/opencode.db").write_text("no database")
    assert [session.path for session in discover(tmp_path, {})] == [binary]
    assert discover(tmp_path / "no such home", {"OPENCODE_DB": str(tmp_path / "none.db")}) == []
