"""Chunks of a corpus through processes, in order, whichever of them dies."""

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from threading import Thread
from typing import Generic, TypeVar

from refold.corpus.inputs import Chunk

R = TypeVar("R")
AHEAD = 3
"""Chunks a process that are read before the first of them is done."""
TRIES = 2
"""How often a chunk may take its process down before its rows are tried one by one."""


@dataclass
class Workers(Generic[R]):
    """Processes that do *work*.

    When one dies, what was under way is done again. A chunk that takes its process down each time is
    done row by row (*join* puts the results together), and a row that does so has the result that
    *give_up* returns.
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
            for child in multiprocessing.active_children():
                if child not in bystanders:
                    child.kill()
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
    """Prepare a worker: Ctrl-C is for who started it, and it does not live on alone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    if parent := multiprocessing.parent_process():
        parent.join()
        os._exit(1)
