"""Claude Code: base URL and key in the environment. It reads messages as JSON from standard input,
so the user can type one while it works."""

import json
from collections.abc import Callable
from pathlib import Path

from clients import task
from clients.client import MODEL_OUTPUT, Client, Command, write_json
from clients.reader import Reader
from refold.testing.scripted_provider import Call


def _configure(model: str) -> Callable[[Path, str], Command]:
    def configure(home: Path, url: str) -> Command:
        write_json(home / ".claude.json", {"hasCompletedOnboarding": True})
        streams = ("--input-format", "stream-json", "--output-format", "stream-json", "--verbose")
        environment = {
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "a-key",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(MODEL_OUTPUT),
            "DISABLE_AUTOUPDATER": "1",
            "IS_SANDBOX": "1",  # it refuses to skip permissions as root otherwise
        }
        return Command(
            ("-p", "--model", model, "--dangerously-skip-permissions", *streams),
            environment,
            typed=tuple(map(_message, (task.PROMPT, task.LATE))),
        )

    return configure


def _message(text: str) -> str:
    content = {"role": "user", "content": [{"type": "text", "text": text}]}
    return json.dumps({"type": "user", "message": content}) + "\n"


def _client(model: str) -> Client:
    return Client(
        name="Claude Code",
        package="@anthropic-ai/claude-code",
        program="claude",
        api="anthropic",
        model=model,
        configure=_configure(model),
        make_script=lambda: Reader(
            read=lambda path: Call("Bash", {"command": f"cat {path}"}),
            shell=lambda command: Call("Bash", {"command": command}),
        ),
        turns=((task.PROMPT, task.LATE),),
    )


CLIENTS = (_client("claude-opus-5-5"), _client("claude-sonnet-4-5"))
"""Opus gets the second message as a system message, Sonnet at the end of a tool result."""
