"""A reader of an invented format, as a newcomer would write it. The library provides the rest."""

import json
from datetime import UTC, datetime
from pathlib import Path

from refold.session_files import Problem
from refold.session_files.reader import file_reader
from refold.session_files.source import ClientFiles, Tree, cwd_under, open_bytes
from refold.text.json_values import int_at, object_at, text_at

# --- the reader ------------------------------------------------------------------------------

FILES = ClientFiles("tape", (".tape",), ("reels/**/*.tape",), cwd_under("cwd"), ("TAPE_HOME",))


def mismatch(source):
    """Return why this is not a tape, or an empty text."""
    return "" if any("said" in record for record in source.objects()) else "nothing is said"


def read(session):
    """Read a tape: one `{"id", "after", "by", "said", "call", "at", "bill"}` per line."""
    tree = Tree()
    for line, record in session.records():
        session.note_time(record.get("at"))
        session.cwd = session.cwd or text_at(record, "cwd")
        tree.add(line, text_at(record, "id"), text_at(record, "after"), record)
    for node in session.branch(tree):
        session.add(message(node.record))
        if int_at(node.record, "bill", "prompt_tokens") >= 0:
            session.add_usage(object_at(node.record, "bill"))


def message(record):
    """Return a line of the tape as a Chat Completions message."""
    by, words = text_at(record, "by"), text_at(record, "said")
    if by == "machine":
        return {"role": "tool", "tool_call_id": text_at(record, "call"), "content": words}
    if not (call := object_at(record, "call")):
        return {"role": by, "content": words}
    function = {"name": text_at(call, "name"), "arguments": json.dumps(call.get("with"))}
    calls = [{"id": text_at(call, "id"), "type": "function", "function": function}]
    return {"role": by, "content": words, "tool_calls": calls}


READER = file_reader("tape", "openai_chat", mismatch, read, FILES)

# --- its tests -------------------------------------------------------------------------------

LINES = [
    {"id": "1", "by": "user", "said": "What is here?", "at": "2026-11-01T10:00:00Z", "cwd": "/w"},
    {
        "id": "2",
        "after": "1",
        "by": "assistant",
        "said": "",
        "call": {"id": "c", "name": "ls", "with": {}},
        "bill": {"prompt_tokens": 9},
    },
    {"id": "3", "after": "1", "by": "assistant", "said": "a branch that was left"},
    {"id": "4", "after": "2", "by": "machine", "said": "a.py", "call": "c", "at": 1793527260},
]


def tape(*lines):
    return open_bytes("\n".join(map(json.dumps, lines)).encode(), "x.tape")


def test_a_minimal_reader_gets_branches_times_usage_and_calls():
    (stored,) = READER.sessions(tape(*LINES))
    session = stored.load()
    assert READER.mismatch(tape(*LINES)) == ""
    assert [message["role"] for message in session.messages] == ["user", "assistant", "tool"]
    assert session.messages[2]["tool_call_id"] == session.messages[1]["tool_calls"][0]["id"]
    assert session.usage == ((2, {"prompt_tokens": 9}),)
    assert session.cwd == "/w"
    assert session.started == datetime(2026, 11, 1, 10, tzinfo=UTC)
    assert session.updated == datetime.fromtimestamp(1793527260, UTC)
    assert session.problems == ()


def test_a_broken_line_is_reported_and_the_lines_after_it_are_read():
    lines = [json.dumps(line) for line in LINES]
    source = open_bytes("\n".join([lines[0], lines[1][:20], lines[3]]).encode(), "x.tape")
    session = READER.sessions(source)[0].load()
    assert [message["role"] for message in session.messages] == ["user", "tool"]
    assert [problem.line for problem in session.problems] == [2, 3]
    lost = "its parent 2 is not in the file; joined to the line before"
    assert session.problems[1] == Problem(3, lost)


def test_the_files_of_a_reader_are_found(tmp_path: Path):
    path = tmp_path / ".tape/reels/2026/11/x.tape"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(LINES[0]))
    (listing,) = READER.find(tmp_path, {}, str)
    assert (listing.client, listing.path, listing.cwd) == ("tape", path, "/w")
    (moved,) = READER.find(tmp_path / "other", {"TAPE_HOME": str(tmp_path / ".tape")}, str)
    assert moved.path == path
