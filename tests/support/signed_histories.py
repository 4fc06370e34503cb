"""Strategies for requests of an agent with signed thinking, in the four formats."""

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from refold.codecs import anthropic, openai_chat, openai_responses
from refold.codecs import gemini as gemini_codec
from refold.codecs.detect import CODECS
from refold.messages import Media, Message, Thinking, ToolResult
from refold.testing import transcripts

BOUND = "claude-opus-5-5"
LOOP = "claude-sonnet-4-5"
ON = {"type": "adaptive"}
MODELS = {"anthropic": (BOUND, LOOP), "openai_responses": ("gpt-6.1-sol",), "gemini": ("gemini-3-pro",), "openai_chat": ("deepseek-v4",), "openai_chat of Claude": (f"anthropic/{BOUND}", LOOP, "smart")}  # fmt: skip
CODECS_BY_NAME = {codec.NAME: codec for codec in CODECS} | {"openai_chat of Claude": openai_chat}


@st.composite
def agent_histories(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draw the requests of one agent: each is the previous one, its answer and the next messages.

    The model's thinking is signed.
    """
    name = draw(st.sampled_from(sorted(MODELS)))
    entries, ends = list[Any](), list[int]()
    for at, message in enumerate(map(_plain, draw(transcripts(max_turns=5)))):
        entries += ENCODERS[name](at, message)
        ends += [len(entries)] * (message.role == "user")
    body = {"model": draw(st.sampled_from(MODELS[name])), "thinking": ON, "store": False}
    if name == "anthropic":  # unknown to others, whose requests read as Anthropic's
        body["system"] = "Be brief."
    return [{**body, CODECS_BY_NAME[name].FIELD: entries[:end]} for end in ends]


def _plain(message: Message) -> Message:
    """Remove media, whose bytes are not there, and thinking from *message*."""
    parts = (p for p in message.parts if not isinstance(p, Media | Thinking))
    bare = (replace(p, content=p.content[:1]) if isinstance(p, ToolResult) else p for p in parts)
    return replace(message, parts=tuple(bare))


def _anthropic(at: int, message: Message) -> list[Any]:
    return [anthropic.encode(replace(message, parts=(*_sign(at, message), *message.parts)))]


def _sign(at: int, message: Message) -> tuple[Thinking, ...]:
    return (Thinking("hm", f"signed {at}"),) if message.role == "assistant" else ()


def _responses(at: int, message: Message) -> list[Any]:
    """Encode each part as an item; calls and reasoning have ids."""
    parts = [*_sign(at, message), *message.parts]
    roles = ("tool" if isinstance(part, ToolResult) else message.role for part in parts)
    items = [
        openai_responses.encode(Message(role, (part,)))
        for role, part in zip(roles, parts, strict=True)
    ]
    return [{**item, "id": f"{item['type']}_{at}_{n}"} for n, item in enumerate(items)]


def _gemini(at: int, message: Message) -> list[Any]:
    entry = gemini_codec.encode(message)
    first = next((part for part in entry["parts"] if "functionCall" in part), {})
    first |= {"thoughtSignature": f"signed {at}"} if first else {}
    return [entry]


def _chat(at: int, message: Message) -> list[Any]:
    results = [part for part in message.parts if isinstance(part, ToolResult)]
    if results:
        return [openai_chat.encode(Message("tool", (part,))) for part in results]
    entry = openai_chat.encode(message)
    return [entry | {"reasoning_content": "hm"} if message.role == "assistant" else entry]


def _chat_of_claude(at: int, message: Message) -> list[Any]:
    """Encode a message, signed as by OpenRouter, LiteLLM and clients that send content blocks."""
    entries, text, signature = _chat(at, message), "hm", f"signed {at}"
    if message.role != "assistant":
        return entries
    del entries[0]["reasoning_content"]
    block = {"type": "thinking", "thinking": text, "signature": signature}
    detail = {"type": "reasoning.text", "text": text, "signature": signature, "index": 0}
    match at // 2 % 3:
        case 0:
            return [entries[0] | {"reasoning": text, "reasoning_details": [detail]}]
        case 1:
            return [entries[0] | {"reasoning_content": text, "thinking_blocks": [block]}]
    content = entries[0]["content"] or []
    content = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return [entries[0] | {"content": [block, *content]}]


ENCODERS = {
    "anthropic": _anthropic,
    "openai_responses": _responses,
    "gemini": _gemini,
    "openai_chat": _chat,
    "openai_chat of Claude": _chat_of_claude,
}
