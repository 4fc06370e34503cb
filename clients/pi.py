"""pi: a custom provider in ~/.pi/agent/models.json."""

from collections.abc import Callable
from pathlib import Path

from clients import task
from clients.client import MODEL_OUTPUT, NOMINAL, Client, Command, write_json
from clients.reader import Reader
from refold.testing.scripted_provider import Call


def _configure(api: str, path: str) -> Callable[[Path, str], Command]:
    def configure(home: Path, url: str) -> Command:
        model = {
            "id": "small",
            "contextWindow": NOMINAL,
            "maxTokens": MODEL_OUTPUT,
            "reasoning": True,
        }
        provider = {"baseUrl": url + path, "api": api, "apiKey": "a-key", "models": [model]}
        write_json(home / ".pi/agent/models.json", {"providers": {"gateway": provider}})
        return Command(
            ("-p", "--provider", "gateway", "--model", "small", "--thinking", "low", task.PROMPT),
            {"PI_OFFLINE": "1", "PI_TELEMETRY": "0"},
        )

    return configure


def _client(format: str, api: str, path: str) -> Client:
    return Client(
        name="pi",
        package="@earendil-works/pi-coding-agent",
        program="pi",
        api=format,
        model="small",
        configure=_configure(api, path),
        make_script=lambda: Reader(
            read=lambda path: Call("read", {"path": path}),
            shell=lambda command: Call("bash", {"command": command}),
        ),
    )


CLIENTS = (
    _client("openai_chat", "openai-completions", "/v1"),
    _client("openai_responses", "openai-responses", "/v1"),
    _client("anthropic", "anthropic-messages", ""),
    _client("gemini", "google-generative-ai", "/v1beta"),
)
