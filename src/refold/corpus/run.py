"""Unroll a whole corpus into one file, with worker processes that may die, and a report."""

import gc
import multiprocessing
import os
import signal
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import partial
from html import escape
from itertools import chain
from math import log2
from pathlib import Path
from tempfile import NamedTemporaryFile
from threading import Thread
from typing import Generic, NamedTuple, TypeVar
from warnings import simplefilter

from refold.codecs.json_text import dump
from refold.core.view_lines import STYLE
from refold.corpus.inputs import Chunk, Conversation, convert, hash_rows, read_chunks, read_records
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
from refold.corpus.segments import Segment, UnrollSettings, iter_segments
from refold.errors import FormatError, ModelNotNamed
from refold.session_files import read_all
from refold.text.json_values import JsonObject, Record

# --- the run --------------------------------------------------------------------------------------


class Progress(NamedTuple):
    """The progress of a run."""

    path: str
    done: float
    """Bytes read of the current file."""
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
    """Write the segments of every record in *files* to *path*. Return the output with its counts.

    The suffix of *path* is `.jsonl`, `.jsonl.gz`, `.jsonl.zst` or `.parquet`. The output is
    byte-for-byte the same for any number of processes (*jobs*). A run that was killed is resumed.
    Unreadable records go to a file beside *path*. *watch* is called after each chunk, *note* with a
    line about each failure. Raises `RefoldError`, also if *path* exists, ValueError for invalid
    settings or another suffix, OSError.
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
    chunks = chain.from_iterable(map(_read, files))
    for chunk in chunks:
        if not output.skip_if_written(chunk.hash):
            yield chunk
            break
        watch(Progress(chunk.path, chunk.done, output.tally))
    yield from chunks


def _read(file: Path) -> Iterator[Chunk]:
    """Yield the chunks of a file, and one with the error if it cannot be read."""
    try:
        yield from read_chunks(file)
    except (FormatError, OSError) as error:
        text = str(error) if isinstance(error, FormatError) else error.strerror or str(error)
        yield Chunk(str(file), (), hash_rows([(0, text.encode())]), 0, text)


# --- chunks ---------------------------------------------------------------------------------------

Load = Callable[[], Iterable[Conversation]]


def _unroll_chunk(
    chunk: Chunk, settings: UnrollSettings, pack: Packer | None, path: Path
) -> ChunkOutput:
    """Write the rows of a chunk to a file beside *path*, each as soon as it is made. Return the
    file and the records that cannot be read. Raises `RefoldError` if the disk is full,
    ValueError."""
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
    """Yield (line of a record, segment). Each conversation ends with None instead of a segment, or
    with the error if all its segments are void."""
    form, loads = settings.format, list[tuple[int, Load]]()
    loads += ((line, partial(read_records, text, form)) for line, text in chunk.rows)
    for line, load in loads or [(0, lambda: map(convert, read_all(chunk.path, form)))]:
        yield from ((line, segment) for segment in _unroll_each(load, settings))


def _unroll_each(load: Load, settings: UnrollSettings) -> Iterator[Segment | str | None]:
    """Yield the segments of each conversation of a record, then None and its problems, or the error
    that makes its segments void. Other conversations are not affected."""
    conversations: Iterator[Conversation] | None = None
    while True:
        try:
            conversations = conversations or iter(load())
            conversation = next(conversations)
            yield from iter_segments(conversation, settings)
            yield None
            yield from conversation.problems
        except StopIteration:
            return
        except (FormatError, OSError) as error:
            yield str(error).partition(" Tried: ")[0]
        except Exception as error:  # noqa: BLE001 - a bad row must not stop the run
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


# --- processes ------------------------------------------------------------------------------------

R = TypeVar("R")
READ_AHEAD = 3
"""Chunks per process that are read ahead."""
TRIES = 2
"""Number of times that a chunk may kill its process before its rows are tried one by one."""


@dataclass
class Workers(Generic[R]):
    """Processes that do *work*.

    When one dies, unfinished chunks are done again. A chunk that kills its process each time is
    done row by row, and *join* combines the results. A row that does so gets the result of
    *give_up*.
    """

    work: Callable[[Chunk], R]
    jobs: int
    join: Callable[[list[R]], R]
    give_up: Callable[[Chunk], R]
    note: Callable[[str], object]
    """Callback for a line about each death."""
    waiting: deque[tuple[Chunk, Future[R]]] = field(default_factory=deque)

    def map(self, chunks: Iterable[Chunk]) -> Iterator[tuple[Chunk, R]]:
        """Yield each chunk and its result, in order. One job runs in this process."""
        if self.jobs == 1:
            yield from ((chunk, self.work(chunk)) for chunk in chunks)
            return
        bystanders = multiprocessing.active_children()
        self._start()
        try:
            for chunk in chunks:
                self._submit(chunk)
                if len(self.waiting) > READ_AHEAD * self.jobs:
                    yield self._take()
            while self.waiting:
                yield self._take()
        except BaseException:  # do not wait for running work
            self._pool.shutdown(wait=False, cancel_futures=True)
            own = [each for each in multiprocessing.active_children() if each not in bystanders]
            for child in own:
                child.kill()
            for child in own:  # then none writes any more
                child.join()
            raise
        self._pool.shutdown()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(self.jobs, context, _init_worker)

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
        """Submit the waiting chunks again, except finished ones."""
        waiting, self.waiting = self.waiting, deque()
        for chunk, future in waiting:
            if future.done() and future.exception() is None:
                self.waiting.append((chunk, future))
            else:
                self._submit(chunk)

    def _do_alone(self, chunk: Chunk) -> R:
        """Return a chunk's result, run alone. If workers die, try each row and give up those at
        fault."""
        for _ in range(TRIES):
            try:
                return self._pool.submit(self.work, chunk).result()
            except BrokenProcessPool:
                self._restart()
        if len(chunk.rows) < 2:
            self.note(f"{chunk.path}: a worker dies of it each time; left out")
            return self.give_up(chunk)
        return self.join([self._do_alone(chunk._replace(rows=(row,))) for row in chunk.rows])


def _init_worker() -> None:
    """Prepare a worker. It ignores Ctrl-C, ends with its parent, and runs the garbage collector
    less often, since a large session has few cycles. It does not warn about missing model names:
    training data is sent to no provider."""
    simplefilter("ignore", ModelNotNamed)
    gc.set_threshold(50_000, 20, 20)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    if parent := multiprocessing.parent_process():
        parent.join()
        os._exit(1)


# --- the report -----------------------------------------------------------------------------------

BAR, HEIGHT = 34, 150
"""Pixels of a bar's width with its gap, and of a plot's height."""
MOST = 24
"""Maximum number of bars in a plot. The last one includes all beyond."""
_STYLE = """\
.refold td:not(:first-child),.refold th:not(:first-child){text-align:right}
.refold td,.refold th{padding:2px 14px 2px 0;font-variant-numeric:tabular-nums;text-align:left}
.refold svg{max-width:100%;height:auto;overflow:visible;font-size:9px}
.refold rect{fill:var(--accent)}.refold text{fill:var(--ink3);text-anchor:middle}
"""


@dataclass
class SegmentCount:
    """Counts of one conversation while its segments arrive."""

    recorded: int = 0
    after: list[int] = field(default_factory=list)
    edits: dict[str, JsonObject] = field(default_factory=dict)

    def add(self, segment: Segment) -> None:
        """Count a segment."""
        self.recorded = segment.recorded
        self.after.append(segment.row["tokens"])
        self.edits.update((edit["id"], edit) for edit in segment.row["edits"])

    def tally(self) -> Counter[str]:
        """Return the counts for the table and the report."""
        after, before = self.after, self.recorded
        tally = Counter(sessions=1, segments=len(after), before=before, after=sum(after))
        tally[f"length before/{_bucket_of(before)}"] += 1
        tally[f"segments of one/{len(after)}"] += 1
        for tokens in after:
            tally[f"length after/{_bucket_of(tokens)}"] += 1
        for edit in self.edits.values():
            name = edit["by"].partition("(")[0]
            tally[f"edits/{name}"] += 1
            tally[f"messages cut/{name}"] += edit["stop"] - edit["start"]
            tally[f"tokens cut/{name}"] += edit["saved"]
        return tally


def _bucket_of(tokens: int) -> int:
    """Return the bucket of a length: two per doubling."""
    return int(2 * log2(max(1, tokens)))


def summarize(tally: Counter[str]) -> dict[str, int]:
    """Return the figures of a run: `sessions`, `segments`, `bad` (unreadable records),
    `tokens_before` (of the sessions as recorded) and `tokens_after` (of all segments)."""
    return {
        **{name: tally[name] for name in ("sessions", "segments", "bad")},
        "tokens_before": tally["before"],
        "tokens_after": tally["after"],
    }


def list_cuts(tally: Counter[str]) -> list[Record]:
    """Return totals by strategy: `strategy`, `edits`, `messages` and `tokens`, largest first."""
    names = [key.partition("/")[2] for key in tally if key.startswith("edits/")]
    cuts = [
        {
            "strategy": name,
            "edits": tally[f"edits/{name}"],
            "messages": tally[f"messages cut/{name}"],
            "tokens": tally[f"tokens cut/{name}"],
        }
        for name in names
    ]
    return sorted(cuts, key=lambda cut: (-cut["tokens"], cut["strategy"]))


def report_page(tally: Counter[str], title: str) -> str:
    """Return a self-contained HTML report of a run."""
    lengths = [
        (f"Tokens of a {noun}", _bars(tally, f"length {when}", _length_label))
        for noun, when in (("session as recorded", "before"), ("segment", "after"))
    ]
    plots = [*lengths, ("Segments of a session", _bars(tally, "segments of one", str))]
    figures = "".join(
        f"<tr><td>{escape(name.replace('_', ' '))}</td><td>{value:,}</td></tr>"
        for name, value in summarize(tally).items()
    )
    rows = "".join(
        f"<tr><td>{escape(str(cut['strategy']))}</td>"
        + "".join(f"<td>{cut[name]:,}</td>" for name in ("edits", "messages", "tokens"))
        + "</tr>"
        for cut in list_cuts(tally)
    )
    drawn = "".join(f"<h2>{name}</h2>{_draw(bars)}" for name, bars in plots)
    head = "<tr><th>strategy</th><th>edits</th><th>messages</th><th>tokens</th></tr>"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{STYLE}{_STYLE}</style></head>"
        f'<body class="refold"><h1>{escape(title)}</h1><table>{figures}</table>{drawn}'
        f"<h2>What was cut</h2><table>{head}{rows}</table></body></html>\n"
    )


def _bars(tally: Counter[str], name: str, label: Callable[[int], str]) -> list[tuple[str, int]]:
    """Return the bars of a plot, including empty ones."""
    counts = Counter[int]()
    for key, count in tally.items():
        head, _, number = key.partition("/")
        if head == name:
            counts[int(number)] += count
    if not counts:
        return []
    first = min(counts)
    last = min(max(counts), first + MOST - 1)
    bars = [(label(at), counts[at]) for at in range(first, last + 1)]
    beyond = sum(count for at, count in counts.items() if at > last)
    return [*bars[:-1], (f"{label(last)}+", counts[last] + beyond)] if beyond else bars


def _length_label(bucket: int) -> str:
    """Return the lower limit of a bucket in tokens."""
    tokens = 2 ** (bucket / 2)
    return f"{tokens / 1_000:.3g}k" if tokens >= 1_000 else f"{tokens:.0f}"


def _draw(bars: Sequence[tuple[str, int]]) -> str:
    most = max((count for _, count in bars), default=1)
    width = max(1, len(bars)) * BAR
    return (
        f'<svg width="{width}" height="{HEIGHT + 30}" viewBox="0 -12 {width} {HEIGHT + 30}">'
        + "".join(_draw_bars(bars, most))
        + "</svg>"
    )


def _draw_bars(bars: Sequence[tuple[str, int]], most: int) -> Iterator[str]:
    for at, (label, count) in enumerate(bars):
        height = round(HEIGHT * count / most)
        middle, top = at * BAR + BAR // 2, HEIGHT - height
        yield f'<rect x="{at * BAR + 2}" y="{top}" width="{BAR - 4}" height="{height}"/>'
        yield f'<text x="{middle}" y="{HEIGHT + 12}">{label}</text>'
        if count:
            yield f'<text x="{middle}" y="{top - 3}">{count:,}</text>'
