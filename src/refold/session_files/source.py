"""Files of sessions: opened for reading as lines of JSON, one JSON document, or a database. The
files of clients are found without being read. The records of one may form a tree."""

import gzip
import importlib
import json
import os
import re
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from io import BufferedReader, BytesIO, RawIOBase
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, cast

from refold.errors import FormatError
from refold.text.json_values import JsonObject, Record, first_text, parse_or_none

SAMPLE = 64
"""Lines that show which client a file is from."""

BOM = b"\xef\xbb\xbf"
GZIP = b"\x1f\x8b"
UTF16 = (b"\xff\xfe", b"\xfe\xff")
"""The marks of what Windows PowerShell writes for `>`."""
SQLITE = b"SQLite format 3\0"
ZSTD = b"\x28\xb5\x2f\xfd"
Line = tuple[int, Any]
"""Line number and parsed value."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something in the file that cannot be read as it stands."""

    line: int
    """Counted from 1; 0 for the file as a whole."""
    text: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.text}" if self.line else self.text


@dataclass(frozen=True, slots=True)
class Source:
    """A file that a reader looks at. Each call reads its lines anew, one at a time."""

    path: Path
    open: Callable[[], BinaryIO]
    sample: tuple[Line, ...] = ()
    """The first lines that are JSON."""
    document: Any = None
    """The file as one JSON value, if it is one."""
    notes: tuple[Problem, ...] = ()
    """Problems of the document."""
    database: bool = False
    """An SQLite file."""

    def records(self, problems: list[Problem]) -> Iterator[tuple[int, JsonObject]]:
        """Yield every line that is a JSON object, with its number; other lines go to *problems*."""
        with self.open() as stream:
            lines = parse_lines(stream, problems) if self.document is None else self.sample
            for number, value in lines:
                if isinstance(value, dict):
                    yield number, value
                else:
                    text = f"a JSON object was expected, not {type(value).__name__}"
                    problems.append(Problem(number, text))

    def objects(self) -> list[JsonObject]:
        """Return the JSON objects of the sample."""
        return [value for _, value in self.sample if isinstance(value, dict)]


def open_path(path: Path) -> Source:
    """Return a file as a source. Raises `FormatError`, `OSError` if it cannot be opened."""
    with path.open("rb") as stream:
        magic = stream.read(len(SQLITE))
    if magic.startswith((GZIP, ZSTD, *UTF16)):
        return open_bytes(path.read_bytes(), str(path))
    if magic == SQLITE:
        return Source(path, lambda: path.open("rb"), database=True)
    return _open_text(path, lambda: path.open("rb"))


def open_bytes(data: bytes, name: str) -> Source:
    """Return the content of a file as a source. Raises `FormatError`."""
    if data.startswith(GZIP):
        try:
            data = gzip.decompress(data)
        except (EOFError, OSError, zlib.error) as error:
            raise FormatError(f"{name}: damaged gzip data ({error})") from error
    if data.startswith(ZSTD):
        data = decompress_zstd(data, name)
    if data.startswith(UTF16):
        data = data.decode("utf-16", "replace").encode()
    if data.startswith(SQLITE):
        return Source(Path(name), lambda: BytesIO(data), database=True)
    return _open_text(Path(name), lambda: BytesIO(data))


def _open_text(path: Path, reopen: Callable[[], BinaryIO]) -> Source:
    problems = list[Problem]()
    with reopen() as stream:
        sample = tuple(islice(parse_lines(stream, problems), SAMPLE))
    if len(sample) == 1 and not problems:
        return Source(path, reopen, sample, sample[0][1])
    if problems and problems[0].line == 1:
        notes = list[Problem]()
        with reopen() as stream:
            whole = _decode(stream.read().removeprefix(BOM), 0, notes)
        try:
            document = _parse_json(whole)
            return Source(path, reopen, ((1, document),), document, tuple(notes))
        except json.JSONDecodeError as error:
            if error.lineno > 1 and not any(isinstance(value, dict) for _, value in sample):
                place = f"line {error.lineno:,}, column {error.colno:,}"
                raise FormatError(f"{path.name}: broken JSON ({place}: {error.msg})") from error
        except (ValueError, RecursionError):
            pass
    if not sample:
        why = f"neither JSON nor lines of JSON ({problems[0]})" if problems else "the file is empty"
        raise FormatError(f"{path.name}: {why}")
    return Source(path, reopen, sample)


_parse_json = json.JSONDecoder(strict=False).decode
"""Takes control characters in a text."""


def parse_lines(stream: BinaryIO, problems: list[Problem]) -> Iterator[Line]:
    """Yield each line's JSON value with its number; blank lines are passed over.

    A line that is no JSON is a problem, and so are bytes that are no UTF-8 (they are replaced) and
    NUL bytes around a line.
    """
    for number, raw in enumerate(stream, 1):
        line = raw.removeprefix(BOM) if number == 1 else raw
        bare = line.strip(b"\0 \t\r\n")
        if b"\0" in line and (b"\0" in bare or not bare or bare != line.strip()):
            problems.append(Problem(number, "NUL bytes in the line"))
        if not bare:
            continue
        try:
            yield number, _parse_json(_decode(bare, number, problems))
        except RecursionError:
            problems.append(Problem(number, "no JSON: nested too deeply to read"))
        except ValueError as error:
            problems.append(Problem(number, f"no JSON: {str(error)[:200]}"))


def _decode(line: bytes, number: int, problems: list[Problem]) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        problems.append(
            Problem(number, f"bytes that are no UTF-8, at byte {error.start}; replaced")
        )
        return line.decode("utf-8", "replace")


# --- compressed data ------------------------------------------------------------------------------


ZSTD_MODULES = ("compression.zstd", "zstandard")
"""Modules that can open a `.zst` file: in Python 3.14 and later, and on any."""
_PIECE = 1 << 10
"""Compressed bytes that are taken at once: what becomes of them has 32 MB at most."""


def decompress_zstd(data: bytes, name: str, modules: Sequence[str] = ZSTD_MODULES) -> bytes:
    """Decompress *data*. Raises `FormatError` for damaged data, and if no module is installed."""
    zstd = load_zstd(name, modules)
    try:
        return cast("bytes", _open_zstd(zstd, BytesIO(data)).read())
    except (zstd.ZstdError, EOFError, OSError, ValueError) as error:
        raise FormatError(f"{name}: damaged zstd data ({error})") from error


def open_zstd(stream: BinaryIO, name: str) -> BinaryIO:
    """Return a stream of the decompressed data. Raises `FormatError` if no module is installed."""
    return BufferedReader(_open_zstd(load_zstd(name), stream))


def load_zstd(name: str, modules: Sequence[str] = ZSTD_MODULES) -> Any:
    """Return the first of *modules* that is installed. Raises `FormatError` for the file *name* if
    none is."""
    for module in modules:
        with suppress(ImportError):
            return importlib.import_module(module)
    raise FormatError(
        f"{name} is compressed with zstd: "
        "install it with `pip install zstandard`, or use Python 3.14"
    )


def _open_zstd(zstd: Any, stream: BinaryIO) -> Any:
    """Open a stream of the decompressed data, all frames. The two modules have different APIs."""
    return zstd.ZstdFile(stream) if hasattr(zstd, "ZstdFile") else _Frames(zstd, stream)


class _Frames(RawIOBase):
    """The decompressed data of all frames in a stream; unlike the reader of `zstandard` it raises
    EOFError if the last of them is cut off."""

    def __init__(self, zstd: Any, stream: BinaryIO) -> None:
        self._begin = zstd.ZstdDecompressor().decompressobj
        self._stream, self._frame = stream, self._begin()
        self._packed, self._data = b"", memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._data:
            packed = self._packed or self._stream.read(_PIECE)
            if not packed:
                if self._frame.eof:
                    return 0
                raise EOFError("compressed data ended before its last frame did")
            if self._frame.eof:
                self._frame = self._begin()
            self._data = memoryview(self._frame.decompress(packed))
            self._packed = self._frame.unused_data
        size = min(len(buffer), len(self._data))
        buffer[:size], self._data = self._data[:size], self._data[size:]
        return size


# --- files of clients -----------------------------------------------------------------------------


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
    "kimi": "Kimi CLI",
    "continue": "Continue",
    "copilot": "Copilot CLI",
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

    @property
    def name(self) -> str:
        """Its id, else its file's name without endings."""
        return self.id or self.path.name.partition(".")[0]


def full_id(session: FoundSession) -> str:
    """Return what its client calls a session: its id, else the one that its file's name ends with,
    else that name."""
    name = session.name
    return name[-36:] if _UUID.fullmatch(name[-36:]) else name


def short_id(session: FoundSession) -> str:
    """Return what names a session on the command line: the beginning of its id."""
    name = session.name
    if match := _UUID.fullmatch(name[-36:]):
        return match[1]
    last = name.replace("_", "-").rpartition("-")[2]
    return last[-12:] if len(last) >= LEAST_ID else name


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
    find_id: Callable[[Path], str] = lambda _: ""
    """Finds a session's id, if it is not in the name of its file."""

    def find(self, home: Path, env: Mapping[str, str], on_error: OnError) -> Iterator[FoundSession]:
        """Find the sessions of the user with this *home* and environment."""
        for root in self.list_roots(home, env):
            for pattern in self.patterns:
                for path in files_below(root, pattern, on_error):
                    yield from look_at(path, self._describe, on_error)

    def list_roots(self, home: Path, env: Mapping[str, str]) -> list[Path]:
        """Return the client's homes, whether or not they are there."""
        named = env.get(self.variable)
        return [Path(named)] if named else [home / name for name in self.homes]

    def _describe(self, path: Path) -> Iterator[FoundSession]:
        state = path.stat()
        modified = datetime.fromtimestamp(state.st_mtime, UTC)
        id, cwd = self.find_id(path), self.read_cwd(path)
        yield FoundSession(self.client, path, state.st_size, modified, id, cwd)


def files_below(root: Path, pattern: str, on_error: OnError) -> Iterator[Path]:
    """Yield the files below *root* that match *pattern*, in no order; none if there is no *root*.

    `*` stands for any part of a name, `**/` for any directories (links are not followed).
    """
    deep = pattern.startswith("**/")
    first, _, rest = pattern.removeprefix("**/").partition("/")
    for entry in _entries(root, on_error):
        path = Path(entry.path)
        try:
            if deep and entry.is_dir(follow_symlinks=False):
                yield from files_below(path, pattern, on_error)
            if fnmatchcase(entry.name, first) and (path.is_dir() if rest else path.is_file()):
                yield from files_below(path, rest, on_error) if rest else [path]
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


def folder_name(path: Path) -> str:
    """Return the name of the folder that a file is in."""
    return path.absolute().parent.name


def cwd_under(*keys: str) -> Callable[[Path], str]:
    """Return a function that reads the first working directory under *keys* of a line."""

    def find_cwd(path: Path) -> str:
        with path.open("rb") as stream:
            head = b""
            for size in HEADS:
                head += stream.read(size - len(head))
                lines = islice(head.split(b"\n"), SAMPLE)
                if cwd := first_text(map(parse_or_none, lines), *keys):
                    return cwd
        return ""

    return find_cwd


# --- branches of a session ------------------------------------------------------------------------


@dataclass(slots=True)
class Node:
    """A record in a tree."""

    line: int
    id: str
    parent: str
    """The id of the record before it on its branch."""
    previous: str
    """The id of the record before it in the file that is part of the conversation."""
    record: Record
    """Empty if it only joins others: it is not part of the conversation."""


@dataclass(slots=True)
class Tree:
    """Records that name the one before them: a session with every branch that its user left."""

    nodes: dict[str, Node] = field(default_factory=dict)
    last: str = ""
    """The latest record of the conversation."""

    def add(self, line: int, id: str, parent: str, record: Record) -> None:
        """Add a record; of several with one id the first counts."""
        if id in self.nodes:
            return
        self.nodes[id] = Node(line, id, parent, self.last, record)
        if record:
            self.last = id

    def branch(self, leaf: str) -> list[Node]:
        """Return the nodes from the root down to *leaf*.

        Where parents go in a circle, the walk goes on with the record before in the file.
        """
        path, skips = dict[str, Node](), dict[str, str]()
        while leaf in self.nodes:
            path[leaf] = self.nodes[leaf]
            above = self._parent(path[leaf])
            if above in path:
                passed, above = [leaf], path[leaf].previous
                while above in path:
                    passed.append(above)
                    above = skips.get(above, path[above].previous)
                skips.update(dict.fromkeys(passed, above))  # long circles are walked once
            leaf = above
        return list(path.values())[::-1]

    def breaks(self, branch: Sequence[Node]) -> Iterator[Problem]:
        """Yield where a branch goes on with the record before in the file."""
        for above, node in zip(["", *(node.id for node in branch)], branch, strict=False):
            parent = self._parent(node)
            if parent != above:
                yield Problem(node.line, "its parents go in a circle; joined to the line before")
            if node.parent and parent and node.parent != parent:
                text = f"its parent {node.parent} is not in the file; joined to the line before"
                yield Problem(node.line, text)

    def _parent(self, node: Node) -> str:
        """Return the parent; of one on a broken line or in another file, the record before."""
        return node.parent if node.parent in self.nodes or not node.parent else node.previous
