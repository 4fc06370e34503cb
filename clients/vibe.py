"""Mistral Vibe: a custom provider and model in ~/.vibe/config.toml."""

from collections.abc import Callable
from pathlib import Path

from clients import task
from clients.client import MODEL_OUTPUT, NOMINAL, Client, Command, write_file
from clients.reader import Reader
from refold.testing.scripted_provider import Call

CONFIG = """\
active_model = "small"
enable_telemetry = false
enable_update_checks = false

[[providers]]
name = "gateway"
api_base = "{url}"
api_key_env_var = "GATEWAY_KEY"
api_style = "{style}"

[[models]]
name = "small"
alias = "small"
provider = "gateway"
max_context_length = {window}
max_output_tokens = {output}
"""


def _configure(style: str, path: str) -> Callable[[Path, str], Command]:
    def configure(home: Path, url: str) -> Command:
        config = CONFIG.format(url=url + path, style=style, window=NOMINAL, output=MODEL_OUTPUT)
        write_file(home / ".vibe/config.toml", config)
        return Command(("--auto-approve", "--trust", "-p", task.PROMPT), {"GATEWAY_KEY": "a-key"})

    return configure


def _client(api: str, style: str, path: str) -> Client:
    return Client(
        name="Mistral Vibe",
        package="mistral-vibe",
        is_python=True,
        program="vibe",
        api=api,
        model="small",
        configure=_configure(style, path),
        make_script=lambda: Reader(
            read=lambda path: Call("bash", {"command": f"cat {path}"}),
            shell=lambda command: Call("bash", {"command": command}),
        ),
    )


CLIENTS = (_client("openai_chat", "openai", "/v1"), _client("anthropic", "anthropic", ""))
