"""Find the files of clients without reading them."""

import os
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import partial
from itertools import islice
from pathlib import Path

from refold.text.json_values import parse_or_none, text_at

OnError = Callable[[OSError], object]
"""Gets the error of each path that could not be looked at."""
HEADS = 8_192, 262_144
"""Bytes of a file looked at for its working directory (a Codex header holds all instructions)."""


NAMES = {
    "claude_code": "Claude Code",
    "codex": "Codex",
    "gemini_cli": "Gemini CLI",
    "qwen": "Qwen Code",
    "opencode": "OpenCode",
    "kilo": "Kilo",
}
"""Clients whose names are not written as their keys."""
LEAST_ID = 4
"""Characters that name a session of which they are the beginning."""
_UUID = re.compile(r"([0-9a-f]{8})(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class FoundSession:
    """A session that can be read."""

    client: str
    path: Path
    size_bytes: int
    """Of the file, or of the session's messages in a database; -1 if that is not cheap to know."""
    modified: datetime
    id: str = ""
    """Which session of a database, or of many files."""
    cwd: str = ""
    title: str = ""


def full_id(session: FoundSession) -> str:
    """Return what its client calls a session: its id, else the one that its file's name ends with,
    else that name."""
    stem = session.id or session.path.name.partition(".")[0]
    return stem[-36:] if _UUID.fullmatch(stem[-36:]) else stem


def short_id(session: FoundSession) -> str:
    """Return what names a session on the command line: the beginning of its id."""
    stem = session.id or session.path.name.partition(".")[0]
    if match := _UUID.fullmatch(stem[-36:]):
        return match[1]
    last = stem.replace("_", "-").rpartition("-")[2]
    return last[-12:] if len(last) >= LEAST_ID else stem


@dataclass(frozen=True, slots=True)
class ClientFiles:
    """Where a client keeps its sessions, one a file."""

    client: str
    homes: tuple[str, ...]
    """The client's homes below the user's."""
    patterns: tuple[str, ...]
    """The session files below a home, as `files_below` takes them."""
    read_cwd: Callable[[Path], str]
    """Reads the working directory of a session out of its file."""
    variable: str = ""
    """The environment variable that names the client's home instead."""

    def find(self, home: Path, env: Mapping[str, str], on_error: OnError) -> Iterator[FoundSession]:
        """Find the sessions of the user with this *home* and environment."""
        named = env.get(self.variable)
        for root in [Path(named)] if named else [home / name for name in self.homes]:
            for pattern in self.patterns:
                for path in files_below(root, pattern, on_error):
                    yield from look_at(path, self._describe, on_error)

    def _describe(self, path: Path) -> Iterator[FoundSession]:
        state = path.stat()
        modified = datetime.fromtimestamp(state.st_mtime, UTC)
        yield FoundSession(self.client, path, state.st_size, modified, cwd=self.read_cwd(path))


def files_below(root: Path, pattern: str, on_error: OnError) -> Iterator[Path]:
    """Yield the files below *root* that match *pattern*, in no order; none if there is no *root*.

    `*` stands for any part of a name, `**/` for any directories (links are not followed).
    """
    deep = pattern.startswith("**/")
    first, _, rest = pattern.removeprefix("**/").partition("/")
    for entry in _entries(root, on_error):
        if deep and entry.is_dir(follow_symlinks=False):
            yield from files_below(Path(entry.path), pattern, on_error)
        if fnmatchcase(entry.name, first):
            yield from _match_rest(Path(entry.path), rest, on_error)


def _match_rest(path: Path, rest: str, on_error: OnError) -> Iterator[Path]:
    try:
        if rest and path.is_dir():
            yield from files_below(path, rest, on_error)
        elif not rest and path.is_file():
            yield path
    except OSError as error:
        on_error(error)


def _entries(directory: Path, on_error: OnError) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        on_error(error)
        return []


def look_at(
    path: Path, describe: Callable[[Path], Iterable[FoundSession]], on_error: OnError
) -> list[FoundSession]:
    """Return the sessions that *describe* finds in a file; none if it is damaged."""
    try:
        return list(describe(path))
    except OSError as error:
        on_error(error)
    except (sqlite3.Error, ValueError, OverflowError):
        pass
    return []


def cwd_under(*keys: str) -> Callable[[Path], str]:
    """Return a function that reads the first working directory under *keys* of a line."""
    return partial(_find_cwd, keys)


def _find_cwd(keys: tuple[str, ...], path: Path) -> str:
    with path.open("rb") as stream:
        head = b""
        for size in HEADS:
            head += stream.read(size - len(head))
            lines = islice(head.split(b"\n"), 64)
            if cwd := next(
                filter(None, (text_at(parse_or_none(line), *keys) for line in lines)), ""
            ):
                return cwd
    return ""
