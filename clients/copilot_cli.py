"""GitHub Copilot CLI: a provider of one's own, in the environment."""

from collections.abc import Callable
from pathlib import Path

from clients import task
from clients.client import MODEL_OUTPUT, NOMINAL, Client, Command
from clients.reader import Reader
from refold.testing.scripted_provider import Call


def _configure(kind: str, wire: str, path: str) -> Callable[[Path, str], Command]:
    def configure(home: Path, url: str) -> Command:
        environment = {
            "COPILOT_HOME": str(home / ".copilot"),
            "COPILOT_OFFLINE": "true",
            "COPILOT_AUTO_UPDATE": "false",
            "COPILOT_MODEL": "small",
            "COPILOT_PROVIDER_BASE_URL": url + path,
            "COPILOT_PROVIDER_TYPE": kind,
            "COPILOT_PROVIDER_WIRE_API": wire,
            "COPILOT_PROVIDER_API_KEY": "a-key",
            "COPILOT_PROVIDER_MAX_PROMPT_TOKENS": str(NOMINAL),
            "COPILOT_PROVIDER_MAX_OUTPUT_TOKENS": str(MODEL_OUTPUT),
        }
        return Command(("--allow-all-tools", "--no-color", "-p", task.PROMPT), environment)

    return configure


def _client(format: str, kind: str, wire: str, path: str) -> Client:
    return Client(
        name="Copilot CLI",
        package="@github/copilot",
        program="copilot",
        api=format,
        model="small",
        configure=_configure(kind, wire, path),
        make_script=lambda: Reader(
            read=lambda path: Call("bash", {"command": f"cat {path}", "description": "Read it"}),
            shell=lambda command: Call("bash", {"command": command, "description": "Write it"}),
        ),
    )


CLIENTS = (
    _client("openai_chat", "openai", "completions", "/v1"),
    _client("openai_responses", "openai", "responses", "/v1"),
    _client("anthropic", "anthropic", "completions", ""),
)
