"""Actions written in the text, as mini-swe-agent's models do, as the tool calls that they are."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

from refold.session_files.json_fields import text_at
from refold.session_files.session import Entry, Session

_OPENING = re.compile(r"```(?:bash|sh|mswea_bash_command)[ \t]*+\n")
_CLOSING = "\n```"


def with_calls(session: Session) -> Session:
    """*session* with text actions as tool calls, so that strategies for tool results see them.

    An assistant's message with exactly one block of shell commands makes a call of the tool `bash`,
    and the user's message after it is the result. Positions stay. `transcripts.read` gives the
    messages as they were sent; this form was never sent. Sessions in another format than
    `openai_chat` come back as they are, and so do messages that make calls of their own.
    """
    if session.format != "openai_chat":
        return session
    return replace(session, messages=list(_convert_actions(session.messages)))


def _convert_actions(messages: Sequence[Entry]) -> Iterator[Entry]:
    waiting = ""
    for at, message in enumerate(messages):
        follower = messages[at + 1] if at + 1 < len(messages) else {"role": "user"}
        action = _action(message) if text_at(follower, "role") == "user" else ""
        if waiting:
            yield {"role": "tool", "tool_call_id": waiting, "content": message.get("content")}
        elif action:
            yield _call(message, f"call_{at}", action)
        else:
            yield message
        waiting = f"call_{at}" if action else ""


def _action(message: Any) -> str:
    """The one action of an assistant's text; empty where there is none, or more than one."""
    if text_at(message, "role") != "assistant" or message.get("tool_calls"):
        return ""
    content = text_at(message, "content")
    blocks = list(islice(_blocks(content), 2))
    return content[blocks[0].start : blocks[0].stop] if len(blocks) == 1 else ""


class _Block(NamedTuple):
    """A block of shell commands: the agent runs it, and the next message of the user is what came out."""

    opens: int
    start: int
    stop: int


def _blocks(content: str) -> Iterator[_Block]:
    """The blocks of a text, in time linear in its length."""
    at = 0
    while (opening := _OPENING.search(content, at)) and (
        stop := content.find(_CLOSING, opening.end())
    ) >= 0:
        yield _Block(opening.start(), opening.end(), stop)
        at = stop + len(_CLOSING)


def _call(message: Entry, id: str, action: str) -> Entry:
    function = {"name": "bash", "arguments": json.dumps({"command": action}, ensure_ascii=False)}
    content = message["content"]
    block = next(_blocks(content))
    content = f"{content[: block.opens]}{content[block.stop + len(_CLOSING) :]}".rstrip()
    return {
        **message,
        "content": content,
        "tool_calls": [{"id": id, "type": "function", "function": function}],
    }
