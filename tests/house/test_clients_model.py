"""The scripted model of `make clients`, without the clients: it finishes its task, and refuses as the APIs refuse."""

import json
import subprocess

import pytest
from clients import task
from clients.model import WINDOW, Model, refusal

from refold.gateway.policy.upstream_errors import is_context_error, read_figures
from refold.testing.scripted_provider import Call, Received

PATHS = {
    "openai_chat": "/v1/chat/completions",
    "openai_responses": "/v1/responses",
    "anthropic": "/v1/messages",
    "gemini": "/v1beta/models/m:generateContent",
}


def asked(messages: list, **more) -> Received:
    body = {
        "model": "m",
        "messages": messages,
        "tools": [{"type": "function", "function": {"name": "read"}}],
        **more,
    }
    return Received("POST", PATHS["openai_chat"], (), json.dumps(body).encode())


def model() -> Model:
    return Model(
        read=lambda path: Call("read", {"path": path}),
        shell=lambda command: Call("bash", {"command": command}),
    )


def run(call: Call, place) -> str:
    """What a client's tool answers."""
    if call.name == "read":
        return (place / call.arguments["path"]).read_text()
    return subprocess.run(
        ["bash", "-c", call.arguments["command"]],
        cwd=place,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


@pytest.mark.parametrize("kept", [2, 6], ids=["forgetful", "half a window"])
def test_a_client_that_keeps_only_the_latest_messages_finishes(tmp_path, kept: int) -> None:
    """What the model knows stands in its request alone: its own notes carry it on."""
    task.lay_out(tmp_path)
    one, messages = model(), [{"role": "user", "content": task.PROMPT}]
    while (reply := one(asked([messages[0], *messages[1:][-kept:]]))).calls:
        messages.append({"role": "assistant", "content": reply.text})
        messages += [{"role": "tool", "content": run(call, tmp_path)} for call in reply.calls]
    assert task.is_done(tmp_path)
    assert len(one.requests) == task.PARTS + 2 and one.refused == 0


def test_a_client_that_keeps_everything_is_refused(tmp_path) -> None:
    task.lay_out(tmp_path)
    one, messages = model(), [{"role": "user", "content": task.PROMPT}]
    while (reply := one(asked(messages))).status == 200:
        messages.append({"role": "assistant", "content": reply.text})
        messages += [{"role": "tool", "content": run(call, tmp_path)} for call in reply.calls]
    assert one.refused == 1 and not task.is_done(tmp_path)


def test_it_gives_up_on_a_file_that_cannot_be_read() -> None:
    one, messages = model(), [{"role": "user", "content": task.PROMPT}]
    replies = [one(asked(messages)) for _ in range(4)]
    assert [bool(reply.calls) for reply in replies] == [True, True, True, False]


@pytest.mark.parametrize("api", PATHS)
@pytest.mark.parametrize(("size", "cap"), [(WINDOW + 1, 0), (WINDOW - 10, 20)])
def test_refusals_are_context_errors(api: str, size: int, cap: int) -> None:
    reply = refusal(PATHS[api], size, cap)
    body = reply.body.encode()
    assert reply.status == 400 and is_context_error(api, reply.status, body)
    assert read_figures(body).limit == (0 if api == "openai_responses" else WINDOW)
