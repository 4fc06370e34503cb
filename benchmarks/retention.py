"""Retention by importance: whether it pays to keep important messages word for word beside a
summary.

python -m benchmarks.retention [names of sets, by default all]; datasets in ../shared/datasets or
$REFOLD_SHARED/datasets

At `POINTS` points of a session everything is compacted once to the same number of tokens: a tail,
the rule summary, and messages that a scorer chose (`KeepImportant`). Recency chooses the newest, so
it is a longer tail. For agents' sessions the identifiers of `benchmarks.importance` are counted,
for chats the evidence of `benchmarks.questions`.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from benchmarks.importance import SUM, Score, embed_by_hash, jobs, points
from benchmarks.kept import ROOT, counted
from benchmarks.questions import DATASETS, Need, Talk, grams, is_kept
from benchmarks.replay import Recording, places
from benchmarks.table import table
from refold.budget.budget import Budget
from refold.compactor.run import compact_if_due
from refold.core.profile import Profile
from refold.core.view import View
from refold.messages import Message, Text
from refold.models.driver import drive
from refold.scorers import (
    Brevity,
    Emphasis,
    Errors,
    Freshness,
    Nearness,
    Recency,
    References,
    Roles,
    Weighted,
)
from refold.scorers.scorer import Scorer
from refold.strategies import KeepImportant, Summarize
from refold.summarizers.tail import find_tail_start
from refold.text.plain import fold, readable_text

POINTS = 2
"""Number of compactions per session, each from scratch."""
SENT = 0.25
"""Tokens of the compacted request as a share of the session so far; for chats the middle budget
of `benchmarks.questions`."""
TAIL, PINS = 0.4, 0.25
"""Shares of these for the tail and for the scorer's choice; the rest is for the summary."""
NEARNESS = Nearness(embed_by_hash, "hashed words")
CHOICES: dict[str, Scorer | None] = {
    "nothing, a longer summary": None,
    "`Recency()`": Recency(),
    "`References()`": References(),
    "`Freshness()`": Freshness(),
    "`Errors()`": Errors(),
    "`Emphasis()`": Emphasis(),
    "`Roles()`": Roles(),
    "`Brevity()`": Brevity(),
    "`Nearness(...)`, hashed words": NEARNESS,
    "weighted sum with `Nearness`": Weighted((*SUM, (0.25, NEARNESS))),
}


@dataclass(frozen=True)
class Job:
    """A session and the set it belongs to."""

    name: str
    session: Recording | Talk
    sent: int = 0


@dataclass(frozen=True)
class Before:
    """A scorer's scores, limited to messages before the tail."""

    scorer: Scorer
    stop: int

    def __call__(self, view: View) -> Sequence[float]:
        """Return the scores, negative from *stop* on."""
        return [score if at < self.stop else -1.0 for at, score in enumerate(self.scorer(view))]


def compact(view: View, scorer: Scorer | None, target: int) -> View:
    """Return the view in about *target* tokens."""
    tail = TAIL * target / view.tokens
    stop = find_tail_start(view, tail)
    pins = int(PINS * target) if scorer else 0
    summary = Summarize(tail, max(1, target - view.base.tokens(stop, len(view.transcript)) - pins))
    strategy = (
        KeepImportant(summary, Before(scorer, stop), over=0.0, max_tokens=pins)
        if scorer
        else summary
    )
    return drive(compact_if_due(view, [strategy], Budget(view.tokens, 0))).view


def measure(job: Job) -> dict[str, Score]:
    """Run every choice on one session."""
    rows: dict[str, Score] = {}
    cases = (
        _questions(job.session, job.sent) if isinstance(job.session, Talk) else _calls(job.session)
    )
    for view, target, wanted in cases:
        for name, scorer in CHOICES.items():
            shown = compact(view, scorer, target)
            hits = _count_kept(shown, wanted, job.session)
            rows[name] = rows.get(name, Score()).plus(Score(len(wanted), hits, shown.tokens))
    return rows


def _count_kept(shown: View, wanted: list[Need] | list[str], session: Recording | Talk) -> int:
    if isinstance(session, Recording):
        return sum(
            place is not None
            for place in places(shown, [str(name) for name in wanted], session.found)
        )
    texts = list(map(readable_text, shown.messages))
    text, held = fold("\n".join(texts)), frozenset[str]().union(*map(grams, texts))
    return sum(is_kept(need, text, held) for need in wanted if isinstance(need, Need))


def _calls(recording: Recording) -> Iterator[tuple[View, int, list[str]]]:
    for view, wanted in list(points(recording))[:: max(1, 10 // POINTS)]:
        yield view, int(SENT * view.tokens), wanted


def _questions(talk: Talk, sent: int) -> Iterator[tuple[View, int, list[Need]]]:
    asked = [(at, list(needs)) for at, needs in groupby(talk.needs, key=lambda need: need.at)]
    messages = [
        Message("user" if role == "user" else "assistant", (Text(text),))
        for role, text in talk.messages
    ]
    for at, needs in asked[:: max(1, len(asked) // POINTS)][-POINTS:]:
        if (view := View.of(messages[:at], profile=Profile(count=counted))).tokens > sent:
            yield view, sent, needs


def todo(root: Path) -> Iterator[Job]:
    """Yield all sessions."""
    for job in jobs(root):
        yield Job(job.dataset, job.recording)
    for name, (read, budgets) in DATASETS.items():
        yield from (Job(name, talk, budgets[1]) for talk in read(root) if talk.needs)


def main() -> None:
    """Print the table."""
    shared = Path(os.environ.get("REFOLD_SHARED", ROOT.parent / "shared"))
    every = [
        job for job in todo(shared / "datasets") if not sys.argv[1:] or job.name in sys.argv[1:]
    ]
    scores: dict[tuple[str, str], Score] = {}
    with ProcessPoolExecutor(2) as pool:
        for job, rows in zip(every, pool.map(measure, every), strict=True):
            for choice, row in rows.items():
                scores[job.name, choice] = scores.get((job.name, choice), Score()).plus(row)
    names = list(dict.fromkeys(name for name, _ in scores))
    lines = [
        _line(choice, [(scores[name, choice], scores[name, "`Recency()`"]) for name in names])
        for choice in CHOICES
    ]
    needed = ", ".join(f"{name} {scores[name, '`Recency()`'].needed:,}" for name in names)
    print(f"needed: {needed}\n\n{table(['kept word for word', *names, 'mean', 'tokens'], lines)}")


def _line(choice: str, pairs: list[tuple[Score, Score]]) -> list[str]:
    """Return what a choice kept of each set, the mean, and its tokens as a share of those of
    recency."""
    mean = sum(score.hits / score.needed for score, _ in pairs) / max(1, len(pairs))
    tokens = sum(score.tokens / base.tokens for score, base in pairs) / max(1, len(pairs))
    return [
        choice,
        *(f"{score.hits / score.needed:.1%}" for score, _ in pairs),
        f"{mean:.1%}",
        f"{tokens:.3f}",
    ]


if __name__ == "__main__":
    main()
