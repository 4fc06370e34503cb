"""OpenCode: a database with the documented tables, made here."""

import json
import shutil
import sqlite3
from contextlib import closing
from datetime import UTC, datetime

import pytest

from refold import session_files as transcripts
from refold.errors import FormatError
from refold.session_files.export import export_session
from tests.support.opencode import Base, finish_tool, text, tool


@pytest.fixture
def base(tmp_path):
    base = Base(tmp_path / "opencode.db")
    base.session("ses_1")
    yield base
    base.base.close()


def words(entries):
    return [
        (
            entry["role"],
            *[
                b.get("text") or b.get("id") or b.get("content") or b["type"]
                for b in entry["content"]
            ],
        )
        for entry in entries
    ]


def test_messages_become_anthropic_blocks(base):
    picture = {
        "type": "file",
        "mime": "image/png",
        "filename": "a.png",
        "url": "data:image/png;base64,aGk=",
    }
    base.user(
        "ses_1",
        text("go"),
        text("for people", ignored=True),
        picture,
        {**picture, "mime": "text/plain"},
    )
    base.answer(
        "ses_1",
        {"type": "step-start"},
        {"type": "reasoning", "text": "hm", "metadata": {"anthropic": {"signature": "sig"}}},
        text("I read"),
        finish_tool("k1"),
        tool("k2", "error", error="no such file"),
        {"type": "step-finish", "tokens": {}},
        {"type": "snapshot", "snapshot": "x"},
        {"type": "step-start"},
        text("read it"),
        tokens={"input": 9, "output": 1},
        cost=0.5,
    )
    session = transcripts.read(base.path)
    assert session.messages == [
        {
            "role": "user",
            "content": [
                text("go"),
                {
                    "type": "image",
                    "source": {"type": "base64", "media_type": "image/png", "data": "aGk="},
                },
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "sig"},
                text("I read"),
                {"type": "tool_use", "id": "k1", "name": "read", "input": {"path": "k1"}},
                {"type": "tool_use", "id": "k2", "name": "read", "input": {"path": "k2"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "k1", "content": "text"},
                {
                    "type": "tool_result",
                    "tool_use_id": "k2",
                    "content": "no such file",
                    "is_error": True,
                },
            ],
        },
        {"role": "assistant", "content": [text("read it")]},
    ]
    assert session.usage == ((4, {"input": 9, "output": 1, "cost": {"total": 0.5}}),)
    assert (session.client, session.format, session.id, session.cwd) == (
        "opencode",
        "anthropic",
        "ses_1",
        "/w",
    )
    assert (session.title, session.body, session.started.year) == ("a title", {"model": "m"}, 2026)


def test_attachments_and_linked_files_become_images_and_documents(base):
    url = {"type": "file", "mime": "application/pdf", "url": "https://example.org/a.pdf"}
    base.user("ses_1", url, {"type": "subtask", "prompt": "x"})
    base.answer("ses_1", tool("k1", output="seen", attachments=[{**url, "mime": "image/png"}]))
    messages = transcripts.read(base.path).messages
    assert messages[0]["content"][0] == {
        "type": "document",
        "source": {"type": "url", "url": url["url"]},
    }
    assert [block["type"] for block in messages[2]["content"][0]["content"]] == ["text", "image"]


def test_a_finished_compaction_is_recorded(base):
    base.user("ses_1", text("go"))
    base.answer("ses_1", text("one"))
    tail = base.user("ses_1", text("more"))
    asked = base.user("ses_1", {"type": "compaction", "auto": True, "tail_start_id": tail})
    base.answer("ses_1", text("what happened"), parentID=asked, summary=True, finish="stop")
    base.user("ses_1", text("go on", synthetic=True))
    session = transcripts.read(base.path)
    (compaction,) = session.compactions
    assert (compaction.start, compaction.stop, compaction.trigger) == (0, 2, "auto")
    assert words(session.messages) == [
        ("user", "go"),
        ("assistant", "one"),
        ("user", "more"),
        ("user", "go on"),
    ]
    assert words(session.effective) == [
        ("user", "What did we do so far?"), ("assistant", "what happened"), ("user", "more"), ("user", "go on"),
    ]  # fmt: skip


def test_a_failed_compaction_is_ignored(base):
    base.user("ses_1", text("go"))
    asked = base.user("ses_1", {"type": "compaction", "auto": False})
    base.answer(
        "ses_1",
        text("half"),
        parentID=asked,
        summary=True,
        finish="stop",
        error={"name": "aborted"},
    )
    base.answer("ses_1", text("half"), parentID=asked, summary=True)
    session = transcripts.read(base.path)
    assert (words(session.messages), session.compactions) == ([("user", "go")], ())


def test_pruned_results_are_whole_in_the_full_transcript(base):
    base.user("ses_1", text("go"))
    base.answer("ses_1", finish_tool("k1", "long", compacted=5), finish_tool("k2", "short"))
    session = transcripts.read(base.path)
    assert [b["content"] for b in session.messages[2]["content"]] == ["long", "short"]
    assert [b["content"] for b in session.effective[2]["content"]] == [
        "[Old tool result content cleared]",
        "short",
    ]
    assert session.compactions[0].trigger == "prune"


def test_reverted_messages_are_not_part_of_the_conversation(base):
    base.user("ses_2", text("go"))
    bad = base.user("ses_2", text("bad"), text("worse"))
    base.session("ses_2", 2_000_000_000_000, revert=json.dumps({"messageID": bad}))
    assert words(transcripts.read(base.path).messages) == [("user", "go")]
    base.base.execute(
        "UPDATE session SET revert = ?", (json.dumps({"messageID": bad, "partID": "prt_0021"}),)
    )
    base.base.commit()
    assert words(transcripts.read(base.path).messages) == [("user", "go"), ("user", "bad")]


def test_calls_that_never_ended_have_no_result(base):
    base.user("ses_1", text("go"))
    base.answer("ses_1", tool("k1", "running"))
    assert words(transcripts.read(base.path).messages) == [("user", "go"), ("assistant", "k1")]


def test_the_latest_of_several_sessions_is_read_by_default(base):
    base.session("ses_0", 1_999_999_999_999)
    base.user("ses_0", text("later"))
    base.user("ses_1", text("earlier"))
    assert transcripts.read(base.path).id == "ses_0"
    assert transcripts.read(base.path, "ses_1").messages[0]["content"] == [text("earlier")]
    assert [session.id for session in transcripts.read_all(base.path)] == ["ses_1", "ses_0"]
    with pytest.raises(FormatError, match="no session 'nobody'"):
        transcripts.read(base.path, "nobody")


def test_a_session_that_is_deleted_after_it_was_listed_is_an_error_of_its_file(base):
    base.session("ses_0", 1_999_999_999_999)
    for id in ("ses_0", "ses_1"):
        base.user(id, text("go"))
    sessions = transcripts.read_all(base.path)
    first = next(sessions)
    base.base.execute("DELETE FROM session")
    base.base.commit()
    with pytest.raises(FormatError, match=r"^opencode.db: its session ses_0 has been deleted$"):
        next(sessions)
    with pytest.raises(FormatError, match=r"^opencode.db: its session ses_1 has been deleted$"):
        export_session(first, first.messages, datetime.now(UTC), base.path.parent)


def test_messages_only_in_the_write_ahead_log_are_read_without_writing(base):
    base.user("ses_1", text("go"))
    log = base.path.with_name("opencode.db-wal")
    before = (base.path.read_bytes(), log.read_bytes())
    assert len(before[1]) > 0
    assert words(transcripts.read(base.path).messages) == [("user", "go")]
    assert (base.path.read_bytes(), log.read_bytes()) == before


def test_a_database_is_read_from_bytes(base):
    base.user("ses_1", text("go"))
    base.base.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert words(transcripts.read_bytes(base.path.read_bytes()).messages) == [("user", "go")]


def test_broken_rows_are_reported_and_damaged_databases_are_refused(base, tmp_path):
    base.user("ses_1", text("go"), '{"type": "te', "[]")
    base.message("ses_1", "no json", text("lost role"))
    session = transcripts.read(base.path)
    assert words(session.messages) == [("user", "go")]
    assert len(session.problems) == 2
    copy = tmp_path / "half.db"
    base.base.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copyfile(base.path, copy)
    copy.write_bytes(copy.read_bytes()[:5000])
    with pytest.raises(FormatError):
        transcripts.read(copy)


def test_another_clients_database_and_one_without_sessions_are_refused(tmp_path):
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE session (id)")
    with pytest.raises(FormatError, match="no table message, part"):
        transcripts.read(path)
    empty = Base(tmp_path / "empty.db")
    with pytest.raises(FormatError, match="has no sessions"):
        transcripts.read(empty.path)
    empty.session("ses_1")
    assert "no messages" in transcripts.read(empty.path).problems[0].text
    empty.base.close()
