"""What a client's hook left out of the results that its model saw: lines of JSON in a file beside
the client's own (`session.jsonl.refold-results`). A client waits for this file: it imports next to
nothing.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

SUFFIX = ".refold-results"
"""Not `.jsonl`: agents take every `*.jsonl` in their folders for a session."""
FORMAT = 1
"""Version of the form written here: the field `refold` of every line."""


class LeftOut(NamedTuple):
    """A text of a result that was shown as another."""

    call: str
    text: str
    shown: str
    line: int = 0
    """The number of its first line, if the client numbers the lines; else 0."""


class Seen(NamedTuple):
    """A result that was shown as it was."""

    call: str
    key: str
    """A hash: of equal results of one call it is the same."""


def append(transcript: str, rows: Iterable[LeftOut | Seen]) -> None:
    """Add *rows* to the file beside *transcript*, in one write. Raises OSError."""
    documents = ({"refold": FORMAT, **row._asdict()} for row in rows)
    text = "".join(f"\n{json.dumps(document)}" for document in documents)  # after a torn line, too
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)
    descriptor = os.open(transcript + SUFFIX, flags, 0o600)
    try:
        data = f"{text}\n".encode()
        if os.write(descriptor, data) < len(data):
            raise OSError(f"{transcript}{SUFFIX}: the disk is full")
    finally:
        os.close(descriptor)


def read_left_out(transcript: str, origins: Iterable[str] = ()) -> dict[str, list[LeftOut]]:
    """Return what was left out of the results of a session and of its *origins*, by call; empty if
    there are no such files. Lines that cannot be read are passed over."""
    rows = dict[str, list[LeftOut]]()
    paths = (transcript, *(path_of_origin(transcript, origin) for origin in origins))
    for document in (document for path in paths for document in _read(path)):
        with suppress(KeyError, TypeError, ValueError):
            call, text, shown = (str(document[name]) for name in LeftOut._fields[:3])
            row = LeftOut(call, text, shown, int(document.get("line", 0)))
            if row not in rows.setdefault(row.call, []):
                rows[row.call].append(row)
    return rows


def find_origin(record: Mapping[str, Any]) -> str:
    """Return the id of the session from which a fork has a line of Claude Code's; empty if it is
    its own. From 2.1.330 on only the model's lines say so."""
    forked = record.get("forkedFrom")
    origin = forked.get("sessionId") if isinstance(forked, dict) else record.get("requestSessionId")
    is_name = isinstance(origin, str) and Path(origin).name == origin
    return str(origin) if is_name and origin != record.get("sessionId") else ""


def path_of_origin(transcript: str, origin: str) -> str:
    """Return the file of the session *origin*, beside the one forked from it."""
    return str(Path(transcript).with_name(f"{origin}.jsonl"))


def find_seen(transcript: str, key: str) -> list[str]:
    """Return the calls whose results were shown with this *key*, the latest first."""
    calls = [str(row.get("call")) for row in _read(transcript, key) if row.get("key") == key]
    return calls[::-1]


def _read(transcript: str, needle: str = "") -> Iterator[dict[str, Any]]:
    try:
        data = Path(transcript + SUFFIX).read_bytes()
    except FileNotFoundError:
        return
    for line in data.split(b"\n") if needle.encode() in data else ():
        if line and needle.encode() in line:
            with suppress(ValueError, RecursionError):
                document = json.loads(line)
                if isinstance(document, dict) and document.get("refold") == FORMAT:
                    yield document
