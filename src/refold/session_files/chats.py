"""OpenHands and Continue: what is on the screen, of which a chat is made.

OpenHands: a list of events, or a record that holds one; older events, and those of its SDK. Where
the model's response is recorded, the answer is that; of older events the call is the action with
its fields.

Continue: `~/.continue/sessions/<session>.json`, a list of what is on the screen. An item holds a
message, and beside an answer its calls with what they gave, which were sent as messages.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from refold.session_files.plain import record_id
from refold.session_files.reader import Entry, SessionBuilder, file_reader, join_content
from refold.session_files.source import ClientFiles, Source
from refold.text.json_values import (
    Record,
    list_at,
    object_at,
    objects_at,
    text_at,
    without_keys,
)

# --- OpenHands --------------------------------------------------------------------------------


OPENHANDS = "openhands"
_ROOT = "__root__"
"""What the SDK calls the parent of an event that begins a conversation anew."""
_UNSENT = frozenset({"agent_state_changed", "change_agent_state", "null", "recall", "condensation"})
"""Actions and observations that no model was sent."""
_BOOK_KEEPING = ("action", "source", "id", "timestamp", "message", "thought", "keep_prompt")
_CONFIRMATION = ("is_confirmed", "confirmation_state", "security_risk", "action_risk", "hidden")


def _events(document: Any) -> list[Record]:
    """Return the events of a record or a list; older ones stand in pairs."""
    for items in (
        document,
        *(list_at(document, key) for key in ("history", "events", "trajectory")),
    ):
        flat = [
            event
            for item in (items if isinstance(items, list) else ())
            for event in (item if isinstance(item, list) else [item])
        ]
        if flat and all(is_event(event) for event in flat):
            return _latest_branch(flat)
    return []


_RUNNING = -1
"""The exit code of a command that has none yet."""


def _latest_branch(events: list[Record]) -> list[Record]:
    """Return the events that led to the latest: after a step back, those that it undid do not. An
    event of the SDK may name its parent; else, as in a part of a log, it is the one before it."""
    places = {text_at(event, "id"): at for at, event in enumerate(events)}
    branch, at = list[Record](), len(events) - 1
    while at >= 0:
        branch.append(events[at])
        parent = text_at(events[at], "parent_id")
        at = -1 if parent == _ROOT else min(places.get(parent, at), at - 1)
    return branch[::-1]


def is_event(value: Any) -> bool:
    """Does a JSON value look like an event?"""
    keys = ("action", "observation", "kind")
    return "role" not in object_at(value) and any(text_at(value, key) for key in keys)


def openhands_mismatch(source: Source) -> str:
    """Return why these are no events of OpenHands; empty if they are."""
    return (
        "" if _events(source.document) else "no list of events with an action, observation or kind"
    )


def read_openhands(session: SessionBuilder) -> None:
    """Read a list of events, or a record that has one. Calls of one response are one answer."""
    document, responses = session.source.document, set[str]()
    session.id = record_id(document)
    for number, event in enumerate(_events(document)):
        read = _read_sdk_event if "kind" in event else _read_event
        read(session, responses, {"id": number, **event})


def _read_event(session: SessionBuilder, responses: set[str], event: Record) -> None:
    kind = text_at(event, "action") or text_at(event, "observation")
    arguments, call = object_at(event, "args") or event, object_at(event, "tool_call_metadata")
    if kind in _UNSENT:
        return
    if "observation" in event:
        cause = f"call_{event['cause']}" if isinstance(event.get("cause"), int) else ""
        session.answer(_read_observation(event), text_at(call, "tool_call_id") or cause)
    elif kind in {"system", "message"}:
        is_answer = text_at(event, "source") == "agent" and kind == "message"
        role = "assistant" if is_answer else "system" if kind == "system" else "user"
        session.say(role, text_at(arguments, "content") or text_at(event, "message"))
        if tools := list_at(arguments, "tools"):
            session.body["tools"] = tools
    elif response := object_at(call, "model_response"):
        if (id := text_at(response, "id")) not in responses:
            responses.add(id)
            _add_response(session, response)
    elif text_at(event, "source") != "user":
        fields = without_keys(arguments, *_BOOK_KEEPING, *_CONFIRMATION)
        id = f"call_{event['id']}"
        session.call(text_at(arguments, "thought"), [(id, kind, fields)])


def _read_observation(event: Record) -> str:
    """Return what the model was told of a command: the output with what stands around it, where the
    shell is, and the exit code."""
    content, metadata = text_at(event, "content"), object_at(event, "extras", "metadata")
    place, python = text_at(metadata, "working_dir"), text_at(metadata, "py_interpreter_path")
    code = metadata.get("exit_code", _RUNNING)
    rows = (
        text_at(metadata, "prefix") + content + text_at(metadata, "suffix"),
        f"[Current working directory: {place}]" if place else "",
        f"[Python interpreter: {python}]" if python else "",
        "" if code == _RUNNING else f"[Command finished with exit code {code}]",
    )
    return "\n".join(filter(None, rows))


def _add_response(session: SessionBuilder, response: Record) -> None:
    """Add an answer as the model gave it."""
    message = next((object_at(choice, "message") for choice in objects_at(response, "choices")), {})
    calls = [
        (text_at(call, "id"), text_at(call, "function", "name"), call["function"].get("arguments"))
        for call in objects_at(message, "tool_calls")
        if text_at(call, "function", "name")
    ]
    session.body.setdefault("model", text_at(response, "model"))
    session.call(message.get("content"), calls, text_at(message, "reasoning_content"))


def _read_sdk_event(session: SessionBuilder, responses: set[str], event: Record) -> None:
    id, kind = text_at(event, "tool_call_id"), text_at(event, "kind")
    if kind == "SystemPromptEvent":
        session.say("system", text_at(event, "system_prompt", "text"))
        if tools := [_read_tool(tool) for tool in objects_at(event, "tools")]:
            session.body["tools"] = tools
    elif kind == "MessageEvent":
        message = object_at(event, "llm_message")
        role, content = text_at(message, "role") or "user", join_content(message.get("content"))
        session.say(role, content, reasoning_content=text_at(message, "reasoning_content"))
    elif kind == "ActionEvent":
        call, response = object_at(event, "tool_call"), text_at(event, "llm_response_id")
        function = object_at(call, "function") or call
        name = text_at(event, "tool_name") or text_at(function, "name")
        if response and response in responses:
            session.add_call(id, name, function.get("arguments"))
            return
        responses.add(response)
        reasoning = text_at(event, "reasoning_content")
        calls = [(id, name, function.get("arguments"))]
        session.call(join_content(event.get("thought")), calls, reasoning)
    elif id:
        seen = object_at(event, "observation")
        texts = (join_content(seen.get("content")), text_at(seen, "output"), text_at(seen, "error"))
        reasons = (text_at(event, "error"), text_at(event, "rejection_reason"))
        session.answer(next((text for text in (*texts, *reasons) if text), ""), id)


def _read_tool(tool: Record) -> Record:
    """Return a tool as it was sent, as far as the event has it: newer ones leave its parameters
    out."""
    if "function" in tool:
        return tool
    function = {"name": text_at(tool, "title"), "description": text_at(tool, "description")}
    return {"type": "function", "function": function}


OPENHANDS_READER = file_reader(OPENHANDS, "openai_chat", openhands_mismatch, read_openhands)

# --- Continue ---------------------------------------------------------------------------------


CONTINUE = "continue"


def _read_folder(path: Path) -> str:
    """Read the working directory out of one document, which may be long."""
    with path.open("rb") as stream:
        _, _, rest = (
            stream.read(8_192).decode("utf-8", "replace").partition('"workspaceDirectory":')
        )
    return str(json.JSONDecoder().raw_decode(rest.lstrip())[0]) if rest else ""


CONTINUE_FILES = ClientFiles(
    CONTINUE, (".continue",), ("sessions/*-*.json",), _read_folder, "CONTINUE_GLOBAL_DIR"
)


def continue_mismatch(source: Source) -> str:
    """Return why this is no session of Continue; empty if it is one."""
    items = list_at(source.document, "history")
    is_session = text_at(source.document, "sessionId") and items
    if is_session and all(text_at(item, "message", "role") for item in items):
        return ""
    return "no sessionId with a history of messages"


def read_continue(session: SessionBuilder) -> None:
    """Read a session."""
    document = session.source.document
    for item in objects_at(document, "history"):
        place = session.position + 1
        session.messages += _item_entries(item, object_at(item, "message"))
        if usage := object_at(item, "message", "usage"):
            session.usage.append((place, usage))
            session.model = text_at(usage, "model") or session.model
    session.id, session.title, session.cwd = (
        text_at(document, key) for key in ("sessionId", "title", "workspaceDirectory")
    )


def _item_entries(item: Record, message: Record) -> Iterator[Entry]:
    """Yield a message, then what its calls gave. A call that did not end stays open."""
    role, content = text_at(message, "role"), message.get("content") or ""
    if role == "tool":
        id = text_at(message, "toolCallId")
        yield {"role": "tool", "tool_call_id": id, "content": content}
    elif role == "user" and isinstance(content, str):
        shown = [text_at(context, "content") for context in objects_at(item, "contextItems")]
        yield {"role": role, "content": "\n\n".join((*filter(None, shown), content))}
    elif role == "assistant":
        calls = list(objects_at(message, "toolCalls"))
        yield {"role": role, "content": content, **({"tool_calls": calls} if calls else {})}
        for state in objects_at(item, "toolCallStates"):
            if "output" in state:
                text = "\n\n".join(text_at(part, "content") for part in objects_at(state, "output"))
                id = text_at(state, "toolCallId")
                yield {"role": "tool", "tool_call_id": id, "content": text}
    elif role != "thinking":
        yield {"role": role, "content": content}


CONTINUE_READER = file_reader(
    CONTINUE, "openai_chat", continue_mismatch, read_continue, CONTINUE_FILES.find
)
