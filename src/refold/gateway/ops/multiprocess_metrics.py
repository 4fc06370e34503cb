"""Metrics of several processes as those of one: whichever is asked answers for all."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Lock, Thread
from time import sleep

WRITE_SECONDS = 1.0
"""Seconds between two looks at what a process has counted."""


class SharedMetrics:
    """What the processes that share the directory *place* have counted. *own* renders this one's metrics.

    Every process leaves its figures there once in EVERY seconds. Those of one that has ended still count,
    so that counters only grow; but what it was doing then (gauges) it does no more.
    """

    def __init__(self, place: Path, own: Callable[[], bytes]) -> None:
        self._place, self._own, self._writing = place, own, Lock()

    def start(self) -> None:
        """Leave figures from now on, as long as this process lives."""
        Thread(target=self._leave, name="refold-figures", daemon=True).start()

    def __call__(self) -> bytes:
        """The sums of all; of this process alone where the place cannot be used."""
        own = self._own()
        with suppress(OSError):  # what is missing is what others ask this process for
            self._write(own)
        return sum_metrics((own.decode(), *self._others())).encode()

    def _leave(self) -> None:
        while True:
            with suppress(OSError):  # the next time, perhaps
                self._write(self._own())
            sleep(WRITE_SECONDS)

    def _write(self, own: bytes) -> None:
        file = self._place / str(os.getpid())
        draft = file.with_suffix(".new")
        with self._writing:  # a scrape, and the thread that leaves figures
            draft.write_bytes(own)
            draft.replace(file)

    def _others(self) -> Iterator[str]:
        """The figures of the other processes, as far as they can be read."""
        with suppress(OSError):
            for file in sorted(self._place.iterdir()):
                if file.name.isdigit() and file.name != str(os.getpid()):
                    text = file.read_text(encoding="utf-8")
                    yield text if _is_alive(int(file.name)) else _without_gauges(text)


def sum_metrics(texts: Iterable[str]) -> str:
    """Metrics in Prometheus' text format, each sample the sum of those of the same name and labels."""
    heads, samples = dict[str, list[str]](), dict[str, dict[str, float]]()
    for text in texts:
        for name, line in _iter_lines(text):
            if line.startswith("#"):
                if line not in heads.setdefault(name, []):
                    heads[name].append(line)
            else:
                key, _, value = line.rpartition(" ")
                of = samples.setdefault(name, {})
                of[key] = of.get(key, 0.0) + float(value)
    lines = (
        line
        for name in heads
        for line in (
            *heads[name],
            *(f"{key} {value:.15g}" for key, value in samples.get(name, {}).items()),
        )
    )
    return "\n".join(lines) + "\n"


def _iter_lines(text: str) -> Iterator[tuple[str, str]]:
    """Each line with the metric that it belongs to."""
    name = ""
    for line in filter(None, text.splitlines()):
        if line.startswith("#"):
            name = line.split(" ", 3)[2]
        yield name, line


def _without_gauges(text: str) -> str:
    gauges = {name for name, line in _iter_lines(text) if line == f"# TYPE {name} gauge"}
    return "\n".join(line for name, line in _iter_lines(text) if name not in gauges)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
