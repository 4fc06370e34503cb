"""Prometheus' text format (version 0.0.4) of what was counted and timed. No dependency."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import accumulate, groupby
from threading import Lock

Labels = tuple[tuple[str, str], ...]
"""Names and values, sorted by name."""


@lru_cache(maxsize=4_096)
def key_of(name: str, **labels: str) -> tuple[str, Labels]:
    """The key of a count or of a measurement: there are few, and each is needed again and again."""
    return name, tuple(sorted(labels.items()))


class Counters:
    """Numbers that only grow, by name and labels. Calls may come from several threads."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, Labels], float] = {}
        self._lock = Lock()

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        """Count *amount* more of *name* with these labels. Never a key, a session or text in a label."""
        key = key_of(name, **labels)
        with self._lock:
            self._values[key] = self._values.get(key, 0) + amount

    def values(self) -> Mapping[tuple[str, Labels], float]:
        """Every count, as it is now."""
        with self._lock:
            return dict(self._values)

    def get(self, name: str, **labels: str) -> float:
        """The sum of *name* over all label sets that include *labels*."""
        wanted = labels.items()
        counts = (
            count
            for (key, own), count in self.values().items()
            if key == name and wanted <= dict(own).items()
        )
        return sum(counts)


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
"""Seconds."""

HELP = {
    "http_requests": "Requests answered, by API, upstream and status.",
    "http_refused": "Requests that the gateway answered itself, by reason.",
    "http_client_disconnects": "Requests whose client left before the answer was complete.",
    "http_truncated": "Answers that the upstream broke off.",
    "http_tokens": "Tokens that upstreams reported, by kind.",
    "http_unread": "Bodies passed on unread: too large when unpacked, broken, or in a coding that is not known.",
    "http_usage_missing": "Answers to requests for an answer in which no usage was found.",
    "context_errors": "Context errors of upstreams, by what came of them.",
    "binding_errors": "Errors of upstreams about signed thinking, by what came of them.",
    "store_replaced": "Times that the store was found deleted or replaced while it was open.",
    "ledger_failures": "Failures of the net ledger and of the transcripts, by what was being done.",
    "ledger_lost": "Calls that the net ledger has no room for.",
    "refetched_kept": "Results that were fetched again after they had been hidden, and so are not hidden again.",
    "records_purged": "Transcripts that were deleted at their time.",
    "prepare_seconds": "Time from the last byte of a request to its being ready for the upstream.",
    "first_byte_seconds": "Time from the last byte of a request to the upstream's first.",
}


class Timings:
    """Histograms of seconds, by name and labels."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, Labels], list[int]] = {}
        self._sums: dict[tuple[str, Labels], float] = {}

    def observe(self, name: str, seconds: float, **labels: str) -> None:
        """One more measurement."""
        key = key_of(name, **labels)
        counts = self._counts.get(key)
        if counts is None:
            counts = self._counts[key] = [0] * (len(BUCKETS) + 1)
        counts[bisect_left(BUCKETS, seconds)] += 1
        self._sums[key] = self._sums.get(key, 0.0) + seconds

    def lines(self) -> Iterator[str]:
        """The histograms as Prometheus reads them."""
        for name, keys in groupby(sorted(self._counts), key=lambda key: key[0]):
            yield from _heading(name, f"refold_{name}", "histogram")
            for key in keys:
                totals = list(accumulate(self._counts[key]))
                for edge, total in zip((*map(str, BUCKETS), "+Inf"), totals, strict=True):
                    yield f"refold_{name}_bucket{_labels((*key[1], ('le', edge)))} {total}"
                yield f"refold_{name}_sum{_labels(key[1])} {self._sums[key]:.6f}"
                yield f"refold_{name}_count{_labels(key[1])} {totals[-1]}"


def render(counters: Counters, timings: Timings, gauges: Iterable[tuple[str, float]] = ()) -> bytes:
    """Everything, for one scrape."""
    lines = [*_counter_lines(counters), *timings.lines()]
    for name, value in gauges:
        lines += [*_heading(name, f"refold_{name}", "gauge"), f"refold_{name} {value:g}"]
    return ("\n".join(lines) + "\n").encode()


def _counter_lines(counters: Counters) -> Iterator[str]:
    values = counters.values()
    for name, keys in groupby(sorted(values), key=lambda key: key[0]):
        yield from _heading(name, f"refold_{name}_total", "counter")
        for key in keys:
            yield f"refold_{name}_total{_labels(key[1])} {values[key]:.15g}"


def _heading(name: str, full: str, kind: str) -> Iterator[str]:
    if name in HELP:
        yield f"# HELP {full} {HELP[name]}"
    yield f"# TYPE {full} {kind}"


def _labels(labels: Labels) -> str:
    inside = ",".join(f'{name}="{_escape(value)}"' for name, value in labels)
    return f"{{{inside}}}" if inside else ""


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
