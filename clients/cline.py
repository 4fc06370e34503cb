"""Cline: a custom provider in ~/.cline/data/settings/providers.json."""

from pathlib import Path
from typing import Any

from clients import task
from clients.client import HUB, Client, Command, write_json
from clients.reader import Reader
from refold.testing.scripted_provider import Call

PROVIDER = "openai-compatible"


def _configure(home: Path, url: str) -> Command:
    settings = {"provider": PROVIDER, "apiKey": "a-key", "baseUrl": f"{url}/v1", "model": "small"}
    entry = {"settings": settings, "updatedAt": "2026-11-01T00:00:00.000Z", "tokenSource": "manual"}
    document = {
        "version": 1,
        "lastUsedProvider": PROVIDER,
        "modes": {},
        "providers": {PROVIDER: entry},
    }
    write_json(home / ".cline/data/settings/providers.json", document)
    return Command(("--json", task.PROMPT), {"CLINE_HUB_DISCOVERY_PATH": str(home / HUB)})


def _halves(path: str) -> list[dict[str, Any]]:
    """Return the arguments that read a file in two parts: Cline shows only 8,000 characters."""
    middle = task.LINES // 2
    ends = ((1, middle), (middle + 1, task.LINES))
    return [{"path": path, "start_line": start, "end_line": end} for start, end in ends]


CLIENTS = (
    Client(
        name="Cline",
        package="cline",
        program="cline",
        api="openai_chat",
        model="small",
        configure=_configure,
        make_script=lambda: Reader(
            read=lambda path: Call("read_files", {"files": _halves(path)}),
            shell=lambda command: Call("run_commands", {"commands": [command]}),
        ),
    ),
)
