"""OpenCode: a provider of one's own in opencode.json."""

from collections.abc import Callable
from pathlib import Path

from clients.client import MODEL_OUTPUT, NOMINAL, Client, Command, written
from refold.testing.scripted_provider import Call


def _settled(package: str) -> Callable[[Path, str, str], Command]:
    def settled(home: Path, url: str, prompt: str) -> Command:
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
        written(config, {"share": "disabled", "autoupdate": False, "permission": "allow", **chosen})
        off = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS", "SHARE")
        environment = {f"OPENCODE_DISABLE_{name}": "1" for name in off}
        return Command(("run", "--pure", prompt), {**environment, "OPENCODE_CONFIG": str(config)})

    return settled


def _client(format: str, package: str) -> Client:
    return Client(
        name="OpenCode",
        package="opencode-ai",
        program="opencode",
        api=format,
        model="small",
        settled=_settled(package),
        read=lambda path: Call("read", {"filePath": path}),
        shell=lambda command: Call("bash", {"command": command}),
    )


CLIENTS = (
    _client("openai_chat", "@ai-sdk/openai-compatible"),
    _client("anthropic", "@ai-sdk/anthropic"),
)
