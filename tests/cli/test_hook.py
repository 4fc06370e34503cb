"""`refold hook`: its answers to Claude Code's hooks, and that everything left out can be found
again."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from refold import __version__
from refold.cli.hook import DEFAULT_LIMIT, EVENTS, KEPT_SECONDS
from refold.cli.mcp_server import recall
from refold.cli.places import SESSIONS, data_directory
from refold.text.left_out import SUFFIX, LeftOut, Seen, append, find_seen, read_left_out
from tests.support.command_line import refold, set_home
from tests.support.pages import ROOT

LONG = "".join(f"{n:05} a line of an output, as tools write them\n" for n in range(1_000))
SHORT = "".join(f"{n:05} a line\n" for n in range(100))
BASH = {"interrupted": False, "isImage": False, "stderr": ""}


class Client:
    """Writes a session as Claude Code does, and calls the hook for each result."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "5e5510aa-0000-4000-8000-000000000000.jsonl"
        self.parent: str | None = None
        self.number = 0
        self.say("user", "Find the fault.")

    def say(self, role: str, content, **fields) -> None:
        self.number += 1
        line = {"type": role, "sessionId": self.path.stem, "cwd": "/src", "uuid": f"u{self.number}"}
        message = {
            "role": role,
            "content": content,
            "id": f"m{self.number}",
            "model": "claude-opus-5-5",
        }
        line |= {"parentUuid": self.parent, "message": message, **fields}
        self.parent = line["uuid"]
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def ask(self, tool: str, asked, response, call: str = "", **fields):
        """Return the hook's answer, or None."""
        event = {"session_id": self.path.stem, "transcript_path": str(self.path), "cwd": "/src",
                 "hook_event_name": "PostToolUse", "tool_name": tool, "tool_input": asked,
                 "tool_response": response, "tool_use_id": call or f"toolu_{self.number}", **fields}  # fmt: skip
        done = refold("hook", "post-tool-use", stdin=json.dumps(event).encode())
        assert (done.code, done.err) == (0, "")
        return json.loads(done.out)["hookSpecificOutput"]["updatedToolOutput"] if done.out else None

    def run(self, command: str, output: str, show=str) -> str:
        """Run a command and return the output that the model gets."""
        call = f"toolu_{self.number}"
        self.say(
            "assistant",
            [{"type": "tool_use", "id": call, "name": "Bash", "input": {"command": command}}],
        )
        answer = self.ask("Bash", {"command": command}, {**BASH, "stdout": output}, call)
        text = (answer or {"stdout": output})["stdout"]
        self.say(
            "user",
            [
                {
                    "type": "tool_result",
                    "tool_use_id": call,
                    "content": text + "\n\nA note of the client.",
                }
            ],
        )
        return text


@pytest.fixture
def client(tmp_path, monkeypatch) -> Client:
    set_home(monkeypatch, tmp_path)
    folder = tmp_path / ".claude/projects/-src"
    folder.mkdir(parents=True)
    return Client(folder)


def test_clipped_and_repeated_results_can_be_unfolded_and_recalled(client) -> None:
    first = client.run("make", LONG)
    assert len(first) <= DEFAULT_LIMIT + 200 and "edit toolu_1" in first
    assert client.run("ls", SHORT) == SHORT
    assert client.run("ls", SHORT) == "[the same result as before (call toolu_3, edit toolu_5)]"
    before = client.path.read_bytes()
    for call, whole in (("toolu_1", LONG), ("toolu_5", SHORT)):
        (session,) = refold("unfold", "5e5510aa", call, "--json").json["sessions"]
        (block,) = session["entries"][0]["content"]
        assert block["content"] == whole + "\n\nA note of the client."
    assert "00500 a line" in refold("recall", "5e5510aa", "00500 a line of an output").out
    tokens = refold("stats", client.path, "--json").json["sessions"][0]["tokens"]
    assert tokens["unedited"] > 2 * tokens["sent"]
    assert refold("check", client.path, "--sent").code == 0
    assert client.path.read_bytes() == before


def test_a_result_that_the_client_shortened_is_shown_again_in_any_alphabet(client) -> None:
    text = "".join(f"{n:04} 修复登录页面\n" for n in range(300))
    client.run("ls", text)
    whole, half = (json.dumps(words)[1:-1] for words in (text, text[: len(text) // 2]))
    client.path.write_text(client.path.read_text().replace(whole, half))
    assert client.run("ls", text) == text


def test_edits_of_the_hook_can_be_reverted_like_any_other(client) -> None:
    client.run("make", LONG)
    client.say("assistant", [{"type": "text", "text": "It is built."}])
    assert refold("revert", client.path, "--json").json["sessions"][0]["reverted"]
    tokens = refold("stats", client.path, "--json").json["sessions"][0]["tokens"]
    assert tokens["sent"] == tokens["unedited"]


def test_an_edit_of_an_unanswered_result_is_reverted_by_the_id_in_its_text(client) -> None:
    client.run("make", LONG)
    client.run("ls", SHORT)
    client.run("ls", SHORT)
    (session,) = refold("revert", client.path, "toolu_1", "--json").json["sessions"]
    assert [edit["start"] for edit in session["reverted"]] == [2]
    assert refold("revert", client.path, "--before", "toolu_5").code == 0
    tokens = refold("stats", client.path, "--json").json["sessions"][0]["tokens"]
    assert tokens["sent"] == tokens["unedited"]


def test_a_fork_can_unfold_results_that_were_clipped_before_it(client) -> None:
    client.run("make", LONG)
    fork = client.path.with_stem("f0f0f0f0-0000-4000-8000-000000000000")
    marks = [{"forkedFrom": {"sessionId": "../up"}}, {"requestSessionId": client.path.stem}, {"forkedFrom": 7}]  # fmt: skip
    with fork.open("w") as file:
        for line, mark in zip(client.path.read_text().splitlines(), marks, strict=True):
            file.write(json.dumps({**json.loads(line), "sessionId": fork.stem, **mark}) + "\n")
    assert "00500 a line" in refold("unfold", "f0f0f0f0", "toolu_1").out
    event = json.dumps({"transcript_path": str(fork)}).encode()
    assert refold("hook", "pre-compact", stdin=event) == (0, "", "", b"")
    for path in client.path.parent.iterdir():
        path.unlink()
    assert "00500 a line" in refold("unfold", "f0f0f0f0", "toolu_1").out


def test_a_repeated_result_is_shown_in_full_after_the_client_compacted(client) -> None:
    client.run("ls", SHORT)
    boundary = {"subtype": "compact_boundary", "compactMetadata": {"trigger": "auto"}}
    client.say("system", "", **boundary, logicalParentUuid=client.parent)
    client.say("user", "Summary: a fault.", isCompactSummary=True)
    assert client.run("ls", SHORT) == SHORT
    hits = refold("recall", client.path, "00042 a line", "--json").json["sessions"][0]["hits"]
    assert hits[0]["position"] == 2  # text that the client's compaction hid is found, too
    assert "hidden by client compaction " in refold("recall", client.path, "00042 a line").out
    assert refold(
        "compact", client.path, "--to", "200", "--strategy", "Summarize(keep=1)"
    ).code in (0, 1)
    assert "hidden by edit " in refold("recall", client.path, "00042 a line").out, (
        "what can go back"
    )
    asked = refold("recall", client.path, "00042 a line", "--json").json["sessions"]
    assert [json.loads(recall("00042 a line", str(client.path)))] == asked  # as an agent gets it


def test_a_repeated_failure_is_shown_in_full_each_time(client) -> None:
    failure = f"Error: it broke\n{SHORT}"
    assert client.run("make", failure) == failure
    assert client.run("make", failure) == failure


def test_known_tool_outputs_are_clipped_and_all_others_are_unchanged(client, tmp_path) -> None:
    file = {"filePath": "/src/a.py", "content": LONG * 2, "numLines": 2_001, "startLine": 1}
    read = client.ask("Read", {"file_path": "/src/a.py"}, {"type": "text", "file": file})
    shown_text, mark = read["file"]["content"].split("[…")
    assert (
        LONG.startswith(shown_text[:1_000])
        and (LONG * 2).startswith(shown_text)
        and "left out" in mark
    )
    assert read["file"]["numLines"] == read["file"]["content"].count("\n") + 1
    blocks = [{"type": "text", "text": LONG}, {"type": "image", "data": "x"}]
    shown = client.ask("mcp__docs__search", {"query": "a"}, blocks)
    assert shown[1] == blocks[1] and len(shown[0]["text"]) < len(LONG)
    assert len(
        client.ask("Grep", {"pattern": "a"}, {"mode": "content", "content": LONG})["content"]
    ) < len(LONG)
    for tool, response in (
        ("Bash", LONG),
        ("Bash", {**BASH, "stdout": LONG, "isImage": True}),
        ("Bash", {**BASH, "stdout": LONG, "persistedOutputPath": "/x"}),
        ("Bash", {**BASH, "stdout": [LONG]}),
        ("Read", {"type": "image", "file": {"base64": LONG}}),
        ("Edit", {"content": LONG}),
        ("mcp__refold__unfold", [{"type": "text", "text": LONG}]),
        ("Unheard", {"stdout": LONG, "stderr": ""}),
    ):
        assert client.ask(tool, {"command": tool}, response, "toolu_x") is None


def test_results_seen_by_the_main_agent_are_not_repeats_for_a_subagent(client) -> None:
    folder = client.path.with_suffix("") / "subagents"
    folder.mkdir(parents=True)
    client.run("ls", SHORT)
    result = {**BASH, "stdout": SHORT}
    assert client.ask("Bash", {"command": "ls"}, result, "toolu_s", agent_id="a1") is None
    assert (folder / f"agent-a1.jsonl{SUFFIX}").exists()


@pytest.mark.parametrize(
    "event",
    [b"", b"no JSON", b"[]", b"{}", b'{"tool_use_id": 1}', b"[" * 100_000,
     json.dumps({"tool_use_id": "t", "tool_name": "Bash", "tool_input": {}, "transcript_path": "/no/such/s.jsonl", "tool_response": {**BASH, "stdout": LONG}}).encode()],
)  # fmt: skip
@pytest.mark.parametrize("name", ["post-tool-use", "pre-compact"])
def test_an_invalid_hook_event_exits_0_without_output(name, event, tmp_path, monkeypatch) -> None:
    set_home(monkeypatch, tmp_path)
    done = refold("hook", name, stdin=event)
    assert (done.code, done.out) == (0, "") and done.err.count("\n") <= 1


def test_a_result_is_not_clipped_if_it_cannot_be_saved(client, monkeypatch) -> None:
    client.path.with_name(client.path.name + SUFFIX).mkdir()
    event = {"tool_use_id": "t", "tool_name": "Bash", "tool_input": {"command": "ls"}, "transcript_path": str(client.path), "tool_response": {**BASH, "stdout": LONG}}  # fmt: skip
    done = refold("hook", "post-tool-use", stdin=json.dumps(event).encode())
    assert (done.code, done.out) == (0, "") and done.err.count("\n") <= 1
    client.path.with_name(client.path.name + SUFFIX).rmdir()
    monkeypatch.setenv("REFOLD_HOOK_LIMIT", "many")
    done = refold("hook", "post-tool-use", stdin=json.dumps(event).encode())
    assert done.out == "" and "REFOLD_HOOK_LIMIT must be a number" in done.err


def test_a_session_can_be_read_after_the_client_deleted_its_files(client, tmp_path) -> None:
    client.run("make", LONG)
    stale = data_directory(tmp_path) / SESSIONS / "stale.jsonl"
    stale.parent.mkdir(parents=True)
    stale.write_text("{}")
    old = stale.stat().st_mtime - KEPT_SECONDS - 60
    os.utime(stale, (old, old))
    event = {
        "hook_event_name": "PreCompact",
        "trigger": "auto",
        "transcript_path": str(client.path),
    }
    assert refold("hook", "pre-compact", stdin=json.dumps(event).encode()) == (0, "", "", b"")
    assert not stale.exists()
    for path in client.path.parent.iterdir():
        path.unlink()
    assert "edit toolu_1" not in refold("unfold", "5e5510aa", "toolu_1").out
    assert "00500 a line" in refold("unfold", "--last", "toolu_1").out


def test_a_results_file_with_a_torn_or_newer_line_is_still_read(tmp_path) -> None:
    path = str(tmp_path / "s.jsonl")
    append(path, [LeftOut("a", "whole", "part"), Seen("b", "k")])
    with Path(path + SUFFIX).open("a") as file:
        file.write('{"refold": 2, "call": "c", "text": "x", "shown": "y"}\n{"refold": 1, "ca')
    append(path, [LeftOut("a", "whole", "part"), LeftOut("d", "w\ud800", "p", 7)])
    assert read_left_out(path) == {
        "a": [("a", "whole", "part", 0)],
        "d": [("d", "w\ud800", "p", 7)],
    }
    assert (find_seen(path, "k"), find_seen(path, "z")) == (["b"], [])
    assert read_left_out(str(tmp_path / "none")) == {}


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("refold.cli.hook", "click rich dataclasses refold.messages sqlite3 typing_extensions"),
        ("refold.session_files", "click rich refold.codecs refold.core refold.messages"),
    ],
)
def test_the_hook_and_the_session_reader_import_no_heavy_modules(module, heavy) -> None:
    """Not even if the result was seen before and the session's file is read."""
    code = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env={"PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip
    assert not {"asyncio", *heavy.split()} & set(done.stdout.split())


def test_the_claude_code_plugin_calls_only_existing_commands(tmp_path, monkeypatch) -> None:
    set_home(monkeypatch, tmp_path)
    place = ROOT / "integrations/claude-code"
    manifest = json.loads((place / ".claude-plugin/plugin.json").read_text())
    (listed,) = json.loads((place / ".claude-plugin/marketplace.json").read_text())["plugins"]
    assert manifest["version"] == __version__ and listed["name"] == manifest["name"] == "refold"
    hooks = json.loads((place / "hooks/hooks.json").read_text())["hooks"]
    commands = [
        hook["command"]
        for entries in hooks.values()
        for entry in entries
        for hook in entry["hooks"]
    ]
    assert commands == [f"refold hook {event}" for event in EVENTS]
    matcher = re.compile(hooks["PostToolUse"][0]["matcher"])
    assert all(map(matcher.fullmatch, ("Bash", "Read", "Grep", "WebFetch", "mcp__docs__search")))
    for page in (place / "commands").glob("*.md"):
        line = next(line for line in page.read_text().splitlines() if line.startswith("!`refold "))
        words = line.strip("!`").replace("$ARGUMENTS", "").split()[1:]
        refused = refold(*words)
        assert (refused.code, refused.err.count("\n")) == (
            2,
            1,
        ) and "is on this machine" in refused.err
