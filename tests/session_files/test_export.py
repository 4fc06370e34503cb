"""Sessions written for their clients: they are read back unchanged, and the original stays."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from refold import check, session_files
from refold.errors import FormatError
from refold.session_files import FIELDS, discover
from refold.session_files.export import CLIENTS, export_session
from tests.support.command_line import refold, set_home
from tests.support.opencode import Base, finish_tool, text, tool

NOW = datetime(2026, 11, 23, 5, 50, tzinfo=UTC)
WORDS = "one two three four five six seven eight nine ten " * 60


def claude_lines(steps: int):
    base = {"sessionId": "s1", "cwd": "/src", "version": "2.1.330", "isSidechain": False}
    yield {
        **base,
        "type": "user",
        "uuid": "u",
        "parentUuid": None,
        "message": {"role": "user", "content": "Fix it."},
    }
    parent = "u"
    for n in range(steps):
        call = {"type": "tool_use", "id": f"t{n}", "name": "Bash", "input": {"command": f"cat {n}"}}
        result = {"type": "tool_result", "tool_use_id": f"t{n}", "content": f"file {n} {WORDS}"}
        answer = {
            "role": "assistant",
            "id": f"m{n}",
            "model": "claude-sonnet-4-5",
            "content": [call],
        }
        yield {
            **base,
            "type": "assistant",
            "uuid": f"a{n}",
            "parentUuid": parent,
            "message": answer,
        }
        parent = f"r{n}"
        yield {
            **base,
            "type": "user",
            "uuid": parent,
            "parentUuid": f"a{n}",
            "message": {"role": "user", "content": [result]},
        }


def codex_lines(steps: int):
    yield {
        "type": "session_meta",
        "ordinal": 0,
        "payload": {"id": "old", "cwd": "/src", "timestamp": "2026-11-23T05:00:00Z"},
    }
    yield {
        "type": "response_item",
        "ordinal": 1,
        "payload": {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "Fix it."}],
        },
    }
    for n in range(steps):
        call = {
            "type": "function_call",
            "name": "exec",
            "arguments": json.dumps({"cmd": f"cat {n}"}),
            "call_id": f"c{n}",
        }
        yield {"type": "response_item", "ordinal": 2 + 2 * n, "payload": call}
        result = {"type": "function_call_output", "call_id": f"c{n}", "output": f"file {n} {WORDS}"}
        yield {"type": "response_item", "ordinal": 3 + 2 * n, "payload": result}


def pi_lines(steps: int):
    yield {
        "type": "session",
        "version": 3,
        "id": "old",
        "cwd": "/src",
        "timestamp": "2026-11-23T05:00:00.000Z",
    }
    yield {
        "type": "message",
        "id": "u",
        "parentId": None,
        "message": {"role": "user", "content": "Fix it."},
    }
    parent, facts = "u", {"api": "anthropic-messages", "provider": "anthropic", "model": "m"}
    for n in range(steps):
        call = {"type": "toolCall", "id": f"t{n}", "name": "read", "arguments": {"path": f"{n}"}}
        yield {
            "type": "message",
            "id": f"a{n}",
            "parentId": parent,
            "message": {"role": "assistant", "content": [call], **facts},
        }
        parent = f"r{n}"
        content = [{"type": "text", "text": f"file {n} {WORDS}"}]
        result = {
            "role": "toolResult",
            "toolCallId": f"t{n}",
            "toolName": "read",
            "content": content,
            "isError": n == 1,
        }
        yield {"type": "message", "id": parent, "parentId": f"a{n}", "message": result}


LINES = {"claude_code": claude_lines, "codex": codex_lines, "pi": pi_lines}


def write_database(path: Path, steps: int) -> None:
    base = Base(path)
    base.session("ses_old")
    base.user("ses_old", text("Fix it."))
    for n in range(steps):
        thoughts = [
            text("I look."),
            {"type": "reasoning", "text": "Hm.", "metadata": {"anthropic": {"signature": "s"}}},
        ]
        result = (
            tool(f"c{n}", "error", error="none")
            if n == 1
            else finish_tool(f"c{n}", f"file {n} {WORDS}")
        )
        base.answer("ses_old", {"type": "step-start"}, *thoughts, result)
    base.base.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    base.base.close()


@pytest.fixture(params=CLIENTS)
def file(request, tmp_path: Path) -> Path:
    if request.param == "opencode":
        path = tmp_path / "old.db"
        write_database(path, 12)
        return path
    path = tmp_path / "old.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in LINES[request.param](12)), "utf-8")
    assert session_files.read(path).client == request.param
    return path


def test_an_exported_session_is_read_back_unchanged(file: Path) -> None:
    session = session_files.read(file)
    exported = export_session(session, session.messages, NOW, file.parent)
    again = session_files.read(exported.path)
    assert (again.id, again.client, again.cwd) == (exported.id, session.client, session.cwd)
    assert again.effective == session.messages and not again.problems
    assert exported.id in exported.command


def test_a_compacted_session_is_exported_as_its_view(file: Path) -> None:
    before = file.read_bytes()
    (answer,) = refold("compact", file, "--to", "2k", "--resume", "--json").json["sessions"]
    again = session_files.read(answer["export"]["file"])
    shown = refold("view", file, "--payload").json[FIELDS[again.format]]
    assert again.effective == shown and len(json.dumps(shown)) < len(before) / 2
    assert not check(again.effective_payload, again.format)
    assert file.read_bytes() == before


def test_compact_suggests_the_export_command_and_export_prints_the_new_id(file: Path) -> None:
    assert f"refold export {file} " in refold("compact", file, "--to", "2k").out
    exported = refold("export", file)
    assert exported.code == 0
    written = Path(exported.out.split("written to ")[1].splitlines()[0]).expanduser()
    assert session_files.read(written).id in exported.out and written.parent == file.parent


PLACES = {
    "claude_code": (".claude/projects/-src", ".claude/projects/-src"),
    "codex": (".codex/sessions/2026/11/22", ".codex/sessions/"),
}
"""Where a client's session may be, and where the client looks for a new one in /src."""


@pytest.mark.parametrize("client", LINES)
def test_b9_export_reports_where_a_session_must_be_moved_to_be_resumed(
    client: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The suggested command once did not look in the folder of a copied session."""
    set_home(monkeypatch, tmp_path)
    own, folder = PLACES.get(client, ("", ""))
    lines = "".join(json.dumps(line) + "\n" for line in LINES[client](12))
    for place in (own, "copies"):
        (tmp_path / place).mkdir(parents=True, exist_ok=True)
        (tmp_path / place / "old.jsonl").write_text(lines, "utf-8")
    monkeypatch.chdir(tmp_path / own)
    there = refold("export", "old.jsonl").out
    assert f"written to {tmp_path / own}".replace(str(tmp_path), "~") in there
    assert "resume with: " in there and "move the file" not in there
    monkeypatch.chdir(tmp_path / "copies")
    elsewhere = refold("export", "old.jsonl")
    assert "written to ~/copies/" in elsewhere.out
    exported = refold("export", "old.jsonl", "--json").json["sessions"][0]["export"]
    assert Path(exported["file"]).parent == tmp_path / "copies"
    if client == "pi":  # its command names the file
        assert "resume with: " in elsewhere.out and exported["file"] in exported["command"]
        assert exported["move_to"] is None
        return
    assert (
        "resume with: " not in elsewhere.out
        and f"looks for sessions in ~/{folder}" in elsewhere.out
    )
    assert exported["move_to"].startswith(str(tmp_path / folder))
    moved = Path(exported["move_to"]) / Path(exported["file"]).name
    moved.parent.mkdir(parents=True, exist_ok=True)
    Path(exported["file"]).rename(moved)
    assert moved in [session.path for session in discover(tmp_path, {})]


def test_a_session_of_an_unsupported_client_cannot_be_exported(tmp_path: Path) -> None:
    plain = tmp_path / "plain.json"
    plain.write_text(json.dumps([{"role": "user", "content": "Hello."}]))
    refused = refold("export", plain)
    assert refused.code == 2 and "plain" in refused.err and refused.err.count("\n") == 1
    with pytest.raises(FormatError, match="only of Claude Code, Codex, pi, OpenCode"):
        export_session(session_files.read(plain), [], NOW, tmp_path)
    assert refold("compact", plain, "--to", "2k", "--resume", "--dry-run").code == 2
