"""A gateway with its API before a scripted provider, and conversations for it: what the tests of the API share."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from refold.gateway.config.config import Config
from refold.gateway.serve import create_gateway
from refold.gateway.settings import Settings
from refold.gateway.upstreams import Upstream
from refold.testing.scripted_gateway import Serving
from refold.testing.scripted_server import Reply
from refold.testing.scripted_upstream import Asked, ScriptedUpstream
from refold.tokens.windows import Window

TOKEN = "correct horse battery staple"
ADMIN = {"authorization": f"Bearer {TOKEN}"}
KEY = {"authorization": "Bearer sk-client-1"}
SECRET = "purple elephants dance"
"""Stands in what was said and must not stand in answers to who has not said it."""


def chat(steps: int, model: str = "local") -> dict:
    """A request of Chat Completions: one task, and so many files read."""
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


def config(upstream: ScriptedUpstream, record: str = "", **changes) -> Config:
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


def answer(asked: Asked) -> Reply:
    """What the provider says; it counts four bytes as a token."""
    return Reply("Hello.", usage=(len(asked.body) // 4, 20, 0))


class Place:
    """The provider, the gateway, and a client with the admin token."""

    def __init__(self, upstream: ScriptedUpstream, served: Serving, client: httpx.Client) -> None:
        self.upstream, self.served, self.client = upstream, served, client

    def say(self, body: dict, path: str = "/v1/chat/completions", **headers: str) -> httpx.Response:
        """Send a request as an agent would."""
        return self.client.post(path, json=body, headers=KEY | headers)

    def get(self, name: str, **arguments) -> httpx.Response:
        """Ask for an operation."""
        return self.client.get(f"/refold/api/{name}", params=arguments, headers=ADMIN)

    def post(self, name: str, **arguments) -> httpx.Response:
        """Ask for an operation."""
        return self.client.post(f"/refold/api/{name}", json=arguments, headers=ADMIN)

    def session(self) -> str:
        """The id of the latest session."""
        return self.get("sessions").json()["sessions"][0]["id"]


@contextmanager
def place(**changes) -> Iterator[Place]:
    with (
        ScriptedUpstream(answer) as upstream,
        Serving(create_gateway(config(upstream, **changes))) as served,
        httpx.Client(base_url=served.url, timeout=60) as client,
    ):
        yield Place(upstream, served, client)
