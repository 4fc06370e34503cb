"""LangChain's messages as a wire format: what is not touched is the same object, what is touched keeps the rest."""

import asyncio
import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.callbacks import UsageMetadataCallbackHandler
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.tools import tool

from refold import Budget, Compactor, FormatError, check, compact, repair
from refold.adapters import langchain
from refold.adapters.langchain import ChatModel, decode, encode, merge, patch
from refold.core.strategy import Ask
from refold.errors import ModelNotNamed
from refold.messages import Media, Message, Opaque, Text, Thinking, ToolCall, ToolResult, user
from refold.strategies import ClearThinking, ClearToolInputs, ClearToolResults, Summarize
from refold.text.summary_wrapper import summary_in, wrap_summary

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAIAAAADCAIAAAA2iEnWAAAAEElEQVR4nGP8z8AARAAJAAEGAP8mCAAAAABJRU5ErkJggg=="
CALL = {"id": "c1", "name": "read", "args": {"path": "a.py", "lines": [1, 2]}, "type": "tool_call"}


def ai(*calls, content="", **fields):
    return AIMessage(content=content, tool_calls=list(calls), **fields)


def call_of(id, **args):
    return {"id": id, "name": "read", "args": args, "type": "tool_call"}


def one(item):
    return decode(item, ())


# --- reading --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("item", "role"),
    [
        (HumanMessage("hi"), "user"),
        (AIMessage("hi"), "assistant"),
        (AIMessageChunk(content="hi"), "assistant"),
        (SystemMessage("hi"), "system"),
        (ChatMessage("hi", role="user"), "user"),
        (ChatMessage("hi", role="developer"), "system"),
        (("human", "hi"), "user"),
        ({"role": "assistant", "content": "hi"}, "assistant"),
        ("hi", "user"),
    ],
)
def test_every_kind_of_message_is_decoded_with_its_role(item, role):
    """S0-02 S3-01: the kinds of messages that LangChain has, and what it takes for one."""
    assert one(item) == Message(role, (Text("hi"),))


def test_calls_results_and_errors_are_decoded():
    """S3-01: calls and results are separate messages, tied by their ids."""
    message = one(ai(CALL, content="Looking."))
    assert message.parts == (
        Text("Looking."),
        ToolCall("c1", "read", '{"lines":[1,2],"path":"a.py"}'),
    )
    result = one(
        ToolMessage("boom", tool_call_id="c1", status="error", name="read", artifact={"big": 1})
    )
    assert result == Message("tool", (ToolResult("c1", (Text("boom"),), error=True, name="read"),))


def test_a_call_is_read_once_though_anthropic_repeats_it_in_the_content():
    content = [
        {"type": "text", "text": "x"},
        {"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "a"}},
    ]
    assert one(ai(CALL, content=content)).calls == ("c1",)


def test_an_invalid_tool_call_is_decoded_as_a_call():
    bad = {
        "type": "invalid_tool_call",
        "id": "c9",
        "name": "read",
        "args": '{"path": ',
        "error": "eof",
    }
    message = one(AIMessage("", invalid_tool_calls=[bad]))
    assert message.parts == (ToolCall("c9", "read", '{"path": '),)


def test_legacy_function_calls_pair_by_order():
    call = AIMessage("", additional_kwargs={"function_call": {"name": "f", "arguments": "{}"}})
    first = one(call)
    assert first.calls == decode(FunctionMessage(name="f", content="1"), [first]).results


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
        {"type": "image_url", "image_url": f"data:image/png;base64,{PNG}"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
        {"type": "image", "source_type": "base64", "mime_type": "image/png", "data": PNG},
        {"type": "image", "base64": PNG, "mime_type": "image/png"},
        {"type": "media", "mime_type": "image/png", "data": PNG},
    ],
)
def test_an_image_is_decoded_equally_from_every_block_format(block):
    (part,) = one(HumanMessage([block])).parts
    assert (part.kind, part.mime, part.width, part.height) == ("image", "image/png", 2, 3)
    assert part.ref.startswith("blake2b:")


def test_other_media_are_decoded_with_their_reference():
    parts = one(
        HumanMessage(
            [
                {"type": "image", "url": "https://example.com/a.png"},
                {"type": "file", "file": {"file_id": "f1"}},
                {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
            ]
        )
    ).parts
    assert [type(part) for part in parts] == [Media, Media, Media]
    assert [part.kind for part in parts] == ["image", "document", "audio"]
    assert [part.ref for part in parts[:2]] == ["https://example.com/a.png", "f1"]


def test_thinking_is_decoded_from_every_field_that_may_hold_it():
    blocks = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "redacted_thinking", "data": "x"},
    ]
    assert one(AIMessage(blocks)).parts == (Thinking("hm", "s"), Thinking("", "x"))
    assert one(AIMessage("a", additional_kwargs={"reasoning_content": "why"})).parts == (
        Thinking("why"),
        Text("a"),
    )
    assert one(AIMessage([{"type": "reasoning", "reasoning": "r"}])).parts == (Thinking("r"),)


def test_a_server_tool_call_and_its_result_are_decoded_in_one_message():
    blocks = [
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []},
    ]
    message = one(AIMessage(blocks))
    assert (message.calls, message.results) == (("s1",), ("s1",))


def test_an_object_that_is_not_a_message_is_refused():
    with pytest.raises(FormatError, match="apply it first"):
        one(RemoveMessage(id="1"))
    with pytest.raises(FormatError, match="no LangChain message"):
        one(3.5)
    with pytest.raises(FormatError, match="entry 1"):
        check([HumanMessage("a"), RemoveMessage(id="1")], langchain)


# --- writing --------------------------------------------------------------------------------------


PARTS = st.one_of(
    st.builds(Text, st.text(min_size=1, max_size=9)),
    st.builds(Thinking, st.text(min_size=1, max_size=9), st.sampled_from(["", "sig"])),
    st.builds(
        Opaque,
        st.just("future"),
        st.sampled_from(['{"type":"future","x":1}', '{"type":"future","x":2}']),
    ),
)
CALLS = st.lists(
    st.sampled_from([ToolCall(f"c{n}", "read", f'{{"n":{n}}}') for n in range(3)]), unique=True
)


@st.composite
def messages(draw):
    parts, role = draw(st.lists(PARTS, max_size=4)), draw(st.sampled_from(["user", "assistant"]))
    return Message(role, (*parts, *(draw(CALLS) if role == "assistant" else ())))


@given(messages())
def test_an_encoded_message_decodes_to_the_same_message(message):
    assert one(encode(message)) == message


@given(messages(), messages())
def test_a_patched_message_has_the_new_parts_and_keeps_its_id_and_metadata(old, new):
    if old.role != new.role:
        return
    item = encode(old).model_copy(update={"id": "m1", "response_metadata": {"model_name": "x"}})
    after = patch(item, new)
    assert one(after) == new
    assert (after.id, after.response_metadata) == ("m1", {"model_name": "x"})
    assert one(item) == old


def test_a_removed_call_is_also_removed_from_content_and_additional_kwargs():
    """Neither in the content (Anthropic) nor in `additional_kwargs` (OpenAI): providers would want an answer."""
    content = [
        {"type": "text", "text": "x"},
        {"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "a"}},
        {"type": "tool_use", "id": "c2", "name": "read", "input": {"path": "b"}},
    ]
    raw = [
        {"id": id, "type": "function", "function": {"name": "read", "arguments": "{}"}}
        for id in ("c1", "c2")
    ]
    item = ai(
        call_of("c1", path="a"),
        call_of("c2", path="b"),
        content=content,
        additional_kwargs={"tool_calls": raw},
    )
    message = one(item)
    after = patch(item, Message("assistant", message.parts[:2]))
    assert [block.get("id") for block in after.content] == [None, "c1"]
    assert [call["id"] for call in after.additional_kwargs["tool_calls"]] == ["c1"]
    assert [call["id"] for call in after.tool_calls] == ["c1"]
    bare = patch(item, Message("assistant", message.parts[:1]))
    assert (bare.content, bare.tool_calls, bare.additional_kwargs) == ([content[0]], [], {})


def test_changed_arguments_are_also_changed_in_the_content_block():
    content = [{"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "a"}}]
    after = patch(
        ai(call_of("c1", path="a"), content=content),
        Message("assistant", (ToolCall("c1", "read", "{}"),)),
    )
    assert after.content[0]["input"] == {} == after.tool_calls[0]["args"]


def test_a_patched_result_keeps_artifact_and_id():
    item = ToolMessage(
        [{"type": "text", "text": "long"}], tool_call_id="c1", id="t", artifact={"rows": 3}
    )
    after = patch(item, Message("tool", (ToolResult("c1", (Text("short"),)),)))
    assert (after.content, after.id, after.artifact) == (
        [{"type": "text", "text": "short"}],
        "t",
        {"rows": 3},
    )
    assert item.content[0]["text"] == "long"


def test_summaries_are_marked_with_lc_source():
    assert encode(wrap_summary("All done.")).additional_kwargs == {"lc_source": "summarization"}
    assert encode(user("hello")).additional_kwargs == {}


def test_neighbours_of_one_role_can_be_merged_but_results_cannot():
    assert merge(HumanMessage("a", id="1"), HumanMessage("b", id="2")) == HumanMessage(
        "a\n\nb", id="1"
    )
    assert merge(ai(call_of("a")), AIMessage("x")).tool_calls == [call_of("a")]
    with pytest.raises(FormatError, match="cannot share"):
        merge(ToolMessage("a", tool_call_id="1"), ToolMessage("b", tool_call_id="2"))


def test_a_message_that_langchain_cannot_represent_is_refused():
    with pytest.raises(FormatError, match="tool's result"):
        encode(Message("assistant", (ToolResult("c1"),)))
    with pytest.raises(FormatError, match="exactly one"):
        encode(Message("tool", (Text("x"),)))
    with pytest.raises(FormatError, match="role"):
        encode(Message("critic", (Text("x"),)))


# --- with the rest of Refold ----------------------------------------------------------------------


def loop(rounds):
    """An agent's history, with ids and metadata as LangGraph and providers leave them."""
    out = [SystemMessage("You are a coder.", id="s"), HumanMessage("Mend the build.", id="h")]
    for n in range(rounds):
        out.append(
            ai(
                call_of(f"c{n}", path=f"src/{n}.py"),
                id=f"a{n}",
                response_metadata={"model_name": "m"},
            )
        )
        out.append(ToolMessage("line of code\n" * 80, tool_call_id=f"c{n}", id=f"t{n}"))
    return [*out, AIMessage("Done.", id="end"), HumanMessage("And now the docs.", id="h2")]


def test_a_compactor_takes_and_gives_langchain_messages():
    """S0-02 S0-42: untouched messages are the same objects; the system message stays at the head."""
    history = loop(12)
    view = Compactor([Summarize(keep=4)], Budget(1500, 1200), format=langchain)(history)
    sent = view.payload
    assert sent[0] is history[0]
    assert sent[-4:] == history[-4:]
    assert all(new is old for new, old in zip(sent[-4:], history[-4:], strict=True))
    assert summary_in(one(sent[1])) is not None
    assert check(sent, langchain) == ()
    assert view.tokens <= 1500


def test_cleared_results_keep_their_ids():
    history = loop(12)
    sent = Compactor(
        [ClearToolResults(keep=2), ClearToolInputs(keep=2)], Budget(500, 300), format=langchain
    )(history)
    cleared = [m for m in sent.payload if isinstance(m, ToolMessage) and len(m.content) < 500]
    assert len(cleared) == 10
    assert [m.id for m in sent.payload] == [m.id for m in history]
    assert check(sent.payload, langchain) == ()


def test_langchain_messages_without_the_format_argument_are_refused():
    for history in (loop(1), loop(1)[1:], {"messages": loop(1)}):
        with pytest.raises(FormatError, match=r"format=refold\.adapters\.langchain"):
            compact(history, 100)


def test_a_resent_history_starts_with_the_same_compacted_messages():
    compactor = Compactor([Summarize(keep=4)], Budget(1500, 1200), format=langchain)
    first = compactor(loop(12)).payload
    again = compactor([*loop(12), AIMessage("Written.", id="x")]).payload
    assert again[: len(first)] == first


def test_pending_langchain_messages_are_counted():
    compactor = Compactor([Summarize(keep=4)], Budget(5000, 1200), format=langchain)
    alone = compactor.check(loop(4)).tokens
    assert compactor.check(loop(4), pending=[HumanMessage("word " * 100)]).tokens > alone + 90


def test_the_tools_of_a_body_are_counted():
    @tool
    def weather(city: str) -> str:
        """Say what the weather is like in a city."""
        return city

    compactor = Compactor([], Budget(500, 500), format=langchain)
    body = {"messages": loop(1), "tools": [weather]}
    assert compactor(body).tokens > compactor({"messages": loop(1)}).tokens
    assert compactor(body).payload["tools"] == [weather]


def test_repair_works_on_langchain_messages():
    """S0-41 C0-1: a result without a call goes, a call without a result is answered, the rest is the same."""
    broken = [
        HumanMessage("hi"),
        ToolMessage("x", tool_call_id="gone"),
        ai(call_of("open")),
        HumanMessage("next"),
    ]
    mended = repair(broken, langchain)
    assert [type(m).__name__ for m in mended.payload] == [
        "HumanMessage",
        "AIMessage",
        "ToolMessage",
        "HumanMessage",
    ]
    assert mended.payload[0] is broken[0]
    assert mended.payload[1] is broken[2]
    assert mended.payload[2].tool_call_id == "open"
    assert not mended.remaining


# --- models ---------------------------------------------------------------------------------------


class Recording(GenericFakeChatModel):
    """Answers from a list and keeps what it was asked, and how."""

    asked: list = []  # noqa: RUF012 - pydantic copies it

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        self.asked.append((messages, kwargs, list(run_manager.tags)))
        return super()._generate(messages, stop, run_manager, **kwargs)


def fake(*answers):
    return Recording(messages=iter(answers), asked=[])


ASK = Ask(
    "Summarise now.",
    300,
    system="You summarise.",
    messages=(user("<conversation>…</conversation>"),),
)


@pytest.mark.parametrize(
    "call", [ChatModel.__call__, lambda model, ask: asyncio.run(model.acall(ask))]
)
def test_a_chat_model_is_sent_system_prompt_history_and_instruction_and_answers(call):
    """S0-29: the request is [system prompt, history, user instruction]; it is capped and not streamed."""
    meta = {"finish_reason": "stop", "model_name": "kimi-k2-instruct"}
    usage = {
        "input_tokens": 50,
        "output_tokens": 7,
        "total_tokens": 57,
        "input_token_details": {"cache_read": 20},
    }
    model = fake(AIMessage("A summary.", response_metadata=meta, usage_metadata=usage))
    seen = UsageMetadataCallbackHandler()
    reply = call(ChatModel(model, {"callbacks": [seen], "tags": ["run"]}), ASK)
    assert (reply.text, reply.finish, reply.model) == ("A summary.", "stop", "kimi-k2-instruct")
    assert (reply.usage.input, reply.usage.output, reply.usage.cached) == (50, 7, 20)
    ((messages, kwargs, tags),) = model.asked
    assert [m.type for m in messages] == ["system", "human"]
    assert messages[1].content == "<conversation>…</conversation>\n\nSummarise now."
    assert kwargs["max_tokens"] == 300
    assert set(tags) == {"run", "nostream"}
    assert seen.usage_metadata["kimi-k2-instruct"]["output_tokens"] == 7


@pytest.mark.parametrize(
    ("message", "finish"),
    [
        (AIMessage("x", response_metadata={"finish_reason": "MAX_TOKENS"}), "length"),
        (AIMessage("x", response_metadata={"stop_reason": "end_turn"}), "stop"),
        (AIMessage("x", response_metadata={"finish_reason": "SAFETY"}), "filter"),
        (AIMessage("x", response_metadata={"done_reason": "odd"}), "odd"),
        (ai(CALL), "tool"),
        (AIMessage("x"), "stop"),
    ],
)
def test_finish_reasons_of_all_providers_have_the_same_names(message, finish):
    assert ChatModel(fake(message), cap="")(ASK).finish == finish


def test_reasoning_is_not_part_of_the_answer():
    message = AIMessage(
        [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "Yes."}]
    )
    assert ChatModel(fake(message))(ASK).text == "Yes."


@pytest.mark.parametrize(
    "call", [ChatModel.__call__, lambda model, ask: asyncio.run(model.acall(ask))]
)
def test_a_chat_model_that_raises_gives_an_error_answer(call):
    class Broken(GenericFakeChatModel):
        def _generate(self, *args, **kwargs):
            raise ConnectionError("no route")

    reply = call(ChatModel(Broken(messages=iter(()))), ASK)
    assert (reply.finish, reply.error) == ("error", "ConnectionError: no route")


def test_arguments_that_are_a_string_in_a_content_block_stay_a_string():
    content = [
        {"type": "function_call", "call_id": "c1", "name": "read", "arguments": '{"path": "a"}'}
    ]
    item = ai(call_of("c1", path="a"), content=content)
    assert patch(item, one(item)).content[0] is item.content[0]
    after = patch(item, Message("assistant", (ToolCall("c1", "read", '{"path":"b"}'),)))
    assert json.loads(after.content[0]["arguments"]) == {"path": "b"}


def test_the_codec_accepts_everything_that_langchain_accepts_as_a_message():
    assert langchain.fits({}, [HumanMessage("a"), {"role": "user"}]) == 3
    assert langchain.is_system(SystemMessage("s"))
    assert not langchain.is_system("s")
    view = Compactor([], Budget(10, 10), format=langchain)(
        ["hi", ("ai", "hello"), HumanMessage("a")]
    )
    assert [m.role for m in view.messages] == ["user", "assistant", "user"]
    assert view.payload == ["hi", ("ai", "hello"), HumanMessage("a")]


def test_media_with_a_url_can_be_encoded_and_embedded_media_cannot():
    part = Media("image", "", "https://example.com/a.png")
    assert one(encode(Message("user", (part,)))) == Message("user", (part,))
    with pytest.raises(FormatError, match="cannot hold this Media anew"):
        encode(Message("user", (Media("image", "image/png", "blake2b:00"),)))


def test_a_content_block_that_is_not_an_object_is_kept():
    item = HumanMessage.model_construct(content=[3, "a"])
    assert [type(part) for part in one(item).parts] == [Opaque, Text]


def test_import_errors_without_langchain_name_the_extra():
    """And the presets themselves need none of it."""
    needy = (
        "refold.adapters.langchain",
        "refold.adapters.langgraph",
        "refold.presets.gemini_compressor",
        "refold.presets.koog_graph",
    )
    code = (
        "import sys; sys.modules['langchain_core'] = sys.modules['langgraph'] = None\n"
        "import refold.presets.gemini, refold.presets.koog\n"
    )
    code += "".join(
        f"try: import {module}\nexcept ImportError as error: print(error)\n" for module in needy
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert ["pip install '.[langchain]'" in line for line in out.splitlines()] == [True] * 4


def test_f14_a_tool_loop_keeps_the_thinking_of_its_turn():
    """Messages name no model: an older one answers 400 where thinking of the current turn is gone (AN-6)."""
    history = [HumanMessage("Find the bug.")]
    for n in range(10):
        thought = {"type": "thinking", "thinking": f"about {n}", "signature": f"sig{n}"}
        call = {"id": f"t{n}", "name": "read", "args": {"path": f"f{n}.py"}}
        history += [
            AIMessage([thought], tool_calls=[call]),
            ToolMessage("words " * 300, tool_call_id=f"t{n}"),
        ]
    strategies = (ClearThinking(keep=0), ClearToolResults(keep=1))
    with pytest.warns(ModelNotNamed):
        view = Compactor(strategies, Budget(2_000, 1_000), format=langchain)(history)
    assert view.edits
    blocks = [
        block
        for message in view.payload
        if isinstance(message, AIMessage)
        for block in message.content
    ]
    assert [block["signature"] for block in blocks if block["type"] == "thinking"] == [
        f"sig{n}" for n in range(10)
    ]
