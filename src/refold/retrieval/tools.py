"""The tools `recall` and `unfold` for the agent itself, in the wire form of each provider."""

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from refold.core.view import View
from refold.errors import FormatError, RefoldError
from refold.messages import Text, ToolCall, ToolResult
from refold.retrieval.search import Index, name_speakers, recall
from refold.text.clip import floor
from refold.text.json_values import JsonObject, Record
from refold.text.plain import readable_text


class WireCall(NamedTuple):
    """A tool call, read from its wire form."""

    name: str
    arguments: Any
    """Usually an object, in some formats JSON text."""
    answer: Callable[[str, bool], Any]
    """Function from a text and whether it is an error to a tool result in the format of the
    call."""

    def require_text(self, field: str) -> str:
        """Return a string argument. Raises ValueError if it is missing, blank or no string."""
        value = self._as_object().get(field)
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f"the argument `{field}` must be a text that is not empty")
        return value

    def read_int(self, field: str, default: int) -> int:
        """Return a whole number (also from `5.0` or `"5"`), or *default* without one. Raises
        ValueError for any other value."""
        value = self._as_object().get(field)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, str) and value.strip().lstrip("-").isdecimal():
            value = int(value[:20])
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"the argument `{field}` must be a whole number")  # noqa: TRY004
        return value

    def _as_object(self) -> Record:
        arguments = self.arguments
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments)
            except (ValueError, RecursionError):
                raise ValueError("the arguments are no JSON") from None
        if not isinstance(arguments, Mapping):
            raise ValueError("the arguments are no JSON object")  # noqa: TRY004 - a wrong value from the model
        return arguments


def read_call(call: Any) -> WireCall | None:
    """Read a tool call in any wire form, or as an SDK object. Return None for anything else."""
    if isinstance(call, ToolCall):
        return WireCall(
            call.name,
            call.arguments,
            lambda text, bad: ToolResult(call.id, (Text(text),), bad, call.name),
        )
    wire = call.model_dump() if hasattr(call, "model_dump") else call
    match wire:
        case {"type": "tool_use", "id": id, "name": str(name)}:
            return WireCall(
                name,
                wire.get("input"),
                lambda text, bad: (
                    {"type": "tool_result", "tool_use_id": id, "content": text}
                    | ({"is_error": True} if bad else {})
                ),
            )
        case {"type": "function_call", "call_id": id, "name": str(name)}:
            return WireCall(
                name,
                wire.get("arguments"),
                lambda text, _: {"type": "function_call_output", "call_id": id, "output": text},
            )
        case {"id": id, "function": {"name": str(name)} as function}:
            return WireCall(
                name,
                function.get("arguments"),
                lambda text, _: {"role": "tool", "tool_call_id": id, "content": text},
            )
        case {"functionCall": {"name": str(name)} as function} | {
            "function_call": {"name": str(name)} as function
        }:
            return _read_gemini(name, function)
        case {"name": str(name), "args": Mapping() | None} if "type" not in wire:
            return _read_gemini(name, wire)
        case {"toolUse": {"toolUseId": id, "name": str(name)} as use}:
            return WireCall(
                name, use.get("input"), lambda text, bad: _bedrock_result(id, text, bad)
            )
        case _:
            return None


def _read_gemini(name: str, call: Record) -> WireCall:
    return WireCall(name, call.get("args") or {}, lambda text, bad: _gemini_result(call, text, bad))


def _gemini_result(call: Record, text: str, bad: bool) -> JsonObject:
    named = {key: call[key] for key in ("id", "name") if call.get(key)}
    return {"functionResponse": {**named, "response": {"error" if bad else "output": text}}}


def _bedrock_result(id: Any, text: str, bad: bool) -> JsonObject:
    status = "error" if bad else "success"
    return {"toolResult": {"toolUseId": id, "content": [{"text": text}], "status": status}}


RECALL = "recall"
UNFOLD = "unfold"
MAX_HITS = 50
"""Maximum hits of one search."""

_FUNCTIONS: tuple[JsonObject, ...] = (
    {
        "name": RECALL,
        "description": "Search the earlier part of this conversation, which is shown to you only "
        "as summaries and stubs. Returns the messages that match best, each with the id of the edit "
        "that hides it, its position and the passage that matches. Search for names, paths, numbers "
        "or words that were used there, in its language.",
        "parameters": {
            "type": "object",
            "properties": {
                "query": {
                    "type": "string",
                    "description": "Words to look for; nothing in it is syntax.",
                },
                "limit": {
                    "type": "integer",
                    "description": f"How many messages at most: 1 to {MAX_HITS}, by default 10.",
                },
            },
            "required": ["query"],
        },
    },
    {
        "name": UNFOLD,
        "description": "Read in full what was hidden from this conversation: all messages that "
        "an edit hides, or one.",
        "parameters": {
            "type": "object",
            "properties": {
                "edit": {
                    "type": "string",
                    "description": "Id of the edit, as stubs and `recall` name it.",
                },
                "position": {
                    "type": "integer",
                    "description": "Only the message at this position.",
                },
                "offset": {
                    "type": "integer",
                    "description": "Go on from this character, as the last answer said.",
                },
            },
            "required": ["edit"],
        },
    },
)

_WRAPPERS: dict[str, Callable[[], list[JsonObject]]] = {
    "anthropic": lambda: [
        {"name": f["name"], "description": f["description"], "input_schema": f["parameters"]}
        for f in _FUNCTIONS
    ],
    "openai_chat": lambda: [{"type": "function", "function": dict(f)} for f in _FUNCTIONS],
    "openai_responses": lambda: [{"type": "function", **f, "strict": False} for f in _FUNCTIONS],
    "gemini": lambda: [{"functionDeclarations": [dict(f) for f in _FUNCTIONS]}],
    "bedrock": lambda: [
        {
            "toolSpec": {
                "name": f["name"],
                "description": f["description"],
                "inputSchema": {"json": f["parameters"]},
            }
        }
        for f in _FUNCTIONS
    ],
}


def recall_tools(format: str) -> list[JsonObject]:
    """Return the tools `recall` and `unfold` as entries of a request's `tools`.

    *format* is `anthropic`, `openai_chat`, `openai_responses`, `gemini` or `bedrock` (for
    `toolConfig`). Raises `FormatError` for another name.
    """
    if format not in _WRAPPERS:
        raise FormatError(f"no wire format is called {format!r}; there are {', '.join(_WRAPPERS)}")
    return _WRAPPERS[format]()


def answer_call(view: View, call: Any, *, index: Index | None = None, size: int = 8_000) -> Any:
    """Run a model's call of `recall` or `unfold` on *view* and return the tool result to send back.

    *call* is what the model sent: an entry of `tool_calls` (Chat Completions), a `function_call`
    item (Responses), a `tool_use` block (Anthropic), a part with `functionCall` or its value
    (Gemini), a `toolUse` block (Bedrock), or a `ToolCall`. The result has the same format. It is
    None for other tools. Its text has at most *size* characters (but at least 80), with a note of
    what is left out. A wrong call gets a result that says so, marked as an error if the format can.
    Never raises.
    """
    opened = read_call(call)
    if opened is None or opened.name not in {RECALL, UNFOLD}:
        return None
    try:
        text = (_answer_recall if opened.name == RECALL else _answer_unfold)(
            view, opened, index, size
        )
    except (RefoldError, ValueError) as error:
        return opened.answer(f"{opened.name} failed: {error}"[:size], True)
    return opened.answer(text, False)


def _answer_recall(view: View, call: WireCall, index: Index | None, size: int) -> str:
    query = call.require_text("query")
    limit = max(1, min(MAX_HITS, call.read_int("limit", 10)))
    hits = recall(view, query, limit + 1, index=index, width=max(40, min(600, size // limit - 60)))
    if not hits:
        return "No hidden message matches. Try fewer or other words."
    lines = [
        f"[edit {hit.edit}, position {hit.position}, {hit.role}] {hit.snippet}"
        for hit in hits[:limit]
    ]
    if len(hits) > limit:
        lines.append(
            f"[… more messages match than these {limit}; "
            f"narrow the query, or ask for up to {MAX_HITS}]"
        )
    return _page("\n".join(lines), 0, size, "narrow the query or ask for fewer")


def _answer_unfold(view: View, call: WireCall, _index: Index | None, size: int) -> str:
    edit, at, offset = (
        view.find(call.require_text("edit")),
        call.read_int("position", -1),
        call.read_int("offset", 0),
    )
    if at >= 0 and not edit.start <= at < edit.stop:
        raise ValueError(
            f"edit {edit.id[:8]} hides positions {edit.start} to {edit.stop - 1}, not {at}"
        )
    first, stop = (at, at + 1) if at >= 0 else (edit.start, edit.stop)
    messages = view.transcript.messages
    text = "\n\n".join(
        f"[edit {edit.id[:8]}, position {n}, {name_speakers(messages[n])}]\n{readable_text(messages[n])}"
        for n in range(first, stop)
    )
    if not 0 <= offset <= len(text):
        raise ValueError(
            f"offset {offset} is outside of the text, which has {len(text)} characters"
        )
    return _page(text, offset, size)


def _page(text: str, offset: int, size: int, advice: str = "") -> str:
    """Return *text* from *offset* on, cut to *size* characters. The last line says how many
    follow."""
    if len(text) - offset <= size:
        return text[offset:]
    stop = floor(text, max(offset + 1, offset + size - 80))
    note = f"[… {len(text) - stop} characters left; {advice or f'go on with offset {stop}'}]"
    return f"{text[offset:stop]}\n{note}"
