"""Codex: a custom provider for the Responses API in ~/.codex/config.toml."""

from pathlib import Path

from clients import task
from clients.client import Client, Command, write_file
from clients.reader import Reader
from refold.testing.scripted_provider import Call

CONFIG = """\
model = "gpt-5.1"
model_provider = "gateway"
check_for_update_on_startup = false

[analytics]
enabled = false

[feedback]
enabled = false

[features]
apps = false
plugins = false
remote_plugin = false

[model_providers.gateway]
name = "gateway"
base_url = "{url}/v1"
env_key = "GATEWAY_KEY"
wire_api = "responses"
"""


def _configure(home: Path, url: str) -> Command:
    path = home / ".codex/config.toml"
    write_file(path, CONFIG.format(url=url))
    flags = ("--skip-git-repo-check", "--sandbox", "danger-full-access", "--color", "never")
    return Command(
        ("exec", *flags, task.PROMPT), {"GATEWAY_KEY": "a-key", "CODEX_HOME": str(path.parent)}
    )


CLIENTS = (
    Client(
        name="Codex",
        package="@openai/codex",
        program="codex",
        api="openai_responses",
        model="gpt-5.1",
        configure=_configure,
        make_script=lambda: Reader(
            read=lambda path: Call("exec_command", {"cmd": f"cat {path}"}),
            shell=lambda command: Call("exec_command", {"cmd": command}),
        ),
    ),
)
