"""OpenCode before 1.2: files laid out as its own migration reads them; and its exports."""

import json

import pytest

from refold import session_files as transcripts
from refold.errors import FormatError
from refold.session_files import discover

TIME = {"created": 1_767_225_600_000, "updated": 1_767_225_700_000}
INFO = {
    "id": "ses_1",
    "projectID": "prj",
    "directory": "/w",
    "title": "a title",
    "version": "0.9",
    "time": TIME,
}


def put(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value, indent=2), "utf-8")
    return path


def text(words):
    return {"type": "text", "text": words}


def tool(id):
    state = {
        "status": "completed",
        "input": {"path": id},
        "output": "out",
        "time": {"start": 1, "end": 2},
    }
    return {"type": "tool", "callID": id, "tool": "read", "state": state}


class Storage:
    """A storage folder to write to."""

    def __init__(self, home):
        self.root = home / ".local/share/opencode/storage"
        self.count = 0

    def session(self, **fields):
        return put(self.root / "session/prj/ses_1.json", {**INFO, **fields})

    def message(self, role, *parts, **data):
        self.count += 1
        id = f"msg_{9 - self.count}"
        named = {"id": id, "sessionID": "ses_1", "role": role, "time": {"created": self.count}}
        put(self.root / f"message/ses_1/{id}.json", {**named, **data})
        for at, part in enumerate(parts):
            put(
                self.root / f"part/{id}/prt_{at}.json",
                {**part, "messageID": id, "sessionID": "ses_1"},
            )
        return id


@pytest.fixture
def storage(tmp_path):
    return Storage(tmp_path)


def test_a_session_in_files_is_read_as_one_in_a_database(storage):
    path = storage.session()
    storage.message("user", text("go"))
    storage.message("assistant", {"type": "step-start"}, text("I read."), tool("a"), modelID="m")
    session = transcripts.read(path)
    assert (session.client, session.format, session.id) == ("opencode", "anthropic", "ses_1")
    assert (session.title, session.cwd, session.body) == ("a title", "/w", {"model": "m"})
    assert (session.started.year, session.updated > session.started) == (2026, True)
    assert session.messages == [
        {"role": "user", "content": [text("go")]},
        {
            "role": "assistant",
            "content": [
                text("I read."),
                {"type": "tool_use", "id": "a", "name": "read", "input": {"path": "a"}},
            ],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "a", "content": "out"}],
        },
    ]
    assert session.problems == ()


def test_compactions_and_reverts_are_read(storage):
    storage.message("user", text("old"))
    storage.message("assistant", text("done"))
    asked = storage.message("user", {"type": "compaction", "auto": True})
    storage.message("assistant", text("sum"), summary=True, finish="stop", parentID=asked)
    storage.message("user", text("new"))
    gone = storage.message("user", text("gone"))
    session = transcripts.read(storage.session(revert={"messageID": gone}))
    assert [m["content"][0]["text"] for m in session.messages] == ["old", "done", "new"]
    assert [m["content"][0]["text"] for m in session.effective] == [
        "What did we do so far?",
        "sum",
        "new",
    ]


def test_failed_answers_are_left_out_unless_the_user_aborted_them(storage):
    """As the client does: unless the user aborted the answer after some text."""
    storage.message("user", text("go"))
    storage.message("assistant", text("half"), error={"name": "APIError"})
    storage.message("assistant", {"type": "step-start"}, error={"name": "MessageAbortedError"})
    storage.message("assistant", text("kept"), error={"name": "MessageAbortedError"})
    session = transcripts.read(storage.session())
    assert [m["content"][0]["text"] for m in session.messages] == ["go", "kept"]


def test_broken_files_are_reported_and_skipped(storage):
    path = storage.session()
    storage.message("user", text("go"))
    put(storage.root / "message/ses_1/msg_0.json", '{"role": "us')
    put(storage.root / "message/ses_1/msg_1.json", "[]")
    session = transcripts.read(path)
    assert len(session.messages) == 1
    assert [problem.text.partition(":")[0] for problem in session.problems] == [
        "msg_0.json",
        "msg_1.json",
    ]


def test_a_session_file_without_its_messages_is_refused(tmp_path):
    with pytest.raises(FormatError, match="a session without the messages beside it"):
        transcripts.read(put(tmp_path / "a/b/ses_1.json", INFO))


def test_an_export_is_read():
    messages = [
        {
            "info": {"id": "msg_1", "role": "user", "time": {"created": 1}},
            "parts": [{**text("go"), "id": "p"}],
        },
        {
            "info": {"id": "msg_2", "role": "assistant", "time": {"created": 2}},
            "parts": [{**text("ok"), "id": "p"}],
        },
    ]
    session = transcripts.read_bytes(json.dumps({"info": INFO, "messages": messages}).encode())
    assert (session.id, session.client) == ("ses_1", "opencode")
    assert [m["role"] for m in session.messages] == ["user", "assistant"]


def test_sessions_in_files_are_found_unless_the_database_has_them(storage, tmp_path):
    path = storage.session()
    put(storage.root / "session/prj/ses_2.json", "{")
    (listing,) = discover(tmp_path, {})
    assert (listing.client, listing.path, listing.id, listing.cwd, listing.title) == (
        "opencode",
        path,
        "ses_1",
        "/w",
        "a title",
    )
    assert (listing.size_bytes, listing.modified.year) == (-1, 2026)
    assert (
        discover(tmp_path / "nowhere", {"XDG_DATA_HOME": str(tmp_path / ".local/share")})[0].path
        == path
    )
