"""The scripted model of `make clients`, without the clients: it finishes its task, and refuses what
the APIs refuse."""

import json
import subprocess
import time
from dataclasses import fields, replace

import pytest
from clients import aider, claude_code, task
from clients.model import WINDOW, Asked, Model, refuse
from clients.reader import TRIES, Reader
from clients.run import QUIET, Outcome, type_texts
from clients.speech import count_mistaken, count_unsaid

from refold.gateway.pipeline.upstream_errors import is_context_error, read_figures
from refold.testing.scripted_provider import Call, Received
from refold.text.summary_wrapper import wrap_summary

PATHS = {
    "openai_chat": "/v1/chat/completions",
    "openai_responses": "/v1/responses",
    "anthropic": "/v1/messages",
    "gemini": "/v1beta/models/m:generateContent",
}


def ask_with(messages: list, **options) -> Received:
    body = {
        "model": "m",
        "messages": messages,
        "tools": [{"type": "function", "function": {"name": "read"}}],
        **options,
    }
    return Received("POST", PATHS["openai_chat"], (), json.dumps(body).encode())


def model() -> Model:
    return Model(
        Reader(
            read=lambda path: Call("read", {"path": path}),
            shell=lambda command: Call("bash", {"command": command}),
        )
    )


def run(call: Call, place) -> str:
    """Return the output of a client's tool."""
    if call.name == "read":
        return (place / call.arguments["path"]).read_text()
    return subprocess.run(
        ["bash", "-c", call.arguments["command"]],
        cwd=place,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def without_old_results(messages: list, newest: int) -> list:
    """Return the messages with all but the newest results cleared."""
    results = [at for at, message in enumerate(messages) if message["role"] == "tool"]
    old = set(results[:-newest])
    return [
        {**message, "content": "cleared"} if at in old else message
        for at, message in enumerate(messages)
    ]


@pytest.mark.parametrize("late", ["", task.LATE], ids=["one request", "one more typed later"])
def test_a_client_that_keeps_all_messages_but_no_old_results_finishes(tmp_path, late: str) -> None:
    """The model knows only its current request, and each code is recorded once."""
    task.lay_out(tmp_path)
    scripted, messages = model(), [{"role": "user", "content": task.PROMPT}]
    while (reply := scripted(ask_with(without_old_results(messages, 1)))).calls:
        messages.append({"role": "assistant", "content": reply.text})
        messages += [{"role": "tool", "content": run(call, tmp_path)} for call in reply.calls]
        if late and len(messages) == 9:
            messages.append({"role": "user", "content": late})
    assert task.is_done(tmp_path, late=bool(late)) and not task.is_done(tmp_path, late=not late)
    assert len(scripted.requests) == task.PARTS + 2 and scripted.refused == 0
    notes = [message["content"] for message in messages if message["role"] == "assistant"]
    assert [sum(task.code(part) in note for note in notes) for part in task.parts()] == [1] * 20


@pytest.mark.parametrize("lost", ["the notes", "the prompt"])
def test_a_client_that_loses_messages_does_not_finish(tmp_path, lost: str) -> None:
    task.lay_out(tmp_path)
    scripted, messages = model(), [{"role": "user", "content": task.PROMPT}]
    while True:
        shown = without_old_results(messages, 1)
        shown = (
            [shown[0], *shown[1:][-6:]]
            if lost == "the notes"
            else [*shown[1:], {"role": "user", "content": "Go on."}]
        )
        if not (reply := scripted(ask_with(shown))).calls:
            break
        messages.append({"role": "assistant", "content": reply.text})
        messages += [{"role": "tool", "content": run(call, tmp_path)} for call in reply.calls]
    assert not task.is_done(tmp_path)
    assert (scripted.script.reread > 0) == (lost == "the notes")


def test_the_aider_model_edits_only_if_name_code_and_file_are_in_the_request() -> None:
    """It needs the code, the name and the current file."""
    part, editor = "part-03.log", aider.Editor()
    sights = {
        "its name": task.rules(),
        "its code": task.note(part, task.code(part)),
        task.RESULT: f"{task.RESULT}\n```\na line\n```",
        "": aider.TURNS[3],
    }
    reply = editor.answer(Asked("\n".join(sights.values()), False))
    line = task.line(part, task.name(part), task.code(part))
    assert f"<<<<<<< SEARCH\na line\n=======\na line\n{line}\n>>>>>>> REPLACE" in reply.text
    for lacking in ("its name", "its code", task.RESULT):
        text = "\n".join(words for name, words in sights.items() if name != lacking)
        assert editor.answer(Asked(text, False)).text == f"I do not see {lacking}."


def test_a_client_that_keeps_everything_is_refused(tmp_path) -> None:
    task.lay_out(tmp_path)
    scripted, messages = model(), [{"role": "user", "content": task.PROMPT}]
    while (reply := scripted(ask_with(messages))).status == 200:
        messages.append({"role": "assistant", "content": reply.text})
        messages += [{"role": "tool", "content": run(call, tmp_path)} for call in reply.calls]
    assert scripted.refused == 1 and not task.is_done(tmp_path)


def test_the_model_gives_up_on_a_file_that_cannot_be_read() -> None:
    scripted, messages = model(), [{"role": "user", "content": task.PROMPT}]
    replies = [scripted(ask_with(messages)) for _ in range(TRIES + 1)]
    assert [bool(reply.calls) for reply in replies] == [True] * TRIES + [False]
    assert scripted.script.reread == 0, "nothing of the file was ever seen"


@pytest.mark.parametrize("api", PATHS)
@pytest.mark.parametrize(("size", "cap"), [(WINDOW + 1, 0), (WINDOW - 10, 20)])
def test_refusals_are_context_errors(api: str, size: int, cap: int) -> None:
    reply = refuse(PATHS[api], size, cap)
    body = reply.body.encode()
    assert reply.status == 400 and is_context_error(api, reply.status, body)
    assert read_figures(body).limit == (0 if api == "openai_responses" else WINDOW)


def receive(*messages: tuple[str, str]) -> Received:
    return ask_with([{"role": role, "content": text} for role, text in messages])


def test_requests_without_the_users_messages_are_counted() -> None:
    """A user message that is only in a summary counts as missing. A later one counts from the first
    request with it."""
    (client,) = (each for each in claude_code.CLIENTS if each.model == "claude-opus-5-5")
    client = replace(client, api="openai_chat")
    summary = wrap_summary(f"## Earlier requests\n- {task.PROMPT}\n- {task.LATE}").text
    first, both = ("user", task.PROMPT), (("user", task.PROMPT), ("user", task.LATE))
    gone = ("user", summary), ("assistant", "Ok.")
    count = lambda *requests: count_unsaid([receive(*each) for each in requests], client)  # noqa: E731
    assert count((first,), both, both) == 0
    assert count((first,), both, (first,)) == 1
    assert count((first,), gone, both) == 1
    assert count((first,), (first,)) == 2, "it was never shown"


def test_requests_with_wrongly_attributed_messages_are_counted() -> None:
    (client,) = (each for each in claude_code.CLIENTS if each.model == "claude-opus-5-5")
    client = replace(client, api="openai_chat")
    note = "<system-reminder>\nToday's date is Monday.\n</system-reminder>"
    summary = wrap_summary(
        "## Earlier requests\n- Today's date is Monday.\n## Counts\nmessages 3"
    ).text
    good = receive(("user", task.PROMPT), ("user", note))
    assert count_mistaken([good], client) == 0
    assert count_mistaken([good, receive(("user", "Do something else."))], client) == 1
    assert count_mistaken([receive(("user", task.PROMPT), ("user", summary))], client) == 1


def test_text_is_typed_without_waiting_for_a_client_that_has_stopped():
    quiet = model()
    quiet.asked_at -= QUIET
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as cat:
        type_texts(cat, ("Begin.", " And one more."), quiet, time.monotonic() + 20)
        assert time.monotonic() < quiet.asked_at + QUIET + 15
        assert cat.stdout.read() == b"Begin. And one more."


def test_a_run_that_lost_its_notes_is_judged_as_not_fine():
    counts = {field.name: 0 for field in fields(Outcome)}
    texts = {"client": claude_code.CLIENTS[0], "way": "window told", "machines": (), "printed": ""}
    outcome = Outcome(**counts | texts | {"is_done": True, "edited": 9})
    assert outcome.is_fine
    assert not replace(outcome, reread=1).is_fine
