"""Bedrock's Converse: requests and answers of boto3, moved cache points, and the rules.

Output is validated against the service description that boto3 ships.
"""

from base64 import b64encode
from collections.abc import Sequence
from copy import deepcopy
from functools import cache
from typing import Any

import botocore.session
import pytest
from botocore.model import Shape
from botocore.validate import ParamValidator

import refold
from refold import Budget, Compactor, Transcript, check, repair
from refold.codecs import bedrock
from refold.codecs.detect import open_payload
from refold.messages import Media, Opaque, Text, Thinking, ToolCall, ToolResult
from refold.retrieval.tools import read_call, recall_tools
from refold.strategies import ClearToolResults, Summarize

CLAUDE = "us.anthropic.claude-opus-5-5-v1:0"
MARK = {"cachePoint": {"type": "default"}}
PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x05\x00\x00\x00\x07"
IMAGE = {"image": {"format": "png", "source": {"bytes": PNG}}}
TOOL = {"toolSpec": {"name": "read", "inputSchema": {"json": {"type": "object"}}}}


@cache
def converse() -> Shape:
    service = botocore.session.get_session().get_service_model("bedrock-runtime")
    return service.operation_model("Converse").input_shape


def assert_boto3_takes(body: dict[str, Any]) -> None:
    report = ParamValidator().validate(body, converse())
    assert not report.has_errors(), report.generate_report()


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def model(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def text(value: str) -> dict[str, Any]:
    return {"text": value}


def use(id: str) -> dict[str, Any]:
    return {"toolUse": {"toolUseId": id, "name": "read", "input": {"path": f"{id}.py"}}}


def tool_result(id: str, *content: Any, **fields: Any) -> dict[str, Any]:
    return {"toolResult": {"toolUseId": id, "content": list(content or [text("x")]), **fields}}


def reasoning(signature: str) -> dict[str, Any]:
    return {"reasoningContent": {"reasoningText": {"text": "hm", "signature": signature}}}


def request(turns: int = 12, model_id: str = CLAUDE) -> dict[str, Any]:
    """Return a request of a tool loop: parallel calls, an image, an error, thinking, also
    redacted."""
    messages = [user(text("Mend the build."), MARK)]
    for n in range(turns):
        a, b = f"a{n}", f"b{n}"
        redacted = {"reasoningContent": {"redactedContent": bytes([n, 255])}}
        messages += [
            model(reasoning(f"s{n}"), redacted, text(f"Step {n}."), use(a), use(b)),
            user(
                tool_result(a, text("line of output\n" * 80), IMAGE),
                tool_result(b, {"json": {"code": n}}, status="error"),
                MARK,
            ),
        ]
    config = {"tools": [TOOL, MARK]}
    return {
        "modelId": model_id,
        "system": [text("Be brief."), MARK],
        "messages": messages,
        "toolConfig": config,
    }


# --- reading and writing ----------------------------------------------------------------------


def test_every_kind_of_block_is_read() -> None:
    payload = open_payload(request(1))
    asked, answered, results = payload.decode()
    assert payload.codec.NAME == "bedrock"
    assert (payload.system, len(payload.tools)) == ((Text("Be brief."),), 1)
    assert asked.parts == (Text("Mend the build."),)
    assert answered.parts[:3] == (Thinking("hm", "s0"), Thinking("", "AP8="), Text("Step 0."))
    assert answered.parts[3] == ToolCall("a0", "read", '{"path":"a0.py"}')
    first, second = results.parts
    assert isinstance(first, ToolResult) and isinstance(first.content[1], Media)
    assert (first.content[1].width, first.content[1].height) == (5, 7)
    assert second == ToolResult("b0", (Text('{"code":0}'),), error=True)


def test_blocks_that_only_converse_has_are_read() -> None:
    server = {"toolUse": {"toolUseId": "s", "name": "n", "input": {}, "type": "server_tool_use"}}
    grounding = {"toolResult": {"toolUseId": "s", "content": [], "type": "grounding_result"}}
    cited = {"citationsContent": {"content": [text("as "), text("it says")], "citations": [{}]}}
    guarded = {"guardContent": {"text": {"text": "hi", "qualifiers": ["query"]}}}
    video = {"video": {"format": "mp4", "source": {"s3Location": {"uri": "s3://b/v.mp4"}}}}
    note = {"document": {"name": "n", "source": {"text": "words"}}}
    items = [user(guarded, video, note), model(server, grounding, cited)]
    first, second = open_payload(items).decode()
    assert first.parts[0] == Text("hi")
    assert isinstance(first.parts[1], Media) and first.parts[1].ref == "s3://b/v.mp4"
    assert isinstance(first.parts[2], Opaque) and first.parts[2].kind == "document"
    assert (second.calls, second.results, second.text) == (("s",), ("s",), "as it says")


def test_bytes_and_base64_text_have_the_same_tips() -> None:
    """boto3 takes bytes, HTTP requests have base64 text."""

    def as_wire(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: as_wire(item) for key, item in value.items()}
        if isinstance(value, list):
            return list(map(as_wire, value))
        return b64encode(value).decode() if isinstance(value, bytes) else value

    assert tips(request()["messages"]) == tips(as_wire(request()["messages"]))


def tips(messages: Sequence[Any]) -> list[str]:
    return list(Transcript.of(open_payload(messages).decode()).tips)


def test_cache_points_change_no_tip_and_are_kept_in_place_by_edits() -> None:
    marked = request(3)["messages"]
    bare = [{**m, "content": [b for b in m["content"] if b != MARK]} for m in marked]
    assert tips(marked) == tips(bare)
    item = user(text("a"), MARK, text("b"), MARK)
    (message,) = open_payload([item]).decode()
    new = refold.Message("user", (Text("A"), Text("b")))
    assert bedrock.patch(item, message) is item
    assert bedrock.patch(item, new)["content"] == [text("A"), MARK, text("b"), MARK]
    last = refold.Message("user", (Text("b"),))
    assert bedrock.patch(item, last)["content"] == [text("b"), MARK]


@pytest.mark.parametrize(
    "strategy", [ClearToolResults(keep=3), Summarize(keep=6)], ids=lambda s: type(s).__name__
)
def test_a_compacted_request_is_valid_for_boto3_and_the_rules(strategy: Any) -> None:
    body = request(30)
    before = deepcopy(body)
    assert_boto3_takes(body)
    compact = Compactor([strategy], Budget(8_000, 4_000))
    view = compact(body)
    assert view.tokens < compact.show(body).revert().tokens
    assert view.profile.model == CLAUDE
    assert body == before
    sent = view.payload
    assert_boto3_takes(sent)
    assert check(sent) == () == check(sent, before=body)
    assert sent["messages"][-1] is body["messages"][-1]
    grown = {**body, "messages": [*body["messages"], model(text("Done.")), user(text("And now?"))]}
    again = compact(grown).payload
    assert again["messages"][: len(sent["messages"])] == sent["messages"]
    assert check(again, before=sent) == ()


def test_a_json_result_that_is_edited_becomes_a_text() -> None:
    item = user(tool_result("a", {"json": {"x": 1}}))
    new = refold.Message("user", (ToolResult("a", (Text("[cleared]"),)),))
    assert bedrock.patch(item, new) == user(tool_result("a", text("[cleared]")))


# --- the rules --------------------------------------------------------------------------------


def rules_broken(*messages: dict[str, Any], **body: Any) -> list[tuple[str, int]]:
    payload = {**body, "messages": list(messages)} if body else list(messages)
    return [(v.rule, v.at) for v in check(payload, "bedrock")]


def test_requests_that_converse_refuses_are_reported() -> None:
    assert rules_broken(user(text("1")), model(use("a")), user(text("2"))) == [("BR-1", 1)]
    assert rules_broken(user(text("1")), model(text("2")), user(tool_result("a"))) == [("BR-2", 2)]
    assert rules_broken(model(text("1"))) == [("BR-4", 0)]
    assert rules_broken(user(text("1")), user(text("2"))) == [("BR-4", 1)]
    assert rules_broken(user(text("1")), model(text(" "))) == [("BR-5", 1)]
    calls = user(text("1")), model(use("a"))
    assert rules_broken(*calls, user(tool_result("a", text("")))) == [("BR-6", 2)]
    failed = {"toolResult": {"toolUseId": "a", "content": [], "status": "error"}}
    assert rules_broken(*calls, user(failed)) == [("BR-6", 2)]
    assert rules_broken(*calls, user(tool_result("a")), modelId=CLAUDE) == [("BR-7", 0)]
    assert (
        rules_broken(*calls, user(tool_result("a")), modelId=CLAUDE, toolConfig={"tools": [TOOL]})
        == []
    )
    note = {"document": {"name": "n", "format": "pdf", "source": {"bytes": b"%PDF"}}}
    assert rules_broken(user(note)) == [("BR-8", 0)]
    assert rules_broken(user(note, text("Read this."))) == []
    server = {"toolUse": {"toolUseId": "s", "name": "n", "input": {}, "type": "server_tool_use"}}
    assert rules_broken(user(text("1")), model(server), user(text("2"))) == [("BR-3", 1)]


def test_a_broken_request_is_repaired() -> None:
    broken = [user(text("1")), user(text("2")), model(use("a"), use("b")), user(tool_result("b"))]
    broken += [user(tool_result("a"), text("go on"))]
    fixed = repair(broken, "bedrock")
    assert fixed.remaining == ()
    assert fixed.payload == [
        user(text("1"), text("2")),
        model(use("a"), use("b")),
        user(tool_result("a"), tool_result("b"), text("go on")),
    ]
    assert_boto3_takes({"modelId": CLAUDE, "messages": fixed.payload})


@pytest.mark.parametrize(
    ("name", "thinking"),
    [
        (CLAUDE, "bound"),
        ("anthropic.claude-sonnet-4-5-20250929-v1:0", "loop"),
        ("amazon.nova-pro-v1:0", "free"),
        ("us.deepseek.r1-v1:0", "fixed"),
        (
            "arn:aws:bedrock:us-east-1:1:inference-profile/us.anthropic.claude-opus-5-5-v1:0",
            "bound",
        ),
        ("arn:aws:bedrock:us-east-1:1:application-inference-profile/abc123", "unsure"),
        ("arn:aws:bedrock:us-east-1::foundation-model/amazon.nova-pro-v1:0", "free"),
        (None, "unsure"),
    ],
)
def test_the_binding_of_thinking_depends_on_the_model_id(name: Any, thinking: str) -> None:
    assert bedrock.rules({"modelId": name}).thinking == thinking


def test_signed_thinking_after_a_changed_prefix_is_reported() -> None:
    before = request(3)
    after = deepcopy(before)
    after["messages"][0]["content"][0]["text"] = "Something else."
    assert {v.rule for v in check(after, before=before)} == {"AN-7"}
    asks = {"thinking": {"block_binding": {"prefix_mismatch_behavior": "drop_block"}}}
    assert check({**after, "additionalModelRequestFields": asks}, before=before) == ()


# --- recall -----------------------------------------------------------------------------------


def test_recall_tools_calls_and_answers_are_valid_for_boto3() -> None:
    tools = recall_tools("bedrock")
    body = {**request(1), "toolConfig": {"tools": tools}}
    assert_boto3_takes(body)
    wire = {"toolUse": {"toolUseId": "r", "name": "recall", "input": {"query": "x"}}}
    call = read_call(wire)
    assert call is not None and call.arguments == {"query": "x"}
    assert_boto3_takes({**body, "messages": [user(call.answer("nothing", True))]})
