"""Calls and results in forms that no API accepts: LangChain's, repeated ones, Cline's."""

import json

from refold import check, session_files
from refold.codecs.detect import open_payload
from refold.messages import ToolCall
from refold.session_files import read_value


def read(entries):
    return session_files.read_bytes(json.dumps(entries).encode(), "it.json")


def test_langchain_calls_and_calls_repeated_in_the_content_are_read_once():
    """LangChain's were once not recognised, and calls that a log has twice counted twice."""
    langchain = {"name": "read", "args": {"path": "a"}, "id": "c1", "type": "tool_call"}
    call = {"id": "c2", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    part = {"type": "tool_call", "id": "c2", "name": "read", "arguments": {}}
    output = {"type": "tool_output", "tool_call_id": "c2", "output": {"text": "b"}}
    session = read(
        [
            {"role": "user", "content": "Read."},
            {"role": "assistant", "content": "", "tool_calls": [langchain]},
            {"role": "tool", "tool_call_id": "c1", "content": "a"},
            {"role": "assistant", "content": [part], "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c2", "content": [output]},
        ]
    )
    _, first, _, second, result = open_payload(session.payload).decode()
    assert first.parts == (ToolCall("c1", "read", '{"path":"a"}'),)
    assert second.parts == (ToolCall("c2", "read", "{}"),)
    assert result.parts[0].text == '{"text": "b"}'
    assert session.is_respelled
    assert [str(problem) for problem in session.problems] == [
        "3 messages have calls or results in a form that no API takes"
    ]


def test_text_results_of_cline_become_tool_results_of_the_preceding_calls():
    """They were once user requests, and no call had a result."""

    def ask(*names):
        return {"role": "assistant", "content": [make_call(name) for name in names]}

    def make_call(name):
        return {"type": "tool_use", "id": f"c_{name}", "name": name, "input": {}}

    def say(*texts):
        return {"role": "user", "content": [{"type": "text", "text": text} for text in texts]}

    skipped = "Tool [list_files] was not executed because a tool has already been used."
    reminder, words = "# TODO LIST UPDATE REQUIRED", "<feedback>\nUse tabs.\n</feedback>"
    session = read(
        [
            say("<task>\nRead a.\n</task>"),
            ask("read_file", "list_files"),
            say("[read_file for 'a'] Result:\n[x] = 1", skipped, reminder),
            ask("use_subagents"),
            say("[subagents] Result:\nDone."),
            ask("attempt_completion"),
            say(f"[attempt_completion] Result:\nThe user has feedback.\n{words}"),
            ask("read_file"),
            say("[notes] Result: none. Stop.\n", "[read_file for 'b'] Result:\n2"),
            {"role": "assistant", "content": "Well?"},
            say("[read_file for 'c'] Result:\n3"),
        ]
    )
    contents = [entry["content"] for entry in session.messages]

    def result(name, text, **more):
        return {"type": "tool_result", "tool_use_id": f"c_{name}", "content": text, **more}

    assert contents[2] == [
        result("read_file", "[x] = 1"),
        result("list_files", skipped, is_error=True),
        {"type": "text", "text": reminder},
    ]
    assert contents[4] == [result("use_subagents", "Done.")]
    assert contents[6] == [
        result("attempt_completion", "The user has feedback.\n"),
        {"type": "text", "text": words},
    ]
    assert contents[8][0]["tool_use_id"] == "c_read_file"
    assert contents[10][0]["text"].startswith("[read_file"), "nothing was called"
    assert not check(session.payload)


def test_calls_are_rewritten_in_the_format_that_is_given_not_in_the_guessed_one():
    call = {"type": "tool_use", "id": "a", "name": "ls", "input": {}}
    entries = [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": [call, {"type": "tool_call", "id": "b", "name": "ls"}]},
        {"role": "user", "content": "[ls] Result:\na.py"},
    ]
    (guessed,) = read_value(entries)
    assert guessed.format == "anthropic" and guessed.messages[2] != entries[2]
    (session,) = read_value(entries, format="openai_chat")
    written = {"id": "b", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
    assert session.messages[1] == {**entries[1], "content": [call], "tool_calls": [written]}
    assert (session.format, session.messages[2]) == ("openai_chat", entries[2])
