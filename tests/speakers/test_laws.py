"""The law of D1, D2, D4 and D5: after any compaction, the next request has everything that must
stay verbatim."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refold.budget.budget import Budget
from refold.codecs.detect import open_payload
from refold.compactor.compactor import Compactor
from refold.compactor.settings import default_strategies
from refold.core.strategy import Strategy
from refold.core.view import View
from refold.edits import Attempt
from refold.gateway.pipeline.limits import gateway_strategies
from refold.messages import Message, Text, ToolResult
from refold.strategies import Chunked, FromLastN, Summarize, WholeHistory
from refold.text.summary_wrapper import without_summary
from tests.support.examples import examples_at_night

FORMATS = ("anthropic", "openai_chat", "openai_responses", "gemini")
STEER = (
    "<system-reminder>\nThe user sent a new message while you were working:\n{}\n</system-reminder>"
)
CONTEXT = (
    "The following skills are available: {}",
    "# Environment\n{}",
    "The current date is: {}",
    "A new kind: {}",
)
WAYS = {
    "library": default_strategies,
    "gateway": lambda to: gateway_strategies(to, asks=False),
    "whole": lambda _: (WholeHistory(),),
    "last": lambda _: (FromLastN(),),
    "chunked": lambda _: (Chunked(),),
    "summarize": lambda _: (Summarize(keep=2),),
}


@dataclass
class Story:
    """A conversation, and the texts that must stay."""

    entries: list[tuple[str, Any]] = field(default_factory=list)
    """Events in order: `ask`, `steer`, `order`, `call` (with text after its result), `answer`."""
    orders: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)
    context: dict[str, str] = field(default_factory=dict)


@st.composite
def stories(draw: st.DrawFn, *, orders: bool = True) -> Story:
    """Return turns of requests and steps. The last may be unfinished. Every text has a unique
    word."""
    story, words = Story(), (f"word{n}mark" for n in range(10_000))
    for turn in range(draw(st.integers(1, 4))):
        if turn:
            story.entries.append(("answer", f"All done. {next(words)}"))
            story.open.clear()
        notes = [
            CONTEXT[n].format(next(words))
            for n in draw(st.lists(st.integers(0, 3), max_size=3, unique=True))
        ]
        for text in notes:
            story.context[text.split(":")[0].split("\n")[0]] = text
        request = draw(st.sampled_from(("Fix {}.", "请修复 {}。", "Fix it.\n\n{}"))).format(
            next(words)
        )
        story.open.append(request)
        behind = draw(st.booleans())
        story.entries.append(("ask", (notes, request, behind)))
        for _ in range(draw(st.integers(0, 6))):
            typed = (
                draw(st.sampled_from(("", "", "", "tail", "system")))
                if orders
                else draw(st.sampled_from(("", "tail")))
            )
            text = STEER.format(next(words)) if typed == "tail" else ""
            story.entries.append(("call", ("line of output\n" * draw(st.integers(1, 120)), text)))
            story.open += [text] if text else []
            if typed == "system":
                steer = draw(st.booleans())
                text = (
                    f"The user sent a new message while you work: {next(words)}"
                    if steer
                    else f"Never {next(words)}."
                )
                (story.open if steer else story.orders).append(text)
                story.entries.append(("system", text))
    return story


def body(story: Story, format: str) -> dict[str, Any]:
    """Return the story as a request."""
    entries = list(MAKERS[format](story))
    model = {"anthropic": "claude-opus-5", "openai_chat": "gpt-5", "openai_responses": "gpt-5"}.get(
        format, "gemini-3"
    )
    name = {"openai_responses": "input", "gemini": "contents"}.get(format, "messages")
    return {"model": model, name: entries}


def _write_request(context: list[str], request: str, behind: bool) -> list[str]:
    notes = [f"<system-reminder>\n{text}\n</system-reminder>" for text in context]
    return [request, *notes] if behind else [*notes, request]


def _anthropic(story: Story) -> Iterator[dict[str, Any]]:
    for n, (kind, content) in enumerate(story.entries):
        if kind == "ask":
            yield {
                "role": "user",
                "content": [{"type": "text", "text": text} for text in _write_request(*content)],
            }
        elif kind == "call":
            yield {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": f"c{n}", "name": "read", "input": {"n": n}}],
            }
            out = "\n\n".join(filter(None, content))
            yield {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": f"c{n}", "content": out}],
            }
        else:
            yield {"role": "system" if kind == "system" else "assistant", "content": content}


def _openai_chat(story: Story) -> Iterator[dict[str, Any]]:
    for n, (kind, content) in enumerate(story.entries):
        if kind == "ask":
            yield from ({"role": "user", "content": text} for text in _write_request(*content))
        elif kind == "call":
            function = {"name": "read", "arguments": json.dumps({"n": n})}
            yield {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": f"c{n}", "type": "function", "function": function}],
            }
            yield {
                "role": "tool",
                "tool_call_id": f"c{n}",
                "content": "\n\n".join(filter(None, content)),
            }
        else:
            yield {"role": "developer" if kind == "system" else "assistant", "content": content}


def _openai_responses(story: Story) -> Iterator[dict[str, Any]]:
    for n, (kind, content) in enumerate(story.entries):
        if kind == "ask":
            texts = [{"type": "input_text", "text": text} for text in _write_request(*content)]
            yield {"type": "message", "role": "user", "content": texts}
        elif kind == "call":
            yield {
                "type": "function_call",
                "call_id": f"c{n}",
                "name": "read",
                "arguments": json.dumps({"n": n}),
            }
            yield {
                "type": "function_call_output",
                "call_id": f"c{n}",
                "output": "\n\n".join(filter(None, content)),
            }
        elif kind == "system":
            yield {
                "type": "message",
                "role": "developer",
                "content": [{"type": "input_text", "text": content}],
            }
        else:
            yield {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": content}],
            }


def _gemini(story: Story) -> Iterator[dict[str, Any]]:
    for n, (kind, content) in enumerate(story.entries):
        if kind == "ask":
            yield {"role": "user", "parts": [{"text": text} for text in _write_request(*content)]}
        elif kind == "call":
            yield {"role": "model", "parts": [{"functionCall": {"name": "read", "args": {"n": n}}}]}
            response = {"name": "read", "response": {"output": content[0]}}
            yield {
                "role": "user",
                "parts": [
                    {"functionResponse": response},
                    *([{"text": content[1]}] if content[1] else []),
                ],
            }
        else:
            yield {"role": "model", "parts": [{"text": content}]}


MAKERS = {
    "anthropic": _anthropic,
    "openai_chat": _openai_chat,
    "openai_responses": _openai_responses,
    "gemini": _gemini,
}


def texts(messages: tuple[Message, ...]) -> str:
    """Return all texts of a request outside of Refold's summaries."""
    parts = (part for message in messages for part in without_summary(message).parts)
    return "\n".join(part.text for part in parts if isinstance(part, Text | ToolResult))


def says_so(attempts: tuple[Attempt, ...]) -> bool:
    """Return whether the outcomes say that something did not fit."""
    return any(a.outcome == "degraded" and "word for word" in a.reason for a in attempts)


def compact_story(story: Story, format: str, strategies: tuple[Strategy, ...], to: int) -> View:
    return Compactor(strategies, Budget(to, to), format=format)(body(story, format))


@settings(max_examples=examples_at_night(8, settings().max_examples))
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("format", FORMATS)
@given(data=st.data(), to=st.sampled_from((200, 600, 2_000)))
def test_d1_d2_d5_protected_messages_are_sent_word_for_word_or_reported_missing(
    format: str, way: str, data: st.DataObject, to: int
) -> None:
    """The open request, every order and the newest context of each kind are in the request
    verbatim, or the outcome says that they are not. The request is as valid as before."""
    story = data.draw(stories(orders=format != "gemini"))
    view = compact_story(story, format, WAYS[way](to), to)
    shown = texts(view.messages)
    for text in story.orders:
        assert text in shown
    missing = [text for text in (*story.open, *story.context.values()) if text not in shown]
    answered = story.entries[-1][0] == "answer"
    assert not [text for text in missing if not answered or text not in story.open] or says_so(
        view.attempts
    )
    rules = view.profile.rules
    before = {(v.rule, v.subject) for v in rules.check(view.transcript.messages)}
    assert {(v.rule, v.subject) for v in rules.check(view.messages)} <= before
    sent = open_payload(view.payload, format)
    assert texts(tuple(sent.decode())).count("mark") >= shown.count("mark")
