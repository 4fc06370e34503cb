"""Gemini CLI: base URL and key in the environment."""

from pathlib import Path

from clients import task
from clients.client import Client, Command, write_json
from clients.reader import Reader
from refold.testing.scripted_provider import Call

MODEL = "gemini-2.5-pro"


def _configure(home: Path, url: str) -> Command:
    quiet = {"general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False}}
    quiet |= {"privacy": {"usageStatisticsEnabled": False}, "telemetry": {"enabled": False}}
    write_json(
        home / ".gemini/settings.json",
        {**quiet, "security": {"auth": {"selectedType": "gemini-api-key"}}},
    )
    environment = {
        "GEMINI_API_KEY": "a-key",
        "GOOGLE_GEMINI_BASE_URL": url,
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
    }
    return Command(
        ("--model", MODEL, "--approval-mode", "yolo", "--skip-trust", "-p", task.PROMPT),
        environment,
    )


CLIENTS = (
    Client(
        name="Gemini CLI",
        package="@google/gemini-cli",
        program="gemini",
        api="gemini",
        model=MODEL,
        configure=_configure,
        make_script=lambda: Reader(
            read=lambda path: Call("read_file", {"file_path": path}),
            shell=lambda command: Call("run_shell_command", {"command": command}),
        ),
    ),
)
