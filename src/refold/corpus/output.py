"""A file that is written chunk by chunk, resumed after a kill, and renamed when complete.

Until then rows go to `NAME.part`, unreadable records to `NAME.bad.part`, and the journal
`NAME.journal` has a line for each chunk: the hash of its input, and the lengths of both files after
it. A later run with the same settings skips the chunks in the journal, in order, as long as the
hashes match, and writes everything after the first mismatch anew. `NAME.rows` holds the rows of
later and incomplete chunks, so that no chunk needs to fit in memory. `NAME.lock` keeps a second run
out.
"""

import gzip
import json
import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from shutil import copyfileobj, rmtree
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple, Self

from refold.codecs.json_text import dump
from refold.corpus.inputs import load_arrow
from refold.corpus.rows import SCHEMAS
from refold.errors import RefoldError
from refold.session_files.source import load_zstd
from refold.text.json_values import JsonObject, parse_or_none

VERSION = 1
"""Version of the journal."""


Buffer = bytes | bytearray
Packer = Callable[[Buffer], Buffer]


class ChunkOutput(NamedTuple):
    """The output of one chunk."""

    parts: tuple[Path, ...]
    """Files that hold the rows, in output order."""
    bad: bytes
    """Lines about unreadable records."""
    tally: Counter[str]


def rows_folder(path: Path) -> Path:
    """Return the folder for rows of chunks that wait for earlier chunks to be written to *path*."""
    return path.with_name(f"{path.name}.rows")


@contextmanager
def explain_write_error(path: Path) -> Iterator[None]:
    """Turn write errors into one that says that earlier output is safe."""
    try:
        yield
    except OSError as error:
        raise RefoldError(
            f"{path}.part: {error.strerror or error}; what was done until then is kept, and the "
            "same command goes on from there"
        ) from error


def _inode(place: Path) -> int:
    with suppress(FileNotFoundError):
        return place.stat().st_ino
    return 0


@contextmanager
def lock(path: Path, seconds: float = 0.0) -> Iterator[None]:
    """Lock *path* against other processes during the block. Raises `RefoldError` if it is still
    locked after these *seconds*, OSError.

    SQLite's lock works on every system and ends with the process.
    """
    place = path.with_name(f"{path.name}.lock")
    with ExitStack() as holders:
        is_held = False
        while not is_held:
            place.touch()
            number = _inode(place)
            holder = sqlite3.connect(place, timeout=seconds, isolation_level=None)
            holders.enter_context(closing(holder))
            try:
                holder.execute("PRAGMA journal_mode = OFF")
                holder.execute("BEGIN EXCLUSIVE")
            except sqlite3.OperationalError as error:
                raise RefoldError(f"{path}: another run writes it now") from error
            # The run that had the lock has deleted its file meanwhile: a third may lock another.
            is_held = _inode(place) == number != 0
        try:
            yield
        finally:
            with suppress(OSError):  # Windows cannot delete an open file
                place.unlink()


class Output:
    """An output file in progress. Raises `RefoldError` if *path* exists already, OSError."""

    def __init__(self, path: Path, settings: str, *, overwrite: bool = False) -> None:
        """*settings* identify how rows are made. Output made with other settings is discarded."""
        if path.exists() and (not overwrite or path.is_dir()):
            raise RefoldError(f"{path} is there already: name another, or give --overwrite")
        self.path, self.bad_path = path, path.with_name(f"{path.name}.bad.jsonl")
        self._part = path.with_name(f"{path.name}.part")
        self._bad_part = path.with_name(f"{path.name}.bad.part")
        self._journal_path = path.with_name(f"{path.name}.journal")
        self._head = {"refold": VERSION, "settings": settings}
        self._entries = self._read_journal()
        self._files: tuple[BinaryIO, BinaryIO, BinaryIO] | None = None
        self.tally = Counter[str]()
        """Counts of all chunks so far."""
        self.passed = 0
        """Number of chunks that an earlier run wrote."""

    def _read_journal(self) -> list[JsonObject]:
        """Return the journal's entries of chunks that are complete in the part files."""
        with suppress(OSError):
            lines = self._journal_path.read_bytes().splitlines(keepends=True)
            head, *entries = [parse_or_none(line) for line in lines if line.endswith(b"\n")] or [0]
            sizes = [path.stat().st_size for path in (self._part, self._bad_part)]
            if head == self._head:
                return [
                    entry
                    for entry in entries
                    if entry["size"] <= sizes[0] and entry["bad"] <= sizes[1]
                ]
        return []

    def skip_if_written(self, hash: str) -> bool:
        """Return whether the next chunk, with this *hash*, is written already; if so, skip it."""
        if self._files is None and self.passed < len(self._entries):
            entry = self._entries[self.passed]
            if entry["hash"] == hash:
                self.passed += 1
                self.tally.update(entry["tally"])
                return True
        return False

    def add(self, hash: str, output: ChunkOutput) -> None:
        """Move a chunk's output to the part files, then write its entry in the journal."""
        part, bad, journal = self._files or self._open()
        with explain_write_error(self.path):
            for place in output.parts:
                with place.open("rb") as rows:
                    copyfileobj(rows, part)
                place.unlink()
            bad.write(output.bad)
            for file in (part, bad):
                file.flush()
            sizes = {"size": part.tell(), "bad": bad.tell(), "tally": dict(output.tally)}
            journal.write(dump({"hash": hash, **sizes}).encode() + b"\n")
            journal.flush()
        self.tally.update(output.tally)

    def _open(self) -> tuple[BinaryIO, BinaryIO, BinaryIO]:
        """Open the part files, truncated to the chunks that are kept."""
        entries = self._entries[: self.passed]
        sizes = (entries[-1]["size"], entries[-1]["bad"]) if entries else (0, 0)
        files = list[BinaryIO]()
        for path, size in zip((self._part, self._bad_part), sizes, strict=True):
            file = path.open("r+b" if path.exists() else "w+b")
            file.truncate(size)
            file.seek(size)
            files.append(file)
        journal = self._journal_path.open("wb")
        journal.writelines(dump(line).encode() + b"\n" for line in (self._head, *entries))
        journal.flush()
        self._files = files[0], files[1], journal
        return self._files

    def finish(self, empty: Buffer, convert: Callable[[Path, Path], object] | None) -> None:
        """Rename the complete files. *empty* is the content of a file without rows. *convert* makes
        the final file from the part file."""
        part, bad, _ = self._files or self._open()
        has_bad = bad.tell() > 0
        with explain_write_error(self.path):
            part.write(empty if not part.tell() else b"")
            for file in (part, bad):
                file.flush()
                os.fsync(file.fileno())
        self.close()
        if convert is not None:
            whole = self._part.with_name(f"{self.path.name}.whole.part")
            with explain_write_error(self.path):
                convert(self._part, whole)
            self._part.unlink()
            whole.replace(self.path)
        else:
            self._part.replace(self.path)
        if has_bad:
            self._bad_part.replace(self.bad_path)
        else:
            self._bad_part.unlink()
            self.bad_path.unlink(missing_ok=True)
        self._journal_path.unlink()

    def close(self) -> None:
        """Close all files. The part files stay; rows of chunks that are not in them are deleted."""
        rmtree(rows_folder(self.path), ignore_errors=True)
        files, self._files = self._files, None
        for file in files or ():
            with suppress(OSError):  # output that was not flushed is not in the journal
                file.close()

    def __enter__(self) -> Self:
        rmtree(rows_folder(self.path), ignore_errors=True)  # left by a killed run
        rows_folder(self.path).mkdir()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


# --- forms ---------------------------------------------------------------------------------------


ENDINGS = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".parquet")
"""File name suffixes, which select the output format."""


def packer(path: Path) -> Packer | None:
    """Return a function that compresses a piece of a `.gz` or `.zst` file, or None for other
    formats. Compressed pieces can be concatenated. Raises ValueError for a name with none of
    `ENDINGS`, `FormatError` if no module writes zstd."""
    if not path.name.endswith(ENDINGS):
        endings = f"{', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}"
        raise ValueError(f"{path}: its name does not say what to write: end it in {endings}")
    if path.suffix == ".gz":
        return partial(gzip.compress, compresslevel=6, mtime=0)
    if path.suffix == ".zst":
        load_zstd(str(path))
        return _zstd
    return None


PIECE = 16_000_000
"""Maximum bytes of rows in a compressed piece."""


def pack_file(rows: Path, pack: Packer) -> Path:
    """Compress a file piece by piece. Return the file that replaces it."""
    packed = rows.with_name(f"{rows.name}.packed")
    with rows.open("rb") as plain, packed.open("wb") as file:
        file.writelines(map(pack, iter(partial(plain.read, PIECE), b"")))
    rows.unlink()
    return packed


def _zstd(data: Buffer) -> Buffer:
    zstd = load_zstd("the output")
    compress = zstd.compress if hasattr(zstd, "compress") else zstd.ZstdCompressor().compress
    packed: bytes = compress(data)
    return packed


GROUP = 64_000_000
"""Bytes of JSON in a Parquet row group."""


def write_parquet(part: Path, whole: Path) -> None:
    """Write the rows of *part*, which are lines of JSON, to a Parquet table at *whole*, one row
    group at a time. Raises `RefoldError` if pyarrow is not installed."""
    arrow, parquet = load_arrow("pyarrow"), load_arrow("pyarrow.parquet")
    types = {"text": arrow.string(), "json": arrow.string(), "int": arrow.int64()}
    columns = SCHEMAS["unroll"]
    schema = arrow.schema([(name, types[kind]) for name, kind in columns.items()])
    with part.open("rb") as lines, parquet.ParquetWriter(whole, schema, compression="zstd") as file:
        for group in _groups(lines):
            rows = [_as_cells(json.loads(line), columns) for line in group]
            file.write_table(arrow.Table.from_pylist(rows, schema))


def _as_cells(row: Mapping[str, Any], columns: Mapping[str, str]) -> JsonObject:
    return {
        name: dump(row[name]) if kind == "json" else row[name] for name, kind in columns.items()
    }


def _groups(lines: Iterable[bytes]) -> Iterator[list[bytes]]:
    group, size = list[bytes](), 0
    for line in lines:
        group.append(line)
        size += len(line)
        if size >= GROUP:
            yield group
            group, size = [], 0
    if group:
        yield group
