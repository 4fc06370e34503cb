"""Session files, opened for reading as JSON lines, one JSON document or a database. Also finds the
files of clients, and follows the branches of a session."""

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
from refold.text.json_values import JsonObject, Record, first_text, object_at, parse_or_none

SAMPLE = 64
"""Number of lines that are read to recognise the client of a file."""

BOM = b"\xef\xbb\xbf"
GZIP = b"\x1f\x8b"
UTF16 = (b"\xff\xfe", b"\xfe\xff")
"""Byte order marks. Windows PowerShell writes UTF-16 for `>`."""
SQLITE = b"SQLite format 3\0"
ZSTD = b"\x28\xb5\x2f\xfd"
Line = tuple[int, Any]
"""Line number and parsed JSON value."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something in a file that was left out, changed or not understood."""

    line: int
    """Line number from 1; 0 for the file as a whole."""
    text: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.text}" if self.line else self.text


@dataclass(frozen=True, slots=True)
class Source:
    """A file as readers get it. Each call of `records` reads its lines again, one at a time."""

    path: Path
    open: Callable[[], BinaryIO]
    sample: tuple[Line, ...] = ()
    """The first lines that are valid JSON."""
    document: Any = None
    """The file as one JSON value; None if it is not a single JSON value."""
    notes: tuple[Problem, ...] = ()
    """Problems with reading *document*."""
    database: bool = False
    """Whether the file is an SQLite database."""

    def records(self, problems: list[Problem]) -> Iterator[tuple[int, JsonObject]]:
        """Yield each JSON object and its line number. Other lines are added to *problems*."""
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
    """Open a file as a source. Raises `FormatError`, or `OSError` if it cannot be opened."""
    with path.open("rb") as stream:
        magic = stream.read(len(SQLITE))
    if magic.startswith((GZIP, ZSTD, *UTF16)):
        return open_bytes(path.read_bytes(), str(path))
    if magic == SQLITE:
        return Source(path, lambda: path.open("rb"), database=True)
    return _open_text(path, lambda: path.open("rb"))


def open_bytes(data: bytes, name: str) -> Source:
    """Open the bytes of a file as a source. Raises `FormatError`."""
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
"""Accepts control characters in strings."""


def parse_lines(stream: BinaryIO, problems: list[Problem]) -> Iterator[Line]:
    """Yield each line's number and JSON value, skipping blank lines.

    Invalid JSON, invalid UTF-8 (which is replaced) and NUL bytes become *problems*.
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
"""Modules that can open a `.zst` file. The first is in Python 3.14 and later."""
_PIECE = 1 << 10
"""Compressed bytes that are read at once. They decompress to at most 32 MB."""


def decompress_zstd(data: bytes, name: str, modules: Sequence[str] = ZSTD_MODULES) -> bytes:
    """Decompress *data*. Raises `FormatError` if it is damaged or no module is installed."""
    zstd = load_zstd(name, modules)
    try:
        return cast("bytes", _open_zstd(zstd, BytesIO(data)).read())
    except (zstd.ZstdError, EOFError, OSError, ValueError) as error:
        raise FormatError(f"{name}: damaged zstd data ({error})") from error


def open_zstd(stream: BinaryIO, name: str) -> BinaryIO:
    """Return a stream of the decompressed data. Raises `FormatError` if no module is installed."""
    return BufferedReader(_open_zstd(load_zstd(name), stream))


def open_gzip(stream: BinaryIO) -> BinaryIO:
    """Return a stream of the decompressed data."""
    return BufferedReader(_Pieces(gzip.GzipFile(fileobj=stream)))


def load_zstd(name: str, modules: Sequence[str] = ZSTD_MODULES) -> Any:
    """Return the first installed module of *modules*. Raises `FormatError` for the file *name*."""
    for module in modules:
        with suppress(ImportError):
            return importlib.import_module(module)
    raise FormatError(
        f"{name} is compressed with zstd: "
        "install it with `pip install zstandard`, or use Python 3.14"
    )


def _open_zstd(zstd: Any, stream: BinaryIO) -> Any:
    """Open a stream of the decompressed data of all frames. The two modules have different APIs."""
    return _Pieces(zstd.ZstdFile(stream)) if hasattr(zstd, "ZstdFile") else _Frames(zstd, stream)


class _Pieces(RawIOBase):
    """Data of a buffered *stream*, to be buffered again up to where it is cut off: there its own
    `readinto` raises EOFError without the data that it has read."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read1(len(buffer))
        buffer[: len(data)] = data
        return len(data)


class _Frames(RawIOBase):
    """Decompressed data of all frames. Raises EOFError if the last frame is cut off."""

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
"""Callback for the error of each path that could not be read."""
HEAD_SIZES = 8_192, 262_144, 1 << 24
"""First bytes of a file that are searched in turn for its working directory: a Codex header is
long, and a first message may hold an image."""
NAMES = {
    "claude_code": "Claude Code",
    "codex": "Codex",
    "gemini_cli": "Gemini CLI",
    "qwen": "Qwen Code",
    "opencode": "OpenCode",
    "kimi": "Kimi CLI",
    "kimi_code": "Kimi Code",
    "continue": "Continue",
    "copilot": "Copilot CLI",
}
"""Display names of clients that differ from their keys."""
MIN_ID_PREFIX = 4
"""Minimum number of characters for an id prefix that names a session."""
_UUID = re.compile(r"([0-9a-f]{8})(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class FoundSession:
    """A session that was found, but not read."""

    client: str
    path: Path
    size_bytes: int
    """Size of the file, or of the messages in a database; -1 if expensive to compute."""
    modified: datetime
    id: str = ""
    """Id of a session in a database or in a folder; empty if the file name has it."""
    cwd: str = ""
    title: str = ""

    @property
    def name(self) -> str:
        """Id, or file name up to its first dot."""
        return self.id or self.path.name.partition(".")[0]


def full_id(session: FoundSession) -> str:
    """Return the client's id of a session: its id, or the UUID that ends the file name, or that
    name."""
    name = session.name
    return name[-36:] if _UUID.fullmatch(name[-36:]) else name


def short_id(session: FoundSession) -> str:
    """Return the short id that names a session on the command line: the first eight digits of its
    UUID, else the last twelve characters of the last part of its name, or the name if that part is
    very short."""
    name = session.name
    if match := _UUID.fullmatch(name[-36:]):
        return match[1]
    last = name.replace("_", "-").rpartition("-")[2]
    return last[-12:] if len(last) >= MIN_ID_PREFIX else name


@dataclass(frozen=True, slots=True)
class ClientFiles:
    """Where a client keeps its sessions, one per file."""

    client: str
    homes: tuple[str, ...]
    """The client's data directories, relative to the user's home."""
    patterns: tuple[str, ...]
    """Patterns for session files below a data directory, as `files_below` takes them."""
    read_cwd: Callable[[Path], str]
    """Reads the working directory of a session from its file."""
    variables: tuple[str, ...] = ()
    """Environment variables that override *homes*; the first that is set counts."""
    find_id: Callable[[Path], str] = lambda _: ""
    """Returns a session's id if it is not in the file name."""
    subfolder: str = ""
    """Data directory in the one that a variable names; empty if that is the data directory."""

    def find(self, home: Path, env: Mapping[str, str], on_error: OnError) -> Iterator[FoundSession]:
        """Find the sessions of the user with this *home* and environment."""
        for root in self.list_roots(home, env):
            for pattern in self.patterns:
                for path in files_below(root, pattern, on_error):
                    yield from describe_file(path, self._describe, on_error)

    def list_roots(self, home: Path, env: Mapping[str, str]) -> list[Path]:
        """Return the client's data directories, whether or not they exist."""
        named = next(filter(None, map(env.get, self.variables)), None)
        return [Path(named, self.subfolder)] if named else [home / name for name in self.homes]

    def _describe(self, path: Path) -> Iterator[FoundSession]:
        state = path.stat()
        modified = datetime.fromtimestamp(state.st_mtime, UTC)
        id, cwd = self.find_id(path), self.read_cwd(path)
        yield FoundSession(self.client, path, state.st_size, modified, id, cwd)


def files_below(root: Path, pattern: str, on_error: OnError) -> Iterator[Path]:
    """Yield the files below *root* that match *pattern*, in no order; nothing if *root* is missing.

    `*` matches any part of a name, `**/` any number of directories (links are not followed).
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


def describe_file(
    path: Path, describe: Callable[[Path], Iterable[FoundSession]], on_error: OnError
) -> list[FoundSession]:
    """Return the sessions that *describe* finds in a file; none if the file is damaged or cannot be
    read (then *on_error* is called)."""
    try:
        return list(describe(path))
    except OSError as error:
        on_error(error)
    except (sqlite3.Error, ValueError, OverflowError):
        pass
    return []


def folder_name(path: Path) -> str:
    """Return the name of the folder that contains a file."""
    return path.absolute().parent.name


def cwd_under(*keys: str) -> Callable[[Path], str]:
    """Return a function that reads the first working directory found under *keys* in a line of a
    file; empty if there is none in its first 64 lines and 16 MiB, or if it is compressed with zstd
    and damaged, or no module for zstd is installed."""

    def search(stream: BinaryIO) -> str:
        head = b""
        for size in HEAD_SIZES:
            head += stream.read(size - len(head))
            lines = islice(head.split(b"\n"), SAMPLE)
            if cwd := first_text(map(parse_or_none, lines), *keys):
                return cwd
        return ""

    def find_cwd(path: Path) -> str:
        with path.open("rb") as file:
            if not file.peek(len(ZSTD)).startswith(ZSTD):
                return search(file)
            with suppress(FormatError):
                zstd = load_zstd(path.name)
                with suppress(zstd.ZstdError, EOFError, ValueError):
                    return search(BufferedReader(_open_zstd(zstd, file)))
        return ""

    return find_cwd


# --- branches of a session ------------------------------------------------------------------------


@dataclass(slots=True)
class Node:
    """A record in a tree."""

    line: int
    id: str
    parent: str
    """Id of the record before it on its branch."""
    previous: str
    """Id of the previous record in the file that is part of the conversation."""
    record: Record
    """Empty if the record only links others and is not part of the conversation."""


@dataclass(slots=True)
class Tree:
    """Records that name their parent: a session with all its branches."""

    nodes: dict[str, Node] = field(default_factory=dict)
    last: str = ""
    """Id of the latest record of the conversation."""

    def add(self, line: int, id: str, parent: str, record: Record) -> None:
        """Add a record. If the id exists already, the first record is kept."""
        if id in self.nodes:
            return
        self.nodes[id] = Node(line, id, parent, self.last, record)
        if record:
            self.last = id

    def branch(self, leaf: str) -> list[Node]:
        """Return the nodes from the root down to *leaf*.

        If the parents form a cycle, the walk continues with the previous record in the file.
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
        """Yield a problem for each node of a branch that was linked to the previous record in the
        file, because its parent is missing or in a cycle."""
        for above, node in zip(["", *(node.id for node in branch)], branch, strict=False):
            parent = self._parent(node)
            if parent != above:
                yield Problem(node.line, "its parents go in a circle; joined to the line before")
            if node.parent and parent and node.parent != parent:
                text = f"its parent {node.parent} is not in the file; joined to the line before"
                yield Problem(node.line, text)

    def _parent(self, node: Node) -> str:
        """Return the parent's id; if it is not in the file, the id of the previous record."""
        return node.parent if node.parent in self.nodes or not node.parent else node.previous


# --- names of records -----------------------------------------------------------------------------

IDS = ("session", "session_id", "trajectory_id", "instance_id", "id", "uuid")
"""Fields that may hold the id of a record, in order of preference."""


def record_id(record: Any) -> str:
    """Return the id of a record; empty if it has none."""
    values = (object_at(record).get(name) for name in IDS)
    named = (str(value) for value in values if isinstance(value, str | int) and value != "")
    return next(named, "")
