"""The four wire formats: detection, reading and writing (docs/formats.md)."""

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

import refold
from refold.codecs import anthropic, gemini, openai_chat, openai_responses
from refold.codecs.detect import CODECS, open_payload, still_fits
from refold.errors import FormatError
from refold.messages import Media, Message, Opaque, Text, Thinking, ToolCall, ToolResult, user

PATHS = {"chat": "openai_chat", "messages": "anthropic", "responses": "openai_responses"}


def read_recordings(shared: Path) -> Iterator[tuple[str, dict]]:
    """Yield every request body of the recordings with the format of its path."""
    for path in sorted((shared / "fixtures/requests").glob("*.jsonl")):
        for line in path.read_text("utf-8").splitlines():
            request = json.loads(line)
            if isinstance(request["body"], dict):
                name = request["path"].partition("?")[0].split("/")
                yield (
                    next((PATHS[part] for part in name if part in PATHS), "gemini"),
                    request["body"],
                )


def jsonl(path: Path) -> Iterator[dict]:
    return (json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip())


def conversations(shared: Path) -> Iterator[tuple[str, object]]:
    """Yield every conversation of the data sets in one of the four formats."""
    sets = shared / "datasets"
    yield from (
        ("openai_chat", run["traj"])
        for run in json.loads((sets / "tau_bench/gpt-4o-airline.json").read_text("utf-8"))
    )
    for path in sorted((sets / "miniswe_gemini3/trajs").glob("*.json")):
        yield "openai_chat", json.loads(path.read_text("utf-8"))["messages"]
    for path in sorted((sets / "sweagent_traj").glob("*.traj")):
        yield "openai_chat", json.loads(path.read_text("utf-8"))["history"]
    for path in sorted((sets / "openhands_sdk_llmlogs").glob("*.json")):
        yield "openai_chat", json.loads(path.read_text("utf-8"))
    for path in sorted((sets / "tau2_bench").glob("*.json")):
        yield from (
            ("openai_chat", s["messages"])
            for s in json.loads(path.read_text("utf-8"))["simulations"]
        )
    for path in [
        *(sets / "claude_code_spotter").rglob("*.jsonl"),
        *(sets / "codemie_multi_cli").glob("session*.jsonl"),
    ]:
        if messages := [
            record["message"]
            for record in jsonl(path)
            if record.get("type") in {"user", "assistant"}
        ]:
            yield "anthropic", messages
    for path in (sets / "codemie_multi_cli").glob("codex*.jsonl"):
        yield (
            "openai_responses",
            [record["payload"] for record in jsonl(path) if record.get("type") == "response_item"],
        )


def assert_round_trip(payload: object, format: str) -> int:
    """Assert that bytes, objects and single entries are unchanged. Return the number of entries."""
    text = json.dumps(payload, ensure_ascii=False).encode("utf-8", "surrogatepass")
    for given in (payload, text):
        envelope = open_payload(given)
        assert format == envelope.codec.NAME
        assert envelope.join([slice(0, len(envelope))]) == given
    named = open_payload(payload, format)
    sealed = named.join([slice(0, len(named))])
    before, after = (x[named.codec.FIELD] if isinstance(x, dict) else x for x in (payload, sealed))
    assert all(
        entry_after is entry_before for entry_after, entry_before in zip(before, after, strict=True)
    )
    messages = named.decode()
    assert messages == open_payload(text).decode()
    for item, message in zip(named.iter_entries(), messages, strict=True):
        assert named.codec.patch(item, message) == item
    return len(messages)


def test_every_recorded_request_round_trips(shared: Path):
    assert sum(assert_round_trip(body, name) for name, body in read_recordings(shared)) > 3000


@pytest.mark.slow
def test_every_conversation_of_the_data_sets_round_trips(shared: Path):
    payloads = list(conversations(shared))
    assert len(payloads) > 300
    assert sum(assert_round_trip(payload, name) for name, payload in payloads) > 8000


def test_no_recorded_part_is_unknown(shared: Path):
    kinds = {
        part.kind
        for _, body in read_recordings(shared)
        for message in open_payload(body).decode()
        for part in message.parts
        if isinstance(part, Opaque)
    }
    assert kinds <= {"compaction_trigger", "response"}


def test_every_recorded_answer_finds_its_call(shared: Path):
    """Only if the whole history was sent, so not for deltas (websocket, previous_response_id,
    threads)."""
    for _, body in read_recordings(shared):
        messages = open_payload(body).decode()
        calls = {call for message in messages for call in message.calls}
        strays = [link for message in messages for link in message.results if link not in calls]
        assert (
            not strays
            or "previous_response_id" in body
            or "thread" in body
            or any(s[0] == "?" for s in strays)
        )


# --- recognition ------------------------------------------------------------------------------

CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
PLAIN = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}] * 20


@pytest.mark.parametrize(
    ("payload", "format"),
    [
        (PLAIN, "openai_chat"),
        ({"messages": PLAIN}, "openai_chat"),
        ([], "openai_chat"),
        ([*PLAIN, {"role": "tool", "tool_call_id": "c", "content": ""}], "openai_chat"),
        (
            [
                *PLAIN,
                {
                    "role": "user",
                    "content": [{"type": "tool_result", "tool_use_id": "c", "content": ""}],
                },
            ],
            "anthropic",
        ),
        ({"system": "s", "messages": PLAIN}, "anthropic"),
        ({"model": "claude-opus-5-5", "max_tokens": 1, "messages": PLAIN}, "anthropic"),
        ({"model": "anthropic/claude-opus-5.5", "messages": PLAIN}, "openai_chat"),
        ({"tools": [{"name": "f", "input_schema": {}}], "messages": PLAIN}, "anthropic"),
        (
            {
                "model": "claude-opus-5-5",
                "messages": [*PLAIN, {"role": "assistant", "tool_calls": [CALL]}],
            },
            "openai_chat",
        ),
        ({"input": PLAIN}, "openai_responses"),
        (
            [*PLAIN, {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}],
            "openai_responses",
        ),
        (["hi", {"role": "user", "content": "x"}], "openai_responses"),
        ([{"role": "user", "content": [{"type": "input_text", "text": "x"}]}], "openai_responses"),
        ({"contents": []}, "gemini"),
        ([{"parts": [{"text": "hi"}]}], "gemini"),
        ([{"role": "user", "parts": [{"text": "hi"}]}, {"role": "model", "parts": []}], "gemini"),
    ],
)
def test_formats_are_recognised_by_shape(payload: object, format: str):
    assert format == open_payload(payload).codec.NAME
    assert format == open_payload(json.dumps(payload)).codec.NAME


@pytest.mark.parametrize("field", ["reasoning", "reasoning_details", "thinking_blocks"])
def test_a_request_read_as_anthropic_is_a_chat_once_it_has_a_reasoning_field(field: str) -> None:
    body = {"model": "claude-opus-5-5", "thinking": {"type": "adaptive"}, "messages": PLAIN[:1]}
    first = open_payload(body)
    assert first.codec is anthropic
    messages = [*PLAIN[:1], {**PLAIN[1], field: "hm"}]
    assert not still_fits(first.codec, open_payload({**body, "messages": messages}), 1)


def test_the_format_of_a_payload_can_be_given_by_name():
    assert open_payload(PLAIN, "anthropic").codec.NAME == "anthropic"
    with pytest.raises(
        FormatError, match="no format is called 'claude'; there are openai_chat, anthropic"
    ):
        open_payload(PLAIN, "claude")
    with pytest.raises(
        FormatError,
        match="gemini keeps its conversation in 'contents', and this object has 'messages'",
    ):
        open_payload({"messages": PLAIN}, "gemini")


def test_the_wrong_format_name_for_the_entries_is_an_error() -> None:
    """Once 200,000 tokens counted as 2,000, because no entry was read."""
    with pytest.raises(
        FormatError, match="no entries of gemini: entry 0 has the fields 'role', 'content'"
    ):
        open_payload(PLAIN, "gemini").decode()
    with pytest.raises(FormatError, match="no entries of anthropic"):
        open_payload([{"role": "tool", "tool_call_id": "a", "content": "b"}], "anthropic").decode()


@pytest.mark.parametrize(
    "kind", ["server_tool_use", "web_search_tool_result", "mcp_tool_use", "compaction"]
)
def test_blocks_that_only_anthropic_has_identify_its_format(kind: str) -> None:
    messages = [
        {"role": "user", "content": "b"},
        {"role": "assistant", "content": [{"type": kind, "id": "s1"}]},
    ]
    assert open_payload(messages).codec.NAME == "anthropic"


@pytest.mark.parametrize(
    "payload", [[3], [None], [[]], {"input": [1, 2]}, {"messages": "hi"}, {"contents": [7]}, [True]]
)
def test_entries_of_the_wrong_type_are_named_in_the_error(payload: object):
    with pytest.raises(FormatError, match=r"were tried.*(entry 0 is|strings)"):
        open_payload(payload)


def test_a_late_entry_of_the_wrong_type_is_reported_by_its_index():
    envelope = open_payload(
        [{"role": "system", "content": "s"}, *PLAIN, {"role": "tool", "tool_call_id": "c"}, 7],
        "openai_chat",
    )
    with pytest.raises(FormatError, match="entry 42: a chat message is an object, not a number"):
        envelope.decode()


def test_system_prompts_are_read_from_the_body_or_the_leading_entries():
    chat = open_payload(
        [{"role": "system", "content": "a"}, {"role": "developer", "content": "b"}, *PLAIN]
    )
    assert (chat.head, chat.system) == (2, (Text("a"), Text("b")))
    lite = {"type": "additional_tools", "role": "developer", "tools": []}
    codex = open_payload(
        {"instructions": "i", "input": [lite, {"role": "developer", "content": "b"}, *PLAIN]}
    )
    assert (codex.head, codex.system[0], codex.system[2]) == (2, Text("i"), Text("b"))
    claude = open_payload({"system": [{"type": "text", "text": "s"}], "messages": PLAIN})
    assert (claude.head, claude.system) == (0, (Text("s"),))
    for key in ("systemInstruction", "system_instruction"):
        body = {
            key: {"parts": [{"text": "s"}]},
            "contents": [{"role": "user", "parts": [{"text": "q"}]}],
        }
        assert open_payload(body).system == (Text("s"),)


def test_tools_are_canonical():
    def tools(body: dict) -> tuple[str, ...]:
        return open_payload(body).tools

    marked = {"name": "f", "input_schema": {}, "cache_control": {"type": "ephemeral"}}
    assert tools({"tools": [marked], "messages": []}) == ('{"input_schema":{},"name":"f"}',)
    assert tools({"functions": [{"name": "g"}], "messages": []}) == ('{"name":"g"}',)
    declared = {"functionDeclarations": [{"name": "a"}, {"name": "b"}], "googleSearch": {}}
    assert tools({"tools": [declared], "contents": []}) == (
        '{"name":"a"}',
        '{"name":"b"}',
        '{"googleSearch":{}}',
    )
    assert tools({"tools": "none", "messages": []}) == ()


def test_decoding_continues_after_the_messages_decoded_before():
    call = {"role": "model", "parts": [{"functionCall": {"name": "f"}}]}
    answer = {
        "role": "user",
        "parts": [{"functionResponse": {"name": "f", "response": {"output": "x"}}}],
    }
    envelope = open_payload({"contents": [call, answer] * 3})
    whole = envelope.decode()
    assert [*whole[:3], *envelope.decode(3, whole[:3])] == whole
    assert [m.calls or m.results for m in whole] == [
        ("0.0",),
        ("0.0",),
        ("2.0",),
        ("2.0",),
        ("4.0",),
        ("4.0",),
    ]


# --- the rules a body asks for ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "thinking"),
    [
        ("claude-opus-5-5", "bound"), ("claude-sonnet-5-5-20261001", "bound"), ("claude-haiku-5.5", "bound"),
        ("us.anthropic.claude-fable-5-1-v1:0", "bound"), ("claude-mythos-5-2", "bound"), ("claude-opus-6", "bound"),
        ("claude-new-9", "bound"), ("some-proxy", "bound"), (None, "unsure"), (7, "unsure"), ("", "unsure"),
        ("claude-opus-5", "loop"), ("claude-sonnet-4-5-20250929", "loop"), ("claude-opus-4-20250514", "loop"),
        ("claude-3-7-sonnet-latest", "loop"), ("claude-3-opus", "loop"), ("claude-fable-5", "loop"), ("claude-2.1", "loop"),
        ("anthropic/claude-sonnet-4.5", "loop"),
    ],
)  # fmt: skip
def test_thinking_is_bound_unless_the_model_is_known_to_be_older(model: object, thinking: str):
    rules = anthropic.rules({} if model is None else {"model": model})
    assert (rules.thinking, rules.alternate) == (thinking, True)


@pytest.mark.parametrize(
    ("model", "thinking"),
    [
        ("deepseek-v4", "fixed"),
        ("moonshot/kimi-k3", "fixed"),
        ("gpt-5.1", "free"),
        ("qwen3-coder-plus", "free"),
        ("google/gemini-3-pro", "fixed"),
        ("anthropic/claude-sonnet-4.5", "loop"),
        ("openrouter/anthropic/claude-opus-5.5", "bound"),
        (None, "unsure"),
    ],
)
def test_the_rules_for_reasoning_in_chats_depend_on_the_model(model: object, thinking: str):
    assert openai_chat.rules({"model": model}).thinking == thinking


@pytest.mark.parametrize(
    ("model", "alternate"),
    [
        ("devstral-small", True),
        ("open-mixtral-8x22b", True),
        ("google/gemma-3-27b-it", True),
        ("sonar-pro", True),
        ("deepseek-v4", False),
        ("gpt-5.1", False),
    ],
)
def test_roles_alternate_after_a_summary_if_the_models_template_requires_it(model, alternate):
    """The summary is merged with the request after it."""
    turns = [
        entry
        for n in range(12)
        for entry in (
            {"role": "user", "content": f"Part {n}: mend it."},
            {"role": "assistant", "content": f"Mended {n}. " * 40},
        )
    ]
    body = {"model": model, "messages": [*turns, {"role": "user", "content": "And now?"}]}
    view = refold.compact(body, to=400)
    roles = [entry["role"] for entry in view.payload["messages"]]
    assert view.edits
    assert all(first != second for first, second in pairwise(roles)) == alternate
    assert view.revert().payload == body


def test_each_format_has_its_own_rules_for_roles_and_thinking():
    assert openai_responses.rules({}).thinking == gemini.rules({}).thinking == "fixed"
    assert [codec.rules({}).alternate for codec in CODECS] == [False, True, False, True, True]
    assert all(codec.rules({}).rules for codec in CODECS)


# --- reading ----------------------------------------------------------------------------------

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAUAAAAHCAYAAADAp4fuAAAAAElFTkSuQmCC"


def read(codec: object, item: object, prior: list | None = None) -> Message:
    return codec.decode(item, prior or [])


def test_anthropic_blocks_are_read_as_text_thinking_calls_and_results():
    message = read(
        anthropic,
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "redacted_thinking", "data": "d"},
                {"type": "text", "text": "t", "citations": []},
                {"type": "tool_use", "id": "c", "name": "f", "input": {"b": 1.0, "a": "é"}},
                {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}},
                {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []},
                {"type": "mcp_tool_use", "id": "m1", "name": "x", "input": {}},
                {"type": "mcp_tool_result", "tool_use_id": "m1", "content": []},
            ],
        },
    )
    call = ToolCall("c", "f", '{"a":"é","b":1}')
    assert message.parts[:4] == (Thinking("hm", "s"), Thinking("", "d"), Text("t"), call)
    assert message.calls == ("c", "s1", "m1")
    assert message.results == ("s1", "m1")


def test_anthropic_results_and_media_are_read():
    source = {"type": "base64", "media_type": "image/png", "data": PNG}
    content = [
        {"type": "text", "text": "t"},
        {"type": "image", "source": source},
        {"type": "search_result", "title": "x"},
    ]
    result = {"type": "tool_result", "tool_use_id": "c", "content": content, "is_error": True}
    page = {"type": "document", "source": {"type": "url", "url": "https://x/y.pdf"}}
    file = {"type": "document", "source": {"type": "file", "file_id": "f1"}}
    message = read(anthropic, {"role": "user", "content": [result, page, file]})
    (text, image, opaque), error = message.parts[0].content, message.parts[0].error
    assert (text, image.kind, image.mime, (image.width, image.height), error) == (
        Text("t"),
        "image",
        "image/png",
        (5, 7),
        True,
    )
    assert opaque == Opaque("search_result", '{"title":"x","type":"search_result"}')
    assert message.parts[1:] == (
        Media("document", "", "https://x/y.pdf"),
        Media("document", "", "f1"),
    )


def test_the_fields_of_a_chat_message_are_read():
    message = read(
        openai_chat,
        {
            "role": "assistant",
            "reasoning": "hm",
            "reasoning_content": "hm",
            "reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}],
            "content": [{"type": "text", "text": "t"}, {"type": "refusal", "refusal": "no"}],
            "refusal": "never",
            "audio": {"id": "a1"},
            "tool_calls": [
                CALL,
                {"id": "c2", "type": "custom", "custom": {"name": "g", "input": '{ "raw" }'}},
            ],
        },
    )
    assert [type(part).__name__ for part in message.parts] == [
        "Thinking",
        "Text",
        "Opaque",
        "Opaque",
        "Media",
        "ToolCall",
        "ToolCall",
    ]
    signed = '{"reasoning_details":[{"data":"x","type":"reasoning.encrypted"}]}'
    assert message.parts[0] == Thinking("hm", signed)
    assert message.parts[-2:] == (ToolCall("c1", "f", "{}"), ToolCall("c2", "g", '{ "raw" }'))


def test_chat_calls_without_ids_are_paired_with_results_by_name():
    call = {
        "role": "assistant",
        "content": None,
        "function_call": {"name": "f", "arguments": '{"a": 1}'},
    }
    messages = open_payload(
        [*PLAIN[:1], call, {"role": "function", "name": "f", "content": "r"}]
    ).decode()
    assert messages[1].parts == (ToolCall("1.0", "f", '{"a":1}'),)
    assert messages[2] == Message("tool", (ToolResult("1.0", (Text("r"),), name="f"),))


@pytest.mark.parametrize("content", [None, "", []])
def test_empty_content_beside_tool_calls_gives_no_part(content: object):
    for field in ({"content": content}, {}):
        assert read(openai_chat, {"role": "assistant", "tool_calls": [CALL], **field}).parts == (
            ToolCall("c1", "f", "{}"),
        )


def test_chat_media_are_read():
    parts = read(
        openai_chat,
        {
            "role": "user",
            "content": [
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
                {"type": "image_url", "image_url": {"url": "https://x/y.png"}},
                {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
                {"type": "file", "file": {"file_id": "f1"}},
            ],
        },
    ).parts
    assert [(part.kind, part.mime) for part in parts] == [
        ("image", "image/png"), ("image", ""), ("audio", "audio/wav"), ("document", ""),
    ]  # fmt: skip
    assert (parts[0].width, parts[1].ref, parts[3].ref) == (5, "https://x/y.png", "f1")


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("hi", user("hi")),
        ({"role": "developer", "content": "s"}, Message("system", (Text("s"),))),
        ({"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "e"}, Message("assistant", (Thinking("hm", "e"),))),
        ({"type": "custom_tool_call", "call_id": "c", "name": "x", "input": "1 + 1"}, Message("assistant", (ToolCall("c", "x", "1 + 1"),))),
        ({"type": "local_shell_call", "call_id": "c", "action": {"command": ["ls"]}}, Message("assistant", (ToolCall("c", "local_shell", '{"command":["ls"]}'),))),
        ({"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]}, Message("tool", (ToolResult("c", (Text("a"), Text("b"))),))),
        ({"type": "compaction", "id": "x", "encrypted_content": "e"}, Message("assistant", (Opaque("compaction", '{"encrypted_content":"e","type":"compaction"}'),))),
        ({"type": "compaction_trigger"}, Message("user", (Opaque("compaction_trigger", '{"type":"compaction_trigger"}'),))),
        ({"type": "item_reference", "id": "x"}, Message("assistant", (Opaque("item_reference", '{"id":"x","type":"item_reference"}'),))),
    ],
)  # fmt: skip
def test_responses_items_are_read(item: object, message: Message):
    assert read(openai_responses, item) == message


@pytest.mark.parametrize("kind", ["computer", "shell", "apply_patch", "tool_search", "new_tool"])
def test_calls_of_unknown_responses_tools_are_paired_by_call_id(kind: str):
    asking = read(openai_responses, {"type": f"{kind}_call", "call_id": "c", "id": "i"})
    answering = read(
        openai_responses, {"type": f"{kind}_call_output", "call_id": "c", "output": {}}
    )
    assert (asking.role, asking.calls, answering.role, answering.results) == (
        "assistant",
        ("c",),
        "tool",
        ("c",),
    )
    assert read(openai_responses, {"type": "web_search_call", "id": "ws_1"}).calls == ()


def test_approvals_are_paired_with_their_requests():
    request = read(
        openai_responses,
        {"type": "mcp_approval_request", "id": "a", "name": "f", "arguments": "{}"},
    )
    approval = read(
        openai_responses,
        {"type": "mcp_approval_response", "approval_request_id": "a", "approve": True},
    )
    assert (request.calls, approval.results) == (("a",), ("a",))


@pytest.mark.parametrize(
    ("response", "content", "error"),
    [
        ({"output": "x"}, (Text("x"),), False),
        ({"stdout": "x"}, (Text("x"),), False),
        ({"error": "x"}, (Text("x"),), True),
        ({"name": "f", "content": "x"}, (Text("x"),), False),
        ({"output": "x", "exit": 1.0}, (Text("x"), Opaque("response", '{"exit":1}')), False),
        ({"b": 1, "a": "x"}, (Text('{"a":"x","b":1}'),), False),
        ({"output": ""}, (), False),
        ({}, (), False),
        (None, (), False),
        ("text", (Text('"text"'),), False),
    ],
)
def test_gemini_function_responses_are_read(response: object, content: tuple, error: bool):
    message = read(
        gemini,
        {"role": "function", "parts": [{"functionResponse": {"name": "f", "response": response}}]},
    )
    assert message == Message("user", (ToolResult("?0.0", content, error, "f"),))


def test_gemini_results_are_paired_with_calls_by_name_then_by_order():
    calls = {"role": "model", "parts": [{"functionCall": {"name": name}} for name in "fgfh"]}
    answers = {"role": "user", "parts": [{"function_response": {"name": name}} for name in "gfxff"]}
    assert open_payload([calls, answers]).decode()[1].results == (
        "0.1",
        "0.0",
        "0.3",
        "0.2",
        "?1.4",
    )
    apart = [{"role": "user", "parts": [{"functionResponse": {"name": name}}]} for name in "gffhh"]
    messages = open_payload([calls, *apart]).decode()
    assert [m.results for m in messages[1:]] == [("0.1",), ("0.0",), ("0.2",), ("0.3",), ("?5.0",)]


def test_gemini_parts_are_read():
    parts = read(
        gemini,
        {
            "role": "model",
            "parts": [
                {"text": "hm", "thought": True},
                {"text": "", "thoughtSignature": "s"},
                {"text": "t", "thoughtSignature": "s"},
                {"inlineData": {"mimeType": "image/png", "data": PNG}},
                {"file_data": {"mime_type": "video/mp4", "file_uri": "https://x/v"}},
                {"executableCode": {"code": "1"}, "thoughtSignature": "s"},
            ],
        },
    ).parts
    assert parts[:3] == (Thinking("hm"), Thinking("", "s"), Text("t"))
    assert (parts[3].width, parts[4]) == (5, Media("video", "video/mp4", "https://x/v"))
    assert parts[5] == Opaque("unknown", '{"executableCode":{"code":"1"}}')


def test_objects_of_the_vendors_sdks_are_read():
    block = SimpleNamespace(model_dump=lambda **_: {"type": "text", "text": "t"})
    assert read(anthropic, {"role": "assistant", "content": [block]}).parts == (Text("t"),)
    item = SimpleNamespace(model_dump=lambda **_: {"role": "assistant", "content": "t"})
    assert read(openai_chat, item) == Message("assistant", (Text("t"),))
    assert (
        open_payload(
            [{"role": "user", "content": "q"}, item, {"role": "tool", "tool_call_id": "c"}]
        ).codec
        is openai_chat
    )


def test_the_format_of_vendor_sdk_objects_is_recognised():
    def sdk_object(**fields):
        return SimpleNamespace(model_dump=lambda **_: fields)

    content = sdk_object(role="model", parts=[{"text": "Hello."}])
    assert open_payload([content, content]).codec is gemini
    blocks = [{"type": "output_text", "text": "Hello."}]
    output = sdk_object(type="message", role="assistant", content=blocks)
    question = {"role": "user", "content": "Hi."}
    assert open_payload([question, output, question]).codec is openai_responses
    with pytest.raises(FormatError, match="entry 1 is a string"):
        open_payload([content, "Go on."])


# --- writing ----------------------------------------------------------------------------------


def test_cache_marks_and_unknown_fields_are_kept_by_an_edit():
    mark = {"type": "ephemeral"}
    long = {"type": "text", "text": "long", "cache_control": mark}
    result = {
        "type": "tool_result",
        "tool_use_id": "c",
        "content": [long, {"type": "text", "text": "b"}],
        "x": 1,
        "cache_control": mark,
    }
    item = {"role": "user", "content": [result, {"type": "text", "text": "q"}], "y": 2}
    new = Message("user", (ToolResult("c", (Text("short"), Text("b"))), Text("q")))
    out = anthropic.patch(item, new)
    assert out == {
        "role": "user",
        "content": [
            {**result, "content": [{**long, "text": "short"}, result["content"][1]]},
            item["content"][1],
        ],
        "y": 2,
    }
    assert out["content"][1] is item["content"][1]
    assert out["content"][0]["content"][1] is result["content"][1]
    assert item["content"][0]["content"][0]["text"] == "long"


def test_removed_thinking_is_not_written():
    item = {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "a", "signature": "s"},
            {"type": "text", "text": "t"},
        ],
    }
    assert anthropic.patch(item, Message("assistant", (Text("t"),)))["content"] == [
        item["content"][1]
    ]
    chat = {"role": "assistant", "reasoning": "a", "reasoning_content": "a", "content": "t", "z": 0}
    assert openai_chat.patch(chat, Message("assistant", (Text("t"),))) == {
        "role": "assistant",
        "content": "t",
        "z": 0,
    }
    contents = {
        "role": "model",
        "parts": [
            {"text": "a", "thought": True},
            {"functionCall": {"name": "f"}, "thoughtSignature": "s"},
        ],
    }
    assert gemini.patch(contents, Message("assistant", (ToolCall("7.0", "f", "{}"),)))["parts"] == [
        contents["parts"][1]
    ]


def test_edited_arguments_are_written_in_the_type_of_each_format():
    stub = '{"cleared":true}'
    new = Message("assistant", (ToolCall("c1", "f", stub),))
    chat = openai_chat.patch(
        {"role": "assistant", "content": None, "tool_calls": [{**CALL, "x": 1}]}, new
    )
    assert chat == {
        "role": "assistant",
        "content": None,
        "tool_calls": [{**CALL, "x": 1, "function": {"name": "f", "arguments": stub}}],
    }
    legacy = {
        "role": "assistant",
        "content": None,
        "function_call": {"name": "f", "arguments": "{}"},
    }
    assert openai_chat.patch(legacy, new)["function_call"] == {"name": "f", "arguments": stub}
    objects = {
        "role": "assistant",
        "tool_calls": [{**CALL, "function": {"name": "f", "arguments": {"a": 1}}}],
    }
    assert openai_chat.patch(objects, new)["tool_calls"][0]["function"]["arguments"] == {
        "cleared": True
    }
    blocks = {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}}],
    }
    assert anthropic.patch(blocks, new)["content"][0]["input"] == {"cleared": True}
    item = {"type": "function_call", "call_id": "c1", "id": "i", "name": "f", "arguments": "{}"}
    assert openai_responses.patch(item, new) == {**item, "arguments": stub}
    snake = {
        "role": "model",
        "parts": [
            {"function_call": {"name": "f", "args": {"a": 1}, "id": "w"}, "thought_signature": "s"}
        ],
    }
    call = {"name": "f", "args": {"cleared": True}, "id": "w"}
    assert gemini.patch(snake, new)["parts"] == [{"function_call": call, "thought_signature": "s"}]


def test_an_edited_gemini_response_keeps_its_other_fields():
    response = {
        "name": "f",
        "response": {"name": "f", "content": "long", "exit": 0},
        "id": "w",
        "parts": [{"inlineData": {"data": "AA==", "mimeType": "image/png"}}],
    }
    item = {"role": "user", "parts": [{"functionResponse": response}]}
    (old,) = read(gemini, item).parts
    new = ToolResult(old.id, (Text("short"), *old.content[1:]), name="f")
    out = gemini.patch(item, Message("user", (new,)))
    assert out["parts"] == [
        {"functionResponse": {**response, "response": {"name": "f", "content": "short", "exit": 0}}}
    ]
    assert read(gemini, out).parts == (new,)
    bare = gemini.patch(item, Message("user", (ToolResult(old.id, (Text("gone"),), name="f"),)))
    assert read(gemini, bare).parts[0].content == (Text("gone"),)


def test_embedded_media_keep_their_bytes_or_are_refused():
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
    item = {"role": "user", "content": [{"type": "text", "text": "look"}, image]}
    (text, seen) = read(anthropic, item).parts
    assert anthropic.patch(item, Message("user", (Text("see"), seen)))["content"][1] is image
    for codec in CODECS:
        with pytest.raises(FormatError):
            codec.encode(Message("user", (text, seen)))


@pytest.mark.parametrize(
    ("codec", "first", "second", "merged"),
    [
        (anthropic, {"role": "user", "content": "a"}, {"role": "user", "content": [{"type": "text", "text": "b"}], "x": 1}, {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}),
        (gemini, {"role": "user", "parts": [{"text": "a"}]}, {"role": "user", "parts": [{"text": "b"}]}, {"role": "user", "parts": [{"text": "a"}, {"text": "b"}]}),
        (openai_chat, {"role": "user", "content": "a"}, {"role": "user", "content": "b"}, {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}),
        (openai_chat, {"role": "assistant", "content": "a"}, {"role": "assistant", "content": None, "tool_calls": [CALL]}, {"role": "assistant", "content": "a", "tool_calls": [CALL]}),
        (openai_responses, "a", {"role": "user", "content": "b"}, {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]}),
    ],
)  # fmt: skip
def test_neighbouring_entries_of_one_role_are_merged(
    codec: object, first: object, second: object, merged: object
):
    assert codec.merge(first, second) == merged
    joined = (*codec.decode(first, []).parts, *codec.decode(second, []).parts)
    assert codec.decode(merged, []).parts == joined


def test_c3_merged_chat_messages_of_two_senders_say_who_wrote_what():
    """The first name stood for both: Ben's words were Anna's, and a summary a person's."""
    anna, ben = (
        {"role": "user", "name": name, "content": f"I am {name}"} for name in ("Anna", "Ben")
    )
    merged = openai_chat.merge(openai_chat.merge({"role": "user", "content": "Summary"}, anna), ben)
    texts = [block["text"] for block in merged.pop("content")]
    assert texts == ["Summary", "Anna:", "I am Anna", "Ben:", "I am Ben"]
    assert merged == {"role": "user"}
    same = openai_chat.merge(anna, {**anna, "content": "I go"})
    assert same["name"] == "Anna" and len(same["content"]) == 2
    silent = openai_chat.merge({**anna, "content": ""}, ben)
    assert [block["text"] for block in silent["content"]] == ["Ben:", "I am Ben"]


def test_messages_that_do_not_fit_in_one_entry_are_refused():
    both = Message("assistant", (Text("a"), ToolCall("c", "f", "{}")))
    result = ToolResult("c", (Text("x"),))
    refused = [
        (openai_responses, both),
        (openai_chat, Message("tool", (result, result))),
        (openai_chat, Message("user", (result,))),
    ]
    for codec, message in refused:
        with pytest.raises(FormatError):
            codec.encode(message)
    with pytest.raises(FormatError):
        openai_chat.merge(
            {"role": "tool", "tool_call_id": "a"}, {"role": "tool", "tool_call_id": "b"}
        )
    with pytest.raises(FormatError):
        openai_responses.merge({"type": "reasoning"}, {"type": "reasoning"})


def test_a_tool_search_run_by_the_api_stays_in_the_models_turn():
    """Such a pair has no `call_id`, and the reasoning before it belongs to what follows, too."""
    search = {"type": "tool_search_call", "id": "s", "call_id": None, "execution": "server"}
    loaded = {"type": "tool_search_output", "id": "o", "call_id": None, "tools": []}
    items = [
        {"role": "user", "content": "Go."},
        {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "e"},
        search,
        loaded,
        {"type": "function_call", "id": "f", "call_id": "c", "name": "list", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "done"},
    ]
    messages = open_payload({"input": items}).decode()
    assert [m.role for m in messages[2:4]] == ["assistant", "assistant"]
    assert openai_responses.rules({}).cuts(messages) == {0, 1, 6}
    assert openai_responses.rules({}).cuts([messages[0], *messages[2:4]]) == {0, 1, 3}
    assert openai_responses.rules({}).check(messages) == ()
