"""Record of what a client's hook removed from tool results before the model saw them.

It consists of JSON lines in a file beside the client's own (`session.jsonl.refold-results`). The
client waits for this module to load, so it imports next to nothing.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

SUFFIX = ".refold-results"
"""Suffix of the file. It is not `.jsonl`, because agents take every `*.jsonl` in their folders for
a session."""
FORMAT = 1
"""Format version, the field `refold` of every line."""
LONGEST_ID = 50
"""Maximum characters of a session's id, which names files; the id of a client has 36."""


class LeftOut(NamedTuple):
    """Text of a result and the text that was shown instead."""

    call: str
    text: str
    shown: str
    line: int = 0
    """Number of its first line if the client numbers lines, else 0."""


class Seen(NamedTuple):
    """Result that was shown unchanged."""

    call: str
    key: str
    """Hash that is the same for equal results of one call."""


def append(transcript: str, rows: Iterable[LeftOut | Seen]) -> None:
    """Append *rows* to the file beside *transcript* in one write. Raise OSError on failure."""
    documents = ({"refold": FORMAT, **row._asdict()} for row in rows)
    # begins with a newline, since the last line in the file may be incomplete
    text = "".join(f"\n{json.dumps(document)}" for document in documents)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)
    descriptor = os.open(transcript + SUFFIX, flags, 0o600)
    try:
        data = f"{text}\n".encode()
        if os.write(descriptor, data) < len(data):
            raise OSError(f"{transcript}{SUFFIX}: the disk is full")
    finally:
        os.close(descriptor)


def read_left_out(transcript: str, origins: Iterable[str] = ()) -> dict[str, list[LeftOut]]:
    """Return what was removed from the results of a session and its *origins*, by call id.

    Missing files and unreadable lines are skipped.
    """
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
    """Return the id of the session from which Claude Code copied a fork's *record*; empty if the
    record is the session's own.

    From 2.1.330 on only records of the model have it.
    """
    forked = record.get("forkedFrom")
    origin = forked.get("sessionId") if isinstance(forked, dict) else record.get("requestSessionId")
    is_name = isinstance(origin, str) and Path(origin).name == origin and origin.isprintable()
    is_short = is_name and len(str(origin)) <= LONGEST_ID
    return str(origin) if is_short and origin != record.get("sessionId") else ""


def path_of_origin(transcript: str, origin: str) -> str:
    """Return the file of the session *origin*, in the folder of its fork."""
    return str(Path(transcript).with_name(f"{origin}.jsonl"))


def find_seen(transcript: str, key: str) -> list[str]:
    """Return the ids of the calls whose results were shown with this *key*, the latest first."""
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
