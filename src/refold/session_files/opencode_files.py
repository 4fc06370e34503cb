"""OpenCode before 1.2: JSON files under `~/.local/share/opencode/storage`.

`session/<project>/<session>.json`, `message/<session>/<message>.json` and `part/<message>/<part>.json`
hold what a database of today holds in rows. Ids are taken from the paths, as OpenCode takes them.
What `opencode export` prints, one object with everything, is read as well.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from refold.session_files.opencode_messages import CLIENT, Row, Said, told
from refold.session_files.session import Problem, Session
from refold.session_files.shape import mapping, mappings, number, text
from refold.session_files.source import Reader, Source, Stored

Data = Mapping[str, Any]


def refuses(source: Source) -> str:
    """Why this is no session file or export of OpenCode; empty if it is one."""
    if _is_session(source.document):
        return "" if _storage(source.path).is_dir() else "a session without the messages beside it"
    if _is_session(mapping(source.document, "info")) and isinstance(source.document.get("messages"), list):
        return ""
    return "no session with an id, a version and times"


def sessions(source: Source) -> Sequence[Stored]:
    """The one session of a file."""
    return [Stored(_id(source), partial(read, source))]


def read(source: Source) -> Session:
    """Read a session file and the files of its messages, or an export."""
    problems = list(source.notes)
    info = mapping(source.document, "info") or source.document
    said = _exported(source.document) if "info" in source.document else _filed(source, problems)
    return told(source.path, _row(_id(source), info), sorted(said, key=_when), problems)


def _is_session(value: Any) -> bool:
    return text(value, "id").startswith("ses") and number(value, "time", "created") >= 0 and "version" in value


def _storage(path: Path) -> Path:
    """The folder with `session`, `message` and `part`, of which *path* is in the first."""
    return path.resolve().parent.parent.parent / "message"


def _id(source: Source) -> str:
    return source.path.stem if _is_session(source.document) else text(source.document, "info", "id")


def _row(id: str, info: Data) -> Row:
    """A session file as the row that OpenCode makes of it."""
    created, updated = (mapping(info, "time").get(key) for key in ("created", "updated"))
    return {**info, "id": id, "time_created": created, "time_updated": updated}


def _when(said: Said) -> tuple[int, str]:
    return number(said.data, "time", "created"), said.id


def _exported(document: Data) -> Iterator[Said]:
    for one in mappings(document, "messages"):
        info = mapping(one, "info")
        yield Said(text(info, "id"), info, _ordered(mappings(one, "parts")))


def _filed(source: Source, problems: list[Problem]) -> Iterator[Said]:
    folder = _storage(source.path)
    for path, data in _objects(folder / source.path.stem, problems):
        parts = _objects(folder.parent / "part" / path.stem, problems)
        yield Said(path.stem, data, _ordered({**part, "id": at.stem} for at, part in parts))


def _ordered(parts: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(parts, key=lambda part: text(part, "id"))


def _objects(folder: Path, problems: list[Problem]) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The JSON objects in the files of a folder; what is none is a problem. No folder holds none."""
    for path in sorted(folder.glob("*.json")):
        try:
            value = json.loads(path.read_bytes().decode("utf-8", "replace"), strict=False)
        except (OSError, ValueError, RecursionError) as error:
            problems.append(Problem(0, f"{path.name}: {error}"))
            continue
        if isinstance(value, dict):
            yield path, value
        else:
            problems.append(Problem(0, f"{path.name}: a JSON object was expected"))


READER = Reader(CLIENT, refuses, sessions)
