"""Reading session files of any kind: detection, invalid input, plain lists, logs, benchmark
results."""

import json
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold import check, corpus
from refold import session_files as transcripts
from refold.codecs.detect import open_payload
from refold.errors import FormatError
from refold.messages import Message, Text, ToolCall, ToolResult
from refold.session_files import Compaction, Problem, Session
from refold.session_files.reader import FIELDS, write_call
from refold.session_files.source import parse_lines
from refold.text.json_values import parse_time

GO = {"role": "user", "content": "go"}


def read(value, **dump):
    return transcripts.read_bytes(json.dumps(value, **dump).encode(), "it.json")


def read_lines(*values):
    return transcripts.read_bytes("\n".join(map(json.dumps, values)).encode(), "it.jsonl")


# --- recognition and bad input ---------------------------------------------------------------


@pytest.mark.parametrize("data", [b"", b"\n\n", b"\xef\xbb\xbf", b" \r\n"])
def test_an_empty_file_is_reported_as_empty(data):
    with pytest.raises(FormatError, match="the file is empty"):
        transcripts.read_bytes(data)


def test_the_error_for_an_unknown_file_lists_every_reader_that_was_tried():
    with pytest.raises(FormatError) as caught:
        read({"hello": "world"})
    for reader in transcripts.READERS:
        assert f"{reader.client} (" in str(caught.value)


TRACE = {"traceSchema": "openclaw-trajectory", "type": "session.started", "sessionId": "0a1b-2c"}
PRINTED = {"type": "init", "session_id": "66268ffc-d63d", "model": "gemini-3"}


@pytest.mark.parametrize(("line", "name"), [(TRACE, "0a1b-2c.jsonl"), (PRINTED, "66268ffc.jsonl")])
def test_the_error_for_another_file_of_a_client_names_the_session_file(line, name):
    """Once a trace was read as a session of Claude Code without messages, and printed output as a
    list."""
    with pytest.raises(FormatError, match=rf"^it\.jsonl is .* the session can be read: .*{name}$"):
        read_lines({"type": "message", **GO}, line, {"type": "message", **GO})


def test_a_file_that_is_not_json_is_reported_with_its_line_number():
    with pytest.raises(FormatError, match="line 1: no JSON"):
        transcripts.read_bytes(b"# a heading\n\ntext")


def test_a_missing_file_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        transcripts.read(tmp_path / "none.jsonl")


def test_broken_lines_are_reported_with_their_line_numbers():
    lines = [
        b"\xef\xbb\xbf" + json.dumps(GO).encode() + b"\r",
        b"",
        b'{"role": "user", "content": "broken',
        b"\x00\x01\x02\xff",
        b'{"role": "user", "content": "caf\xe9"}',
        b"\x00\x00" + json.dumps(GO).encode(),
        b"[1, 2]",
        b"[" * 100_000,
        b'{"role": "user", "content": ' + b"9" * 5000 + b"}",
        b'{"role": "user", "content": "\\ud800 \x01 tab\t"}',
    ]
    session = transcripts.read_bytes(b"\n".join(lines))
    assert [m["content"] for m in session.messages] == ["go", "caf�", "go", "\ud800 \x01 tab\t"]
    assert [p.line for p in session.problems if "NUL" not in p.text] == [3, 4, 4, 5, 7, 8, 9]
    assert [p.line for p in session.problems if "NUL" in p.text] == [4, 6]


TIMES = {"sessionId": "s", "projectHash": "p", "startTime": "2026-01-01T00:00:00Z"}
NEWER = {
    "claude_code": lambda kind: [
        {"type": kind, "uuid": "a", "sessionId": "s", "message": {"role": "user", "content": "go"}}
    ],
    "codex": lambda kind: [
        {"type": "session_meta", "payload": {"id": "s"}},
        {"type": "world_state", "payload": {"what": "of no interest"}},
        {"type": "response_item", "payload": {**GO, "type": kind.replace("user", "message")}},
    ],
    "pi": lambda kind: [
        {"type": "session", "id": "s", "cwd": "/", "version": 3},
        {"type": "message", "id": "a", "timestamp": "", "message": {**GO, "role": kind}},
    ],
    "gemini_cli": lambda kind: [TIMES, {"type": kind, "id": "a", "content": "go"}],
    "qwen": lambda kind: [
        {"type": kind, "uuid": "a", "sessionId": "s", "message": {"parts": [{"text": "go"}]}}
    ],
    "opencode": lambda kind: [
        {
            "info": {"id": "ses_1", "version": "1", "time": {"created": 1}},
            "messages": [
                {"info": {"id": "m", "role": "user"}, "parts": [{"type": text, "text": "go"}]}
                for text in (kind.replace("user", "text"),)
            ],
        }
    ],
}


@pytest.mark.parametrize("client", NEWER)
def test_the_error_for_a_file_of_a_newer_client_names_the_unknown_types(client):
    session = read_lines(*NEWER[client]("user"))
    assert (session.client, len(session.messages), session.problems) == (client, 1, ())
    with pytest.raises(
        FormatError, match=r"it has '\w+_2' \(1\)\. .* Nothing was changed"
    ) as caught:
        read_lines(*NEWER[client]("user_2"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("newer", "unread"),
    [
        ({"turns": [{"said": "go"}] * 3}, "'turns' (3)"),
        ({"messages": {"m1": {"type": "user"}}, "directories": ["/srv"]}, "'messages' (1)"),
        ({"messages": [{"role": "user", "content": "go"}]}, "'no type' (1)"),
    ],
)
def test_the_error_for_a_gemini_cli_file_without_messages_lists_its_contents(newer, unread):
    with pytest.raises(FormatError) as caught:
        read_lines({**TIMES, **newer})
    assert f"it has {unread}. A newer version" in str(caught.value)
    with pytest.raises(FormatError, match=r"it has no field 'messages'\. A newer version"):
        transcripts.read_bytes(json.dumps(TIMES).encode(), "session-1.json")
    empty = read_lines({**TIMES, "messages": [], "directories": ["/srv"]})
    assert [problem.text for problem in empty.problems] == ["the session has no messages"]


def test_unknown_parts_of_a_newer_file_are_reported_and_the_rest_is_read():
    start, entry = NEWER["pi"]("user")
    parts = [{"type": "text", "text": "go"}, *[{"type": f"n{n}"} for n in (1, 1, 2, 3, 4, 5)]]
    newer = {**entry, "id": "b", "parentId": "a", "message": {"role": "user", "content": parts}}
    session = read_lines({**start, "version": 4}, entry, newer)
    assert len(session.messages) == 2
    assert [str(problem) for problem in session.problems] == [
        "line 1: version 4 of pi's format; Refold knows those up to 3",
        "left out, as Refold does not know it: 'n1' (2), 'n2' (1), 'n3' (1), 'n4' (1) and 1 more",
    ]


def test_a_line_of_30_megabytes_is_read():
    long = "x" * 30_000_000
    session = read_lines(GO, {"role": "assistant", "content": long})
    assert len(session.messages[1]["content"]) == len(long)


def test_lines_are_read_one_at_a_time():
    class Counting(BytesIO):
        taken = 0

        def __next__(self):
            self.taken += 1
            return super().__next__()

    stream = Counting(b'{"a": 1}\n' * 1000)
    next(parse_lines(stream, []))
    assert stream.taken == 1


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
KEYS = st.sampled_from(
    "type uuid parentUuid sessionId message role content parts payload id parentId timestamp cwd messages input contents "  # noqa: SIM905 - words are easier to read
    "isSidechain isCompactSummary subtype compactMetadata preservedSegment headUuid tailUuid leafUuid logicalParentUuid "
    "replacement_history num_turns call_id $set $rewindTo toolCalls result args projectHash startTime summary "
    "firstKeptEntryId firstKeptEntryIndex traj simulations tool_calls tool_use_id compactedToolIds systemPayload "
    "compressedHistory history trajectory_format info usage tokens text body kind session items "
    "toolCallId thinking name tool_messages extra".split()
)
WORDS = st.sampled_from(
    "user assistant system message session compaction text tool_use tool_result toolCall toolResult bashExecution "  # noqa: SIM905 - words are easier to read
    "compact_boundary microcompact_boundary response_item event_msg compacted session_meta turn_context user_message "
    "thread_rolled_back token_count chat_compression gemini last-prompt branch_summary main a b mini-swe-agent-1".split()
)
VALUES = st.recursive(
    WORDS | st.none() | st.booleans() | st.integers(-3, 9) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=10,
)
RECORDS = st.dictionaries(KEYS, VALUES, max_size=8)
LINES = st.lists(RECORDS.map(json.dumps) | JSON.map(json.dumps) | st.text(max_size=9), max_size=6)


def survives(data):
    """Assert that reading returns a usable session or raises a FormatError."""
    try:
        session = transcripts.read_bytes(data)
    except FormatError:
        return
    assert isinstance(session.payload[FIELDS[session.format]], list)
    assert all(isinstance(entry, dict) for entry in session.effective)
    assert all(
        0 <= compaction.start <= compaction.stop <= len(session.messages)
        for compaction in session.compactions
    )
    assert all(0 <= at <= len(session.messages) for at, _ in session.usage)


@given(st.binary(max_size=300))
def test_any_bytes_give_a_session_or_a_format_error(data):
    survives(data)


@given(
    st.sampled_from(
        [b"SQLite format 3\0", b"\x28\xb5\x2f\xfd", b"{", b"[", b"\xef\xbb\xbf", b"\0"]
    ),
    st.binary(),
)
def test_any_bytes_after_a_known_signature_give_a_session_or_a_format_error(start, data):
    survives(start + data)


@given(LINES.map("\n".join))
def test_lines_like_those_of_the_clients_give_a_session_or_a_format_error(text):
    survives(text.encode("utf-8", "surrogatepass"))


@given(VALUES | st.lists(RECORDS, max_size=4) | JSON)
def test_documents_of_any_shape_give_a_session_or_a_format_error(value):
    survives(json.dumps(value, indent=1).encode())


CLIENTS = [
    {"type": "user", "uuid": "a", "parentUuid": None, "sessionId": "s"},
    {"type": "session_meta", "payload": {"id": "x"}},
    {"sessionId": "s", "projectHash": "h"},
    {"type": "session", "id": "p", "cwd": "/"},
    {"uuid": "a", "sessionId": "s", "systemPayload": {}},
]


@given(st.sampled_from(CLIENTS), st.lists(RECORDS, max_size=8))
def test_strange_records_after_a_clients_first_line_give_a_session_or_a_format_error(first, rest):
    survives("\n".join(map(json.dumps, [first, *rest])).encode())


# --- the value -------------------------------------------------------------------------------


def test_outermost_compactions_are_shown_and_the_later_of_two_on_one_span():
    def make_session(*compactions):
        messages = [{"n": n} for n in range(6)]
        return Session(
            path="x",
            client="c",
            format="gemini",
            messages=messages,
            body={},
            compactions=compactions,
        )

    def list_shown(*compactions):
        return [entry["n"] for entry in make_session(*compactions).effective]

    assert list_shown() == [0, 1, 2, 3, 4, 5]
    assert list_shown(Compaction(0, 2, ({"n": "A"},)), Compaction(0, 4, ({"n": "B"},))) == [
        "B",
        4,
        5,
    ]
    assert list_shown(Compaction(0, 4, ({"n": "A"},)), Compaction(2, 3, ({"n": "B"},))) == [
        "A",
        4,
        5,
    ]
    assert list_shown(Compaction(1, 2, ({"n": "A"},)), Compaction(1, 2, ({"n": "B"},))) == [
        0,
        "B",
        2,
        3,
        4,
        5,
    ]
    assert list_shown(Compaction(0, 0, ({"n": "A"},)), Compaction(5, 6, ())) == ["A", 0, 1, 2, 3, 4]


def test_timestamps_are_parsed_from_iso_text_seconds_and_milliseconds():
    spelled = [
        "2026-01-01T00:00:00Z",
        "2026-01-01T01:00:00+01:00",
        1_767_225_600,
        1_767_225_600_000,
    ]
    assert {parse_time(time).isoformat() for time in spelled} == {"2026-01-01T00:00:00+00:00"}
    assert [parse_time(time) for time in (None, "soon", True, 1e300, float("nan"), [])] == [
        None
    ] * 6


def test_a_problem_is_printed_with_its_line_number():
    assert str(Problem(3, "broken")) == "line 3: broken"
    assert str(Problem(0, "empty")) == "empty"


# --- plain lists, payloads and logs ----------------------------------------------------------

TOOL_USE = {
    "role": "assistant",
    "content": [{"type": "tool_use", "id": "k", "name": "n", "input": {}}],
}
PAYLOADS = [
    ("openai_chat", {"model": "m", "messages": [{"role": "system", "content": "s"}, GO]}),
    ("openai_chat", {"messages": [GO, {"role": "assistant", "tool_calls": []}]}),
    ("anthropic", {"system": "s", "messages": [GO]}),
    ("anthropic", {"messages": [GO, TOOL_USE]}),
    ("anthropic", {"messages": [GO], "tools": [{"name": "n", "input_schema": {}}]}),
    ("openai_responses", {"instructions": "i", "input": [GO]}),
    (
        "openai_responses",
        {"messages": [{"role": "user", "content": [{"type": "input_text", "text": "go"}]}]},
    ),
    ("gemini", {"contents": [{"role": "user", "parts": [{"text": "go"}]}]}),
    ("bedrock", {"modelId": "m", "messages": [{"role": "user", "content": [{"text": "go"}]}]}),
]


@pytest.mark.parametrize(("format", "payload"), PAYLOADS)
def test_request_bodies_of_all_formats_are_read(format, payload):
    session = read(payload)
    assert (session.client, session.format) == ("plain", format)
    assert format == open_payload(session.payload).codec.NAME
    field = next(field for field in ("messages", "input", "contents") if field in payload)
    assert session.messages == payload[field]
    assert session.body == {key: value for key, value in payload.items() if key != field}


def test_a_responses_input_that_is_a_string_becomes_a_user_message():
    assert read({"model": "m", "input": "go"}).payload == {"model": "m", "input": [GO]}


def test_lists_of_messages_are_read_as_json_and_as_jsonl():
    entries = [GO, {"role": "assistant", "content": "好"}]
    for session in (read(entries), read(entries, indent=2), read_lines(*entries)):
        assert (session.format, session.messages, session.body) == ("openai_chat", entries, {})
    items = [GO, {"type": "function_call", "call_id": "k", "name": "n", "arguments": "{}"}]
    assert read(items).format == "openai_responses"
    assert read_lines({"role": "user", "parts": [{"text": "go"}]}).format == "gemini"


def test_an_empty_list_and_entries_that_are_not_objects_are_reported():
    assert [str(p) for p in read([]).problems] == ["the session has no messages"]
    assert [str(p) for p in read([GO, "loose", 3]).problems] == ["2 entries are no JSON objects"]
    with pytest.raises(FormatError, match="a list, but not of messages"):
        read([{"a": 1}])


def test_lines_that_are_not_messages_are_counted_and_may_be_at_most_half():
    """Once a file of events was silently read as the few messages among them."""
    event = {"type": "tool_use", "tool_id": "t1", "input": "ls"}
    session = read_lines(GO, event, GO, event)
    assert session.messages == [GO, GO]
    assert [str(p) for p in session.problems] == ["left out, as they are no messages: 2 lines"]
    with pytest.raises(FormatError, match="of 3 only 1 are messages"):
        read_lines(GO, event, event)


def test_the_last_main_request_of_a_log_is_read_by_default(tmp_path):
    path = tmp_path / "log.jsonl"
    rows = [
        {"n": 1, "kind": "main", "body": {"messages": [GO]}},
        {"n": 2, "kind": "main", "body": {"messages": [GO, GO]}},
        {"n": 3, "kind": "side", "body": {"messages": [GO, GO, GO]}},
        {"n": 4, "kind": "main", "body": None},
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    assert len(transcripts.read(path).messages) == 2
    assert len(transcripts.read(path, "3").messages) == 3
    assert [session.id for session in transcripts.read_all(path)] == ["3", "1", "2"]


# --- benchmark results -----------------------------------------------------------------------


def test_a_tau_bench_run_is_read():
    document = [
        {"task_id": 4, "trial": 1, "traj": [GO], "info": {"task": {"instruction": "be"}}},
        {"task_id": 5},
    ]
    session = read(document)
    assert (session.client, session.id, session.messages, session.title) == (
        "tau",
        "4.1",
        [GO],
        "be",
    )


def test_a_tau2_bench_simulation_is_read_without_the_users_tool_calls():
    asked = {"id": "k", "name": "get", "arguments": {"id": 1}, "requestor": "assistant"}
    messages = [
        {"role": "assistant", "content": "Hi!", "tool_calls": None, "turn_idx": 0},
        {"role": "user", "content": "go"},
        {"role": "user", "content": None, "tool_calls": [{**asked, "requestor": "user"}]},
        {"role": "tool", "id": "k", "content": "of the user", "requestor": "user"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [asked],
            "usage": {"prompt_tokens": 9},
        },
        {
            "role": "tool",
            "tool_messages": [
                {"role": "tool", "id": "k", "content": None, "requestor": "assistant"}
            ],
        },
    ]
    info = {"environment_info": {"policy": "Be kind."}, "agent_info": {"llm": "m"}}
    session = read(
        {"info": info, "simulations": [{"task_id": "7", "trial": 0, "messages": messages}]}
    )
    call = {"id": "k", "type": "function", "function": {"name": "get", "arguments": '{"id": 1}'}}
    assert session.messages == [
        {"role": "system", "content": "Be kind."},
        {"role": "assistant", "content": "Hi!"},
        GO,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "k", "content": ""},
    ]
    assert (session.client, session.id, session.body) == ("tau2", "7.0", {"model": "m"})
    assert session.usage == ((4, {"prompt_tokens": 9}),)


def test_a_mini_swe_agent_trajectory_is_read():
    usage = {"prompt_tokens": 9}
    extra = {"response": {"created": 1_767_225_600, "usage": usage}}
    messages = [
        GO,
        {"role": "assistant", "content": "ls", "extra": extra},
        {"role": "exit", "content": ""},
        {"object": "response"},
    ]
    info = {"config": {"model": {"model_name": "m"}, "environment": {"cwd": "/testbed"}}}
    session = read(
        {
            "trajectory_format": "mini-swe-agent-1",
            "instance_id": "i",
            "info": info,
            "messages": messages,
        }
    )
    assert session.messages == [GO, {"role": "assistant", "content": "ls"}]
    assert (session.client, session.id, session.cwd, session.body) == (
        "mini_swe",
        "i",
        "/testbed",
        {"model": "m"},
    )
    assert (session.usage, session.started.year) == (((2, usage),), 2026)
    assert [str(p) for p in session.problems] == ["message 4 has no role that is sent"]


def test_text_actions_become_tool_calls():
    """Strategies for tool results see the commands that the agent ran. The messages to send are
    unchanged."""
    run = {
        "role": "assistant",
        "content": "THOUGHT: 看看\n\n```bash\nls 'a\nb'\n```",
        "extra": {"x": 1},
    }
    two = {"role": "assistant", "content": "```bash\na\n```\n```bash\nb\n```"}
    new = {"role": "assistant", "content": "```mswea_bash_command\nsubmit\n```"}
    out, wrong = (
        {"role": "user", "content": "<output>a.py</output>"},
        {"role": "user", "content": "One action!"},
    )
    messages = [GO, run, out, two, wrong, new]
    session = read({"trajectory_format": "mini-swe-agent-1", "info": {}, "messages": messages})
    called = transcripts.with_calls(session)
    assert [m["content"] for m in session.messages] == [m["content"] for m in messages]
    envelope = open_payload(called.payload)
    decoded = envelope.decode()
    assert decoded[1].parts == (
        Text("THOUGHT: 看看"),
        ToolCall("call_1", "bash", '{"command":"ls \'a\\nb\'"}'),
    )
    assert decoded[2] == Message("tool", (ToolResult("call_1", (Text("<output>a.py</output>"),)),))
    assert called.messages[3:5] == [two, wrong]
    assert decoded[5].calls == ("call_5",)
    assert called.messages[5]["content"] == ""
    assert check(called.payload) == ()
    assert transcripts.with_calls(called) == called


def test_text_actions_without_an_output_do_not_become_tool_calls():
    run = {"role": "assistant", "content": "```sh\nls\n```"}
    session = read(
        {"trajectory_format": "mini-swe-agent-1", "info": {}, "messages": [GO, run, run, GO]}
    )
    assert transcripts.with_calls(session).messages[:2] == [GO, run]
    gemini_session = read([{"role": "user", "parts": [{"text": "```sh\nls\n```"}]}])
    assert transcripts.with_calls(gemini_session) is gemini_session
    native = {"role": "assistant", "tool_calls": [write_call("c1", "ls", {})]}
    shows = [native, {"role": "tool", "tool_call_id": "c1", "content": "a"}, run, GO]
    agent = read([GO, *shows])
    assert transcripts.with_calls(agent) is agent, "a block is what the model shows the person"


def test_a_swe_agent_trajectory_is_read():
    call = {"id": "k", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
    history = [
        {**GO, "agent": "main"},
        {"role": "assistant", "content": "", "thought": "t", "action": "a", "tool_calls": [call]},
        {"role": "tool", "content": "out", "tool_call_ids": ["k"]},
        {"role": "assistant", "content": "x", "tool_calls": None},
    ]
    session = read({"environment": "e", "trajectory": [], "history": history, "info": {}})
    assert session.client == "swe_agent"
    assert session.messages == [
        GO,
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "out", "tool_call_id": "k"},
        {"role": "assistant", "content": "x"},
    ]


# --- data sets -------------------------------------------------------------------------------


def test_openhands_results_include_exit_code_and_working_directory():
    """A failed test's exit code was once read apart from its output, so that the test counted as
    passed."""
    run = {"id": 1, "source": "agent", "action": "run", "args": {"command": "pytest"}}
    extras = {"metadata": {"exit_code": 1, "working_dir": "/repo", "suffix": "\n[Over.]"}}
    seen = {"id": 2, "cause": 1, "observation": "run", "content": "1 failed", "extras": extras}
    waits = {**seen, "extras": {"metadata": {"exit_code": -1, "suffix": "\n[It waits.]"}}}
    answer = (
        "1 failed\n[Over.]\n[Current working directory: /repo]\n[Command finished with exit code 1]"
    )
    for event, text in ((seen, answer), (waits, "1 failed\n[It waits.]")):
        session = read([{"id": 0, "action": "message", "source": "user"}, run, event])
        assert session.messages[-1]["content"] == text


def test_openhands_events_of_one_response_become_one_assistant_message():
    """Events as the SDK writes them: the calls of an answer are separate events with one id."""

    def action(number, response):
        call = {
            "id": f"t{number}",
            "name": "bash",
            "arguments": '{"command": "ls"}',
            "origin": "completion",
        }
        head = {"kind": "ActionEvent", "source": "agent", "llm_response_id": response}
        thought = [{"type": "text", "text": f"Step {number}."}]
        return {
            **head,
            "thought": thought,
            "tool_name": "bash",
            "tool_call_id": f"t{number}",
            "tool_call": call,
        }

    def observe(number, **fields):
        head = {"kind": "ObservationEvent", "source": "environment", "tool_name": "bash"}
        return {**head, "tool_call_id": f"t{number}", **fields}

    content = [{"type": "text", "text": "a.py"}]
    events = [
        {"kind": "SystemPromptEvent", "system_prompt": {"type": "text", "text": "You code."}, "tools": [{"type": "function", "function": {"name": "bash"}}]},
        {"kind": "MessageEvent", "source": "user", "llm_message": {"role": "user", "content": [{"type": "text", "text": "Go."}]}},
        action(1, "r1"),
        action(2, "r1"),
        observe(1, observation={"kind": "BashObservation", "content": content}),
        observe(2, kind="AgentErrorEvent", error="no such tool"),
        {"kind": "ConversationStateUpdateEvent", "key": "x", "value": 1},
        action(3, "r2"),
        observe(3, kind="UserRejectObservation", rejection_reason="not that"),
    ]  # fmt: skip
    session = read(events)
    assert (session.client, session.format) == ("openhands", "openai_chat")
    assert [entry["role"] for entry in session.messages] == [
        *("system", "user", "assistant", "tool", "tool", "assistant", "tool")
    ]
    assert [call["id"] for call in session.messages[2]["tool_calls"]] == ["t1", "t2"]
    assert [entry["content"] for entry in session.messages if entry["role"] == "tool"] == [
        *("a.py", "no such tool", "not that")
    ]
    assert session.body["tools"][0]["function"]["name"] == "bash"
    assert not check(session.payload, session.format)


def test_openhands_condensations_hide_forgotten_events_and_the_earlier_summary():
    """Models may restart the numbers of their calls after one, so ids repeat."""

    def act(number):
        call = {"kind": "ActionEvent", "tool_name": "bash", "tool_call_id": "bash:0"}
        seen = {"content": [{"type": "text", "text": f"seen {number}"}]}
        result = {"kind": "ObservationEvent", "tool_call_id": "bash:0", "observation": seen}
        return [
            {**call, "id": f"a{number}", "llm_response_id": f"r{number}"},
            {**result, "id": f"o{number}"},
        ]

    def condense(number, *forgotten):
        ids = [id for at in forgotten for id in (f"o{at}", f"a{at}")]
        head = {"kind": "Condensation", "id": f"c{number}", "forgotten_event_ids": ids}
        return {**head, "summary": f"Summary {number}.", "summary_offset": 1}

    go = {"kind": "MessageEvent", "id": "m", "llm_message": GO}
    events = [go, *act(1), *act(2), condense(1, 1), *act(3), condense(2, 2), *act(4)]
    session = read(events)
    assert [(shown.start, shown.stop, shown.at) for shown in session.compactions] == [
        (1, 3, 5),
        (1, 5, 7),
    ]
    assert [entry["content"] for entry in session.effective] == [
        *("go", "Summary 2.", None, "seen 3", None, "seen 4")
    ]
    assert len(session.messages) == 9
    assert not check(session.payload) and not check(session.effective_payload)
    apart = read([go, *act(1), *act(2), *act(3), condense(1, 1, 3)])
    assert [entry["content"] for entry in apart.effective] == ["go", "Summary 1.", None, "seen 2"]


def test_sharegpt_calls_are_answered_in_order():
    turns = [
        {"from": "human", "value": "Two cities, please."},
        {"from": "function_call", "value": '[{"name": "w", "arguments": {"c": 1}}, {"name": "w"}]'},
        {"from": "observation", "value": "21"},
        {"from": "observation", "value": "17"},
        {"from": "function_call", "value": "not JSON"},
        {"from": "observation", "value": "nobody asked"},
        {"from": "gpt", "value": "21 and 17."},
    ]
    session = read({"id": 7, "conversations": turns, "system": "Be brief.", "tools": "[]"})
    assert (session.client, session.id) == ("sharegpt", "7")
    assert [entry["role"] for entry in session.messages] == [
        *("system", "user", "assistant", "tool", "tool", "assistant", "user", "assistant")
    ]
    calls = [call["id"] for call in session.messages[2]["tool_calls"]]
    assert [entry["tool_call_id"] for entry in session.messages[3:5]] == calls
    assert not check(session.payload, session.format)


@pytest.mark.parametrize("value", ["[]", "7", '["w"]', '{"c": 1}', "[1, 2]"])
def test_a_sharegpt_call_without_a_name_stays_text(value):
    turns = [{"from": "human", "value": "Go."}, {"from": "function_call", "value": value}]
    session = read({"conversations": turns})
    assert session.messages[1] == {"role": "assistant", "content": value}


def test_adp_observations_answer_the_actions_they_name():
    steps = [
        {"class_": "text_observation", "source": "user", "content": "Go."},
        {"class_": "api_action", "function": "click", "kwargs": {"at": 1}, "description": "I click.", "tool_call_id": "a"},
        {"class_": "api_action", "function": "type", "kwargs": {}, "tool_call_id": "b"},
        {"class_": "web_observation", "html": "<p>", "axtree": "tree", "tool_call_id": "b"},
        {"class_": "text_observation", "source": "environment", "content": "clicked", "tool_call_id": "a"},
        {"class_": "message_action", "content": "<solution>", "description": "Done."},
    ]  # fmt: skip
    session = read({"schema_version": "1.3.1", "id": "adp-1", "content": steps, "details": {}})
    assert (session.client, session.id) == ("adp", "adp-1")
    answer, first, second, last = session.messages[1:]
    assert [call["id"] for call in answer["tool_calls"]] == ["a", "b"]
    assert (first["tool_call_id"], first["content"]) == ("b", "tree")
    assert (second["tool_call_id"], second["content"]) == ("a", "clicked")
    assert last["content"] == "Done.\n\n<solution>"


def test_atif_copied_steps_are_not_trained_on_and_subagents_are_sessions():
    agent = {"name": "a", "version": "1", "model_name": "gpt-5"}
    inner = {"schema_version": "ATIF-v1.7", "trajectory_id": "sub", "agent": {"name": "b"}}
    calls = [{"tool_call_id": id, "function_name": "w", "arguments": {"c": id}} for id in "ab"]
    results = [
        {"source_call_id": "b", "content": [{"type": "text", "text": "17"}]},
        {"source_call_id": "a", "content": "21"},
    ]
    picture = {"type": "image", "source": {"media_type": "image/png", "path": "a.png"}}
    steps = [
        {"source": "system", "message": "Be brief."},
        {"source": "user", "message": [{"type": "text", "text": "Two cities?"}, picture]},
        {"source": "agent", "message": "Which?", "is_copied_context": True},
        {
            "source": "agent",
            "message": "",
            "tool_calls": calls,
            "observation": {"results": results},
        },
        {"source": "agent", "message": "ls", "observation": {"results": [{"content": "a.py"}]}},
        {"source": "agent", "message": "21 and 17.", "reasoning_content": "Sum."},
    ]
    document = {"schema_version": "ATIF-v1.7", "session_id": "run", "trajectory_id": "main"}
    document |= {
        "agent": agent,
        "steps": steps,
        "subagent_trajectories": [{**inner, "steps": steps[:3]}],
    }
    first, session = transcripts.read_value(document)
    assert (first.id, session.id, session.client) == ("sub", "main", "atif")
    assert session.body == {"model": "gpt-5"}
    assert [entry["role"] for entry in session.messages] == [
        *(
            "system",
            "user",
            "assistant",
            "assistant",
            "tool",
            "tool",
            "assistant",
            "user",
            "assistant",
        )
    ]
    assert session.messages[1]["content"] == "Two cities?\n[a.png]"
    assert [entry["content"] for entry in session.messages if entry["role"] == "tool"] == [
        "17",
        "21",
    ]
    (row,) = corpus.unroll({**document, "subagent_trajectories": []})
    assert row["messages"][row["train_from"]]["tool_calls"]  # the copy was trained on before
