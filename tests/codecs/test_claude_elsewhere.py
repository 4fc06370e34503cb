"""Claude's messages in the API format of another vendor, as some frameworks keep them (AN-6,
AN-7)."""

from typing import Any

import pytest

from refold import Budget, Compactor, check
from refold.codecs import gemini
from refold.messages import Thinking
from refold.rules.request import is_signed
from refold.strategies import ClearToolResults, Summarize

OWN = {"gemini": "gemini-3-pro-preview", "openai_responses": "gpt-5.2"}
"""A model of the API's own vendor."""
STEPS = 12


def _contents(n: int) -> list[Any]:
    """Return a step as Google's ADK writes it."""
    thought = {"text": f"about {n}", "thought": True, "thoughtSignature": f"sig{n}"}
    call = {"functionCall": {"name": "read", "args": {"path": f"f{n}.py"}}}
    response = {"name": "read", "response": {"result": f"file {n}: " + "word " * 300}}
    return [
        {"role": "model", "parts": [thought, call]},
        {"role": "user", "parts": [{"functionResponse": response}]},
    ]


def _items(n: int) -> list[Any]:
    """Return a step as OpenAI's Agents SDK writes it."""
    summary = [{"type": "summary_text", "text": f"about {n}"}]
    return [
        {"type": "reasoning", "id": f"rs{n}", "summary": summary, "encrypted_content": f"sig{n}"},
        {"type": "function_call", "call_id": f"c{n}", "name": "read", "arguments": "{}"},
        {"type": "function_call_output", "call_id": f"c{n}", "output": "word " * 300},
    ]


def _body(format: str, model: str) -> dict[str, Any]:
    if format == "gemini":
        first: Any = {"role": "user", "parts": [{"text": "Find the bug."}]}
        steps = [entry for n in range(STEPS) for entry in _contents(n)]
        return {"model": model, "contents": [first, *steps]}
    first = {"role": "user", "content": "Find the bug."}
    return {"model": model, "input": [first, *(entry for n in range(STEPS) for entry in _items(n))]}


def _compact(format: str, model: str, *strategies: Any) -> tuple[Any, list[str]]:
    """Return what is sent, and its signatures."""
    body = _body(format, model)
    view = Compactor(strategies, Budget(2_000, 1_000), format=format)(body)
    assert view.edits
    assert check(view.payload, format, before=body) == ()
    signed = (p for m in view.messages for p in m.parts if isinstance(p, Thinking))
    return view.payload, [part.signature for part in signed]


@pytest.mark.parametrize("strategy", [Summarize(keep=6), ClearToolResults(keep=2)])
@pytest.mark.parametrize("format", OWN)
def test_claudes_thinking_after_an_edited_prefix_is_not_sent(format: str, strategy: Any) -> None:
    """Its API once refused every request after the first compaction, because the block is bound to
    a different conversation."""
    for model in ("claude-opus-5-5", "anthropic/claude-opus-5-5"):
        _, signatures = _compact(format, model, strategy)
        assert signatures in ([], ["sig0"])  # that precedes all edits


@pytest.mark.parametrize("format", OWN)
def test_thinking_is_kept_for_a_model_that_requires_it(format: str) -> None:
    for model in (OWN[format], "claude-sonnet-4-5"):
        _, signatures = _compact(format, model, ClearToolResults(keep=2))
        assert signatures == [f"sig{n}" for n in range(STEPS)]


def test_thinking_beside_an_empty_text_is_removed_too() -> None:
    """As Haystack writes a call without text: the message once kept its thinking, which the API
    refused."""
    messages: list[Any] = [{"role": "user", "content": "Find the bug."}]
    for n in range(STEPS):
        call = {"id": f"c{n}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        block = {"type": "thinking", "thinking": f"about {n}", "signature": f"sig{n}"}
        words = [block, {"type": "text", "text": ""}]
        messages += [
            {"role": "assistant", "content": words, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{n}", "content": "word " * 300},
        ]
    body = {"model": "anthropic/claude-opus-5-5", "messages": messages}
    view = Compactor([Summarize(keep=6)], Budget(2_000, 1_000), format="openai_chat")(body)
    assert view.edits and not any(is_signed(message) for message in view.messages)
    assert check(view.payload, "openai_chat", before=body) == ()


def test_a_request_with_thinking_after_an_edited_prefix_is_reported() -> None:
    for format in OWN:
        before = _body(format, "claude-opus-5-5")
        field = "contents" if format == "gemini" else "input"
        entry = {"gemini": {"role": "user", "parts": [{"text": "Find it."}]}}.get(format)
        after = [entry or {"role": "user", "content": "Find it."}, *before[field][1:]]
        violations = check({**before, field: after}, format, before=before)
        assert {violation.rule for violation in violations} == {"AN-7"}


def test_redacted_thinking_in_geminis_format_is_read_as_thinking() -> None:
    part = {"thought": True, "thought_signature": "sealed"}
    message = gemini.decode({"role": "model", "parts": [part, {"text": "Done."}]}, ())
    assert message.parts[0] == Thinking("", "sealed")
