"""An OpenCode database with the documented tables."""

import json
import sqlite3

SCHEMA = """
CREATE TABLE session (id TEXT PRIMARY KEY, project_id TEXT, parent_id TEXT, directory TEXT, title TEXT, version TEXT,
  revert TEXT, time_created INTEGER, time_updated INTEGER, time_compacting INTEGER);
CREATE TABLE message (id TEXT PRIMARY KEY, session_id TEXT, time_created INTEGER, data TEXT);
CREATE TABLE part (id TEXT PRIMARY KEY, message_id TEXT, session_id TEXT, data TEXT);
CREATE TABLE todo (session_id TEXT, content TEXT, status TEXT, priority TEXT, position INTEGER);
"""


def text(words, **fields):
    return {"type": "text", "text": words, **fields}


def tool(id, status="completed", **state):
    return {
        "type": "tool",
        "callID": id,
        "tool": "read",
        "state": {"status": status, "input": {"path": id}, **state},
    }


def finish_tool(id, output="text", **time):
    return tool(id, output=output, time={"start": 1, "end": 2, **time})


class Base:
    """A database being written."""

    def __init__(self, path):
        self.path = path
        self.base = sqlite3.connect(path)
        self.base.execute("PRAGMA journal_mode = WAL")
        self.base.executescript(SCHEMA)
        self.count = 0

    def session(self, id, updated=1_767_225_600_000, revert=None):
        row = (id, "prj", None, "/w", "a title", "1.2", revert, 1_767_225_600_000, updated, None)
        self.base.execute("INSERT INTO session VALUES (?,?,?,?,?,?,?,?,?,?)", row)
        self.base.commit()

    def message(self, session, data, *parts):
        self.count += 1
        id = f"msg_{self.count:03}"
        self.base.execute(
            "INSERT INTO message VALUES (?,?,?,?)", (id, session, self.count, _dump(data))
        )
        for at, part in enumerate(parts):
            self.base.execute(
                "INSERT INTO part VALUES (?,?,?,?)",
                (f"prt_{self.count:03}{at}", id, session, _dump(part)),
            )
        self.base.commit()
        return id

    def user(self, session, *parts):
        return self.message(session, {"role": "user"}, *parts)

    def answer(self, session, *parts, **data):
        return self.message(session, {"role": "assistant", "modelID": "m", **data}, *parts)


def _dump(data):
    return data if isinstance(data, str) else json.dumps(data)
