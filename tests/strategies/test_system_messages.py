"""System messages between others, which Claude's API accepts in few positions: a compaction moves
them to one of these."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

import refold
from refold import Budget, Compactor
from refold.codecs import anthropic
from refold.core.profile import Profile
from refold.core.view import View
from refold.messages import Message, Text, user
from refold.strategies import Chunked, Summarize, SummarizeTo, WholeHistory
from refold.summarizers.placement import PLACEMENTS

RULE = "From now on every function must have type annotations."
STRATEGIES = [
    *([Summarize(keep=3, max_tokens=400, place=place)] for place in PLACEMENTS),
    [SummarizeTo()],
    [WholeHistory(max_tokens=400)],
    [Chunked(size=4, max_tokens=200)],
    None,
]


def exchange(n: int) -> Iterator[dict[str, Any]]:
    """Yield a request, a call with its result, and the answer."""
    call = {"type": "tool_use", "id": f"t{n}", "name": "read", "input": {"path": f"a{n}.py"}}
    result = {"type": "tool_result", "tool_use_id": f"t{n}", "content": f"line {n}\n" * 90}
    yield {"role": "user", "content": f"Mend a{n}.py."}
    yield {"role": "assistant", "content": [{"type": "text", "text": "I read it."}, call]}
    yield {"role": "user", "content": [result]}
    yield {"role": "assistant", "content": f"a{n}.py works."}


def request(*extra: tuple[int, dict[str, Any]]) -> dict[str, Any]:
    """Return a request of six exchanges with *extra* messages, each after the message at its
    position."""
    messages = [message for n in range(6) for message in exchange(n)][:-1]
    for at, message in reversed(extra):
        messages.insert(at + 1, message)
    return {"model": "claude-opus-5-5", "messages": messages}


@pytest.mark.parametrize("strategies", STRATEGIES, ids=str)
def test_system_messages_are_moved_to_positions_that_claude_accepts(strategies) -> None:
    """The API once refused those beside a summary: *role 'system' must follow a 'user' message*, or
    *must precede an 'assistant' message*."""
    notes = [(at, {"role": "system", "content": f"{RULE} ({at})"}) for at in (0, 6, 12, 18, 22)]
    whole = request(*notes)
    compact = Compactor(strategies, Budget(trigger=2_000, target=1_500))
    for length in (12, 19, len(whole["messages"])):
        view = compact({**whole, "messages": whole["messages"][:length]})
        assert refold.check(view.payload) == ()
        for edit in view.edits:
            assert refold.check(view.revert(edit).payload) == ()
    assert view.tokens < view.tokens_unedited
    assert RULE in json.dumps(view.payload)


@pytest.mark.parametrize("strategies", STRATEGIES, ids=str)
def test_a_system_message_with_only_output_config_is_kept_unchanged(strategies) -> None:
    effort = {"role": "system", "content": [], "output_config": {"effort": "high"}}
    body = request((3, effort))
    assert refold.check(body) == ()
    assert refold.repair(body).payload is body
    view = Compactor(strategies, Budget(trigger=2_000, target=1_500))(body)
    assert refold.check(view.payload) == ()
    assert all(m is effort for m in view.payload["messages"] if m["role"] == "system")


@pytest.mark.parametrize("strategies", STRATEGIES, ids=str)
@pytest.mark.parametrize("role", ["user", "assistant"])
def test_a_compaction_block_is_kept_once_and_as_the_first_block(strategies, role) -> None:
    """A question was once put before it: *compaction block must be sent first*."""
    block = {"type": "compaction", "content": "A recipe app is built.", "signature": "EuYB"}
    body = request()
    words = [{"type": "text", "text": "Go on."}] * (role == "user")
    body["messages"][:1] = [{"role": role, "content": [block, *words]}]
    assert refold.check(body) == ()
    view = Compactor(strategies, Budget(trigger=2_000, target=1_500))(body)
    assert view.tokens < view.tokens_unedited
    assert view.payload["messages"][0]["content"][0] == block
    assert json.dumps(view.payload).count("EuYB") == 1
    assert refold.check(view.payload) == ()


@pytest.mark.parametrize("strategies", STRATEGIES, ids=str)
def test_tool_additions_and_removals_in_system_messages_are_kept_in_order(strategies) -> None:
    """A tool removed later was once not declared any more: *unknown tool*."""
    tool = {"name": "deploy", "description": "Deploys.", "input_schema": {"type": "object"}}
    defined = {"type": "tool_definition", "definition": tool}
    named = {"type": "tool_reference", "name": "deploy"}
    changes = [{"type": "tool_addition", "tool": defined}, {"type": "tool_removal", "tool": named}]
    added, removed = ({"role": "system", "content": [change]} for change in changes)
    for later in (8, 22):
        body = request((4, added), (later, removed))
        view = Compactor(strategies, Budget(trigger=2_000, target=1_500))(body)
        shown = [block for m in view.payload["messages"] for block in m["content"]]
        assert view.tokens < view.tokens_unedited
        assert [block for block in shown if block in changes] == changes
        assert refold.check(view.payload) == ()


def test_the_json_of_a_system_message_beside_an_edit_is_kept_as_written() -> None:
    body = request((16, {"role": "system", "content": RULE}))
    text = json.dumps(body).replace('"system"', '"system" , "weight":1.00')
    view = Compactor([Summarize(keep=6, max_tokens=300)], Budget(2_000, 1_500))(text)
    assert view.edits
    assert '{"role": "system" , "weight":1.00, "content"' in view.payload


def test_user_text_after_a_kept_system_message_is_moved_before_it() -> None:
    """Claude Code's environment stays with the first request, and text typed while it worked once
    came right after it: *must precede an 'assistant' message*."""
    words = ("user", "task"), ("system", "place"), ("assistant", "a"), ("user", "b")
    later = ("assistant", "c"), ("user", "typed"), ("assistant", "d"), ("user", "e")
    messages = [Message(role, (Text(text),)) for role, text in (*words, *later)]
    view = View.of(messages, profile=Profile(rules=anthropic.rules({"model": "claude-opus-5-5"})))
    first = user("a summary"), messages[0], messages[1]
    for stop, insert in ((6, (*first, messages[5])), (5, first), (6, first)):
        shown = view.apply(view.fold(0, stop, *insert)).messages
        assert [message.role for message in shown] == ["user", "system", "assistant", "user"]
        assert shown[0].text.endswith("typed") == (stop == 5 or len(insert) > 3)
