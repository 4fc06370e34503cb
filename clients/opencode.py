"""OpenCode: a custom provider in opencode.json."""

from collections.abc import Callable
from pathlib import Path

from clients import task
from clients.client import MODEL_OUTPUT, NOMINAL, Client, Command, write_json
from clients.reader import Reader
from refold.testing.scripted_provider import Call


def _configure(package: str) -> Callable[[Path, str], Command]:
    def configure(home: Path, url: str) -> Command:
        model = {
            "name": "small",
            "limit": {"context": NOMINAL, "output": MODEL_OUTPUT},
            "tool_call": True,
        }
        options = {"baseURL": f"{url}/v1", "apiKey": "a-key"}
        provider = {
            "npm": package,
            "name": "gateway",
            "options": options,
            "models": {"small": model},
        }
        config = home / "opencode.json"
        chosen = {
            "model": "gateway/small",
            "small_model": "gateway/small",
            "provider": {"gateway": provider},
        }
        write_json(
            config, {"share": "disabled", "autoupdate": False, "permission": "allow", **chosen}
        )
        off = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS", "SHARE")
        environment = {f"OPENCODE_DISABLE_{name}": "1" for name in off}
        return Command(
            ("run", "--pure", task.PROMPT), {**environment, "OPENCODE_CONFIG": str(config)}
        )

    return configure


def _client(format: str, package: str) -> Client:
    return Client(
        name="OpenCode",
        package="opencode-ai",
        program="opencode",
        api=format,
        model="small",
        configure=_configure(package),
        make_script=lambda: Reader(
            read=lambda path: Call("read", {"filePath": path}),
            shell=lambda command: Call("bash", {"command": command}),
        ),
    )


CLIENTS = (
    _client("openai_chat", "@ai-sdk/openai-compatible"),
    _client("anthropic", "@ai-sdk/anthropic"),
)
