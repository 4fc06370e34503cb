"""Messages of any format in the format of Chat Completions, which every library reads."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from refold.messages import Message, Text, ToolCall, ToolResult
from refold.text.json_values import parse_or_none


def iter_chat(messages: Sequence[Message]) -> Iterator[dict[str, Any]]:
    """Yield messages in the format of Chat Completions, without thinking, which it cannot hold."""
    for message in messages:
        texts = [part.text for part in message.parts if isinstance(part, Text)]
        calls = [
            {
                "id": part.id,
                "type": "function",
                "function": {"name": part.name, "arguments": _spell(part.arguments)},
            }
            for part in message.parts
            if isinstance(part, ToolCall)
        ]
        for part in message.parts:
            if isinstance(part, ToolResult):
                yield {"role": "tool", "tool_call_id": part.id, "content": part.text}
        if texts or calls:
            role = "assistant" if message.role == "assistant" else "user"
            content = [{"type": "text", "text": text} for text in texts]
            alone = texts[0] if texts else ""
            chat = {"role": role, "content": content if len(texts) > 1 else alone}
            yield {**chat, "tool_calls": calls} if calls else chat


def _spell(arguments: str) -> str:
    """Return a call's arguments as a JSON object; a patch of Codex is plain text."""
    is_object = isinstance(parse_or_none(arguments), dict)
    return arguments if is_object else json.dumps({"input": arguments}, ensure_ascii=False)
