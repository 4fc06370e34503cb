"""Gemini CLI and Qwen Code: every documented kind of line, in small files written here."""

import json

from refold import session_files as transcripts

HEAD = {
    "sessionId": "g1",
    "projectHash": "ab",
    "startTime": "2026-11-01T10:00:00Z",
    "lastUpdated": "2026-11-01T10:05:00Z",
    "directories": ["/w"],
}


def message(id, type, content="", **fields):
    return {
        "id": id,
        "timestamp": "2026-11-01T10:00:00Z",
        "type": type,
        "content": content,
        **fields,
    }


def call(id, result):
    return {
        "id": id,
        "name": "read_file",
        "args": {"path": id},
        "result": result,
        "status": "success",
    }


def response(id, output="text"):
    return {"functionResponse": {"id": id, "name": "read_file", "response": {"output": output}}}


def read(*records):
    return transcripts.read_bytes(
        "\n".join(json.dumps(r) for r in records).encode(), "session-1.jsonl"
    )


def texts(session):
    return [part.get("text") for entry in session.messages for part in entry["parts"]]


def test_results_of_calls_become_a_message_of_their_own():
    calls = [
        call("k1", [response("k1")]),
        call("k2", [response("k2"), {"inlineData": {"mimeType": "image/png"}}]),
    ]
    session = read(
        HEAD,
        message("1", "user", "go"),
        message(
            "2",
            "gemini",
            "I look",
            toolCalls=calls,
            model="gemini-3",
            tokens={"input": 9},
            thoughts=[{"subject": "s"}],
        ),
        message("3", "info", "saved"),
        message("4", "user", [{"text": "看"}, "more"]),
    )
    assert session.messages == [
        {"role": "user", "parts": [{"text": "go"}]},
        {
            "role": "model",
            "parts": [
                {"text": "I look"},
                {"functionCall": {"id": "k1", "name": "read_file", "args": {"path": "k1"}}},
                {"functionCall": {"id": "k2", "name": "read_file", "args": {"path": "k2"}}},
            ],
        },
        {
            "role": "user",
            "parts": [response("k1"), response("k2"), {"inlineData": {"mimeType": "image/png"}}],
        },
        {"role": "user", "parts": [{"text": "看"}, {"text": "more"}]},
    ]
    assert session.usage == ((2, {"input": 9}),)
    assert (session.client, session.format, session.id, session.cwd) == (
        "gemini_cli",
        "gemini",
        "g1",
        "/w",
    )
    assert session.payload == {"model": "gemini-3", "contents": session.messages}


def test_results_that_also_have_their_own_message_are_read_once():
    answer = message("2", "gemini", toolCalls=[call("k1", [response("k1")])])
    late = message("4", "gemini", toolCalls=[call("k2", [response("k2")])])
    session = read(HEAD, answer, message("3", "user", [response("k1")]), late)
    assert [list(part) for entry in session.messages for part in entry["parts"]] == [
        ["functionCall"],
        ["functionResponse"],
    ] * 2


def test_a_message_written_again_keeps_its_place():
    session = read(HEAD, message("1", "user", "go"), message("2", "gemini", "par"), message("3", "user", "more"),
                   message("2", "gemini", "partial, then whole"))  # fmt: skip
    assert texts(session) == ["go", "partial, then whole", "more"]


def test_a_set_record_with_messages_replaces_the_history_and_others_do_not():
    session = read(
        HEAD,
        message("1", "user", "go"),
        {"$set": {"summary": "a title"}},
        message("2", "gemini", "one"),
        {"$set": {"messages": [message("1", "user", "go"), message("9", "gemini", "nine")]}},
        message("10", "user", "ten"),
    )
    assert texts(session) == ["go", "nine", "ten"]
    assert session.title == "a title"


def test_a_rewind_removes_the_named_message_and_all_after_it():
    lines = [
        HEAD,
        message("1", "user", "go"),
        message("2", "gemini", "one"),
        message("3", "user", "bad"),
    ]
    assert texts(read(*lines, {"$rewindTo": "3"}, message("4", "user", "good"))) == [
        "go",
        "one",
        "good",
    ]
    assert texts(read(*lines, {"$rewindTo": "nobody"}, message("4", "user", "good"))) == ["good"]


def test_the_older_format_of_one_json_document_is_read():
    document = {**HEAD, "messages": [message("1", "user", "go"), message("2", "gemini", "one")]}
    for text in (json.dumps(document, indent=2), json.dumps(document)):
        session = transcripts.read_bytes(text.encode())
        assert (session.client, texts(session)) == ("gemini_cli", ["go", "one"])


def test_interrupted_calls_have_no_result_and_text_results_are_wrapped():
    session = read(
        HEAD,
        message("1", "user", "go"),
        message("2", "gemini", toolCalls=[call("k1", None), call("k2", "plain")]),
    )
    assert session.messages[2] == {"role": "user", "parts": [response("k2", "plain")]}


def test_a_call_that_is_in_the_content_already_is_not_repeated():
    function_call = {
        "functionCall": {"id": "k1", "name": "read_file", "args": {}},
        "thoughtSignature": "c2ln",
    }
    session = read(
        HEAD,
        message("1", "user", "go"),
        message("2", "gemini", [function_call], toolCalls=[call("k1", [response("k1")])]),
    )
    assert session.messages[1]["parts"] == [function_call]


def test_a_file_with_only_metadata_is_reported_to_have_no_messages():
    session = read(HEAD)
    assert session.messages == []
    assert "no messages" in session.problems[0].text


# --- Qwen Code -------------------------------------------------------------------------------


def qwen(uuid, parent, type, *parts, **extras):
    role = "model" if type == "assistant" else "user"
    fields = {"sessionId": "q1", "cwd": "/w", "timestamp": "2026-11-01T10:00:00Z", "model": "qwen3"}
    content = {"message": {"role": role, "parts": list(parts)}} if parts else {}
    return {"uuid": uuid, "parentUuid": parent, "type": type, **fields, **content, **extras}


def test_qwen_a_line_that_is_its_own_parent_follows_the_line_before():
    lines = [qwen("a", None, "user", {"text": "one"}), qwen("b", "b", "user", {"text": "two"})]
    assert [m["parts"][0]["text"] for m in read(*lines).messages] == ["one", "two"]


def test_qwen_a_tree_of_lines_is_read_as_its_active_branch():
    asked = [{"functionCall": {"id": id, "name": "read_file", "args": {}}} for id in ("k1", "k2")]
    session = read(
        qwen("a", None, "user", {"text": "go"}),
        qwen(
            "b",
            "a",
            "assistant",
            {"text": "hm", "thought": True},
            *asked,
            usageMetadata={"promptTokenCount": 9},
        ),
        qwen("c", "b", "tool_result", response("k1"), toolCallResult={"callId": "k1"}),
        qwen("d", "c", "tool_result", response("k2")),
        qwen("x", "d", "user", {"text": "left behind"}),
        qwen("e", "d", "system", subtype="rewind", systemPayload={}),
        qwen("f", "e", "user", {"text": "more"}),
    )
    assert [(m["role"], len(m["parts"])) for m in session.messages] == [
        ("user", 1),
        ("model", 3),
        ("user", 2),
        ("user", 1),
    ]
    assert session.usage == ((2, {"promptTokenCount": 9}),)
    assert (session.client, session.format, session.id, session.cwd) == (
        "qwen",
        "gemini",
        "q1",
        "/w",
    )
    assert session.body == {"model": "qwen3"}


def test_qwen_lines_of_one_uuid_are_one_message():
    """As the client reads them: parts in order, the latest usage; a line written twice counts
    once."""
    first = qwen("b", "a", "assistant", {"text": "I"}, usageMetadata={"promptTokenCount": 1})
    session = read(
        qwen("a", None, "user", {"text": "go"}),
        first,
        first,
        qwen("b", "a", "assistant", {"text": "look"}, usageMetadata={"promptTokenCount": 2}),
    )
    assert session.messages[1] == {"role": "model", "parts": [{"text": "I"}, {"text": "look"}]}
    assert session.usage == ((2, {"promptTokenCount": 2}),)


def test_qwen_a_compression_is_recorded_as_a_compaction():
    history = [
        {"role": "user", "parts": [{"text": "summary"}]},
        {"role": "model", "parts": [{"text": "Got it."}]},
    ]
    payload = {"info": {"originalTokenCount": 90}, "compressedHistory": history}
    session = read(
        qwen("a", None, "user", {"text": "go"}),
        qwen("b", "a", "system", subtype="chat_compression", systemPayload=payload),
        qwen("c", "b", "user", {"text": "more"}),
    )
    (compression,) = session.compactions
    assert (compression.start, compression.stop, compression.trigger, compression.meta) == (
        0,
        1,
        "compression",
        {"originalTokenCount": 90},
    )
    assert session.effective == [*history, {"role": "user", "parts": [{"text": "more"}]}]
    assert texts(session) == ["go", "more"]
