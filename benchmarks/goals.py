"""Four goals (context use, speed, accuracy, cost), measured for each way of replacing a history.

python -m benchmarks.goals [datasets, by default ../shared/datasets or $REFOLD_SHARED/datasets]
"""

import json
import os
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from benchmarks.billing import PRICES, Bill
from benchmarks.kept import ROOT, counted, datasets
from benchmarks.layers import SPEED, Point, Run, integrity, share, system_of
from benchmarks.probes import BINDS, KINDS, probes, score_answers
from benchmarks.replay import STRUCTURED, Recording
from benchmarks.speed import Request, seconds_of
from benchmarks.table import table
from refold.budget.budget import Budget
from refold.codecs.detect import open_payload
from refold.compactor.compactor import Compactor
from refold.compactor.run import compact_if_due
from refold.core.strategy import Answer, Ask, Strategy
from refold.core.view import View
from refold.messages import user
from refold.models.driver import drive
from refold.models.model import with_cost
from refold.retrieval import Index
from refold.strategies import Chunked, FromLastN, RetrieveFacts, WholeHistory
from refold.summarizers.forms.facts import Concept
from refold.tokens.count import count_message
from refold.tokens.usage import Usage

CAP = 4_000
"""Maximum tokens of the replacement of the history."""
CONCEPTS = (
    Concept("paths", "files and folders that were worked on"),
    Concept("names", "other identifiers"),
    Concept("rules", "what the user demands or forbids"),
)
USER = re.compile(r"<user>\n(.*?)\n</user>", re.DOTALL)
MANY = 100
"""Maximum number of paths, and of names, in one answer."""


def strategies(view: View) -> dict[str, Strategy]:
    """Return the ways, each with `CAP` tokens for the whole of *view*."""
    size = max(10, len(view.transcript) // 8)
    return {
        "WholeHistory": WholeHistory(max_tokens=CAP),
        "FromLastN, a quarter of the messages": FromLastN(
            max(5, len(view.transcript) // 4), max_tokens=CAP
        ),
        "Chunked, eight chunks": Chunked(size, max_tokens=CAP // 8),
        "RetrieveFacts, scripted model": RetrieveFacts(CONCEPTS, CAP, asks=20),
    }


@dataclass(frozen=True, slots=True)
class Finder:
    """A scripted model that finds facts by patterns: the most frequent paths and names, and the
    user's sentences that are constraints. Priced as a model."""

    def __call__(self, ask: Ask) -> Answer:
        """Return the facts as JSON."""
        often = [name for name, _ in Counter(STRUCTURED.findall(ask.prompt)).most_common()]
        lines_said = "\n".join(USER.findall(ask.prompt)).splitlines()
        facts = {
            "paths": [name for name in often if "/" in name][:MANY],
            "names": [name for name in often if "/" not in name][:MANY],
            "rules": [line[:300] for line in lines_said if BINDS.search(line)][:30],
        }
        text = json.dumps(facts, ensure_ascii=False)
        usage = Usage(
            sum(count_message(user(part)) for part in (ask.system, ask.prompt)),
            count_message(user(text)),
        )
        return with_cost(Answer(text, usage=usage, model="scripted"), PRICES.row)


@dataclass(frozen=True)
class Goals:
    """Results of one way on one session."""

    run: Run
    took: float = 0.0
    """Seconds of work on this machine; a scripted model takes none."""
    calls: int = 0
    """Model calls."""


def measure(recording: Recording) -> dict[str, Goals]:
    """Measure the whole session and each way of replacing it."""
    codec = open_payload(recording.payload).codec
    everything = Compactor([], Budget(10**9, 10**9), format=codec.NAME, count=counted)(
        recording.payload
    )
    index = Index()
    by_name = {"as it is": Goals(Run(points=(_point(recording, everything, index),)))}
    for name, strategy in strategies(everything).items():
        began = perf_counter()
        done = drive(compact_if_due(everything, [strategy], Budget(0, 0)), Finder())
        took = perf_counter() - began
        asking, calls = (
            sum(attempt.cost for attempt in done.attempts),
            sum(attempt.calls for attempt in done.attempts),
        )
        by_name[name] = Goals(
            Run(asking=asking, points=(_point(recording, done.view, index),)), took, calls
        )
    return by_name


def _point(recording: Recording, view: View, index: Index) -> Point:
    system = system_of(recording)
    scores = score_answers(view, probes(view.transcript.messages, system, recording.pattern), index)
    request = Request.of(system, view.messages)
    bill = (view.tokens * PRICES.input + SPEED.answer * PRICES.output) / 1e6
    return Point(view.tokens, Bill(bill, bill), scores, (request, request))


def report(by_name: Mapping[str, Goals], seconds: Sequence[float]) -> str:
    """Return the table of a session."""
    rows = []
    for (name, goals), call in zip(by_name.items(), seconds, strict=True):
        run, point = goals.run, goals.run.points[0]
        visible, reached = integrity(run.scores)
        rows.append(
            [
                name,
                f"{point.tokens:,}",
                f"{call:.1f}",
                f"{visible:.0%} ({reached:.0%})",
                " / ".join(share(score.visible, score.asked) for score in run.scores.values()),
                f"{100 * point.bill.plain:.1f}",
                f"{100 * run.asking:.1f} in {goals.calls}",
                f"{goals.took:.2f}",
            ]
        )
    head = [
        "what is sent",
        "context: tokens",
        "speed: s a call",
        "accuracy: visible (or found)",
        " / ".join(KINDS),
    ]
    return table([*head, "cost: cents a call", "and once, in calls", "and once, s"], rows)


def main() -> None:
    """Print a table for each long session."""
    shared = Path(os.environ.get("REFOLD_SHARED", ROOT.parent / "shared"))
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else shared / "datasets"
    long = {
        name: some
        for name, some in datasets(root)
        if name == "pi" or name.startswith("Claude Code")
    }
    by_dataset = {name: measure(recording) for name, some in long.items() for recording in some}
    talks = [
        (goals.run.points[0].requests[1],)
        for ways in by_dataset.values()
        for goals in ways.values()
    ]
    taken = iter(seconds_of(talks, SPEED))
    print(f"Speed of the server: {SPEED}.\n{PRICES}.")
    for name in long:
        ways = by_dataset.get(name, {})
        seconds = [next(taken) for _ in ways]
        print(f"\n{name}\n\n{report(ways, seconds)}" if ways else f"\n{name}: not there, skipped")


if __name__ == "__main__":
    main()
