"""A gateway with its API in front of a scripted provider, and clients like agents."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from refold.gateway.config import Config
from refold.gateway.serve import create_gateway
from refold.gateway.settings import Settings, Upstream
from refold.testing.scripted_gateway import Serving
from refold.testing.scripted_provider import Received, Reply, ScriptedProvider
from refold.tokens.model_table import Window

TOKEN = "correct horse battery staple"
ADMIN = {"authorization": f"Bearer {TOKEN}"}
KEY = {"authorization": "Bearer sk-client-1"}
PI_SESSION = "0a0b0c0d-0000-4000-8000-000000000001"
SECRET = "purple elephants dance"
"""A text in every request. No response may show it to a client that has not sent it."""


def chat_request(steps: int, model: str = "local") -> dict:
    """Build a Chat Completions request: one task, and *steps* files read."""
    messages = [
        {"role": "system", "content": "You are terse."},
        {"role": "user", "content": "Find the bug in src/a.py. Never touch the migrations."},
    ]
    for i in range(steps):
        arguments = json.dumps({"path": f"src/m{i}.py"})
        call = {
            "id": f"c{i}",
            "type": "function",
            "function": {"name": "read", "arguments": arguments},
        }
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append(
            {"role": "tool", "tool_call_id": f"c{i}", "content": f"{SECRET} {i} " + "text " * 500}
        )
    return {"model": model, "messages": messages}


def write_pi_session(home: Path, steps: int = 30) -> Path:
    """Write a pi session: a request, and *steps* file reads at one cent each."""
    usage = {"input": 10, "output": 5, "cacheRead": 0, "cacheWrite": 0, "cost": {"total": 0.01}}
    file = home / f".pi/agent/sessions/--srv-shop--/2026-11-01T00-00-00-000Z_{PI_SESSION}.jsonl"
    file.parent.mkdir(parents=True)
    words = {"role": "user", "content": [{"type": "text", "text": "Mend the 购物 cart."}]}
    messages: list[dict] = [words]
    for n in range(steps):
        call = {"type": "toolCall", "id": f"c{n}", "name": "read", "arguments": {"path": f"{n}.py"}}
        text = {"type": "text", "text": f"{SECRET} {n}\n{'text ' * 300}"}
        messages += [
            {"role": "assistant", "content": [call], "model": "claude-opus-5-5", "usage": usage},
            {"role": "toolResult", "toolCallId": f"c{n}", "toolName": "read", "content": [text]},
        ]
    head = {
        "type": "session",
        "id": PI_SESSION,
        "cwd": "/srv/shop",
        "timestamp": "2026-11-01T00:00:00Z",
    }
    lines = [head] + [
        {"type": "message", "id": f"m{n}", "parentId": f"m{n - 1}" if n else None, "message": each}
        for n, each in enumerate(messages)
    ]
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    return file


def build_config(upstream: ScriptedProvider, record: str = "", **changes) -> Config:
    windows = {"local": Window(16_000), "claude-opus-5-5": Window(16_000), "large": Window(200_000)}
    settings = Settings(**{"windows": windows, "decide_timeout_seconds": 60, **changes})
    upstreams = (Upstream(name="up", url=upstream.url),)
    return Config(
        upstreams=upstreams,
        store=":memory:",
        admin_token=TOKEN,
        salt=b"salt",
        settings=settings,
        record=record,
    )


def answer_briefly(asked: Received) -> Reply:
    """Answer like a provider that counts four bytes as one token."""
    return Reply("Hello.", usage=(len(asked.body) // 4, 20, 0))


class ApiGateway:
    """The provider, the gateway, and a client of both the gateway and its API."""

    def __init__(self, upstream: ScriptedProvider, served: Serving, client: httpx.Client) -> None:
        self.upstream, self.served, self.client = upstream, served, client

    def say(self, body: dict, path: str = "/v1/chat/completions", **headers: str) -> httpx.Response:
        """Send a request as an agent does."""
        return self.client.post(path, json=body, headers=KEY | headers)

    def get(self, name: str, **arguments) -> httpx.Response:
        """Call an operation that reads."""
        return self.client.get(f"/refold/api/{name}", params=arguments, headers=ADMIN)

    def post(self, name: str, **arguments) -> httpx.Response:
        """Call an operation that changes something."""
        return self.client.post(f"/refold/api/{name}", json=arguments, headers=ADMIN)

    def session(self) -> str:
        """Return the id of the latest session."""
        return self.get("sessions").json()["sessions"][0]["id"]


@contextmanager
def serve_api(**changes) -> Iterator[ApiGateway]:
    with (
        ScriptedProvider(answer_briefly) as upstream,
        Serving(create_gateway(build_config(upstream, **changes))) as served,
        httpx.Client(base_url=served.url, timeout=60) as client,
    ):
        yield ApiGateway(upstream, served, client)
