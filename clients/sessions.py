"""Resumed sessions: `python -m clients.sessions`. Each client works, its session is compacted and
exported, and it takes one more turn on the export. The model must then get a valid request that is
the view."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clients import claude_code, codex, opencode, pi, task
from clients.client import Client
from clients.model import history_text, is_for_an_answer
from clients.outside import refuse_way_out
from clients.run import REFOLD, bare_environment, program_path
from refold import check, session_files
from refold.session_files import FoundSession
from refold.testing.scripted_provider import Call, Received, Reply, ScriptedProvider

FILES = 8
TO = "8k"
PROMPT = f"Read part-01.log to part-{FILES:02}.log, one after the other."
MORE = "Say which word comes next, please."


@dataclass(frozen=True)
class Way:
    """How a client is started, and resumed."""

    client: Client
    first: tuple[str, ...]
    again: Callable[[dict[str, str]], tuple[str, ...]]
    """Returns the arguments from the output of `refold export --json`."""
    read: Callable[[str], Call]
    before: Callable[[dict[str, str]], tuple[str, ...]] | None = None
    """Returns the command to run first from the same output."""


_CLAUDE = ("-p", "--model", "claude-sonnet-4-5", "--dangerously-skip-permissions")
_CODEX = ("--skip-git-repo-check", "--sandbox", "danger-full-access", "--color", "never")
_PI = ("-p", "--provider", "gateway", "--model", "small", "--thinking", "low")
WAYS = (
    Way(
        claude_code.CLIENTS[1],
        (*_CLAUDE, PROMPT),
        lambda new: (*_CLAUDE, "--resume", new["new_id"], MORE),
        lambda path: Call("Bash", {"command": f"cat {path}"}),
    ),
    Way(
        codex.CLIENTS[0],
        ("exec", *_CODEX, PROMPT),
        lambda new: ("exec", *_CODEX, "resume", new["new_id"], MORE),
        lambda path: Call("exec_command", {"cmd": f"cat {path}"}),
    ),
    Way(
        next(client for client in pi.CLIENTS if client.api == "anthropic"),
        (*_PI, PROMPT),
        lambda new: (*_PI, "--session", new["file"], MORE),
        lambda path: Call("read", {"path": path}),
    ),
    Way(
        next(client for client in opencode.CLIENTS if client.api == "anthropic"),
        ("run", "--pure", PROMPT),
        lambda new: ("run", "--pure", "--session", new["new_id"], MORE),
        lambda path: Call("read", {"filePath": path}),
        before=lambda new: ("import", new["file"]),
    ),
)


def main() -> int:
    """Run all, or the named programs, and return 1 if one failed."""
    install = Path(os.environ.get("REFOLD_CLIENTS", ".clients")).absolute()
    troubles = {
        way.client.name: go_on(way, install)
        for way in WAYS
        if len(sys.argv) < 2 or way.client.program in sys.argv[1:]
    }
    for name, trouble in troubles.items():
        print(f"{name}: {trouble or 'goes on with what was exported'}")
    return int(any(troubles.values()))


def go_on(way: Way, install: Path) -> str:
    """Return what went wrong, or an empty text."""
    steps = 0

    def answer(received: Received) -> Reply:
        nonlocal steps
        if not is_for_an_answer(received) or not received.json.get("tools"):
            return Reply("A title.")
        if steps >= FILES:
            return Reply("All of them are read.", id="9999")
        steps += 1
        call = way.read(f"part-{steps:02}.log")
        return Reply(
            "Next.",
            calls=(Call(call.name, call.arguments, id=f"call_{steps:04}"),),
            id=f"{steps:04}",
        )

    with (
        tempfile.TemporaryDirectory() as root,
        ScriptedProvider(answer) as model,
        refuse_way_out() as way_out,
    ):
        home, work = Path(root) / "home", Path(root) / "work"
        home.mkdir()
        work.mkdir()
        task.lay_out(work)
        command = way.client.configure(home, model.url)
        environment = (
            bare_environment(home, install) | way_out.environment | dict(command.environment)
        )
        program = str(program_path(way.client, install))

        def run(words: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [program, *words], cwd=work, env=environment, capture_output=True, text=True,
                stdin=subprocess.DEVNULL, timeout=120, check=False,
            )  # fmt: skip

        first = run(way.first)
        longest = max(
            (
                len(history_text(received.json))
                for received in model.received
                if is_for_an_answer(received)
            ),
            default=0,
        )
        listings = session_files.discover(home, environment)
        if len(listings) != 1:
            return f"{len(listings)} sessions after the first turn: {first.stdout[-500:]}{first.stderr[-500:]}"
        original = _read(listings[0])
        which = (str(listings[0].path), *(("--session", listings[0].id) if listings[0].id else ()))
        _refold("compact", *which, "--to", TO)
        (session,) = _refold("export", *which, "--json")["sessions"]
        viewed = _refold("view", *which, "--payload")
        count = len(model.received)
        if way.before is not None and (done := run(way.before(session["export"]))).returncode:
            return f"exit {done.returncode}: {done.stdout[-500:]}{done.stderr[-500:]}"
        second = run(way.again(session["export"]))
        asked = [
            received for received in model.received[count:]
            if is_for_an_answer(received) and received.json.get("tools")
        ]  # fmt: skip
        if not asked or second.returncode:
            return f"exit {second.returncode}: {second.stdout[-500:]}{second.stderr[-500:]}"
        return _judge(asked[0], way.client.api, viewed, longest) or (
            "" if _read(listings[0]) == original else "the original was written"
        )


def _read(listing: FoundSession) -> Any:
    """Return a session's file, or only the session if the file has others too."""
    if listing.path.suffix != ".db":
        return listing.path.read_bytes()
    return session_files.read(listing.path, listing.id).payload


def _refold(*words: str) -> Any:
    done = subprocess.run([*REFOLD, *words], capture_output=True, text=True, check=False)
    if done.returncode > 1 or (done.returncode and words[0] != "compact"):
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout) if words[-1] in {"--json", "--payload"} else None


def _judge(asked: Received, api: str, viewed: dict[str, Any], longest: int) -> str:
    """Judge whether the request is valid, ends with the new question, and is the view."""
    if faults := check(asked.json, api):
        return f"invalid: {faults}"
    text = history_text(asked.json)
    if MORE not in text:
        return "what was asked is missing"
    entries = viewed.get("messages") or viewed.get("input")
    shown = [words for words in _texts(entries) if len(words) > 40]
    if missing := [words for words in shown if words not in text]:
        return f"{len(missing)} of {len(shown)} texts of the view are missing: {missing[0][:200]}"
    if len(text) > longest * 0.8:
        return f"{len(text)} characters of messages, {longest} before"
    return ""


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for item in inner for text in _texts(item)]


if __name__ == "__main__":
    sys.exit(main())
