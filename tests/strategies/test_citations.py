"""Texts that cite a web search of the provider: without its results the API refuses them (*Could
not find search result for citation index*)."""

import json
from typing import Any

import pytest

import refold
from refold import Budget, Compactor
from refold.strategies import Summarize, SummarizeTo, WholeHistory

STRATEGIES = [[Summarize(keep=3, max_tokens=300)], [SummarizeTo()], [WholeHistory()], None]


def search(n: int) -> list[dict[str, Any]]:
    """Return a search and its results."""
    page = {"type": "web_search_result", "url": f"https://example.org/{n}", "title": "A page"}
    results = [{**page, "encrypted_content": "Enc" * 400}]
    return [
        {"type": "server_tool_use", "id": f"s{n}", "name": "web_search", "input": {"query": "a"}},
        {"type": "web_search_tool_result", "tool_use_id": f"s{n}", "content": results},
    ]


def cite(*numbers: int) -> dict[str, Any]:
    """Return a text that cites these searches and a document."""
    cited = {"type": "web_search_result_location", "cited_text": "It is so.", "title": "A page"}
    pages = [
        {**cited, "url": f"https://example.org/{n}", "encrypted_index": f"Eo8{n}"} for n in numbers
    ]
    document = {"type": "char_location", "document_index": 0, "cited_text": "It is."}
    return {"type": "text", "text": "It is so.", "citations": [*pages, document]}


def request() -> dict[str, Any]:
    """Return a request whose last answer cites the first and the last search."""
    messages = [
        message
        for n in range(8)
        for message in (
            {"role": "user", "content": f"What does page {n} say?"},
            {"role": "assistant", "content": [*search(n), cite(n)]},
        )
    ]
    messages[-1]["content"].append(cite(0, 7))
    follow = [{"role": "user", "content": "And so?"}, {"role": "assistant", "content": [cite(0)]}]
    messages += [*follow, {"role": "user", "content": "Thanks. Go on with the next page."}]
    return {"model": "claude-opus-4-8", "messages": messages}


@pytest.mark.parametrize("strategies", STRATEGIES, ids=str)
@pytest.mark.parametrize("as_text", [False, True])
def test_citations_of_hidden_search_results_are_removed(strategies, *, as_text: bool) -> None:
    """A view once kept the citations without results, and every later request was refused."""
    body = request()
    payload = json.dumps(body) if as_text else body
    assert refold.check(payload) == ()
    view = Compactor(strategies, Budget(trigger=3_000, target=1_500))(payload)
    sent = json.loads(view.payload) if as_text else view.payload
    assert view.tokens < view.tokens_unedited
    assert refold.check(view.payload) == ()
    assert "Eo80" not in json.dumps(sent)
    assert view.revert().payload == payload
    cited = [
        block
        for message in sent["messages"]
        for block in message["content"]
        if message["role"] == "assistant" and "citations" in block
    ]
    assert all(block["citations"][-1]["type"] == "char_location" for block in cited)
    assert strategies == [WholeHistory()] or cited


def test_an_ws_a_citation_whose_search_result_is_missing_is_reported() -> None:
    body = request()
    del body["messages"][:2]
    cited = "https://example.org/0"
    faults = [(fault.rule, fault.at, fault.subject) for fault in refold.check(body)]
    assert faults == [("AN-WS", 13, cited), ("AN-WS", 15, cited)]
    fixed = refold.repair(body)
    assert fixed.payload is body
    assert {fault.rule for fault in fixed.remaining} == {"AN-WS"}
    block = {"type": "compaction", "content": "It was so."}
    body["messages"].insert(1, {"role": "assistant", "content": [block]})
    assert refold.check(body) == ()
