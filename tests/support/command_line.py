"""Run the command line in this process, in another, and in a terminal."""

import contextlib
import hashlib
import io
import json
import os
import pty
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pytest

from refold.cli import commands


class Result(NamedTuple):
    """Exit code, standard output, standard error, and standard output as bytes."""

    code: int
    out: str
    err: str
    raw: bytes

    @property
    def json(self):
        return json.loads(self.out)


def refold(*arguments, stdin: bytes = b"") -> Result:
    """Run a command in this process."""
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8")
    before, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(stdin), "utf-8")
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = commands.run([str(argument) for argument in arguments])
            out.flush()
            err.flush()
    finally:
        sys.stdin = before
    raw = out.buffer.getvalue()
    return Result(code, raw.decode(), err.buffer.getvalue().decode(), raw)


def digest(path):
    """Hash a file, to check later that it is unchanged."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def edit_ids(file):
    """List the edits of a session from `refold view`."""
    items = refold("view", file, "--json").json["sessions"][0]["items"]
    return [item["edit"]["id"] for item in items if item["edit"]]


def claude_code_session() -> str:
    """Build a session file of Claude Code with a compaction of its own."""
    base = {
        "sessionId": "s1",
        "cwd": "/home/mika/src",
        "isSidechain": False,
        "timestamp": "2026-02-11T20:00:00.000Z",
    }
    lines = [
        {"type": "user", "uuid": "u1", "parentUuid": None, "message": {"role": "user", "content": "第一个请求 " * 30}},
        {"type": "assistant", "uuid": "u2", "parentUuid": "u1", "message": {"id": "m1", "model": "m", "role": "assistant", "content": [{"type": "text", "text": "好。"}]}},
        {"type": "system", "subtype": "compact_boundary", "uuid": "u3", "parentUuid": None, "logicalParentUuid": "u2", "compactMetadata": {"trigger": "auto"}},
        {"type": "user", "uuid": "u4", "parentUuid": "u3", "isCompactSummary": True, "isVisibleInTranscriptOnly": True, "message": {"role": "user", "content": "summary of it all"}},
        {"type": "user", "uuid": "u5", "parentUuid": "u4", "message": {"role": "user", "content": "Go on."}},
    ]  # fmt: skip
    return "".join(json.dumps({**base, **line}, ensure_ascii=False) + "\n" for line in lines)


def set_home(monkeypatch, home) -> None:
    """Make clients keep their sessions below *home* only."""
    monkeypatch.setenv("HOME", str(home))
    for name in (
        "CLAUDE_CONFIG_DIR",
        "CODEX_HOME",
        "CONTINUE_GLOBAL_DIR",
        "COPILOT_HOME",
        "GEMINI_CLI_HOME",
        "KIMI_SHARE_DIR",
        "PI_CODING_AGENT_DIR",
        "QWEN_HOME",
        "QWEN_RUNTIME_DIR",
        "XDG_DATA_HOME",
        "OPENCODE_DB",
    ):
        monkeypatch.delenv(name, raising=False)


REFOLD = [sys.executable, "-W", "error", "-m", "refold"]


def run_on_terminal(arguments, **env) -> bytes:
    """Return the output of a command in this process with a terminal as standard output and
    error."""
    mine, theirs = pty.openpty()
    with (
        pytest.MonkeyPatch.context() as patch,
        ThreadPoolExecutor(1) as pool,
        os.fdopen(mine, "rb", 0) as screen,
    ):
        shown = pool.submit(read_screen, screen)
        for name, value in {"TERM": "xterm-256color", **env}.items():
            patch.setenv(name, value)
        with (
            os.fdopen(theirs, "w", encoding="utf-8") as terminal,
            contextlib.redirect_stdout(terminal),
            contextlib.redirect_stderr(terminal),
        ):
            code = commands.run([str(argument) for argument in arguments])
        assert code == 0
        return shown.result()


def read_screen(screen) -> bytes:
    """Read until the other end of a terminal is closed."""
    out = b""
    with contextlib.suppress(OSError):
        while chunk := screen.read(65536):
            out += chunk
    return out
