"""Continue: a custom model in ~/.continue/config.yaml."""

from pathlib import Path

from clients import task
from clients.client import MODEL_OUTPUT, NOMINAL, Client, Command, write_file
from clients.reader import Reader
from refold.testing.scripted_provider import Call

CONFIG = """\
name: task
version: 1.0.0
schema: v1
models:
  - name: small
    provider: openai
    model: small
    apiBase: {url}/v1
    apiKey: a-key
    roles: [chat]
    capabilities: [tool_use]
    defaultCompletionOptions:
      contextLength: {window}
      maxTokens: {output}
"""


def _configure(home: Path, url: str) -> Command:
    path = home / ".continue/config.yaml"
    write_file(path, CONFIG.format(url=url, window=NOMINAL, output=MODEL_OUTPUT))
    return Command(("--auto", "-p", task.PROMPT), {"CONTINUE_TELEMETRY_ENABLED": "0"})


CLIENTS = (
    Client(
        name="Continue",
        package="@continuedev/cli",
        program="cn",
        api="openai_chat",
        model="small",
        configure=_configure,
        make_script=lambda: Reader(
            read=lambda path: Call("Bash", {"command": f"cat {path}"}),
            shell=lambda command: Call("Bash", {"command": command}),
        ),
    ),
)
