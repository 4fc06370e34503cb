"""Kimi Code: a custom provider and model in ~/.kimi-code/config.toml."""

from collections.abc import Callable
from pathlib import Path

from clients import task
from clients.client import MODEL_OUTPUT, NOMINAL, Client, Command, write_file
from clients.reader import Reader
from refold.testing.scripted_provider import Call

CONFIG = """\
default_model = "small"
telemetry = false

[providers.gateway]
type = "{type}"
base_url = "{url}"
api_key = "a-key"

[models.small]
provider = "gateway"
model = "small"
max_context_size = {window}
max_output_size = {output}
"""


def _configure(type: str, path: str) -> Callable[[Path, str], Command]:
    def configure(home: Path, url: str) -> Command:
        config = CONFIG.format(type=type, url=url + path, window=NOMINAL, output=MODEL_OUTPUT)
        write_file(home / ".kimi-code/config.toml", config)
        return Command(("-p", task.PROMPT), {"KIMI_MODEL_MAX_COMPLETION_TOKENS": str(MODEL_OUTPUT)})

    return configure


def _client(api: str, type: str, path: str) -> Client:
    return Client(
        name="Kimi Code",
        package="@moonshot-ai/kimi-code",
        program="kimi",
        api=api,
        model="small",
        configure=_configure(type, path),
        make_script=lambda: Reader(
            read=lambda path: Call("Bash", {"command": f"cat {path}"}),
            shell=lambda command: Call("Bash", {"command": command}),
        ),
    )


CLIENTS = (_client("openai_chat", "openai", "/v1"), _client("anthropic", "anthropic", ""))
