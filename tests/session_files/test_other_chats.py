"""Kimi CLI and Continue: every documented kind of record, in small files written here."""

import hashlib
import json

import pytest

from refold import session_files
from refold.errors import FormatError
from refold.session_files import discover

CALL = {"type": "function", "id": "t1", "function": {"name": "Shell", "arguments": '{"a": 1}'}}


def put(path, *records):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(map(json.dumps, records)))
    return path


def test_kimis_context_has_thoughts_in_a_field_of_their_own_and_no_notes(tmp_path):
    thought, words = {"type": "think", "think": "hm"}, {"type": "text", "text": "I look."}
    answer = {"role": "assistant", "content": [thought, words], "tool_calls": [CALL]}
    result = {"role": "tool", "tool_call_id": "t1", "content": [{"type": "text", "text": "ok"}]}
    folder = tmp_path / ".kimi/sessions" / hashlib.md5(b"/w").hexdigest() / "s1"
    path = put(
        folder / "context.jsonl",
        {"role": "_system_prompt", "content": "You are Kimi."},
        {"role": "_checkpoint", "id": 0},
        {"role": "user", "content": "go"},
        answer,
        {"role": "_usage", "token_count": 9},
        result,
    )
    put(folder / "wire.jsonl", {"timestamp": 1.5})
    put(tmp_path / ".kimi/kimi.json", {"work_dirs": [{"path": "/v"}, {"path": "/w"}]})
    (listing,) = discover(tmp_path, {})
    assert (listing.client, listing.path, listing.id, listing.cwd) == ("kimi", path, "s1", "/w")
    assert session_files.read(listing.path, listing.id).messages == [
        {"role": "system", "content": "You are Kimi."},
        {"role": "user", "content": "go"},
        {**answer, "content": "I look.", "reasoning_content": "hm"},
        result,
    ]


def test_kimis_events_name_the_file_that_can_be_read(tmp_path):
    event = {"timestamp": 1.5, "message": {"type": "TurnBegin", "payload": {"user_input": "go"}}}
    with pytest.raises(FormatError, match=r"context\.jsonl beside them"):
        session_files.read(put(tmp_path / "s1/wire.jsonl", event, {"timestamp": 2.5}))


def test_continue_sends_what_stands_beside_its_messages(tmp_path):
    usage = {"prompt_tokens": 9, "completion_tokens": 2, "model": "m"}
    answer = {"role": "assistant", "content": "", "toolCalls": [CALL], "usage": usage}
    output = [{"name": "Tool Result: Shell", "content": "ok", "description": ""}]
    done = {"toolCallId": "t1", "status": "done", "output": output}
    request = {"message": {"role": "user", "content": "go"}, "contextItems": [{"content": "a.py"}]}
    history = [
        request,
        {"message": {"role": "thinking", "content": "hm"}},
        {"message": answer, "toolCallStates": [done, {"toolCallId": "t2", "status": "calling"}]},
    ]
    place = {"sessionId": "a-1", "title": "a title", "workspaceDirectory": "/w"}
    path = put(tmp_path / ".continue/sessions/a-1.json", {**place, "history": history})
    put(tmp_path / ".continue/sessions/sessions.json", [place])
    (listing,) = discover(tmp_path, {})
    assert (listing.client, listing.path, listing.cwd) == ("continue", path, "/w")
    session = session_files.read(path)
    assert session.messages == [
        {"role": "user", "content": "a.py\n\ngo"},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "t1", "content": "ok"},
    ]
    assert session.usage == ((2, usage),)
    assert (session.id, session.title, session.cwd) == ("a-1", "a title", "/w")
    assert session.body == {"model": "m"}
