"""Compaction in layers against truncation and plain summaries.

Tokens, seconds per call, cost, integrity. Layer 1: `clear_strategies`; layer 2: `kept.ours`.
A plain summary has the trigger and the tail of layer 2, truncation as many tokens.

python -m benchmarks.layers [datasets, by default ../shared/datasets or $REFOLD_SHARED/datasets]
"""

import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from benchmarks.baselines import Choice, Extract, Plain, beginnings, typical
from benchmarks.billing import PRICES, Bill, Meter
from benchmarks.kept import (
    ROOT,
    TARGET,
    ClearAllBut,
    LastTokens,
    counted,
    datasets,
    last_tokens,
    ours,
)
from benchmarks.probes import KINDS, Score, probes, score_answers
from benchmarks.replay import Place, Recording, Replay, places
from benchmarks.speed import Request, Speed, seconds_of
from benchmarks.table import table
from refold.budget.budget import Budget
from refold.codecs.detect import open_payload
from refold.compactor.compactor import Compactor
from refold.core.strategy import Strategy
from refold.core.view import View
from refold.messages import Text
from refold.models.driver import Asker
from refold.retrieval import Index
from refold.strategies import (
    ClearThinking,
    ClearToolInputs,
    ClearToolResults,
    DropDuplicates,
    Summarize,
)

TRIGGER = 0.24
"""Share of a session's full size at which layers compact (`benchmarks.kept`), to `TARGET` of it."""
POINTS = 6
"""Calls per dataset at which requests are timed and questions asked, at least one per session."""
SESSIONS = 6
"""Maximum number of sessions per dataset, the longest ones."""
SPEED = Speed()

UNCOMPACTED, LAYER_1, LAYER_2 = (
    "as it is",
    "layer 1: local and clearing",
    "layer 2: and the rule summary",
)
EVERY_ROUND, TRUNCATED = "layer 1 at every call", "plain truncation"
PROSE: dict[str, Choice] = {
    "plain summary, beginnings of turns": beginnings,
    "plain summary, typical sentences": typical,
}


# --- policies -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Policy:
    """How the requests of a session are shortened."""

    strategies: Sequence[Strategy] = ()
    trigger: float = 2.0
    """Share of the session's full size."""
    target: float = 2.0
    ask: Asker | None = None
    searchable: bool = True
    """Whether the agent can search hidden messages."""
    always: bool = False
    """Whether it acts at every call."""
    window: LastTokens | None = None
    """Truncation of each request."""

    def compactor(self, recording: Recording) -> Compactor:
        """Return a compactor for one replay."""
        size, fixed = recording.size, recording.fixed
        due, goal = fixed + int(self.trigger * size), fixed + int(self.target * size)
        budget = Budget(0, 0, progress=0, hysteresis=0) if self.always else Budget(due, goal)
        codec = open_payload(recording.payload).codec
        return Compactor(self.strategies, budget, format=codec.NAME, count=counted, ask=self.ask)


def clear_strategies() -> list[Strategy]:
    """Return layer 1, which clears without a model and keeps the newest four groups of calls."""
    return [DropDuplicates(), ClearThinking(), ClearToolResults(keep=4), ClearToolInputs(keep=4)]


def policies(recording: Recording) -> dict[str, Policy]:
    """Return all policies for *recording* but truncation, which needs the tokens of layer 2."""
    strategies = ours(recording.size)
    caps = [strategy.max_tokens for strategy in strategies if isinstance(strategy, Summarize)]
    due = TRIGGER, TRIGGER * TARGET
    plain = [Summarize(0.3, caps[0], Plain())]
    return {
        UNCOMPACTED: Policy(),
        EVERY_ROUND: Policy([ClearAllBut(4)], always=True),
        LAYER_1: Policy(clear_strategies(), *due),
        LAYER_2: Policy(strategies, *due),
        **{
            name: Policy(plain, *due, Extract(choose), searchable=False)
            for name, choose in PROSE.items()
        },
    }


# --- one session --------------------------------------------------------------------------------


class Point(NamedTuple):
    """One call that is examined closely."""

    tokens: int
    bill: Bill
    scores: Mapping[str, Score]
    requests: tuple[Request, Request]
    """The previous call and this one."""


@dataclass(frozen=True)
class Run:
    """Results of one policy for one or more sessions."""

    sent: Replay = field(default_factory=Replay)
    bill: Bill = field(default_factory=Bill)
    asking: float = 0.0
    """US dollars for summaries."""
    points: tuple[Point, ...] = ()

    def __add__(self, other: "Run") -> "Run":
        return Run(
            self.sent + other.sent,
            self.bill + other.bill,
            self.asking + other.asking,
            self.points + other.points,
        )

    @property
    def scores(self) -> dict[str, Score]:
        """Return the answers at all points by kind."""
        return {
            kind: reduce(add, (point.scores[kind] for point in self.points), Score())
            for kind in KINDS
        }


@dataclass(frozen=True)
class Job:
    """A recording and the number of its calls to examine closely."""

    recording: Recording
    points: int = POINTS


def measure(job: Job) -> dict[str, Run]:
    """Run every policy on one recording."""
    recording, index = job.recording, Index()
    rows = {name: replay(job, policy, index) for name, policy in policies(recording).items()}
    window = last_tokens(recording, rows[LAYER_2].sent.tokens)
    rows[TRUNCATED] = replay(job, Policy(searchable=False, window=window), index)
    return rows


def replay(job: Job, policy: Policy, index: Index) -> Run:
    """Replay all calls of a recording under one policy."""
    recording, run, meter = job.recording, Run(), Meter(counted)
    calls = recording.calls
    close = {calls[n * len(calls) // job.points - 1] for n in range(1, job.points + 1)}
    before: View | None = None
    for at, compacted in requests(recording, policy.compactor(recording)):
        view = policy.window(compacted) if policy.window else compacted
        bill = meter.call(view, sum(map(counted, recording.messages[at : at + 1])))
        asking = sum(attempt.cost for attempt in view.attempts)
        run += Run(_record_sent(recording, at, view), bill, asking)
        if at in close:
            searched = index if policy.searchable else None
            run += Run(points=(_point(recording, before or view, view, bill, searched),))
        before = view
    return replace(run, sent=replace(run.sent, breaks=meter.breaks))


def requests(recording: Recording, compactor: Compactor) -> Iterator[tuple[int, View]]:
    """Yield the position and the view of each model call."""
    envelope = open_payload(recording.payload)
    name, head = envelope.codec.FIELD, envelope.head
    for at in recording.calls:
        yield at, compactor({**recording.payload, name: recording.payload[name][: head + at]})


def _record_sent(recording: Recording, at: int, view: View) -> Replay:
    wanted = recording.wanted.get(at, ())
    places_of_names: Counter[Place] = Counter(
        place for place in places(view, wanted, recording.found) if place
    )
    return Replay(1, view.tokens, 0, len(wanted), places_of_names)


def _point(
    recording: Recording, before: View, view: View, bill: Bill, index: Index | None
) -> Point:
    system = system_of(recording)
    wanted = probes(view.transcript.messages, system, recording.pattern)
    pair = Request.of(system, before.messages), Request.of(system, view.messages)
    return Point(view.tokens, bill, score_answers(view, wanted, index), pair)


def system_of(recording: Recording) -> str:
    """Return the text of the system prompt."""
    head = open_payload(recording.payload).system
    return "\n".join(part.text for part in head if isinstance(part, Text))


# --- latency ------------------------------------------------------------------------------------


class Seconds(NamedTuple):
    """Mean seconds of a call."""

    cold: float
    """Nothing is in the provider's cache."""
    warm: float
    """The previous call was just made."""


Taken = Mapping[tuple[str, str], Seconds]
"""Seconds per call by dataset and policy."""


def latency(runs_by_dataset: Mapping[str, Mapping[str, Run]], speed: Speed = SPEED) -> Taken:
    """Measure the calls at all points over HTTP: mean seconds by dataset and policy."""
    points = [
        ((name, policy), point)
        for name, runs in runs_by_dataset.items()
        for policy, run in runs.items()
        for point in run.points
    ]
    taken = seconds_of([talk for _, p in points for talk in (p.requests[1:], p.requests)], speed)
    pairs: dict[tuple[str, str], list[Seconds]] = {}
    for (key, _), cold, warm in zip(points, taken[::2], taken[1::2], strict=True):
        pairs.setdefault(key, []).append(Seconds(cold, warm))
    return {key: Seconds(*map(fmean, zip(*both, strict=True))) for key, both in pairs.items()}


# --- the page -----------------------------------------------------------------------------------


def integrity(scores: Mapping[str, Score]) -> tuple[float, float]:
    """Return the mean shares over all kinds of answers visible, and visible or found."""
    asked = [score for score in scores.values() if score.asked]
    return (
        fmean([score.visible / score.asked for score in asked] or [1.0]),
        fmean([score.reached / score.asked for score in asked] or [1.0]),
    )


def format_call_table(name: str, runs: Mapping[str, Run], seconds: Taken) -> str:
    """Return a table of tokens, latency, cost and integrity of a call, as means over all points."""
    rows = []
    for policy, run in runs.items():
        visible, reachable = integrity(run.scores)
        bills, took = [point.bill for point in run.points], seconds[name, policy]
        rows.append(
            [
                policy,
                f"{fmean(point.tokens for point in run.points):,.0f}",
                f"{took.cold:.1f} / {took.warm:.1f}",
                f"{100 * fmean(b.plain for b in bills):.1f} / {100 * fmean(b.cached for b in bills):.1f}",
                f"{visible:.0%}",
                f"{reachable:.0%}",
                " / ".join(share(score.visible, score.asked) for score in run.scores.values()),
            ]
        )
    head = [
        "what is sent",
        "tokens",
        "s, cold / warm",
        "cents, no cache / cache",
        "visible",
        "or found",
    ]
    return table([*head, "visible: " + " / ".join(KINDS)], rows)


def format_session_table(runs: Mapping[str, Run]) -> str:
    """Return a table of tokens, cost and artifact recall of all calls."""
    rows = [
        [
            name,
            f"{run.sent.tokens / 1e6:.2f} M",
            f"{run.bill.plain + run.asking:.2f}",
            f"{run.bill.cached + run.asking:.2f}",
            f"{run.asking:.2f}",
            str(run.sent.breaks),
            share(sum(run.sent.survived.values()), run.sent.needed),
        ]
        for name, run in runs.items()
    ]
    head = [
        "what is sent",
        "tokens",
        "$ without cache",
        "$ with cache",
        "of it for summaries",
        "cache breaks",
    ]
    return table([*head, "artifact recall"], rows)


def share(part: int, whole: int) -> str:
    """Format a percentage, or a dash if the whole is 0."""
    return f"{part / whole:.0%}" if whole else "-"


def together(all_runs: Iterable[Mapping[str, Run]]) -> dict[str, Run]:
    """Return the sums over all recordings by policy."""
    total: dict[str, Run] = {}
    for rows in all_runs:
        for name, run in rows.items():
            total[name] = total.get(name, Run()) + run
    return total


def jobs_of(recordings: Sequence[Recording]) -> list[Job]:
    """Return jobs for the longest recordings, with the points divided among them."""
    longest = sorted(recordings, key=lambda recording: -recording.size)[:SESSIONS]
    return [Job(recording, max(1, POINTS // len(longest))) for recording in longest]


def report(name: str, many: int, runs: Mapping[str, Run], seconds: Taken) -> str:
    """Return the two tables of a dataset."""
    full = runs[UNCOMPACTED]
    asked = sum(score.asked for score in full.scores.values())
    sizes = f"{name}: {many} session{'s' * (many > 1)}, {full.sent.calls:,} calls, {len(full.points)} of them closely"
    return f"{sizes}, {asked:,} questions\n\n{format_call_table(name, runs, seconds)}\n\n{format_session_table(runs)}"


def measure_all(jobs: Mapping[str, Sequence[Job]]) -> dict[str, dict[str, Run]]:
    """Measure two recordings at a time; return the results by dataset and policy."""
    with ProcessPoolExecutor(2) as pool:
        done = pool.map(measure, [job for some in jobs.values() for job in some])
        return {name: together([next(done) for _ in some]) for name, some in jobs.items()}


def main() -> None:
    """Print two tables for each dataset."""
    shared = Path(os.environ.get("REFOLD_SHARED", ROOT.parent / "shared"))
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else shared / "datasets"
    jobs = {
        name: jobs_of(recordings) for name, recordings in datasets(root) if name != "tau2-bench"
    }
    runs_by_dataset = measure_all(jobs)
    seconds = latency(runs_by_dataset)
    print(f"Speed of the server: {SPEED}.\n{PRICES}.")
    for name, some in jobs.items():
        print(
            f"\n{report(name, len(some), runs_by_dataset[name], seconds) if some else f'{name}: not there, skipped'}"
        )


if __name__ == "__main__":
    main()
