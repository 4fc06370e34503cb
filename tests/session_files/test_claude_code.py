"""Claude Code: every documented kind of line, in small files written here."""

import json

import pytest

from refold import session_files as transcripts

SESSION = {
    "sessionId": "s1",
    "cwd": "/w",
    "isSidechain": False,
    "timestamp": "2026-02-11T20:00:00.000Z",
}


def user(uuid, parent, content, **fields):
    message = {"role": "user", "content": content}
    return {
        **SESSION,
        "type": "user",
        "uuid": uuid,
        "parentUuid": parent,
        "message": message,
        **fields,
    }


def answer(uuid, parent, id, *blocks, **fields):
    message = {
        "id": id,
        "model": "m",
        "role": "assistant",
        "content": list(blocks),
        "usage": {"input_tokens": 7},
    }
    return {
        **SESSION,
        "type": "assistant",
        "uuid": uuid,
        "parentUuid": parent,
        "message": {**message, **fields},
    }


def text(words):
    return {"type": "text", "text": words}


def call(id):
    return {"type": "tool_use", "id": id, "name": "Bash", "input": {"command": id}}


def result(id, content="done"):
    return {"type": "tool_result", "tool_use_id": id, "content": content}


def boundary(uuid, before, **meta):
    fields = {
        "type": "system",
        "subtype": "compact_boundary",
        "parentUuid": None,
        "logicalParentUuid": before,
    }
    return {**SESSION, **fields, "uuid": uuid, "compactMetadata": {"trigger": "auto", **meta}}


def summary(uuid, parent, words="what happened", **fields):
    return user(
        uuid, parent, words, isCompactSummary=True, isVisibleInTranscriptOnly=True, **fields
    )


def read(*records, raw=b""):
    return transcripts.read_bytes(
        b"\n".join([json.dumps(r).encode() for r in records] + [raw]), "s1.jsonl"
    )


def list_words(session):
    """Return role and text, or call and result ids, of each message."""
    return [(message["role"], _words(message["content"])) for message in session.messages]


def _words(content):
    if isinstance(content, str):
        return content
    return " ".join(
        b.get("text") or b.get("id") or b.get("tool_use_id") or b["type"] for b in content
    )


def test_an_answer_spread_over_lines_is_one_message():
    thinking = {"type": "thinking", "thinking": "hm", "signature": "sig"}
    session = read(
        user("a", None, "go"),
        answer("b", "a", "m1", thinking),
        answer("c", "b", "m1", text("I look")),
        answer("d", "c", "m1", call("t1"), usage={"input_tokens": 9, "output_tokens": 5}),
        user("e", "d", [result("t1")], toolUseResult={"stdout": "done"}),
    )
    assert list_words(session) == [
        ("user", "go"),
        ("assistant", "thinking I look t1"),
        ("user", "t1"),
    ]
    assert session.messages[1]["content"][0] == thinking
    assert session.usage == ((2, {"input_tokens": 9, "output_tokens": 5}),)
    assert (session.client, session.format, session.id, session.cwd) == (
        "claude_code",
        "anthropic",
        "s1",
        "/w",
    )
    assert session.payload == {"model": "m", "messages": session.messages}
    assert session.effective == session.messages
    assert session.started.isoformat() == "2026-02-11T20:00:00+00:00"


def test_parallel_calls_on_side_branches_are_merged_with_results_in_call_order():
    session = read(
        user("a", None, "go"),
        answer("b", "a", "m1", call("t1")),
        user("r1", "b", [result("t1")]),
        answer("c", "b", "m1", call("t2")),
        answer("d", "c", "m1", call("t3")),
        user("r3", "d", [result("t3")]),
        user("r2", "c", [result("t2")]),
        answer("e", "r2", "m2", text("all done")),
    )
    assert list_words(session) == [
        ("user", "go"),
        ("assistant", "t1 t2 t3"),
        ("user", "t1 t2 t3"),
        ("assistant", "all done"),
    ]


def test_an_abandoned_branch_is_not_part_of_the_conversation():
    session = read(
        user("a", None, "go"),
        answer("b", "a", "m1", text("first")),
        user("c", "b", "wrong turn"),
        answer("d", "c", "m2", text("lost")),
        user("e", "b", "another way"),
    )
    assert list_words(session) == [("user", "go"), ("assistant", "first"), ("user", "another way")]
    assert [str(problem) for problem in session.problems] == [
        "left out, as it is on other branches: answers of the model (1)"
    ]


def progress(uuid, parent):
    fields = {"type": "progress", "uuid": uuid, "parentUuid": parent}
    return {**SESSION, **fields, "data": {"type": "hook_progress", "hookEvent": "PreToolUse"}}


def test_a_late_progress_line_does_not_start_a_branch():
    session = read(
        user("a", None, "go"),
        answer("b", "a", "m1", call("t1")),
        user("c", "b", [result("t1")]),
        answer("d", "c", "m2", text("half done")),
        progress("p", "b"),
        progress("q", "p"),
        user("e", "q", "go on"),
        answer("f", "e", "m3", call("t2")),
        progress("r", "f"),
        user("g", "r", [result("t2")]),
    )
    spoken = " ".join(words for _, words in list_words(session))
    assert spoken == "go t1 t1 half done go on t2 t2"
    assert session.problems == ()


def test_a_rewind_past_progress_lines_drops_the_abandoned_branch():
    session = read(
        user("a", None, "go"),
        answer("b", "a", "m1", text("first")),
        progress("p", "b"),
        user("c", "p", "wrong turn"),
        answer("d", "c", "m2", text("lost")),
        progress("q", "d"),
        user("e", "p", "another way"),
    )
    assert [words for _, words in list_words(session)] == ["go", "first", "another way"]


def test_a_local_command_after_an_old_caveat_does_not_start_a_branch():
    caveat = "Caveat: The messages below were generated by the user while running local commands."
    session = read(
        user("a", None, caveat, isMeta=True),
        user("b", "a", "<command-name>/clear</command-name>"),
        user("c", "b", "go"),
        answer("d", "c", "m1", text("done")),
        user("e", "a", "<command-name>/export</command-name>"),
        user("f", "e", "<local-command-stdout>exported</local-command-stdout>"),
    )
    assert [words for _, words in list_words(session)][2:4] == ["go", "done"]
    assert len(session.messages) == 6


def test_the_leaf_last_named_by_the_client_is_the_active_branch():
    tree = [
        user("a", None, "go"),
        answer("b", "a", "m1", text("one")),
        user("c", "a", "another"),
    ]
    assert list_words(read(*tree)) == [("user", "go"), ("user", "another")]
    named = {"type": "last-prompt", "lastPrompt": "go", "leafUuid": "b", "sessionId": "s1"}
    assert list_words(read(*tree, named)) == [("user", "go"), ("assistant", "one")]
    assert list_words(read(named, *tree)) == [("user", "go"), ("user", "another")], (
        "what came later counts"
    )
    behind = {**named, "leafUuid": "a"}
    assert list_words(read(*tree, behind)) == [("user", "go"), ("user", "another")], (
        "a leaf that only lags behind"
    )


def test_the_conversation_continues_across_a_compaction_that_is_recorded():
    session = read(
        user("a", None, "go"),
        answer("b", "a", "m1", text("one")),
        boundary("k", "b", preTokens=1000),
        summary("s", "k"),
        user("c", "s", "go on"),
        answer("d", "c", "m2", text("two")),
    )
    assert list_words(session) == [
        ("user", "go"),
        ("assistant", "one"),
        ("user", "go on"),
        ("assistant", "two"),
    ]
    (compaction,) = session.compactions
    assert (
        compaction.start,
        compaction.stop,
        compaction.trigger,
        compaction.meta["preTokens"],
    ) == (0, 2, "auto", 1000)
    assert [m["content"] for m in session.effective[:2]] == ["what happened", "go on"]
    assert session.effective_payload["messages"] == session.effective


def test_a_compaction_with_a_missing_parent_continues_from_the_last_message():
    session = read(
        user("a", None, "go"),
        answer("b", "a", "m1", text("done")),
        boundary("k", "only on the screen"),
        summary("s", "k"),
        user("c", "s", "more"),
    )
    assert (len(session.messages), session.problems) == (3, ())
    assert len(session.effective) == 2


def test_the_later_of_two_compactions_is_shown():
    session = read(
        user("a", None, "go"),
        boundary("k", "a"),
        summary("s", "k", "first summary"),
        user("b", "s", "go on"),
        boundary("l", "b"),
        summary("t", "l", "second summary"),
        user("c", "t", "and on"),
    )
    assert [m["content"] for m in session.messages] == ["go", "go on", "and on"]
    assert [(compaction.start, compaction.stop) for compaction in session.compactions] == [
        (0, 1),
        (0, 2),
    ]
    assert [m["content"] for m in session.effective] == ["second summary", "and on"]


def test_a_compaction_that_keeps_a_tail_hides_only_what_is_before_it():
    before = [user("a", None, "go"), answer("b", "a", "m1", text("one")), user("c", "b", "more")]
    keeps = {"preservedSegment": {"headUuid": "c", "anchorUuid": "s", "tailUuid": "c"}}
    on_the_summary = read(
        *before, boundary("k", "c", **keeps), summary("s", "k"), user("d", "s", "go on")
    )
    on_the_tail = read(
        *before, boundary("k", "c", **keeps), summary("s", "k"), user("d", "c", "go on")
    )
    for session in (on_the_summary, on_the_tail):
        assert [(compaction.start, compaction.stop) for compaction in session.compactions] == [
            (0, 2)
        ]
        assert [m["content"] for m in session.effective] == ["what happened", "more", "go on"]


def test_a_compaction_that_keeps_an_earlier_segment_shows_it_after_the_summary():
    keeps = {"preservedSegment": {"headUuid": "a", "anchorUuid": "s", "tailUuid": "a"}}
    before = [user("a", None, "go"), answer("b", "a", "m1", text("one"))]
    session = read(*before, boundary("k", "b", **keeps), summary("s", "k"), user("d", "s", "go on"))
    assert [m["content"] for m in session.effective] == ["what happened", "go", "go on"]


def test_an_old_compaction_without_boundary_is_recognised():
    session = read(user("a", None, "go"), summary("s", None), user("b", "s", "go on"))
    assert [(compaction.start, compaction.stop) for compaction in session.compactions] == [(0, 1)]
    assert [m["content"] for m in session.messages] == ["go", "go on"]


def test_a_message_of_an_unknown_type_is_a_problem():
    """A newer client may store messages in another form, which must not be skipped silently."""
    session = read(user("a", None, "go"), {**user("b", "a", "go on"), "type": "user2"})
    assert [str(p) for p in session.problems] == [
        "left out, as Refold does not know it: 'user2' (1)"
    ]


def test_a_compaction_without_summary_is_a_problem():
    session = read(user("a", None, "go"), boundary("k", "a"), user("b", "k", "go on"))
    assert session.compactions == ()
    assert [str(p) for p in session.problems] == [
        "line 2: a compaction without a summary; passed over"
    ]


def test_a_microcompaction_clears_only_the_results_that_it_lists():
    session = read(
        user("a", None, "go"),
        answer("b", "a", "m1", call("t1"), call("t2")),
        user("c", "b", [result("t1", "long"), result("t2", "short")]),
        {
            **SESSION,
            "type": "system",
            "subtype": "microcompact_boundary",
            "uuid": "m",
            "parentUuid": "c",
            "microcompactMetadata": {"compactedToolIds": ["t1"], "tokensSaved": 5},
        },
        user("d", "m", "go on"),
    )
    (compaction,) = session.compactions
    assert (
        compaction.start,
        compaction.stop,
        compaction.trigger,
        compaction.meta["tokensSaved"],
    ) == (2, 3, "microcompact", 5)
    assert [b["content"] for b in session.messages[2]["content"]] == ["long", "short"]
    assert [b["content"] for b in session.effective[2]["content"]] == [
        "[Old tool result content cleared]",
        "short",
    ]


def test_lines_that_were_never_sent_to_the_model_are_left_out():
    session = read(
        {"type": "summary", "summary": "old title", "leafUuid": "x"},
        {"type": "file-history-snapshot", "messageId": "x", "snapshot": {}},
        user("a", None, "go"),
        {**SESSION, "type": "progress", "uuid": "p", "parentUuid": "a", "data": {}},
        {**SESSION, "type": "attachment", "uuid": "at", "parentUuid": "p", "attachment": {}},
        {**SESSION, "type": "made-up-later", "uuid": "n", "parentUuid": "at"},
        answer("e", "n", "m0", text("API Error"), model="<synthetic>"),
        {**answer("f", "e", "m9", text("API Error")), "isApiErrorMessage": True},
        user("v", "f", "only on the screen", isVisibleInTranscriptOnly=True),
        user("w", "v", [text("  \n")]),
        answer("b", "w", "m1", text("\n\n"), text("one")),
        user("side", "b", "subagent", isSidechain=True),
        {"type": "queue-operation", "operation": "enqueue", "sessionId": "s1"},
        {"type": "ai-title", "aiTitle": "by the model", "sessionId": "s1"},
        {"type": "custom-title", "customTitle": "mine", "sessionId": "s1"},
    )
    assert list_words(session) == [("user", "go"), ("assistant", "one")]
    assert session.title == "mine"
    assert session.problems == ()


def test_meta_lines_and_images_are_kept():
    image = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "aGk="},
    }
    session = read(user("a", None, "Caveat", isMeta=True), user("b", "a", [image, text("看图")]))
    assert list_words(session) == [("user", "Caveat"), ("user", "image 看图")]
    assert session.messages[1]["content"][0] == image


def test_a_duplicated_line_is_read_once():
    first = user("a", None, "go")
    again = {**first, "sessionId": "s2"}
    session = read(first, again, {**answer("b", "a", "m1", text("one")), "sessionId": "s2"})
    assert list_words(session) == [("user", "go"), ("assistant", "one")]
    assert session.id == "s2"


def test_concatenated_files_are_read_as_separate_sessions():
    """Once all but the last were taken for other branches of one session."""
    second = {"sessionId": "s2", "timestamp": "2026-02-11T21:00:00.000Z"}
    lines = [
        {"type": "queue-operation", "sessionId": "s2"},
        {**user("x", None, "look"), **second},
        {**answer("y", "x", "m8", text("seen")), **second},
        user("a", None, "go"),
        {**answer("b", "a", "m1", text("done")), "sessionId": "fork"},
    ]
    data = "\n".join(map(json.dumps, lines)).encode()
    latest = transcripts.read_bytes(data)
    assert list_words(latest) == [("user", "look"), ("assistant", "seen")]
    assert [str(problem) for problem in latest.problems] == [
        "one of 2 sessions in the file, whose ids begin with fork, s2"
    ]
    forked = transcripts.read_bytes(data, id="fork")
    assert list_words(forked) == [("user", "go"), ("assistant", "done")]


def test_lines_without_a_parent_follow_one_another():
    """As a converter writes them: once only the last line was part of the conversation."""
    lines = [user("a", None, "go"), answer("b", None, "m1", text("done")), user("c", None, "on")]
    for line in lines:
        del line["parentUuid"]
    assert [words for _, words in list_words(read(*lines))] == ["go", "done", "on"]


def test_a_subagents_file_is_a_session_of_its_own():
    fields = {"isSidechain": True, "agentId": "ag7"}
    session = read(
        {**user("a", None, "search"), **fields}, {**answer("b", "a", "m1", text("found")), **fields}
    )
    assert list_words(session) == [("user", "search"), ("assistant", "found")]
    assert session.id == "ag7"


def test_interrupted_calls_stay_without_a_result():
    session = read(
        user("a", None, "go"), answer("b", "a", "m1", call("t1")), user("c", "b", "stop")
    )
    assert list_words(session) == [("user", "go"), ("assistant", "t1"), ("user", "stop")]


def test_a_broken_line_does_not_drop_the_lines_before_it():
    lines = [
        json.dumps(user("a", None, "go")),
        '{"type":"assistant","uuid":"b"',
        json.dumps(user("c", "b", "more")),
    ]
    session = transcripts.read_bytes("\n".join(lines).encode())
    assert list_words(session) == [("user", "go"), ("user", "more")]
    assert [p.line for p in session.problems] == [2, 3]
    assert "no JSON" in session.problems[0].text
    assert "parent b is not in the file" in session.problems[1].text


@pytest.mark.parametrize("origin", ["a\0b", "x" * 300, "\ud800", ".."])
def test_a_fork_of_a_session_whose_id_names_no_file_is_read(origin):
    fork = {"forkedFrom": {"sessionId": origin}}
    session = read(user("u1", None, "Mend it.", **fork), user("u2", "u1", "And test it.", **fork))
    assert list_words(session) == [("user", "Mend it."), ("user", "And test it.")]


def test_a_truncated_last_line_is_a_problem():
    session = read(user("a", None, "go"), raw=b'{"type":"user","uuid":"b","mess')
    assert list_words(session) == [("user", "go")]
    assert [p.line for p in session.problems] == [2]


def test_a_cycle_of_parents_is_broken_and_reported():
    """Once the rest of the session was dropped silently."""
    session = read(user("a", "b", "one"), user("b", "a", "two"))
    assert sorted(list_words(session)) == [("user", "one"), ("user", "two")]
    assert "circle" in session.problems[0].text


@pytest.mark.parametrize(("line", "parent"), [(99, "u99"), (10, "u60"), (0, "u99"), (50, "u51")])
def test_all_messages_are_read_in_order_despite_a_cycle_of_parents(line, parent):
    lines = [user(f"u{n}", f"u{n - 1}" if n else None, str(n)) for n in range(100)]
    lines[line] = user(f"u{line}", parent, str(line))
    session = read(*lines)
    assert list_words(session) == [("user", str(n)) for n in range(100)]
    assert [(problem.line, "circle" in problem.text) for problem in session.problems] == [
        (line + 1, True)
    ]


def test_a_file_with_only_metadata_is_reported_to_have_no_messages():
    session = read({"type": "file-history-snapshot", "messageId": "x", "snapshot": {}})
    assert session.messages == []
    assert "no messages" in session.problems[0].text


def test_lines_with_null_content_or_unexpected_types_do_not_fail():
    session = read(
        user("a", None, None),
        user("b", "a", [result("t0", None), "loose text", 5, None]),
        {**SESSION, "type": "user", "uuid": "c", "parentUuid": "b", "message": "no object"},
        answer("d", "c", ["no", "text"], "loose", 7),
        {
            **SESSION,
            "type": "assistant",
            "uuid": ["x"],
            "parentUuid": {},
            "message": {"content": {}},
        },
    )
    assert [m["content"] for m in session.messages] == [[result("t0", None)]]
