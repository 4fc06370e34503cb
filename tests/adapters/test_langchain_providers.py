"""LangChain's messages as its users and its packages for providers write them."""

import pytest
from langchain_core.messages import AIMessage

from refold import Budget, Compactor
from refold.adapters import langchain
from refold.adapters.langchain import decode, patch, usage_of
from refold.messages import Message, Text, ToolCall
from refold.strategies import Summarize
from refold.tokens.usage import Usage


@pytest.mark.parametrize("head", [("system", "Be brief."), {"role": "system", "content": "."}])
def test_a_leading_system_message_stays_first_as_a_pair_or_dict_too(head):
    history = [head, *(("human", "words " * 90), ("ai", "words " * 90)) * 20, ("human", "And?")]
    view = Compactor([Summarize(keep=4)], Budget(3_000, 1_500), format=langchain)(history)
    assert len(view.payload) < 20
    assert view.payload[0] is head


COUNTS = {"input_tokens": 1_010, "output_tokens": 5, "total_tokens": 1_015}


def test_tokens_written_to_a_cache_are_counted_by_duration_as_anthropics_package_reports_them():
    details = {
        "cache_read": 100,
        "cache_creation": 0,
        "ephemeral_5m_input_tokens": 700,
        "ephemeral_1h_input_tokens": 200,
    }
    answer = AIMessage("", usage_metadata={**COUNTS, "input_token_details": details})
    assert usage_of(answer) == Usage(1_010, 5, cached=100, written=900, hour=200)
    answer = AIMessage("", usage_metadata={**COUNTS, "input_token_details": {"cache_creation": 9}})
    assert usage_of(answer) == Usage(1_010, 5, written=9)


def test_a_block_that_repeats_a_call_without_json_stays_with_it():
    bad = {
        "type": "invalid_tool_call",
        "id": "c1",
        "name": "read",
        "args": '{"path": ',
        "error": "",
    }
    block = {"type": "function_call", "call_id": "c1", "name": "read", "arguments": '{"path": '}
    answer = AIMessage([{"type": "text", "text": "a" * 99}, block], invalid_tool_calls=[bad])
    call = decode(answer, ()).parts[-1]
    shown = patch(answer, Message("assistant", (Text("a"), call)))
    assert shown.content == [{"type": "text", "text": "a"}, block]
    cut = ToolCall("c1", "read", '{"cut":true}')
    (_, shown_call) = patch(answer, Message("assistant", (Text("a"), cut))).content
    assert shown_call == {**block, "arguments": '{"cut":true}'}
    assert patch(answer, Message("assistant", (Text("a"),))).content == [
        {"type": "text", "text": "a"}
    ]
