"""Sessions recorded by real clients (not in the repository): exact counts, and the codecs accept
them."""

import json
from collections import Counter

import pytest

from refold import session_files as transcripts
from refold.codecs.detect import open_payload

CLAUDE_CODE = (
    "claude_code_spotter/258c7280-ae70-4798-800f-63464d01a85d.jsonl",
    "claude_code_spotter/ae4a77f8-aedd-4bc1-888f-c94edc91af04.jsonl",
    "claude_code_spotter/short.jsonl",
    "claude_code_spotter/tool_heavy.jsonl",
    "codemie_multi_cli/session__fixtures__session-196820da.jsonl",
    "codemie_multi_cli/session__fixtures__claude__incremental-subagents__turn-2.jsonl",
)
CODEX = (
    "codemie_multi_cli/codex__fixtures__rollout-2026-05-11T13-28-45-019e1695-0522-7c83-8b39-0dd379793f80.jsonl",
    "codemie_multi_cli/session__fixtures__codex__turn-2.jsonl",
)
GEMINI = "codemie_multi_cli/metrics__fixtures__gemini__session-2025-12-01T21-45-5b959dae.json"
PI = "pi_sessions/large-session.jsonl"


def path(shared, name):
    file = shared / "datasets" / name
    if not file.exists():
        pytest.skip(f"{name} is not among the recordings here")
    return file


def rows(file):
    return [json.loads(line) for line in file.read_text("utf-8").splitlines() if line.strip()]


def blocks(messages):
    return [
        block
        for message in messages
        if isinstance(message["content"], list)
        for block in message["content"]
    ]


def folder(shared, name):
    return sorted(
        file
        for file in (shared / "datasets" / name).rglob("*")
        if file.suffix in {".json", ".jsonl", ".traj"}
    )


@pytest.mark.parametrize("name", CLAUDE_CODE)
def test_claude_code_every_call_result_and_prompt_is_read_once(shared, name):
    file = path(shared, name)
    lines = [
        row for row in rows(file) if row["type"] in {"user", "assistant"} and not row["isSidechain"]
    ]
    session = transcripts.read(file)
    counted = Counter(
        (block["type"], block.get("id") or block.get("tool_use_id"))
        for row in lines
        for block in (
            row["message"]["content"] if isinstance(row["message"]["content"], list) else []
        )
        if block["type"] in {"tool_use", "tool_result"}
    )
    read_blocks = Counter(
        (b["type"], b.get("id") or b.get("tool_use_id"))
        for b in blocks(session.messages)
        if b["type"] in {"tool_use", "tool_result"}
    )
    assert read_blocks == counted
    answers = {
        row["message"]["id"]
        for row in lines
        if row["type"] == "assistant" and _says_something(row["message"]["content"])
    }
    assert sum(message["role"] == "assistant" for message in session.messages) == len(answers)
    prompts = [
        row["message"]["content"]
        for row in lines
        if row["type"] == "user"
        and isinstance(row["message"]["content"], str)
        and "isCompactSummary" not in row
    ]
    assert [
        message["content"] for message in session.messages if isinstance(message["content"], str)
    ] == prompts
    assert session.problems == ()


def _says_something(content):
    return any(block["type"] != "text" or block["text"].strip() for block in content)


@pytest.mark.parametrize("name", CLAUDE_CODE[:2])
def test_claude_code_compactions_hide_all_messages_before_them(shared, name):
    file = path(shared, name)
    records = rows(file)
    cut = next(at for at, row in enumerate(records) if row.get("subtype") == "compact_boundary")
    session = transcripts.read(file)
    (compaction,) = session.compactions
    before = {
        row["message"]["id"]
        for row in records[:cut]
        if row["type"] == "assistant" and _says_something(row["message"]["content"])
    }
    assert sum(
        entry["role"] == "assistant" for entry in session.messages[: compaction.stop]
    ) == len(before)
    assert (compaction.start, compaction.trigger, compaction.meta) == (
        0,
        records[cut]["compactMetadata"]["trigger"],
        records[cut]["compactMetadata"],
    )
    assert session.effective[0]["content"].startswith(
        "This session is being continued from a previous conversation"
    )
    assert session.effective[1:] == session.messages[compaction.stop :]


def test_claude_code_subagents_are_sessions_of_their_own(shared):
    for file in sorted((shared / "datasets/claude_code_spotter").glob("*/subagents/*.jsonl")):
        session = transcripts.read(file)
        lines = [row for row in rows(file) if row["type"] in {"user", "assistant"}]
        assert session.id == lines[0]["agentId"]
        assert len(session.usage) == len(
            {row["message"]["id"] for row in lines if row["type"] == "assistant"}
        )


def test_codex_items_and_prompts_are_all_read(shared):
    for name in CODEX:
        file = path(shared, name)
        items = [row["payload"] for row in rows(file) if row["type"] == "response_item"]
        session = transcripts.read(file)
        prompts = [
            row["payload"]["message"]
            for row in rows(file)
            if row["payload"].get("type") == "user_message"
        ]
        spoken = [
            part["text"]
            for item in session.messages
            if item.get("role") == "user"
            for part in item["content"]
        ]
        assert all(text in spoken for text in prompts)
        assert [item for item in session.messages if item in items] == items
        assert session.problems == ()
    assert len(transcripts.read(path(shared, CODEX[0])).messages) == 95 + 3
    assert len(transcripts.read(path(shared, CODEX[1])).messages) == 10


def test_gemini_cli_messages_results_and_usage_are_all_read(shared):
    file = path(shared, GEMINI)
    document = json.loads(file.read_text("utf-8"))
    session = transcripts.read(file)
    results = sum(bool(message.get("toolCalls")) for message in document["messages"])
    assert len(session.messages) == len(document["messages"]) + results == 22
    assert len(session.usage) == sum("tokens" in message for message in document["messages"])
    assert session.started.isoformat() == "2025-12-01T21:45:34.362000+00:00"


def test_pi_calls_results_and_answers_are_all_read(shared):
    file = path(shared, PI)
    messages = [row["message"] for row in rows(file) if row["type"] == "message"]
    session = transcripts.read(file)
    kinds = Counter(block["type"] for block in blocks(session.messages))
    parts = Counter(
        part["type"]
        for message in messages
        for part in message["content"]
        if message["role"] == "assistant"
    )
    assert (
        kinds["tool_result"] == sum(message["role"] == "toolResult" for message in messages) == 373
    )
    assert kinds["tool_use"] == parts["toolCall"] == 391
    assert kinds["thinking"] == parts["thinking"] == 1
    spoken = [
        message for message in messages if message["role"] == "assistant" and message["content"]
    ]
    assert sum(message["role"] == "assistant" for message in session.messages) == len(spoken) == 439
    assert (session.client, session.problems) == ("pi", ())


def test_tau_bench_trajectories_are_read_unchanged(shared):
    for file in folder(shared, "tau_bench"):
        document = json.loads(file.read_text("utf-8"))
        sessions = list(transcripts.read_all(file))
        assert [session.messages for session in sessions] == [run["traj"] for run in document]
        assert len({session.id for session in sessions}) == len(document)


def test_tau2_bench_simulations_are_read_without_the_users_tool_results(shared):
    for file in folder(shared, "tau2_bench"):
        document = json.loads(file.read_text("utf-8"))
        sessions = list(transcripts.read_all(file))
        assert len(sessions) == len(document["simulations"])
        for session, run in zip(sessions, document["simulations"], strict=True):
            mine = [
                m for m in run["messages"] if m["role"] != "tool" or m["requestor"] == "assistant"
            ]
            assert [m["role"] for m in session.messages] == ["system", *[m["role"] for m in mine]]


def test_mini_swe_and_swe_agent_trajectories_are_read_unchanged(shared):
    for file in folder(shared, "miniswe_gemini3"):
        document = json.loads(file.read_text("utf-8"))
        session = transcripts.read(file)
        assert [(m["role"], m["content"]) for m in session.messages] == [
            (m["role"], m["content"]) for m in document["messages"]
        ]
        assert session.client == "mini_swe"
    for file in folder(shared, "sweagent_traj"):
        history = json.loads(file.read_text("utf-8"))["history"]
        session = transcripts.read(file)
        assert [(m["role"], m["content"]) for m in session.messages] == [
            (m["role"], m["content"]) for m in history
        ]
        assert session.client == "swe_agent"


def payloads(session: transcripts.Session) -> list[dict]:
    """Return the whole history, and what the client's own compactions left of it, if that
    differs."""
    whole, effective = session.payload, session.effective_payload
    return [whole] if effective == whole else [whole, effective]


FOLDERS = (
    "claude_code_spotter",
    "codemie_multi_cli",
    "pi_sessions",
    "tau_bench",
    "tau2_bench",
    "miniswe_gemini3",
    "sweagent_traj",
    "openhands_sdk_llmlogs",
)


@pytest.mark.parametrize("name", FOLDERS)
def test_every_session_round_trips_through_its_codec_and_violates_no_rule(shared, name):
    files = folder(shared, name)
    assert files
    for file in files:
        for session in transcripts.read_all(file):
            for payload in payloads(session):
                envelope = open_payload(payload)
                messages = envelope.decode()
                assert session.format == envelope.codec.NAME
                assert len(messages) == len(envelope)
                assert envelope.join([slice(0, len(envelope))]) == payload
                if name != "pi_sessions":
                    rules = envelope.codec.rules(envelope.body)
                    assert rules.check(messages, envelope.body) == (), file.name


def test_only_the_interrupted_calls_of_the_pi_session_violate_a_rule(shared):
    session = transcripts.read(path(shared, PI))
    envelope = open_payload(session.payload)
    violations = envelope.codec.rules(envelope.body).check(envelope.decode(), envelope.body)
    kinds = {
        kind: {
            b.get("id") or b.get("tool_use_id")
            for b in blocks(session.messages)
            if b["type"] == kind
        }
        for kind in ("tool_use", "tool_result")
    }
    assert {violation.subject for violation in violations} == kinds["tool_use"] - kinds[
        "tool_result"
    ]
    assert {violation.rule for violation in violations} == {"AN-1"}


def test_every_request_of_every_client_is_read_from_its_log(shared):
    files = sorted((shared / "fixtures/requests").glob("*.jsonl"))
    assert files
    for file in files:
        bodies = [row["body"] for row in rows(file) if isinstance(row["body"], dict)]
        held = [
            body for body in bodies if not body.keys().isdisjoint({"messages", "input", "contents"})
        ]
        sessions = list(transcripts.read_all(file))
        assert len(sessions) == len(held)
        for session in sessions:
            assert session.format == open_payload(session.payload).codec.NAME
            assert session.problems == ()
