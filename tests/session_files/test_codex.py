"""Codex: every documented kind of line, in small files written here."""

import json
import sys
from importlib.util import find_spec

import pytest

from refold import session_files as transcripts
from refold.errors import FormatError
from refold.gateway.ledger.accounting import read_bill
from refold.session_files.source import decompress_zstd

CAN_UNZIP = find_spec("zstandard") is not None or sys.version_info >= (3, 14)
META = {
    "id": "c1",
    "timestamp": "2026-05-12T09:59:55Z",
    "cwd": "/w",
    "base_instructions": {"text": "You are Codex."},
}


def line(type, /, **payload):
    return {"timestamp": "2026-05-12T10:00:00.000Z", "type": type, "payload": payload}


def item(**payload):
    return line("response_item", **payload)


def user(words):
    return item(type="message", role="user", content=[{"type": "input_text", "text": words}])


def answer(words):
    return item(type="message", role="assistant", content=[{"type": "output_text", "text": words}])


def encode(*records):
    return "\n".join(json.dumps(record) for record in records).encode()


def read(*records):
    return transcripts.read_bytes(encode(line("session_meta", **META), *records), "rollout.jsonl")


def list_words(entries):
    return [
        entry["content"][0]["text"] if "content" in entry else entry["type"] for entry in entries
    ]


def test_items_are_kept_as_they_were_sent():
    turn = [
        item(
            type="message",
            role="developer",
            content=[{"type": "input_text", "text": "<permissions>"}],
        ),
        user("<environment_context>\n</environment_context>"),
        line("turn_context", cwd="/w/sub", model="gpt-5"),
        user("fix it"),
        line("event_msg", type="user_message", message="fix it"),
        item(type="reasoning", summary=[], content=None, encrypted_content="gAAA"),
        item(type="function_call", name="shell", arguments='{"cmd": "ls"}', call_id="k1"),
        line("event_msg", type="token_count", info=None),
        line("event_msg", type="token_count", info={"last_token_usage": {"input_tokens": 9}}),
        item(type="function_call_output", call_id="k1", output="a.py"),
        item(type="custom_tool_call", name="apply_patch", input="*** Begin", call_id="k2"),
        item(
            type="custom_tool_call_output",
            call_id="k2",
            output=[{"type": "input_text", "text": "ok"}],
        ),
        item(type="local_shell_call", call_id="k3", status="completed", action={}),
        item(type="web_search_call", id="ws", status="completed"),
        item(type="ghost_snapshot", ghost_commit={}),
        line("world_state", anything=1),
        line("event_msg", type="agent_message", message="done"),
        answer("done"),
    ]
    session = read(*turn)
    sent = [record["payload"] for record in turn if record["type"] == "response_item"]
    assert session.messages == [payload for payload in sent if payload["type"] != "ghost_snapshot"]
    assert session.usage == ((5, {"input_tokens": 9}),)
    assert session.body == {"model": "gpt-5", "instructions": "You are Codex."}
    assert session.payload["input"] is session.messages
    assert (session.client, session.format, session.id, session.cwd) == (
        "codex",
        "openai_responses",
        "c1",
        "/w/sub",
    )
    assert session.problems == ()


def test_user_messages_that_are_only_in_events_are_read_from_the_events():
    session = read(
        line("event_msg", type="user_message", message="\nfirst\n"), answer("one"),
        user("second"), line("event_msg", type="user_message", message="second"), answer("two"),
    )  # fmt: skip
    assert list_words(session.messages) == ["\nfirst\n", "one", "second", "two"]


def test_a_message_whose_event_joins_its_parts_differently_is_read_once():
    parts = [{"type": "input_text", "text": words} for words in ("one\n", "two\n")]
    session = read(
        item(type="message", role="user", content=parts),
        line("event_msg", type="user_message", message="one\ntwo\n"),
    )
    assert [entry["content"] for entry in session.messages] == [parts]


def test_repeated_token_counts_are_counted_once():
    def counts(last, total):
        usage = {"last_token_usage": {"input_tokens": last}}
        return line("event_msg", type="token_count", info={**usage, "total_token_usage": total})

    first, second = {"input_tokens": 5}, {"input_tokens": 10}
    session = read(
        user("go"), answer("one"), counts(5, first), counts(5, first),
        answer("two"), counts(5, second), line("event_msg", type="token_count", info=None),
    )  # fmt: skip
    assert session.usage == ((2, {"input_tokens": 5}), (3, {"input_tokens": 5}))


def test_the_token_count_after_a_compaction_is_not_counted_as_a_call():
    size = {"last_token_usage": {"input_tokens": 0, "output_tokens": 0, "total_tokens": 9}}
    counts = line("event_msg", type="token_count", info=size)
    assert read_bill(read(user("go"), counts)).calls == 0


def test_a_compaction_with_a_replacement_history_shows_that_history():
    summary = user("Summary: all is well")["payload"]
    session = read(
        user("go"), answer("one"), line("compacted", message="", replacement_history=[summary], window_number=1),
        user("go on"),
    )  # fmt: skip
    (compaction,) = session.compactions
    assert (compaction.start, compaction.stop, compaction.insert, compaction.meta) == (
        0,
        2,
        (summary,),
        {"message": "", "window_number": 1},
    )
    assert list_words(session.messages) == ["go", "one", "go on"]
    assert list_words(session.effective) == ["Summary: all is well", "go on"]


def test_a_compaction_without_history_keeps_the_users_messages_and_the_summary():
    session = read(
        user("<environment_context>"), user("go"), answer("one"), user("x" * 79_990), user("最后"),
        line("compacted", message="what happened"), user("go on"),
    )  # fmt: skip
    assert [text[:20] for text in list_words(session.effective)] == [
        "go",
        "x" * 20,
        "最后",
        "what happened",
        "go on",
    ]


def test_a_rollback_removes_the_last_turns_of_the_user():
    back = line("event_msg", type="thread_rolled_back", num_turns=1)
    session = read(
        user("go"),
        answer("one"),
        user("<environment_context>"),
        user("bad"),
        answer("two"),
        back,
        user("x"),
    )
    assert list_words(session.messages) == ["go", "one", "<environment_context>", "x"]
    assert (
        list_words(
            read(
                user("go"), answer("one"), {**back, "payload": {**back["payload"], "num_turns": 9}}
            ).messages
        )
        == []
    )


def test_a_rollback_across_a_compaction_removes_turns_of_its_replacement():
    replacement = [
        user("go")["payload"],
        user("bad")["payload"],
        user("<turn_aborted> summary")["payload"],
    ]
    session = read(
        user("go"), user("bad"), line("compacted", message="", replacement_history=replacement), user("worse"),
        line("event_msg", type="thread_rolled_back", num_turns=2), user("again"),
    )  # fmt: skip
    assert list_words(session.messages) == ["go", "again"]
    assert list_words(session.effective) == ["go", "again"]


def test_both_older_file_formats_are_read():
    items = [user("go")["payload"], answer("one")["payload"]]
    first = {"id": "old", "timestamp": "2025-05-01T00:00:00Z", "instructions": "Be brief."}
    bare = transcripts.read_bytes(encode(first, items[0], {"record_type": "state"}, items[1]))
    whole = transcripts.read_bytes(
        json.dumps({"session": first, "items": items}, indent=1).encode()
    )
    for session in (bare, whole):
        assert (session.client, session.id, session.body) == (
            "codex",
            "old",
            {"instructions": "Be brief."},
        )
        assert session.messages == items


def test_a_fork_has_the_id_of_its_own_header():
    session = read(line("session_meta", **{**META, "id": "parent"}), user("go"))
    assert session.id == "c1"


def test_a_file_without_messages_is_reported():
    assert "no messages" in read().problems[0].text


def test_decompressing_without_a_zstd_module_reports_what_to_install():
    with pytest.raises(FormatError, match="pip install zstandard"):
        decompress_zstd(
            b"\x28\xb5\x2f\xfd", "rollout.jsonl.zst", modules=("refold_has_no_such_module",)
        )


def zstd_frame(data):
    """Return an uncompressed zstd frame: magic, one segment with its size in 4 bytes, raw blocks,
    no checksum."""
    size = 1 << 16
    parts = [data[at : at + size] for at in range(0, len(data), size)]
    heads = [
        (len(part) << 3 | (at == len(parts) - 1)).to_bytes(3, "little")
        for at, part in enumerate(parts)
    ]
    blocks = b"".join(head + part for head, part in zip(heads, parts, strict=True))
    return b"\x28\xb5\x2f\xfd\xa0" + len(data).to_bytes(4, "little") + blocks


@pytest.fixture
def cold(tmp_path):
    """Return a compressed rollout of two frames."""
    records = (line("session_meta", **META), user("go"))
    path = tmp_path / "rollout-1.jsonl.zst"
    path.write_bytes(b"".join(zstd_frame(encode(record) + b"\n") for record in records))
    return path


@pytest.mark.skipif(not CAN_UNZIP, reason="no module for zstd is installed")
def test_a_compressed_file_is_read_and_a_damaged_one_is_an_error(cold):
    assert list_words(transcripts.read(cold).messages) == ["go"]
    with pytest.raises(FormatError, match="damaged"):
        transcripts.read_bytes(cold.read_bytes()[:9] + b"\xff" * 9)


@pytest.mark.skipif(not CAN_UNZIP, reason="no module for zstd is installed")
@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_compressed_file_is_listed_in_its_folder(cold, is_damaged):
    data = cold.read_bytes()
    path = cold.parent / ".codex/sessions/2026/01/01" / cold.name
    path.parent.mkdir(parents=True)
    path.write_bytes(data[:9] + b"\xff" * 9 if is_damaged else data)
    (session,) = transcripts.discover(cold.parent, {})
    assert (session.path, session.cwd) == (path, "" if is_damaged else META["cwd"])


@pytest.mark.skipif(CAN_UNZIP, reason="a module for zstd is installed")
def test_a_compressed_file_is_an_error_if_no_zstd_module_is_installed(cold):
    with pytest.raises(FormatError, match="pip install zstandard"):
        transcripts.read(cold)
