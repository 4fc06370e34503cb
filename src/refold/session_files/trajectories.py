"""What data sets of agents hold: ShareGPT, and trajectories of the Agent Data Protocol and of ATIF.

A record is one conversation: a file of its own, a line of JSONL or a row of a table. ShareGPT names
no calls; they get ids by position.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from refold.session_files.plain import IDS, ChatBuilder
from refold.session_files.reader import Reader, Session, StoredSession, single
from refold.session_files.source import Source
from refold.text.json_values import (
    Record,
    list_at,
    object_at,
    objects_at,
    objects_in,
    parse_or_none,
    text_at,
    without_keys,
)

# --- ShareGPT ----------------------------------------------------------------------------------

SHAREGPT = "sharegpt"
TURNS = ("conversations", "conversation", "trajectory")
"""Fields that hold the turns."""
_ROLES = {
    **dict.fromkeys(("system",), "system"),
    **dict.fromkeys(("human", "user"), "user"),
    **dict.fromkeys(
        ("gpt", "assistant", "ai", "model", "bot", "chatgpt", "bing", "bard"), "assistant"
    ),
    **dict.fromkeys(("function_call", "tool_call"), "call"),
    **dict.fromkeys(("observation", "tool", "function", "function_response"), "result"),
}


def _turns(document: Any) -> tuple[str, Sequence[Record]]:
    """Return the field of the turns and the turns; none if they are of another kind."""
    for field in TURNS:
        turns = list(objects_at(document, field))
        if turns and all(
            _speaker(turn) in _ROLES and ("content" in turn or _words(turn) is not None)
            for turn in turns
        ):
            return field, turns
    return "", []


def _speaker(turn: Record) -> str:
    return (text_at(turn, "from") or text_at(turn, "role")).lower()


def _words(turn: Record) -> str | None:
    texts = (turn.get(key) for key in ("value", "text", "content", "system_prompt"))
    return next((text for text in texts if isinstance(text, str)), None)


def sharegpt_mismatch(source: Source) -> str:
    """Return why this is no ShareGPT conversation; empty if it is one."""
    return "" if _turns(source.document)[1] else f"no turns of known speakers in {', '.join(TURNS)}"


def read_sharegpt(source: Source) -> Session:
    """Read a conversation: calls and results stand in turns of their own."""
    document, chat = source.document, ChatBuilder()
    field, turns = _turns(document)
    tools = parse_or_none(text_at(document, "tools")) or document.get("tools")
    body = without_keys(document, field, "system", "tools", *IDS)
    if isinstance(tools, list):
        body["tools"] = tools
    if text := text_at(document, "system"):
        chat.say("system", text)
    for turn in turns:
        if "role" in turn and "content" in turn:  # a chat message under another name
            chat.entries.append(turn)
            continue
        role, text = _ROLES[_speaker(turn)], _words(turn) or ""
        calls = parse_or_none(text) if role == "call" else None
        calls = [calls] if isinstance(calls, dict) else calls
        if role == "call" and calls and all(text_at(call, "name") for call in objects_in(calls)):
            chat.call(
                None, [("", call["name"], call.get("arguments")) for call in objects_in(calls)]
            )
        elif role == "result":
            chat.answer(text)
        else:
            chat.say("assistant" if role == "call" else role, text)
    return chat.build(source, SHAREGPT, body)


# --- Agent Data Protocol -------------------------------------------------------------------------

ADP = "adp"


def adp_mismatch(source: Source) -> str:
    """Return why this is no trajectory of the Agent Data Protocol; empty if it is one."""
    steps = list(objects_at(source.document, "content"))
    is_match = steps and all(text_at(step, "class_") for step in steps)
    return "" if is_match else "no content of actions and observations"


def read_adp(source: Source) -> Session:
    """Read a trajectory. Actions that follow one another are one answer of the model."""
    document, chat = source.document, ChatBuilder()
    before = ""
    for step in objects_at(document, "content"):
        kind, content = text_at(step, "class_"), step.get("content")
        thought, reasoning = text_at(step, "description"), text_at(step, "reasoning_content")
        id = text_at(step, "tool_call_id")
        if kind in {"api_action", "code_action"}:
            name, arguments = _adp_call(step)
            if before in {"api_action", "code_action"} and not thought:
                chat.add_call(id, name, arguments)
            else:
                chat.call(thought, [(id, name, arguments)], reasoning)
        elif kind == "message_action":
            text = "\n\n".join(part for part in (thought, text_at(step, "content")) if part)
            chat.say("assistant", text, reasoning_content=reasoning)
        elif kind == "text_observation" and step.get("source") != "environment" and not id:
            chat.say("user", content)
        else:
            chat.answer(content if isinstance(content, str) else _adp_page(step), id)
        before = kind
    return chat.build(source, ADP, without_keys(document, "content", "id"))


def _adp_call(step: Record) -> tuple[str, Any]:
    if step["class_"] == "code_action":
        return text_at(step, "language") or "code", {"code": step.get("content")}
    return text_at(step, "function"), object_at(step, "kwargs")


def _adp_page(step: Record) -> str:
    texts = (text_at(step, key) for key in ("axtree", "html", "url"))
    return next((text for text in texts if text), f"[{text_at(step, 'class_')}]")


# --- Agent Trajectory Interchange Format, up to 1.8 ----------------------------------------------

ATIF = "atif"


def atif_mismatch(source: Source) -> str:
    """Return why this is no trajectory of the Agent Trajectory Interchange Format; empty if it is
    one."""
    is_match = text_at(source.document, "schema_version").startswith("ATIF")
    return "" if is_match else "no schema_version ATIF"


def list_atif(source: Source) -> list[StoredSession]:
    """Return the trajectories of subagents that a trajectory holds, and then its own."""
    subagents = objects_at(source.document, "subagent_trajectories")
    inner = [each for agent in subagents for each in list_atif(replace(source, document=agent))]
    id = text_at(source.document, "trajectory_id") or text_at(source.document, "session_id")
    return [*inner, StoredSession(id, partial(_read_atif, source, id))]


def _read_atif(source: Source, id: str) -> Session:
    """Read a trajectory. What a step copies of an earlier one keeps its mark: it was context."""
    document, chat = source.document, ChatBuilder()
    for step in objects_at(document, "steps"):
        text, speaker = _atif_text(step.get("message")), text_at(step, "source")
        if speaker == "agent":
            calls = [
                (
                    text_at(call, "tool_call_id"),
                    text_at(call, "function_name"),
                    call.get("arguments"),
                )
                for call in objects_at(step, "tool_calls")
            ]
            chat.call(text, calls, text_at(step, "reasoning_content"))
            if step.get("is_copied_context"):
                chat.entries[-1]["is_copied_context"] = True
        elif text:
            chat.say("system" if speaker == "system" else "user", text)
        for result in objects_at(step, "observation", "results"):
            chat.answer(_atif_text(result.get("content")), text_at(result, "source_call_id"))
    agent = object_at(document, "agent")
    body = {"model": text_at(agent, "model_name"), "tools": list_at(agent, "tool_definitions")}
    named = replace(source, document={"id": id})
    return chat.build(named, ATIF, {key: value for key, value in body.items() if value})


def _atif_text(content: Any) -> str:
    """Return the text of a message; of other media where they are."""
    if isinstance(content, str):
        return content
    parts = objects_in(content)
    return "\n".join(
        text_at(part, "text") or f"[{text_at(part, 'source', 'path')}]" for part in parts
    )


SHAREGPT_READER = Reader(SHAREGPT, sharegpt_mismatch, single(read_sharegpt))
ADP_READER = Reader(ADP, adp_mismatch, single(read_adp))
ATIF_READER = Reader(ATIF, atif_mismatch, list_atif)
