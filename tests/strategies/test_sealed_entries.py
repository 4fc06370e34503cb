"""Content that only a provider can read, such as its own compaction, and results that load tools
are never summarised."""

import json
from typing import Any

import pytest

import refold
from refold import Budget, Compactor
from refold.strategies import Summarize, SummarizeTo, WholeHistory

SEALED = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAA" * 50}


def anthropic() -> dict[str, Any]:
    """Return a request with a compaction made by the API."""
    messages = [{"role": "user", "content": "Mend the build."}]
    for n in range(20):
        call = {"type": "tool_use", "id": f"t{n}", "name": "read", "input": {"path": f"a{n}.py"}}
        content = [{"type": "compaction", "content": "It was so."}, call] if n == 8 else [call]
        result = {"type": "tool_result", "tool_use_id": f"t{n}", "content": "line\n" * 200}
        messages += [
            {"role": "assistant", "content": content},
            {"role": "user", "content": [result]},
        ]
    return {"model": "claude-opus-5-5", "messages": messages}


def responses() -> dict[str, Any]:
    """Return a request that begins with the output of `/responses/compact`."""
    items: list[dict[str, Any]] = [{"role": "user", "content": "Mend the build."}, SEALED]
    for n in range(20):
        call = {"type": "function_call", "call_id": f"c{n}", "name": "read", "arguments": "{}"}
        output = {"type": "function_call_output", "call_id": f"c{n}", "output": "line\n" * 200}
        items += [call, output]
    return {"model": "gpt-6-sol", "input": items}


@pytest.mark.parametrize("request_of", [anthropic, responses])
@pytest.mark.parametrize(
    "strategies", [None, [Summarize(keep=4)], [SummarizeTo(600)], [WholeHistory()]]
)
def test_a_providers_compaction_stays_before_our_summary(request_of, strategies) -> None:
    """Anthropic's API ignores everything before its own block."""
    body = request_of()
    view = Compactor(strategies, Budget(trigger=1_000, target=600))(body)
    entries = [
        json.dumps(entry) for entry in view.payload.get("messages", view.payload.get("input"))
    ]
    sealed = next(at for at, entry in enumerate(entries) if '"compaction"' in entry)
    summary = next(at for at, entry in enumerate(entries) if "earlier-conversation" in entry)
    assert view.tokens < view.tokens_unedited / 2
    assert sealed <= summary
    assert refold.check(view.payload) == ()
    assert view.revert().payload == body


@pytest.mark.parametrize("kind", ["compaction", "compaction_summary", "context_compaction"])
def test_a_compaction_item_is_kept_under_every_type_name_of_the_api(kind) -> None:
    body = responses()
    body["input"][1] = {**SEALED, "type": kind}
    view = Compactor([SummarizeTo(600)], Budget(trigger=1_000, target=600))(body)
    assert body["input"][1] in view.payload["input"]
    assert view.tokens < view.tokens_unedited / 2


def search(name: str, number: int) -> list[dict[str, Any]]:
    """Return a search for tools with one result."""
    call = {"type": "tool_use", "id": f"s{number}", "name": "ToolSearch", "input": {"query": name}}
    thinking = {"type": "thinking", "thinking": "Who can?", "signature": f"EqQ{number}"}
    calls = [thinking, {"type": "text", "text": "I look for it. " * 99}, call]
    references = [{"type": "tool_reference", "tool_name": name}]
    result = {"type": "tool_result", "tool_use_id": f"s{number}", "content": references}
    return [{"role": "assistant", "content": calls}, {"role": "user", "content": [result]}]


@pytest.mark.parametrize("strategies", [None, [Summarize(keep=4)], [SummarizeTo(600)]])
@pytest.mark.parametrize(
    ("model", "is_over", "signed"),
    [
        ("claude-opus-5-5", False, 0),
        ("claude-sonnet-4-5", False, 2),
        ("claude-sonnet-4-5", True, 0),
    ],
)
def test_tools_that_a_search_loaded_stay_loaded(strategies, model, is_over, signed) -> None:
    """The model once lost them and searched again. Tools loaded twice are kept once, with thinking
    if the model requires it beside the calls of an open turn (AN-6)."""
    body = {**anthropic(), "model": model}
    messages = [m for m in body["messages"] if '"compaction"' not in json.dumps(m)]
    del messages[17]  # the result beside the compaction
    body["messages"] = [
        *messages[:3], *search("mail", 1), *messages[3:7], *search("mail", 2),
        *messages[7:9], *search("crm", 3), *messages[9:],
    ]  # fmt: skip
    if is_over:
        answer = {"role": "assistant", "content": "It builds."}
        body["messages"] += [answer, {"role": "user", "content": "Thanks. Mend the tests, too."}]
    view = Compactor(strategies, Budget(trigger=1_000, target=600))(body)
    sent = json.dumps(view.payload)
    assert view.tokens < view.tokens_unedited / 2
    assert [sent.count(f'"tool_name": "{name}"') for name in ("mail", "crm")] == [1, 1]
    assert sent.count("I look for it. " * 99) == 0
    assert sent.count('"signature"') == signed
    assert refold.check(view.payload) == ()
    assert view.revert().payload == body


@pytest.mark.parametrize("link", [{}, {"call_id": "ts1"}])
@pytest.mark.parametrize("strategies", [None, [Summarize(keep=4)], [SummarizeTo(600)]])
def test_openai_tool_search_items_are_kept_with_the_reasoning_before_them(strategies, link) -> None:
    """Reasoning of the Responses API must not be removed alone (OA-4), and OpenAI's own search has
    no `call_id`."""
    body = responses()
    asked, _, *items = body["input"]
    search = [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA" * 20},
        {"type": "tool_search_call", "arguments": {"query": "mail"}, **link},
        {"type": "tool_search_output", "tools": [{"type": "function", "name": "mail"}], **link},
    ]
    body["input"] = [asked, *items[:4], *search, *items[4:]]
    view = Compactor(strategies, Budget(trigger=1_000, target=600))(body)
    at = view.payload["input"].index(search[0])
    assert view.payload["input"][at : at + 3] == search
    assert view.tokens < view.tokens_unedited / 2
    assert refold.check(view.payload) == ()
    assert view.revert().payload == body


@pytest.mark.parametrize("strategies", [[Summarize(keep=4)], [SummarizeTo(600)]])
def test_user_text_in_a_result_that_loads_tools_is_kept_with_it(strategies) -> None:
    body = anthropic()
    messages = [m for m in body["messages"] if '"compaction"' not in json.dumps(m)]
    del messages[17]  # the result beside the compaction
    call, result = search("mail", 1)
    steering = {"type": "text", "text": "Mend the tests, too."}
    result = {**result, "content": [*result["content"], steering]}
    body["messages"] = [*messages[:3], call, result, *messages[3:]]
    view = Compactor(strategies, Budget(trigger=1_000, target=600))(body)
    assert result in view.payload["messages"]
    assert view.tokens < view.tokens_unedited / 2
    assert refold.check(view.payload) == ()


def test_oa_4_an_answer_that_is_kept_without_its_reasoning_loses_its_item_id():
    """The API once refused it: *message was provided without its required reasoning item*."""
    answer = {"type": "message", "id": "msg_1", "role": "assistant", "content": "1. a.py leaks."}
    thought = {"type": "reasoning", "id": "rs_1", "encrypted_content": "gAAA" * 9, "summary": []}
    for reasoned in ([thought], []):
        before = [*responses()["input"][2:], *reasoned, answer, {"role": "user", "content": "Go."}]
        history = [{"role": "user", "content": "Look."}, *before, *responses()["input"][2:]]
        view = Compactor([SummarizeTo(1_500)], Budget(3_000, 1_500), model="gpt-6-sol")(history)
        (shown,) = (item for item in view.payload if item.get("role") == "assistant")
        assert (shown is answer) is (not reasoned) and ("id" in shown) is (not reasoned)
        assert refold.check(view.payload, before=history[:-4], model="gpt-6-sol") == ()


@pytest.mark.parametrize("strategies", [None, [Summarize(keep=4)], [SummarizeTo(600)]])
def test_oa_4_the_last_of_two_equal_tool_searches_is_kept_with_its_own_ids(strategies) -> None:
    """The items once had the ids of the first and the reasoning of the second, which the API
    refused."""
    items = responses()["input"][2:]
    turns = [
        [
            {"type": "reasoning", "id": f"rs_{n}", "summary": [], "encrypted_content": f"gA{n}"},
            {"type": "tool_search_call", "id": f"tsc_{n}", "arguments": {"query": "mail"}},
            {"type": "tool_search_output", "id": f"tso_{n}", "tools": [{"name": "mail"}]},
        ]
        for n in range(2)
    ]
    asked = {"role": "user", "content": "Mend the build."}
    body = {"model": "gpt-6-sol", "input": [asked, *turns[0], *items[:4], *turns[1], *items[4:]]}
    view = Compactor(strategies, Budget(trigger=1_000, target=600))(body)
    at = view.payload["input"].index(turns[1][0])
    assert view.payload["input"][at : at + 3] == turns[1]
    assert view.tokens < view.tokens_unedited / 2


def test_only_one_of_two_results_that_load_the_same_tool_is_kept() -> None:
    """Both were once kept with only one call: such a summary was refused, and nothing was
    compacted."""
    call, result = search("mail", 1)
    again = search("mail", 2)
    call["content"].append(again[0]["content"][-1])
    result["content"] += again[1]["content"]
    messages = [m for m in anthropic()["messages"] if '"compaction"' not in json.dumps(m)]
    del messages[17]  # the result beside the compaction
    body = {**anthropic(), "messages": [*messages[:3], call, result, *messages[3:]]}
    view = Compactor([Summarize(keep=4)], Budget(trigger=1_000, target=600))(body)
    assert view.tokens < view.tokens_unedited / 2
    assert json.dumps(view.payload).count('"tool_name": "mail"') == 1
