"""The inputs of a corpus: records as conversations, and files as chunks of records. Files are
streamed: only one chunk is in memory.

A chunk is the unit of work of a process. Its limits depend on the input alone, so its hash is the
same in every run.
"""

import codecs
import gzip
import json
import os
import re
import zlib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from glob import glob
from hashlib import blake2b
from importlib import import_module
from io import BufferedReader
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from refold.codecs.codec import Payload
from refold.codecs.detect import open_payload
from refold.codecs.json_text import dump
from refold.errors import FormatError, RefoldError, install_hint
from refold.session_files import FIELDS, Format, Session, has_session, read_value
from refold.session_files.plain import BODY_KEYS
from refold.session_files.source import BOM, GZIP, ZSTD, load_zstd, open_gzip, open_zstd, record_id
from refold.session_files.trajectories import TURNS, is_event
from refold.text.json_values import JsonObject, object_at, objects_at, parse_or_none, text_at

# --- records --------------------------------------------------------------------------------------

_TEXTS = ("messages", "conversations", "body", "history", "trajectory", "content", "steps")
"""Fields that may be JSON text in a table."""
_LISTS = (*FIELDS.values(), *TURNS, "history", "events", "simulations", "traj", "steps")
"""Fields that make an object a record if they hold a list."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation of a record, in the wire format nearest to that of its requests."""

    session: str
    """The record's id, or a hash of its content."""
    format: Format
    body: Mapping[str, Any]
    """The rest of the request (model, system prompt, tools) and the record's other fields."""
    messages: Sequence[Any]
    problems: Sequence[str] = ()
    """Problems of a file that is one session."""

    @property
    def field(self) -> str:
        """Field of the request that holds the messages."""
        return FIELDS[self.format]

    @property
    def payload(self) -> JsonObject:
        """The request with all its messages."""
        return {**self.body, self.field: list(self.messages)}

    def open(self) -> Payload:
        """Return the request opened by its codec."""
        return open_payload(self.payload, self.format)

    def row(self, messages: Sequence[Any], **fields: Any) -> JsonObject:
        """Return a row of this conversation with *messages* and other *fields*."""
        head = {"session": self.session, "format": self.format, "body": dict(self.body)}
        return {**head, "messages": list(messages), **fields}


def is_record(value: Any) -> bool:
    """Return whether a JSON value looks like a record, and not like a line of a session file."""
    if isinstance(value, list):
        return all(text_at(entry, "role") for entry in value) and bool(value)
    holders = (object_at(value), *(object_at(value, key) for key in BODY_KEYS))
    if any(_is_list(holder.get(field)) for holder in holders for field in _LISTS):
        return "$set" not in object_at(value)
    return bool(text_at(next(objects_at(value, "content"), {}), "class_"))


def _is_list(value: Any) -> bool:
    return isinstance(value, list) or (_is_json(value) and value.lstrip()[0] == "[")


def read_record(record: Any, format: str = "") -> Conversation:
    """Return the conversation in a record. Raises `FormatError` unless it holds exactly one."""
    conversations = list(read_records(record, format))
    if len(conversations) > 1:
        raise FormatError(f"the record holds {len(conversations)} conversations")
    return conversations[0]


def read_records(record: Any, format: str = "") -> Iterator[Conversation]:
    """Return an iterator over the conversations in a record: an object, a list of messages, or the
    JSON text of either. *format* names the record's format; if it is empty, its shape decides.
    Raises `FormatError`. So does the iterator for a conversation without messages, and the next
    call returns the one after it."""
    value = _parse(record)
    if isinstance(value, dict):
        value |= {key: _parse(value[key]) for key in _TEXTS if _is_json(value.get(key))}
        if _is_row(value):
            return iter([_read_row(value)])
    try:
        sessions = read_value(value, "the record", format)
    except FormatError as error:
        raise FormatError(_describe(value, error, format)) from error
    return map(convert, sessions, repeat(value))


def _parse(record: Any) -> Any:
    if not isinstance(record, str | bytes):
        return dict(record) if isinstance(record, Mapping) else record
    try:
        return json.loads(record)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"no JSON: {str(error)[:200]}") from error


def _is_json(value: Any) -> bool:
    return isinstance(value, str) and value.lstrip()[:1] in ("[", "{")


def _is_row(value: JsonObject) -> bool:
    """Return whether an object has the form of the rows that this package returns."""
    is_known = text_at(value, "format") in FIELDS and isinstance(value.get("messages"), list)
    return is_known and isinstance(value.get("body") or {}, dict)


def _read_row(row: JsonObject) -> Conversation:
    if not row["messages"]:
        raise FormatError("the conversation has no messages")
    session = text_at(row, "session") or _hash_json(row)
    return Conversation(session, row["format"], row.get("body") or {}, row["messages"])


def convert(session: Session, record: Any = None) -> Conversation:
    """Return the conversation of a session. Its name is the session's id, else that of the *record*
    it was read from, else a hash. Raises `FormatError` if it has no messages."""
    if not session.messages:
        raise FormatError("the conversation has no messages")
    named = session.id or record_id(record or session.body)
    name = named or _hash_json(record or session.messages)
    problems = () if record else tuple(map(str, session.problems))
    return Conversation(name, session.format, session.body, session.messages, problems)


def _describe(value: Any, error: FormatError, format: str) -> str:
    if format:
        reasons = str(error).partition(" Tried: ")[2]
        return f"no conversation in the form {format!r}: {reasons}" if reasons else str(error)
    if not isinstance(value, dict):
        return f"no conversation in {type(value).__name__}"
    names = ", ".join(map(repr, list(value)[:8])) or "none"
    return f"no conversation in the fields {names}"


def _hash_json(value: Any) -> str:
    """Return a hash of a JSON value as 16 hex digits."""
    text = json.dumps(value, sort_keys=True, default=str)
    return blake2b(text.encode(), digest_size=8).hexdigest()


# --- files ----------------------------------------------------------------------------------------

BLOCK = 1 << 20
SUFFIXES = (".jsonl", ".json", ".traj", ".parquet", ".db")
COMPRESSION_SUFFIXES = ("", ".gz", ".zst")
PARQUET = b"PAR1"
EVENT = re.compile(r"(?:event-)?(\d+)(?:-[\da-fA-F-]+)?\.json")
"""Matches the name of a file in OpenHands' directory `events`, which has one file per event."""
OPENHANDS_METADATA = frozenset({"base_state.json", "metadata.json"})
"""Other files of OpenHands beside that directory."""

Row = tuple[int, bytes]
"""Line number of a record (or its position in a list or table, from 1), and its JSON text."""


class Chunk(NamedTuple):
    """Records of one file. A chunk without rows is a whole file: one session or document."""

    path: str
    rows: tuple[Row, ...]
    hash: str
    done: float
    """Bytes of the file that had been read when the chunk was made."""
    error: str = ""
    """Why the file, or the rest of it, cannot be read."""


def list_inputs(paths: Iterable[str]) -> list[Path]:
    """Return the files that *paths* (files, directories, patterns) name, sorted within each path,
    each once. A directory of OpenHands' events counts as one file.

    Raises `FormatError` for a path that matches nothing.
    """
    files = dict[str, Path]()
    for path in paths:
        places = [path] if Path(path).exists() else sorted(glob(path, recursive=True))  # noqa: PTH207 - may be absolute
        below = [file for place in places for file in _files_in(Path(place))]
        if not below:
            raise FormatError(f"{path}: no such file, and no data below or like it")
        for file in below:
            files.setdefault(os.path.realpath(file), file)
    return list(files.values())


def _files_in(place: Path) -> list[Path]:
    if not place.is_dir():
        return [place]
    endings = tuple(suffix + packed for suffix in SUFFIXES for packed in COMPRESSION_SUFFIXES)
    files = [each for each in place.rglob("*") if each.is_file() and each.name.endswith(endings)]
    logs = {each for each in {file.parent for file in files} if _list_events(each)}
    rest = [file for file in files if file.parent not in logs and not _is_kept_by(file, logs)]
    return sorted([*rest, *logs])


def _list_events(place: Path) -> list[Path]:
    """Return the files of a directory of OpenHands' events, in order; none for any other."""
    if place.name != "events":
        return []
    named = [(EVENT.fullmatch(file.name), file) for file in place.iterdir()]
    files = [file for _, file in sorted((int(name[1]), file) for name, file in named if name)]
    return files if files and is_event(parse_or_none(files[0].read_bytes())) else []


def _is_kept_by(file: Path, logs: Container[Path]) -> bool:
    beside = file.parent.parent if file.parent.name == "event_cache" else file.parent
    return beside / "events" in logs and (file.name in OPENHANDS_METADATA or beside != file.parent)


def read_chunks(path: Path) -> Iterator[Chunk]:
    """Yield the chunks of a file. Raises `FormatError`, `RefoldError`, OSError."""
    if path.is_dir():
        events = b",".join(file.read_bytes() for file in _list_events(path))
        record = b'{"id":%b,"events":[%b]}' % (dump(path.parent.name).encode(), events)
        yield from _pack(path, [(0, record)], lambda: path.stat().st_size)
        return
    with path.open("rb") as file:
        magic = file.read(4)
        file.seek(0)
        if magic == PARQUET:
            size = path.stat().st_size
            yield from _pack(path, _read_parquet(path), lambda: size)
            return
        try:
            rows = _read_rows(_open_stream(file, magic, path), path)
            if rows is not None:
                yield from _pack(path, rows, file.tell)
                return
        except _damages(magic, path) as error:
            raise FormatError(f"damaged or cut off: {error}") from error
        yield Chunk(str(path), (), _hash_file(file), file.tell())


def _open_stream(file: BufferedReader, magic: bytes, path: Path) -> BinaryIO:
    if magic.startswith(GZIP):
        return open_gzip(file)
    return open_zstd(file, str(path)) if magic == ZSTD else file


def _damages(magic: bytes, path: Path) -> tuple[type[Exception], ...]:
    """Return the exceptions that damaged data raises."""
    damages = (EOFError, gzip.BadGzipFile, zlib.error)
    return (*damages, load_zstd(str(path)).ZstdError) if magic == ZSTD else damages


def _hash_file(file: BinaryIO) -> str:
    file.seek(0)
    digest = blake2b(digest_size=16)
    for block in iter(lambda: file.read(BLOCK), b""):
        digest.update(block)
    return digest.hexdigest()


# --- rows -----------------------------------------------------------------------------------------

SAMPLE_LINES = 8
"""Number of lines that are read to tell records from a single session."""
LARGEST = 1 << 30
"""Maximum bytes of a record in a list, so that a broken list is not read to its end."""
_SPACE = re.compile(r"[\s,]*+")


def _read_rows(stream: BinaryIO, path: Path) -> Iterator[Row] | None:
    """Return the records in lines or a list; None if the file is one session or document."""
    first = stream.readline(LARGEST).removeprefix(BOM)
    if not first:
        raise FormatError("the file is empty")
    lines, values = [first], [parse_or_none(first)]
    if first.lstrip()[:1] == b"[" and not is_record(values[0]):
        return _read_list_rows(chain(lines, iter(lambda: stream.read(BLOCK), b"")))
    while not is_record(values[-1]) and len(lines) < SAMPLE_LINES and (line := stream.readline()):
        lines.append(line)
        values.append(parse_or_none(line))
    sample = [(at, value) for at, value in enumerate(values, 1) if value is not None]
    is_session = bool(sample) and not is_record(values[-1]) and has_session(path, sample)
    if is_session or not sample:
        return None
    numbered = enumerate(chain(lines, stream), 1)
    return ((at, line.strip()) for at, line in numbered if not line.isspace())


def _read_list_rows(blocks: Iterable[bytes]) -> Iterator[Row] | None:
    """Return the elements of a JSON list if one of the first is a record, else None."""
    elements = read_list(blocks)
    head = list[bytes]()
    for element in islice(elements, SAMPLE_LINES):
        head.append(element)
        if is_record(parse_or_none(element)):
            return enumerate(chain(head, elements), 1)
    return None


def read_list(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the JSON text of each element of a list from its *blocks*. Raises `FormatError`."""
    decode, scan = codecs.getincrementaldecoder("utf-8")("replace").decode, json.JSONDecoder()
    text, at, wanted = "", 1, 0
    for block in chain(blocks, [b""]):
        text += decode(block)
        if block and len(text) < wanted:  # after a failed attempt, wait for twice the text
            continue
        while True:
            start = _SPACE.match(text, at).end()  # type: ignore[union-attr]
            if text.startswith("]", start):
                return
            try:
                _, end = scan.raw_decode(text, start)
            except (ValueError, RecursionError):
                break
            if end == len(text):  # a number may continue in the next block
                break
            yield text[start:end].encode("utf-8", "surrogatepass")
            at = end
        text, at = text[at:], 0
        wanted = 2 * len(text)
        if wanted > 2 * LARGEST:
            break
    raise FormatError(f"the list is cut off or broken: {text[:40]!r}")


# --- tables ---------------------------------------------------------------------------------------


def load_arrow(name: str) -> Any:
    """Import a module of pyarrow. Raises `RefoldError` if it is not installed."""
    try:
        return import_module(name)
    except ImportError as error:
        raise RefoldError(f"Parquet needs pyarrow: {install_hint('corpus')}") from error


def as_values(value: Any) -> Any:
    """Return *value* with arrays as lists, and without the null fields that a table's type adds. A
    null `content` of a message stays."""
    if isinstance(value, Mapping):
        present = (pair for pair in value.items() if pair[1] is not None or pair[0] == "content")
        return {key: as_values(item) for key, item in present}
    if hasattr(value, "tolist"):
        value = value.tolist()
    return [as_values(item) for item in value] if isinstance(value, list | tuple) else value


def _read_parquet(path: Path) -> Iterator[Row]:
    parquet = load_arrow("pyarrow.parquet")
    try:
        # otherwise it reads a whole row group, which may be the file
        with parquet.ParquetFile(path, pre_buffer=False, buffer_size=BLOCK) as file:
            batches = file.iter_batches(batch_size=16)
            rows = (row for batch in batches for row in batch.to_pylist())
            for at, row in enumerate(rows, 1):
                yield at, dump(as_values(row)).encode()
    except (ValueError, OSError) as error:  # ArrowInvalid is a ValueError
        raise FormatError(f"no Parquet that can be read: {str(error).splitlines()[0]}") from error


# --- chunks ---------------------------------------------------------------------------------------

CHUNK = 1_000_000
"""Maximum bytes of records in a chunk. A larger record is a chunk of its own."""
MOST_ROWS = 64
"""Maximum number of records in a chunk."""


def _pack(path: Path, rows: Iterable[Row], tell: Callable[[], float]) -> Iterator[Chunk]:
    held, size = list[Row](), 0
    try:
        for row in rows:
            if held and (size + len(row[1]) > CHUNK or len(held) >= MOST_ROWS):
                yield _chunk(path, held, tell())
                held, size = [], 0
            held.append(row)
            size += len(row[1])
    except Exception:  # rows before the damage are intact
        if held:
            yield _chunk(path, held, tell())
        raise
    if held:
        yield _chunk(path, held, tell())


def _chunk(path: Path, rows: list[Row], done: float) -> Chunk:
    return Chunk(str(path), tuple(rows), hash_rows(rows), done)


def hash_rows(rows: Iterable[Row]) -> str:
    """Return a hash of the contents and positions of rows."""
    digest = blake2b(digest_size=16)
    for at, text in rows:
        digest.update(b"%d:%d:%b" % (at, len(text), text))
    return digest.hexdigest()
