"""A chat made of a record of a data set, whatever it calls its messages."""

import json
from collections.abc import Iterable
from typing import Any

from refold.session_files.reader import Entry, Session, SessionBuilder
from refold.session_files.source import Source
from refold.text.json_values import Record, object_at

IDS = ("session", "session_id", "trajectory_id", "instance_id", "id", "uuid")
"""Fields in which a record names itself."""


def record_id(record: Any) -> str:
    """Return the name that a record gives itself; empty if it gives none."""
    values = (object_at(record).get(name) for name in IDS)
    named = (str(value) for value in values if isinstance(value, str | int) and value != "")
    return next(named, "")


class ChatBuilder:
    """Entries of a chat while they are made of something else."""

    def __init__(self) -> None:
        self.entries = list[Entry]()
        self.open = list[str]()
        """Calls that were not answered yet, oldest first."""

    def say(self, role: str, content: Any, **fields: Any) -> None:
        """Add a message."""
        present = {key: value for key, value in fields.items() if value}
        self.entries.append({"role": role, "content": content, **present})

    def call(
        self, content: Any, calls: Iterable[tuple[str, str, Any]], reasoning: str = ""
    ) -> None:
        """Add an answer that makes *calls*: id (empty: one is made), name, arguments."""
        self.say("assistant", content or None, reasoning_content=reasoning)
        self.open = []
        for call in calls:
            self.add_call(*call)

    def add_call(self, id: str, name: str, arguments: Any) -> None:
        """Add a call to the latest answer."""
        answer = next(entry for entry in reversed(self.entries) if entry["role"] == "assistant")
        calls = answer.setdefault("tool_calls", [])
        self.open.append(id or f"call_{len(self.entries) - 1}_{len(calls)}")
        calls.append(write_call(self.open[-1], name, arguments))

    def answer(self, content: Any, id: str = "") -> None:
        """Add the result of a call, without an id of the oldest open one; what answers none is the
        user's."""
        if not id and not self.open:
            self.say("user", content)
            return
        id = id or self.open[0]
        self.open = [each for each in self.open if each != id]
        self.entries.append({"role": "tool", "tool_call_id": id, "content": content})

    def build(self, source: Source, client: str, body: Record) -> Session:
        """Return the session of a record with these entries."""
        name = record_id(source.document)
        session = SessionBuilder(source, client, "openai_chat", name, body=dict(body))
        session.messages = self.entries
        return session.build()


def write_call(id: str, name: str, arguments: Any) -> Entry:
    """Return a call as a chat message holds it; arguments that are no text become JSON."""
    if not isinstance(arguments, str):
        arguments = json.dumps({} if arguments is None else arguments, ensure_ascii=False)
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
