"""Kimi CLI, Continue and Copilot CLI: every documented kind of record, in small files written here."""

import hashlib
import json

import pytest

from refold import check, session_files
from refold.errors import FormatError
from refold.session_files import discover

CALL = {"type": "function", "id": "t1", "function": {"name": "Shell", "arguments": '{"a": 1}'}}


def put(path, *records):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(map(json.dumps, records)))
    return path


def test_kimi_thoughts_become_reasoning_content_and_metadata_is_left_out(tmp_path):
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


def test_the_error_for_a_kimi_event_file_names_the_readable_context_file(tmp_path):
    event = {"timestamp": 1.5, "message": {"type": "TurnBegin", "payload": {"user_input": "go"}}}
    with pytest.raises(FormatError, match=r"context\.jsonl beside them"):
        session_files.read(put(tmp_path / "s1/wire.jsonl", event, {"timestamp": 2.5}))


def kimi_event(type, **fields):
    return {"type": type, "agentId": "main", "time": 1_796_056_691_448, **fields}


def kimi_message(text, kind="user", image=""):
    content = [{"type": "text", "text": text}]
    if image:
        content.append({"type": "image_url", "imageUrl": {"url": image}})
    message = {"role": "user", "content": content, "toolCalls": [], "origin": {"kind": kind}}
    return kimi_event("context.append_message", message=message)


def kimi_step(step, type, **fields):
    return kimi_event("context.append_loop_event", event={"type": type, "stepUuid": step, **fields})


def kimi_call(step, id):
    return kimi_step(step, "tool.call", toolCallId=id, name="Bash", args={"command": "ls"})


def kimi_result(id, **result):
    return kimi_step("", "tool.result", toolCallId=id, result=result)


HURRY = [
    {"type": "text", "text": "and hurry"},
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}},
]
KIMI_TURN = (
    kimi_message("go"),
    kimi_message("<system-reminder>", "injection"),
    kimi_step("a", "step.begin"),
    kimi_step("a", "content.part", part={"type": "think", "think": "hm"}),
    kimi_call("a", "t1"),
    kimi_call("a", "t2"),
    kimi_message("and hurry", image="data:image/png;base64,AA"),
    kimi_result("t1", output="1", note="<system>one</system>"),
    kimi_result("t2", output=[{"type": "text", "text": "none"}], isError=True),
    kimi_step("a", "step.end", usage={"inputOther": 9, "output": 2, "inputCacheRead": 5}),
    kimi_step("b", "content.part", part={"type": "text", "text": "Done."}),
)


def put_kimi_code(home, *records):
    binding = kimi_event(
        "profile.bind",
        modelAlias="small",
        systemPrompt="You are Kimi.",
        environmentDisclosure={"cwd": "/w"},
    )
    tools = kimi_event("llm.tools_snapshot", tools=[{"name": "Bash", "parameters": {}}])
    path = home / ".kimi-code/sessions/wd_w_1/session_1/agents/main/wire.jsonl"
    return put(path, {"type": "metadata"}, binding, *records, tools)


def test_a_session_of_kimi_code_is_found_and_its_events_become_messages(tmp_path):
    """A person's words between a call and its result are sent after that."""
    put_kimi_code(tmp_path, *KIMI_TURN)
    (listing,) = discover(tmp_path, {})
    assert (listing.client, listing.id, listing.cwd) == ("kimi_code", "session_1", "/w")
    session = session_files.read(listing.path, listing.id)
    calls = [
        {
            "type": "function",
            "id": id,
            "function": {"name": "Bash", "arguments": '{"command": "ls"}'},
        }
        for id in ("t1", "t2")
    ]
    failed = "<system>ERROR: Tool execution failed.</system>\nnone"
    assert session.messages == [
        {"role": "system", "content": "You are Kimi."},
        {"role": "user", "content": "go"},
        {"role": "user", "content": "<system-reminder>"},
        {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "t1", "content": "1\n<system>one</system>"},
        {"role": "tool", "tool_call_id": "t2", "content": failed},
        {"role": "user", "content": HURRY},
        {"role": "assistant", "content": "Done."},
    ]
    assert session.usage == (
        (4, {"input_tokens": 9, "output_tokens": 2, "cache_read_input_tokens": 5}),
    )
    assert session.body["model"] == "small" and len(session.body["tools"]) == 1
    assert not session.problems and not check(session.payload, session.format)
    assert session.started is not None and session.started.year == 2026


def test_a_compaction_of_kimi_code_keeps_the_latest_requests_and_undo_drops_turns(tmp_path):
    summary = {"summary": "S", "contextSummary": "So far: S", "keptUserMessageCount": 1}
    path = put_kimi_code(
        tmp_path,
        *KIMI_TURN,
        kimi_event("context.apply_compaction", **summary),
        kimi_message("more"),
        kimi_step("c", "content.part", part={"type": "text", "text": "Yes."}),
        kimi_event("context.undo", count=1),
        kimi_message("other"),
        kimi_event("context.new_kind"),
    )
    session = session_files.read(path)
    assert [entry["content"] for entry in session.effective] == [
        *("You are Kimi.", HURRY, "So far: S", "other")
    ]
    (compaction,) = session.compactions
    assert (compaction.start, compaction.stop) == (1, 8)
    assert "context.new_kind" in session.problems[0].text


@pytest.mark.parametrize("follows", [True, False])
def test_a_result_that_is_missing_from_a_session_of_kimi_code_drops_no_message(follows, tmp_path):
    """What a person wrote while a call ran was held back for its result, and never came."""
    answer = kimi_step("c", "content.part", part={"type": "text", "text": "Yes."})
    *turn, _, end, _ = KIMI_TURN
    records = [*turn, end, kimi_message("more"), *[answer] * follows]
    session = session_files.read(put_kimi_code(tmp_path, *records))
    assert [entry["content"] for entry in session.messages[5:]] == [
        *(HURRY, "more"),
        *["Yes."] * follows,
    ]


def test_an_answer_without_the_id_of_its_step_is_read_as_an_answer(tmp_path):
    """It was added to what the person wrote; after an undo the session could not be read."""
    records = [kimi_message("go"), kimi_step("", "content.part", part={"text": "Yes."})]
    for before in ([], [*records, kimi_event("context.undo", count=1)]):
        session = session_files.read(put_kimi_code(tmp_path, *before, *records))
        assert [entry["content"] for entry in session.messages[1:]] == ["go", "Yes."]


def test_continue_context_items_and_tool_states_are_read_into_the_messages(tmp_path):
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


def test_copilot_events_become_the_messages_that_its_model_was_sent(tmp_path):
    def event(kind, **data):
        return {"type": kind, "data": data, "timestamp": "2026-07-19T23:12:34Z"}

    def answer(*ids, text="", **data):
        requests = [{"toolCallId": id, "name": "bash", "arguments": {"at": id}} for id in ids]
        return event("assistant.message", content=text, toolRequests=requests, **data)

    inner = [answer("s1", text="inside"), event("tool.execution_complete", toolCallId="s1")]
    place = {"sessionId": "c1", "context": {"cwd": "/w"}}
    path = put(
        tmp_path / "events.jsonl",
        event("session.start", **place),
        event("system.message", content="You are old."),
        event("user.message", content="go", transformedContent="<now>1</now> go"),
        answer(reasoningOpaque="c2ln"),
        answer("t1", "t2", text="I look.", reasoningText="hm", model="m"),
        event("tool.execution_start", toolCallId="t1"),
        *({**each, "agentId": "a"} for each in inner),
        event("tool.execution_complete", toolCallId="t2", success=False, error={"message": "no"}),
        event("tool.execution_complete", toolCallId="t1", result={"content": "ok"}),
        event("tool.execution_complete", toolCallId="by the user", result={"content": "ls"}),
        event("session.compaction_start"),
        answer(text="Done."),
        event("session.compaction_complete", success=False, error="too long"),
        event("session.compaction_start"),
        event("system.message", content="You are new."),
        event("user.message", content="", transformedContent=""),
        event("user.message", content="on"),
        event("session.compaction_complete", success=True, summaryContent="All.", trigger="auto"),
        event("session.truncation", messagesRemovedDuringTruncation=1),
    )
    session = session_files.read(path)
    assert session_files.read(path, tmp_path.name) == session
    assert [(entry["role"], entry["content"]) for entry in session.messages] == [
        ("system", "You are new."),
        ("user", "<now>1</now> go"),
        ("assistant", "I look."),
        ("tool", "ok"),  # in the order of the calls, as it is sent, not in that of their ends
        ("tool", "no"),
        ("assistant", "Done."),
        ("user", "on"),
    ]
    assert [call["id"] for call in session.messages[2]["tool_calls"]] == ["t1", "t2"]
    assert session.messages[2]["reasoning_content"] == "hm"
    assert check(session.payload) == ()
    assert [entry["content"] for entry in session.effective] == ["You are new.", "All.", "on"]
    assert (session.client, session.id, session.cwd, session.body) == (
        *("copilot", "c1", "/w"),
        {"model": "m"},
    )
    assert [problem.text for problem in session.problems] == [
        "left out, as Refold does not know it: 'session.truncation' (1)"
    ]


def test_what_copilot_1_sends_its_model_besides_is_read_and_what_a_rewind_removes_is_not(tmp_path):
    """As recorded with 1.0.102: the system prompt stands behind the first request, and skills,
    notices of finished commands and withdrawn turns have events of their own."""

    def event(kind, id="", **data):
        return {"type": kind, "id": id, "data": data, "timestamp": "2026-11-30T20:19:17Z"}

    skill = {"source": "skill-greet", "prefix": "<skill-context>\n", "suffix": "</skill-context>"}
    digest = hashlib.sha256(b"Say ahoy.\n").hexdigest()
    path = put(
        tmp_path / "events.jsonl",
        event("session.start", sessionId="c1"),
        event("user.message", content="Greet."),
        event("system.message", content="You are."),
        event("skill.invoked", name="greet", content="Say ahoy.\n"),
        event("skill.context_delivered_ref", contentId=f"sha256:{digest}", **skill),
        event("assistant.message", content="Ahoy."),
        event("system.notification", content="<system_notification>Done.</system_notification>"),
        event("user.message", "u2", content="Forget this."),
        event("assistant.message", "a2", content="Of course."),
        event("session.snapshot_rewind", upToEventId="u2", eventsRemoved=2),
        event("user.message", "u3", content="And this."),
        event("system.notification", "n3", content="Kept."),
        event("assistant.message", "a3", content="Yes."),
        event("session.snapshot_rewind", upToEventId="u3", eventIds=["u3", "a3"]),
        event("skill.context_delivered", content="Row."),
    )
    words = [
        ("system", "You are."),
        ("user", "Greet."),
        ("user", "<skill-context>\nSay ahoy.\n</skill-context>"),
        ("assistant", "Ahoy."),
        ("user", "<system_notification>Done.</system_notification>"),
        ("user", "Kept."),
        ("user", "Row."),
    ]
    session = session_files.read(path)
    assert [(entry["role"], entry["content"]) for entry in session.messages] == words
    assert session.problems == ()
    cleared = event("session.context_cleared", initialMessage="Anew.", messagesCleared=6)
    with path.open("a") as file:
        records = cleared, event("user.message", content="On.")
        file.writelines(f"\n{json.dumps(record)}" for record in records)
    again = session_files.read(path)
    assert len(again.messages) == 8
    assert [entry["content"] for entry in again.effective] == ["You are.", "Anew.", "On."]


def test_damaged_events_of_copilot_leave_its_session_readable(tmp_path):
    """Half a character in a skill, the delivery of none, and a withdrawn turn with the prompt."""

    def event(kind, id="", **data):
        return {"type": kind, "id": id, "data": data, "timestamp": "2026-11-30T20:19:17Z"}

    path = put(
        tmp_path / "events.jsonl",
        event("session.start", sessionId="c1"),
        event("user.message", "u1", content="Forget this."),
        event("system.message", "s1", content="You are."),
        event("assistant.message", "a1", content="Of course."),
        event("session.snapshot_rewind", upToEventId="u1"),
        event("user.message", "u2", content="Go."),
        event("skill.invoked", name="greet", content="Say \ud83d"),
        event("skill.context_delivered_ref"),
        event("assistant.message", content="Gone."),
    )
    session = session_files.read(path)
    assert [entry["content"] for entry in session.messages] == ["You are.", "Go.", "Gone."]
