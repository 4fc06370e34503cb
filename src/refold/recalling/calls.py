"""A model's call of a tool in any wire form, and the result in the same one."""

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from refold.messages import Text, ToolCall, ToolResult


class Call(NamedTuple):
    """A call taken out of its wire form."""

    name: str
    arguments: Any
    """What it was called with: an object as a rule, JSON text where the format has it so."""
    answer: Callable[[str, bool], Any]
    """From a text, and whether it says what went wrong, to the result in the call's own form."""

    def text(self, field: str) -> str:
        """A string that must be there. Raises ValueError."""
        value = self._object().get(field)
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f"the argument `{field}` must be a text that is not empty")
        return value

    def number(self, field: str, default: int) -> int:
        """A whole number, *default* where it is missing or null. Raises ValueError."""
        value = self._object().get(field)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, str) and value.strip().lstrip("-").isdecimal():
            value = int(value[:20])
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"the argument `{field}` must be a whole number")  # noqa: TRY004 - it is a value that a model wrote
        return value

    def _object(self) -> Mapping[str, Any]:
        found = self.arguments
        if isinstance(found, str):
            try:
                found = json.loads(found)
            except (ValueError, RecursionError):
                raise ValueError("the arguments are no JSON") from None
        if not isinstance(found, Mapping):
            raise ValueError("the arguments are no JSON object")  # noqa: TRY004 - likewise
        return found


def open_call(call: Any) -> Call | None:
    """The call in *call*, which may be in any wire form, or an SDK's object of one; None if there is none."""
    if isinstance(call, ToolCall):
        return Call(call.name, call.arguments, lambda text, bad: ToolResult(call.id, (Text(text),), bad, call.name))
    wire = call.model_dump() if hasattr(call, "model_dump") else call
    match wire:
        case {"type": "tool_use", "id": id, "name": str(name)}:
            return Call(name, wire.get("input"), lambda text, bad: _anthropic(id, text, bad))
        case {"type": "function_call", "call_id": id, "name": str(name)}:
            return Call(name, wire.get("arguments"), lambda text, _: _responses(id, text))
        case {"id": id, "function": {"name": str(name)} as function}:
            return Call(name, function.get("arguments"), lambda text, _: _chat(id, text))
        case {"functionCall": {"name": str(name)} as function} | {"function_call": {"name": str(name)} as function}:
            return Call(name, function.get("args") or {}, lambda text, bad: _gemini(function, text, bad))
        case _:
            return None


def _anthropic(id: Any, text: str, bad: bool) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, "content": text} | ({"is_error": True} if bad else {})


def _responses(id: Any, text: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": id, "output": text}


def _chat(id: Any, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": text}


def _gemini(call: Mapping[str, Any], text: str, bad: bool) -> dict[str, Any]:
    named = {key: call[key] for key in ("id", "name") if call.get(key)}
    return {"functionResponse": {**named, "response": {"error" if bad else "output": text}}}
