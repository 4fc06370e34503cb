"""Qwen Code: base URL and key in the environment, the rest in ~/.qwen/settings.json."""

from pathlib import Path

from clients import task
from clients.client import MODEL_OUTPUT, NOMINAL, Client, Command, write_json
from clients.reader import Reader
from refold.testing.scripted_provider import Call

MODEL = "qwen3-coder-plus"


def _configure(home: Path, url: str) -> Command:
    generation = {
        "contextWindowSize": NOMINAL,
        "samplingParams": {"max_tokens": MODEL_OUTPUT},
    }
    write_json(
        home / ".qwen/settings.json",
        {
            "general": {"enableAutoUpdate": False, "disableUpdateNag": True},
            "privacy": {"usageStatisticsEnabled": False},
            "security": {"auth": {"selectedType": "openai"}},
            "model": {"name": MODEL, "generationConfig": generation},
        },
    )
    environment = {"OPENAI_API_KEY": "a-key", "OPENAI_BASE_URL": f"{url}/v1", "OPENAI_MODEL": MODEL}
    return Command(("--yolo", "-p", task.PROMPT), environment)


CLIENTS = (
    Client(
        name="Qwen Code",
        package="@qwen-code/qwen-code",
        program="qwen",
        api="openai_chat",
        model=MODEL,
        configure=_configure,
        make_script=lambda: Reader(
            read=lambda path: Call("run_shell_command", {"command": f"cat {path}"}),
            shell=lambda command: Call("run_shell_command", {"command": command}),
        ),
    ),
)
