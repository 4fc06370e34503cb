"""pi: a provider of one's own in ~/.pi/agent/models.json."""

from collections.abc import Callable
from pathlib import Path

from clients.client import MODEL_OUTPUT, NOMINAL, Client, Command, written
from refold.testing.scripted_provider import Call


def _settled(api: str, path: str) -> Callable[[Path, str, str], Command]:
    def settled(home: Path, url: str, prompt: str) -> Command:
        model = {
            "id": "small",
            "contextWindow": NOMINAL,
            "maxTokens": MODEL_OUTPUT,
            "reasoning": True,
        }
        provider = {"baseUrl": url + path, "api": api, "apiKey": "a-key", "models": [model]}
        written(home / ".pi/agent/models.json", {"providers": {"gateway": provider}})
        return Command(
            ("-p", "--provider", "gateway", "--model", "small", "--thinking", "low", prompt),
            {"PI_OFFLINE": "1", "PI_TELEMETRY": "0"},
        )

    return settled


def _client(format: str, api: str, path: str) -> Client:
    return Client(
        name="pi",
        package="@mariozechner/pi-coding-agent",
        program="pi",
        api=format,
        model="small",
        settled=_settled(api, path),
        read=lambda path: Call("read", {"path": path}),
        shell=lambda command: Call("bash", {"command": command}),
    )


CLIENTS = (
    _client("openai_chat", "openai-completions", "/v1"),
    _client("openai_responses", "openai-responses", "/v1"),
    _client("anthropic", "anthropic-messages", ""),
    _client("gemini", "google-generative-ai", "/v1beta"),
)
