"""Metrics of one or several processes: counters and timings in Prometheus' text format (version
0.0.4)."""

import json
import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from itertools import accumulate, groupby
from operator import add
from pathlib import Path
from threading import Lock, Thread
from time import sleep

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
"""Upper bounds in seconds."""
WRITE_SECONDS = 1.0
"""Seconds between two writes of a process's samples."""

Labels = tuple[tuple[str, str], ...]
"""Names and values, sorted by name."""
Samples = dict[tuple[str, str, Labels], list[float]]
"""Numbers by kind (`counter`, `gauge`, `histogram`), name and labels. A histogram has the counts of
each of `BUCKETS` and above, then the sum. Samples of several processes can be added."""

HELP = {
    "requests": "Requests for an answer, by API, by what was done with them (outcome), and why.",
    "tokens_before": "Expected tokens of requests with edits, without the edits, by API.",
    "tokens_after": "Expected tokens of requests with edits, as sent, by API.",
    "failures": "Failures to decide on a request, to save its edits or to summarise, by reason.",
    "prepared": "Summaries prepared in the background, by result.",
    "prefix_breaks": "Histories whose beginning their client has rewritten, by API.",
    "decided_again": "Edits of single results that show again in such histories, by API.",
    "capped": "Requests whose cap of output tokens was lowered, by API.",
    "http_requests": "Requests answered, by API, upstream and status.",
    "http_refused": "Requests that the gateway answered itself, by reason.",
    "http_accept_failures": "Failed accepts of a connection, such as for lack of file descriptors.",
    "http_client_disconnects": "Requests whose client disconnected before the answer was complete.",
    "http_truncated": "Answers that the upstream cut off.",
    "http_tokens": "Tokens that upstreams reported, by kind.",
    "http_unread": "Bodies passed on unread: broken, in an unknown coding, or too large unpacked.",
    "http_usage_missing": "Model answers without a usage object.",
    "context_errors": "Context errors of upstreams, by result.",
    "binding_errors": "Errors of upstreams about signed thinking, by result.",
    "engine_ends": "Notifications to engines of the end of a session, by result.",
    "store_replaced": "Times that the open store was found deleted or replaced.",
    "ledger_failures": "Failures of the net ledger and of transcripts, by operation.",
    "ledger_lost": "Calls dropped because the net ledger's queue was full.",
    "log_lines_dropped": "Log lines dropped because they were not read in time.",
    "refetched_kept": "Results that were fetched again after they had been hidden, and are kept.",
    "records_purged": "Transcripts deleted by retention.",
    "pruned": "Edits, attempts and sessions deleted by retention, by kind.",
    "prepare_seconds": "Time from the last byte of a request until it is ready for the upstream.",
    "first_byte_seconds": "Time from the last byte of a request to the first content of its answer.",
}


@lru_cache(maxsize=4_096)
def key_of(name: str, **labels: str) -> tuple[str, Labels]:
    """Return the key of a counter or histogram: its name and labels."""
    return name, tuple(sorted(labels.items()))


class Counters:
    """Counters and timings by name and labels. Thread-safe."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, Labels], float] = {}
        self._times: dict[tuple[str, Labels], list[float]] = {}
        self._lock = Lock()

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        """Add *amount* to a counter. No label may hold a key, a session or text."""
        key = key_of(name, **labels)
        with self._lock:
            self._counts[key] = self._counts.get(key, 0) + amount

    def observe(self, name: str, seconds: float, **labels: str) -> None:
        """Record a duration in seconds."""
        key = key_of(name, **labels)
        with self._lock:
            values = self._times.get(key)
            if values is None:
                values = self._times[key] = [0] * (len(BUCKETS) + 2)
            values[bisect_left(BUCKETS, seconds)] += 1
            values[-1] += seconds

    def values(self) -> Mapping[tuple[str, Labels], float]:
        """Return all counters."""
        with self._lock:
            return dict(self._counts)

    def get(self, name: str, **labels: str) -> float:
        """Return the sum of the counter *name* over all label sets that include *labels*."""
        wanted = labels.items()
        return sum(
            count
            for (key, own), count in self.values().items()
            if key == name and wanted <= dict(own).items()
        )

    def samples(self, **gauges: float) -> Samples:
        """Return all samples, with the current values of *gauges*."""
        with self._lock:
            return {
                **{("counter", *key): [count] for key, count in self._counts.items()},
                **{("histogram", *key): [*values] for key, values in self._times.items()},
                **{("gauge", name, ()): [value] for name, value in gauges.items()},
            }


def render(samples: Samples) -> bytes:
    """Return *samples* in Prometheus' text format."""
    lines = list[str]()
    for (kind, name), keys in groupby(sorted(samples), key=lambda key: key[:2]):
        full = f"refold_{name}_total" if kind == "counter" else f"refold_{name}"
        lines += [f"# HELP {full} {HELP[name]}"] if name in HELP else []
        lines.append(f"# TYPE {full} {kind}")
        for key in keys:
            values = samples[key]
            if kind == "histogram":
                lines += _histogram_lines(full, key[2], values)
            else:
                lines.append(f"{full}{_render_labels(key[2])} {values[0]:.15g}")
    return ("\n".join(lines) + "\n").encode()


def _histogram_lines(full: str, labels: Labels, values: list[float]) -> Iterator[str]:
    totals = list(accumulate(values[:-1]))
    for edge, total in zip((*map(str, BUCKETS), "+Inf"), totals, strict=True):
        yield f"{full}_bucket{_render_labels((*labels, ('le', edge)))} {total:.15g}"
    yield f"{full}_sum{_render_labels(labels)} {values[-1]:.6f}"
    yield f"{full}_count{_render_labels(labels)} {totals[-1]:.15g}"


def _render_labels(labels: Labels) -> str:
    inside = ",".join(f'{name}="{_escape(value)}"' for name, value in labels)
    return f"{{{inside}}}" if inside else ""


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class SharedMetrics:
    """Metrics of all processes that share the directory *place*. *own* returns this process's.

    Each writes its samples there every `WRITE_SECONDS`. Those of a process that has ended still
    count, so that counters never decrease, but its gauges do not."""

    def __init__(self, place: Path, own: Callable[[], Samples]) -> None:
        self._place, self._own, self._writing = place, own, Lock()

    def start(self) -> None:
        """Start writing samples, for as long as this process lives."""
        Thread(target=self._keep_writing, name="refold-metrics", daemon=True).start()

    def __call__(self) -> Samples:
        """Return the sums over all processes, or only this one's samples if the directory cannot be
        used."""
        own = self._own()
        with suppress(OSError):  # then only other processes lack these samples
            self._write(own)
        return sum_samples((own, *self._read_others()))

    def _keep_writing(self) -> None:
        while True:
            with suppress(OSError):  # tried again next time
                self._write(self._own())
            sleep(WRITE_SECONDS)

    def _write(self, own: Samples) -> None:
        file = self._place / str(os.getpid())
        draft = file.with_suffix(".new")
        with self._writing:  # a scrape and the writing thread may overlap
            draft.write_bytes(json.dumps(list(own.items())).encode())
            draft.replace(file)

    def _read_others(self) -> Iterator[Samples]:
        """Yield the readable samples of the other processes."""
        with suppress(OSError):
            for file in sorted(self._place.iterdir()):
                if file.name.isdigit() and file.name != str(os.getpid()):
                    samples, is_alive = json.loads(file.read_bytes()), _is_alive(int(file.name))
                    yield {
                        (kind, name, tuple((label, value) for label, value in labels)): values
                        for (kind, name, labels), values in samples
                        if is_alive or kind != "gauge"
                    }


def sum_samples(parts: Iterable[Samples]) -> Samples:
    """Return the sums of samples of the same kind, name and labels."""
    sums: Samples = {}
    for part in parts:
        for key, values in part.items():
            sums[key] = [*map(add, sums[key], values)] if key in sums else values
    return sums


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
