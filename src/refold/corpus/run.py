"""A whole corpus unrolled: files in, one file out, by processes any of which may die."""

import gc
import multiprocessing
import os
import signal
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from tempfile import NamedTemporaryFile
from threading import Thread
from typing import Generic, NamedTuple, TypeVar
from warnings import simplefilter

from refold.codecs.json_text import dump
from refold.corpus.inputs import Chunk, hash_rows, read_chunks
from refold.corpus.output import (
    ChunkOutput,
    Output,
    Packer,
    explain_write_error,
    lock,
    pack_file,
    packer,
    rows_folder,
    write_parquet,
)
from refold.corpus.records import Conversation, convert, read_records
from refold.corpus.report import SegmentCount
from refold.corpus.segments import Segment, UnrollSettings, iter_segments
from refold.errors import FormatError, ModelNotNamed
from refold.session_files import read_all


class Progress(NamedTuple):
    """Where a run is."""

    path: str
    done: float
    """Bytes of this file that were read."""
    tally: Counter[str]


def unroll_files(
    files: Iterable[Path],
    path: Path,
    settings: UnrollSettings,
    *,
    jobs: int = 1,
    overwrite: bool = False,
    watch: Callable[[Progress], object] = lambda _: None,
    note: Callable[[str], object] = lambda _: None,
) -> Output:
    """Write the segments of every record in *files* to *path*; return the output with its tally.

    Its name ends in `.jsonl`, `.jsonl.gz`, `.jsonl.zst` or `.parquet`, a table. The bytes are the
    same whatever *jobs*, the number of processes. A run that was killed is resumed. What
    cannot be read goes to a file beside *path*. *watch* is called with each chunk, *note* with a
    line about what went wrong. Raises `RefoldError`, also if *path* is there, ValueError for
    settings and another name, OSError.
    """
    settings.check()
    pack = packer(path)
    name = f"{settings} {path.suffix}"
    with lock(path), Output(path, name, overwrite=overwrite) as output:
        work = partial(_unroll_chunk, settings=settings, pack=pack, path=path)
        workers = Workers(work, jobs, _join, _give_up, note)
        for chunk, written in workers.map(_unwritten(files, output, watch)):
            output.add(chunk.hash, written)
            watch(Progress(chunk.path, chunk.done, output.tally))
        output.finish(
            pack(b"") if pack else b"", write_parquet if path.suffix == ".parquet" else None
        )
    return output


def _unwritten(
    files: Iterable[Path], output: Output, watch: Callable[[Progress], object]
) -> Iterator[Chunk]:
    """Yield the chunks that no earlier run wrote."""
    chunks = chain.from_iterable(map(_read, files))
    for chunk in chunks:
        if not output.pass_over(chunk.hash):
            yield chunk
            break
        watch(Progress(chunk.path, chunk.done, output.tally))
    yield from chunks


def _read(file: Path) -> Iterator[Chunk]:
    """Yield the chunks of a file, and one that says what is wrong with it."""
    try:
        yield from read_chunks(file)
    except (FormatError, OSError) as error:
        text = str(error) if isinstance(error, FormatError) else error.strerror or str(error)
        yield Chunk(str(file), (), hash_rows([(0, text.encode())]), 0, text)


# --- one chunk -----------------------------------------------------------------------------------

Load = Callable[[], Iterable[Conversation]]


def _unroll_chunk(
    chunk: Chunk, settings: UnrollSettings, pack: Packer | None, path: Path
) -> ChunkOutput:
    """Write the rows of a chunk into a file beside *path*, each as soon as it is made; return where
    they are, and those of it that cannot be read. Raises `RefoldError` if the disk is full,
    ValueError for settings."""
    if chunk.error:
        return _fail(chunk, [(0, chunk.error)])
    bad, tally, count = list[tuple[int, str]](), Counter[str](), SegmentCount()
    with explain_write_error(path):
        with NamedTemporaryFile(dir=rows_folder(path), delete=False) as file:
            start = 0
            for line, segment in _unroll_records(chunk, settings):
                if isinstance(segment, Segment):
                    file.write(dump(segment.row).encode() + b"\n")
                    count.add(segment)
                    continue
                if segment is None:
                    tally.update(count.tally())
                else:
                    bad.append((line, segment))
                    file.seek(start)
                    file.truncate()
                start, count = file.tell(), SegmentCount()
        rows = Path(file.name)
        part = pack_file(rows, pack) if pack else rows
    failed = _fail(chunk, bad)
    tally.update(failed.tally)
    return ChunkOutput((part,), failed.bad, tally)


def _unroll_records(
    chunk: Chunk, settings: UnrollSettings
) -> Iterator[tuple[int, Segment | str | None]]:
    """Yield the line of each record with each of its segments, and at the end of each conversation
    with None, or with why nothing of it counts."""
    form, loads = settings.format, list[tuple[int, Load]]()
    loads += ((line, partial(read_records, text, form)) for line, text in chunk.rows)
    for line, load in loads or [(0, lambda: map(convert, read_all(chunk.path, form)))]:
        yield from ((line, segment) for segment in _unroll_each(load, settings))


def _unroll_each(load: Load, settings: UnrollSettings) -> Iterator[Segment | str | None]:
    """Yield the segments of each conversation of a record, then None, or why nothing of it counts:
    the others go on."""
    conversations: Iterator[Conversation] | None = None
    while True:
        try:
            conversations = conversations or iter(load())
            yield from iter_segments(next(conversations), settings)
            yield None
        except StopIteration:
            return
        except (FormatError, OSError) as error:
            yield str(error).partition(" Tried: ")[0]
        except Exception as error:  # noqa: BLE001 - whatever a row is
            yield f"{type(error).__name__}: {str(error)[:200]}"
        if conversations is None:
            return


def _fail(chunk: Chunk, bad: Iterable[tuple[int, str]]) -> ChunkOutput:
    lines = [{"path": chunk.path, "line": line, "reason": reason} for line, reason in bad]
    data = b"".join(dump(line).encode() + b"\n" for line in lines)
    return ChunkOutput((), data, Counter(bad=len(lines)) if lines else Counter())


def _give_up(chunk: Chunk) -> ChunkOutput:
    line = chunk.rows[0][0] if chunk.rows else 0
    return _fail(chunk, [(line, "the process that worked on it died each time")])


def _join(parts: list[ChunkOutput]) -> ChunkOutput:
    tally = Counter[str]()
    for part in parts:
        tally.update(part.tally)
    files = tuple(chain.from_iterable(part.parts for part in parts))
    return ChunkOutput(files, b"".join(part.bad for part in parts), tally)


# --- processes ---------------------------------------------------------------------------------


R = TypeVar("R")
AHEAD = 3
"""Chunks a process that are read before the first of them is done."""
TRIES = 2
"""How often a chunk may take its process down before its rows are tried one by one."""


@dataclass
class Workers(Generic[R]):
    """Processes that do *work*.

    When one dies, what was under way is done again. A chunk that takes its process down each time
    is done row by row (*join* puts the results together), and a row that does so has the result
    that *give_up* returns.
    """

    work: Callable[[Chunk], R]
    jobs: int
    join: Callable[[list[R]], R]
    give_up: Callable[[Chunk], R]
    note: Callable[[str], object]
    """Gets a line about each death."""
    waiting: deque[tuple[Chunk, Future[R]]] = field(default_factory=deque)

    def map(self, chunks: Iterable[Chunk]) -> Iterator[tuple[Chunk, R]]:
        """Yield each chunk with the result of it, in order; with one job in this process."""
        if self.jobs == 1:
            yield from ((chunk, self.work(chunk)) for chunk in chunks)
            return
        bystanders = multiprocessing.active_children()
        self._start()
        try:
            for chunk in chunks:
                self._submit(chunk)
                if len(self.waiting) > AHEAD * self.jobs:
                    yield self._take()
            while self.waiting:
                yield self._take()
        except BaseException:  # who stops does not wait for what is under way
            self._pool.shutdown(wait=False, cancel_futures=True)
            own = [each for each in multiprocessing.active_children() if each not in bystanders]
            for child in own:
                child.kill()
            for child in own:  # none writes any more
                child.join()
            raise
        self._pool.shutdown()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(self.jobs, context, _begin)

    def _submit(self, chunk: Chunk) -> None:
        try:
            self.waiting.append((chunk, self._pool.submit(self.work, chunk)))
        except BrokenProcessPool:
            self._restart()
            self._submit_again()
            self._submit(chunk)

    def _take(self) -> tuple[Chunk, R]:
        chunk, future = self.waiting.popleft()
        try:
            return chunk, future.result()
        except BrokenProcessPool:
            self.note("a worker died; what it was at is done again")
            self._restart()
            result = self._do_alone(chunk)
            self._submit_again()
            return chunk, result

    def _restart(self) -> None:
        self._pool.shutdown(wait=False)
        self._start()

    def _submit_again(self) -> None:
        """Begin anew what is waiting, but for what was done already."""
        waiting, self.waiting = self.waiting, deque()
        for chunk, future in waiting:
            if future.done() and future.exception() is None:
                self.waiting.append((chunk, future))
            else:
                self._submit(chunk)

    def _do_alone(self, chunk: Chunk) -> R:
        """Return the result of a chunk that nothing else is done beside."""
        for _ in range(TRIES):
            try:
                return self._pool.submit(self.work, chunk).result()
            except BrokenProcessPool:
                self._restart()
        if len(chunk.rows) < 2:
            self.note(f"{chunk.path}: a worker dies of it each time; left out")
            return self.give_up(chunk)
        return self.join([self._do_alone(chunk._replace(rows=(row,))) for row in chunk.rows])


def _begin() -> None:
    """Prepare a worker: Ctrl-C is for who started it, it does not live on alone, and it does not
    look for cycles all the time, of which a large session makes none. Nor does it ask for a model:
    what is trained on is sent to no provider."""
    simplefilter("ignore", ModelNotNamed)
    gc.set_threshold(50_000, 20, 20)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    if parent := multiprocessing.parent_process():
        parent.join()
        os._exit(1)
