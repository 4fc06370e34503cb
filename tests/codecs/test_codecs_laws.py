"""Laws of every codec for any entry: patches change what they should and nothing else."""

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.codecs import anthropic, bedrock, gemini, openai_chat, openai_responses
from refold.codecs.detect import CODECS, open_payload
from refold.errors import FormatError
from refold.messages import Message, Part, Text, Thinking, ToolCall, ToolResult
from refold.text.json_values import canonicalize
from refold.transcript import Transcript

WORDS = st.text(st.characters(), min_size=1, max_size=8)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
EXTRA = st.dictionaries(st.sampled_from(["x", "y"]), SCALARS, max_size=1)
OBJECTS = st.dictionaries(WORDS, SCALARS | st.lists(SCALARS, max_size=2), max_size=3)
IDS = st.sampled_from(["c1", "c2", "c3"])


def record(required: dict, **optional: st.SearchStrategy) -> st.SearchStrategy[dict]:
    """Return a strategy for JSON objects with these fields, optional and unknown ones."""
    fixed = st.fixed_dictionaries(
        {
            key: value if isinstance(value, st.SearchStrategy) else st.just(value)
            for key, value in required.items()
        },
        optional=optional,
    )
    return st.tuples(EXTRA, fixed).map(lambda pair: {**pair[0], **pair[1]})


MARK = {"cache_control": st.just({"type": "ephemeral"})}
TEXT = record({"type": "text", "text": WORDS}, **MARK)
IMAGE = record(
    {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="},
    },
    **MARK,
)
SEARCH = record({"type": "search_result", "title": WORDS}, **MARK)
CONTENT = WORDS | st.lists(TEXT | IMAGE | SEARCH, max_size=3)
BLOCK = st.one_of(
    TEXT,
    IMAGE,
    record({"type": "thinking", "thinking": st.text(max_size=4), "signature": WORDS}),
    record({"type": "redacted_thinking", "data": WORDS}),
    record({"type": "tool_use", "id": IDS, "name": WORDS, "input": OBJECTS}, **MARK),
    record(
        {"type": "tool_result", "tool_use_id": IDS}, content=CONTENT, is_error=st.booleans(), **MARK
    ),
    record({"type": "server_tool_use", "id": IDS, "name": WORDS, "input": OBJECTS}),
    record({"type": "web_search_tool_result", "tool_use_id": IDS, "content": st.just([])}),
)
ANTHROPIC = record(
    {
        "role": st.sampled_from(["user", "assistant", "system"]),
        "content": WORDS | st.lists(BLOCK, max_size=4),
    }
)

CHAT_BLOCK = st.one_of(
    TEXT,
    record({"type": "image_url", "image_url": {"url": "https://x/y.png"}}),
    record({"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}),
    record({"type": "refusal", "refusal": WORDS}),
)
JSON_TEXT = st.builds(json.dumps, OBJECTS, indent=st.sampled_from([None, 1])) | WORDS
CALL = st.one_of(
    record(
        {
            "id": IDS,
            "type": "function",
            "function": record({"name": WORDS, "arguments": JSON_TEXT | OBJECTS}),
        }
    ),
    record({"id": IDS, "type": "custom", "custom": record({"name": WORDS, "input": WORDS})}),
)
CHAT_CONTENT = st.none() | st.text(max_size=8) | st.lists(CHAT_BLOCK, max_size=3)
CHAT = st.one_of(
    record({"role": "user", "content": CHAT_CONTENT}, name=WORDS),
    record(
        {"role": "assistant"},
        content=CHAT_CONTENT,
        tool_calls=st.lists(CALL, min_size=1, max_size=3),
        reasoning_content=st.text(max_size=4),
        reasoning=st.text(max_size=4),
        reasoning_details=st.lists(OBJECTS, max_size=2),
        refusal=st.none() | WORDS,
        audio=st.none() | st.just({"id": "a"}),
    ),
    record(
        {"role": "assistant", "function_call": record({"name": WORDS, "arguments": JSON_TEXT})},
        content=st.none(),
    ),
    record(
        {
            "role": "tool",
            "tool_call_id": IDS,
            "content": st.text(max_size=8) | st.lists(TEXT, max_size=3),
        },
        name=WORDS,
    ),
    record({"role": "function", "name": WORDS, "content": WORDS}),
)

TEXT_PARTS = st.lists(
    record({"type": st.sampled_from(["input_text", "output_text", "text"]), "text": WORDS}),
    max_size=3,
)
RESPONSES = st.one_of(
    WORDS,
    record(
        {
            "role": st.sampled_from(["user", "assistant", "developer"]),
            "content": WORDS | TEXT_PARTS,
        },
        type=st.just("message"),
        id=WORDS,
    ),
    record(
        {"type": "reasoning", "summary": TEXT_PARTS},
        content=st.none() | TEXT_PARTS,
        encrypted_content=st.none() | WORDS,
        id=WORDS,
    ),
    record(
        {"type": "function_call", "call_id": IDS, "name": WORDS, "arguments": JSON_TEXT},
        namespace=WORDS,
    ),
    record({"type": "custom_tool_call", "call_id": IDS, "name": WORDS, "input": WORDS}),
    record(
        {"type": "local_shell_call", "call_id": IDS, "action": OBJECTS}, status=st.just("completed")
    ),
    record(
        {
            "type": st.sampled_from(["function_call_output", "custom_tool_call_output"]),
            "call_id": IDS,
            "output": WORDS | TEXT_PARTS,
        }
    ),
    record(
        {
            "type": st.sampled_from(
                ["shell_call", "shell_call_output", "item_reference", "compaction"]
            ),
            "call_id": IDS,
        }
    ),
)


def either(camel: str, snake: str, value: st.SearchStrategy) -> st.SearchStrategy[dict]:
    return st.sampled_from([camel, snake]).flatmap(
        lambda key: record({key: value}, thoughtSignature=WORDS)
    )


ANSWERS = st.dictionaries(st.sampled_from(["output", "error", "name", "exit"]), SCALARS, max_size=3)
GEMINI_PART = st.one_of(
    record({"text": WORDS}, thought=st.booleans(), thoughtSignature=WORDS),
    either("functionCall", "function_call", record({"name": WORDS}, args=OBJECTS, id=WORDS)),
    either(
        "functionResponse", "function_response", record({"name": WORDS}, response=ANSWERS, id=WORDS)
    ),
    either("inlineData", "inline_data", st.just({"mimeType": "image/png", "data": "iVBORw0KGgo="})),
    record({"executableCode": OBJECTS}),
)
GEMINI = record(
    {"role": st.sampled_from(["user", "model"]), "parts": st.lists(GEMINI_PART, max_size=4)}
)


def member(name: str, value: st.SearchStrategy | dict) -> st.SearchStrategy[dict]:
    return record({name: value})


SOURCE = {"source": {"bytes": b"\x89PNG\r\n\x1a\n"}}
CONVERSE_TEXT = member("text", WORDS)
CONVERSE_MEDIA = st.one_of(
    member("image", record({"format": "png", **SOURCE})),
    member("document", record({"format": "pdf", "name": WORDS, **SOURCE})),
    member("document", record({"name": WORDS, "source": {"text": "words"}})),
    member("video", record({"format": "mp4", "source": {"s3Location": {"uri": "s3://b/v"}}})),
)
CONVERSE_CONTENT = st.lists(
    CONVERSE_TEXT | CONVERSE_MEDIA | member("json", OBJECTS) | member("searchResult", OBJECTS),
    max_size=3,
)
CONVERSE_BLOCK = st.one_of(
    CONVERSE_TEXT,
    CONVERSE_MEDIA,
    st.just({"cachePoint": {"type": "default"}}),
    member("reasoningContent", {"reasoningText": {"text": "hm", "signature": "sig"}}),
    member("reasoningContent", {"redactedContent": b"\x00\xff"}),
    member("guardContent", {"text": {"text": "mind this", "qualifiers": ["query"]}}),
    member("citationsContent", {"content": [{"text": "as it says"}], "citations": [{}]}),
    member("toolUse", record({"toolUseId": IDS, "name": WORDS, "input": OBJECTS})),
    member("toolUse", {"toolUseId": "s1", "name": "n", "input": {}, "type": "server_tool_use"}),
    member(
        "toolResult",
        record(
            {"toolUseId": IDS, "content": CONVERSE_CONTENT},
            status=st.sampled_from(["success", "error"]),
        ),
    ),
)
BEDROCK = record(
    {
        "role": st.sampled_from(["user", "assistant", "system"]),
        "content": st.lists(CONVERSE_BLOCK, max_size=4),
    }
)

ITEMS = [
    (anthropic, ANTHROPIC),
    (openai_chat, CHAT),
    (openai_responses, RESPONSES),
    (gemini, GEMINI),
    (bedrock, BEDROCK),
]
NAMED = pytest.mark.parametrize(("codec", "items"), ITEMS, ids=[codec.NAME for codec, _ in ITEMS])


@NAMED
@given(st.data())
def test_patching_with_the_same_message_returns_the_same_object(
    codec: object, items: st.SearchStrategy, data: st.DataObject
):
    item = data.draw(items)
    before = repr(item)
    message = codec.decode(item, ())
    assert codec.patch(item, message) is item
    assert repr(item) == before


def edit_part(part: Part, text: str) -> Part:
    """Edit a part as strategies do: ids, media and unknown fields stay."""
    match part:
        case Text():
            return Text(text)
        case ToolCall():
            return replace(part, arguments=canonicalize({"stub": text}))
        case ToolResult():
            return replace(part, content=tuple(edit_part(inner, text) for inner in part.content))
    return part


@NAMED
@given(st.data(), WORDS)
def test_an_edited_message_is_read_back_as_written(
    codec: object, items: st.SearchStrategy, data: st.DataObject, text: str
):
    item = data.draw(items)
    message = codec.decode(item, ())
    new = Message(
        message.role,
        tuple(
            edit_part(part, text) if data.draw(st.booleans()) else part for part in message.parts
        ),
    )
    before = repr(item)
    out = codec.patch(item, new)
    assert codec.decode(out, ()) == new
    assert repr(item) == before
    if isinstance(item, dict):
        assert list(out)[: len(item)] == list(item)


@NAMED
@given(st.data())
def test_removed_parts_are_not_read_back(
    codec: object, items: st.SearchStrategy, data: st.DataObject
):
    item = data.draw(items)
    message = codec.decode(item, ())
    gone = data.draw(st.sampled_from([Thinking, Text]))
    rest = Message(
        message.role, tuple(part for part in message.parts if not isinstance(part, gone))
    )
    if rest.parts or message.parts == rest.parts:
        out = codec.decode(codec.patch(item, rest), ())
        assert [_anonymous(part) for part in out.parts] == [_anonymous(part) for part in rest.parts]


def _anonymous(part: Part) -> Part:
    """Remove ids: Gemini derives those of calls from their position."""
    return replace(part, id="") if isinstance(part, ToolCall | ToolResult) else part


@NAMED
@given(st.data(), WORDS)
def test_the_content_of_a_result_can_be_replaced_by_one_text(
    codec: object, items: st.SearchStrategy, data: st.DataObject, text: str
):
    item = data.draw(items)
    message = codec.decode(item, ())
    parts = (
        replace(p, content=(Text(text),)) if isinstance(p, ToolResult) else p for p in message.parts
    )
    new = Message(message.role, tuple(parts))
    assert codec.decode(codec.patch(item, new), ()) == new


@NAMED
@given(st.data())
def test_two_entries_are_merged_without_loss_or_refused(
    codec: object, items: st.SearchStrategy, data: st.DataObject
):
    first, second = data.draw(items), data.draw(items)
    parts = [_anonymous(part) for item in (first, second) for part in codec.decode(item, ()).parts]
    try:
        merged = codec.decode(codec.merge(first, second), ())
    except FormatError:
        assert codec in {openai_chat, openai_responses}
        return
    if codec in {anthropic, gemini, bedrock}:
        assert [_anonymous(part) for part in merged.parts] == parts


OURS = st.one_of(
    st.builds(Text, WORDS), st.builds(ToolCall, st.just("0.0"), WORDS, OBJECTS.map(canonicalize)),
)  # fmt: skip
RESULT = st.builds(
    ToolResult, st.just("?0.0"), st.lists(st.builds(Text, WORDS), max_size=1).map(tuple), name=WORDS
)


@NAMED
@given(st.data())
def test_a_newly_encoded_message_is_read_back_as_written(
    codec: object, items: st.SearchStrategy, data: st.DataObject
):
    most = 1 if codec is openai_responses else 3
    texts = data.draw(st.lists(st.builds(Text, WORDS), min_size=1, max_size=most))
    messages = [Message("user", tuple(texts)), Message("assistant", (data.draw(OURS),))]
    result = data.draw(RESULT)
    role = "user" if codec in {anthropic, gemini, bedrock} else "tool"
    messages.append(Message(role, (result,)))
    for message in messages:
        again = codec.decode(codec.encode(message), ())
        assert [_drop_name(part) for part in again.parts] == [
            _drop_name(part) for part in message.parts
        ]
        assert again.role == message.role


def _drop_name(part: Part) -> Part:
    """Remove the tool's name from results, which not every format has."""
    return replace(part, name="") if isinstance(part, ToolResult) else part


# --- anything at all --------------------------------------------------------------------------

KEYS = st.sampled_from(
    [
        "role",
        "content",
        "type",
        "text",
        "parts",
        "tool_calls",
        "function_call",
        "function",
        "name",
        "arguments",
        "id",
        "call_id",
        "output",
        "input",
        "tool_use_id",
        "thinking",
        "signature",
        "source",
        "data",
        "url",
        "image_url",
        "functionCall",
        "functionResponse",
        "response",
        "args",
        "inlineData",
        "mimeType",
        "reasoning_content",
        "reasoning_details",
        "summary",
        "encrypted_content",
        "refusal",
        "audio",
        "file",
        "custom",
        "action",
        "tools",
        "is_error",
        "toolUse",
        "toolUseId",
        "toolResult",
        "status",
        "json",
        "image",
        "format",
        "bytes",
        "reasoningContent",
        "reasoningText",
        "cachePoint",
        "guardContent",
        "citationsContent",
        "toolConfig",
    ]
)
ATOMS = SCALARS | st.sampled_from(
    [
        "user",
        "assistant",
        "system",
        "developer",
        "tool",
        "function",
        "model",
        "text",
        "thinking",
        "tool_use",
        "tool_result",
        "image",
        "document",
        "base64",
        "url",
        "message",
        "reasoning",
        "function_call",
        "function_call_output",
        "local_shell_call",
        "image_url",
        "input_audio",
        "file",
        "refusal",
    ]
)
ANY = st.recursive(
    ATOMS, lambda v: st.lists(v, max_size=3) | st.dictionaries(KEYS, v, max_size=5), max_leaves=20
)


@given(st.lists(ANY, max_size=4), st.dictionaries(KEYS | st.just("model"), ANY, max_size=3))
def test_any_json_is_read_or_refused(items: list, body: dict):
    for payload in (
        items,
        *({**body, field: items} for field in ("messages", "input", "contents")),
    ):
        for format in (None, *(codec.NAME for codec in CODECS)):
            try:
                envelope = open_payload(payload, format)
                messages = envelope.decode()
            except FormatError:
                continue
            assert len(Transcript.of(messages)) == len(envelope)
            assert isinstance(envelope.system, tuple)
            assert isinstance(envelope.tools, tuple)
            codec: object = envelope.codec
            assert codec.rules(envelope.body).thinking
            for item, message in zip(envelope.iter_entries(), messages, strict=True):
                assert codec.patch(item, message) is item


@given(ANY, st.sampled_from(CODECS))
def test_any_json_is_edited_or_refused(item: object, codec: object):
    try:
        message = codec.decode(item, ())
        out = codec.patch(item, Message(message.role, (Text("new"),)))
        codec.decode(out, ())
        codec.decode(codec.merge(item, item), ())
    except FormatError:
        return


@given(st.lists(st.sampled_from("fgh"), max_size=5), st.lists(st.sampled_from("fghx"), max_size=6))
def test_gemini_results_without_ids_are_paired_with_one_call_each(
    calls: Sequence[str], answers: Sequence[str]
):
    model = {"role": "model", "parts": [{"functionCall": {"name": name}} for name in calls]}
    given_back = {
        "role": "user",
        "parts": [{"functionResponse": {"name": name}} for name in answers],
    }
    asking, answering = open_payload({"contents": [model, given_back]}).decode()
    assert len(set(answering.results)) == len(answers)
    assert len(set(answering.results) & set(asking.calls)) == min(len(calls), len(answers))
