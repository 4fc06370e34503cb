"""Keeps the books behind the answers: in a thread of its own, in batches, and never in anybody's way."""

import queue
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from threading import Event, Lock, Thread
from time import monotonic, sleep
from typing import Protocol

from refold.economics.session_length import Survival, step
from refold.gateway.ledger.accounting import Accounts, Answered, Summarised
from refold.gateway.ledger.entry import Key, Sums, total
from refold.gateway.ops.logs import LOGGER, error_fields
from refold.gateway.ops.metrics import Counters
from refold.gateway.policy.economy import count_calls

WAITING = 10_000
"""Calls that may wait to be booked, and lines that may wait for a store that fails; more are not booked."""
FEW = 8
"""Calls that are booked at a stretch: requests then go first for BREATH seconds, instead of waiting for the interpreter's
lock, which a thread that computes gives up after 5 ms only."""
BREATH = 0.0002


class Book(Protocol):
    """Where lines are kept: `refold.gateway.ledger.sql.Ledger` is one."""

    def add(self, entries: Mapping[Key, Sums], reached: Mapping[int, int] | None = None) -> None:
        """Add *entries* and how far conversations came, all or none. Raises `StoreError`."""

    def survival(self) -> Survival:
        """How far conversations came. Raises `StoreError`."""

    def close(self) -> None:
        """Let go."""


class Recorder(Protocol):
    """Where transcripts are kept, if they are: `refold.gateway.ledger.transcripts.Transcripts` is one."""

    def record(self, call: Answered) -> None:
        """Keep what was said. Raises `StoreError`."""

    def purge(self) -> int:
        """Delete what has been kept for long enough; how many transcripts that were. Raises `StoreError`."""

    def close(self) -> None:
        """Let go."""


class Clerk:
    """Books calls a *pause* (seconds) after their answers. `answered` and `summarised` neither wait nor raise."""

    def __init__(
        self,
        accounts: Accounts,
        ledger: Book | None,
        counters: Counters,
        recorder: Recorder | None = None,
        *,
        pause: float = 1.0,
        every: float = 600.0,
    ) -> None:
        self.ledger, self.recorder = ledger, recorder
        self._accounts, self._counters = accounts, counters
        self._pause, self._every = pause, every
        self._queue: queue.Queue[Answered | Summarised | None] = queue.Queue(WAITING)
        self.survival = Survival()
        self._pending: dict[Key, list[Sums]] = {}
        self._reached = Counter[int]()
        self._learned = float("-inf")
        self._closing, self._lock = Event(), Lock()
        self._thread: Thread | None = None

    def start(self) -> None:
        """Begin to work; what has been kept for too long goes at once. Calls after the first do nothing."""
        with self._lock:
            if (self._thread is None or not self._thread.is_alive()) and not self._closing.is_set():
                self._thread = Thread(target=self._run, name="refold-clerk", daemon=True)
                self._thread.start()

    def answered(self, call: Answered) -> None:
        """Book a call that was answered."""
        self._put(call)

    def summarised(self, done: Summarised) -> None:
        """Book what a compaction asked a model."""
        self._put(done)

    def close(self, patience: float = 5.0) -> None:
        """Book what waits and stop, within *patience* seconds."""
        self._closing.set()
        with suppress(queue.Full):
            self._queue.put_nowait(None)
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join(patience)

    def _put(self, one: Answered | Summarised) -> None:
        if self._thread is None or not self._thread.is_alive():  # a forked child has no thread yet
            self.start()
        try:
            self._queue.put_nowait(one)
        except queue.Full:
            self._counters.add("ledger_lost")

    # --- in its thread --------------------------------------------------------------------------

    def _run(self) -> None:
        self._guarded("purge", self._purge)
        self._guarded("learn", self._learn)
        while True:
            with suppress(queue.Empty):
                self._take(self._queue.get(timeout=self._every))
                self._closing.wait(self._pause)
            for taken in range(self._queue.qsize()):
                self._take(self._queue.get_nowait())
                if taken % FEW == 0 and not self._closing.is_set():
                    sleep(BREATH)
            self._guarded("write", self._write)
            self._guarded("purge", self._purge)
            self._guarded("learn", self._learn)
            if self._closing.is_set() and self._queue.empty():
                break
        for kept in (self.ledger, self.recorder):
            if kept is not None:
                self._guarded("close", kept.close)

    def _take(self, one: Answered | Summarised | None) -> None:
        if isinstance(one, Answered):
            self._guarded("reckon", lambda: self._book(one))
            if one.view is not None:
                self._reached[step(count_calls(one.view))] += 1
            if self.recorder is not None and one.view is not None:
                self._guarded("record", lambda: self._record(one))
        elif one is not None:
            self._put_down(*self._accounts.summarised(one))

    def _book(self, one: Answered) -> None:
        self._put_down(*self._accounts.answered(one))

    def _put_down(self, key: Key, sums: Sums) -> None:
        if key not in self._pending and len(self._pending) >= WAITING:
            self._counters.add("ledger_lost")
            return
        self._pending.setdefault(key, []).append(sums)

    def _record(self, one: Answered) -> None:
        if self.recorder is not None:
            self.recorder.record(one)

    def _write(self) -> None:
        lines = {key: total(parts) for key, parts in self._pending.items()}
        self._pending = {key: [sums] for key, sums in lines.items()}
        if lines and self.ledger is not None:
            self.ledger.add(lines, self._reached)
        self._pending = {}
        self._reached.clear()

    def _learn(self) -> None:
        """Read again, from time to time, how long sessions are; other processes write too."""
        if self.ledger is not None and monotonic() - self._learned >= self._every:
            self._learned = monotonic()
            self.survival = self.ledger.survival()

    def _purge(self) -> None:
        gone = self.recorder.purge() if self.recorder is not None else 0
        if gone:
            self._counters.add("records_purged", gone)

    def _guarded(self, doing: str, act: Callable[[], object]) -> None:
        """Whatever fails, requests flow: it is counted, and told without a word of what was said."""
        try:
            act()
        except Exception as error:  # noqa: BLE001 - books are no reason to fail
            self._counters.add("ledger_failures", doing=doing)
            LOGGER.warning("the books failed", extra={"fields": {"doing": doing, **error_fields(error)}})
