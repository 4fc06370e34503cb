"""Facts of a long chat after one compaction: a value counts only with the name that it belongs
to."""

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Literal, Self

from benchmarks.evidence.equal import match_sent_tokens
from benchmarks.evidence.peers import all_policies
from benchmarks.evidence.policies import MakePolicy, Sliding
from benchmarks.evidence.sessions import Session, datasets
from benchmarks.evidence.talks import DATASETS, Fact, Talk
from benchmarks.evidence.visible import WINDOW, counted
from benchmarks.table import table
from refold.messages import Message
from refold.text.plain import fold, plain_text

TARGETS = (2_000, 4_000)
REACH = 1_000
"""Characters before a value in which its name may appear."""
Sight = Literal["right", "wrong", "alone", "hidden"]
"""Whether a value is shown with its own name, with another thing's name, with none, or not at
all."""


def any_of(words: Sequence[str]) -> re.Pattern[str]:
    """Return a pattern for any of *words* as a whole word, the longest first."""
    longest = sorted(words, key=lambda word: (-len(word), word))
    return re.compile(
        "|".join(
            rf"(?<![\w.]){re.escape(word)}(?!\w|\.\d)" if word.isascii() else re.escape(word)
            for word in longest
        ),
        re.ASCII,
    )


class Page:
    """The contents of a request as one text."""

    def __init__(self, messages: Sequence[Message], talk: Talk) -> None:
        self.text = fold("\n".join(map(plain_text, messages)))
        self._named = {
            kind: [(match.start(), match[0]) for match in any_of([*names]).finditer(self.text)]
            for kind, names in talk.names.items()
        }

    def see(self, fact: Fact) -> Sight:
        """Return how a fact is shown, at the best of the places of its value.

        A value belongs to the last name of its kind before it, or to a name after it in its
        line.
        """
        sights = {self._see_at(fact, m.start()) for m in any_of([fact.value]).finditer(self.text)}
        return next((sight for sight in ("right", "wrong", "alone") if sight in sights), "hidden")

    def _see_at(self, fact: Fact, at: int) -> Sight:
        named = self._named[fact.kind]
        after = bisect_left(named, (at, ""))
        start, before = named[after - 1] if after else (-REACH, "")
        line_end = self.text.find("\n", at)
        end = min(line_end if line_end >= 0 else len(self.text), at + WINDOW)
        if before == fact.name and start > at - REACH:
            return "right"
        if fact.name in (name for place, name in named[after : after + 5] if place < end):
            return "right"
        return "wrong" if before and start > at - REACH else "alone"


@dataclass
class Score:
    """How the facts of some conversations are shown."""

    talks: int = 0
    tokens: int = 0
    facts: int = 0
    right: int = 0
    wrong: int = 0
    alone: int = 0
    hidden: int = 0

    def __iadd__(self, other: "Score") -> Self:
        for key, value in vars(other).items():
            setattr(self, key, getattr(self, key) + value)
        return self


def score(talk: Talk, make: MakePolicy, window: int) -> Score:
    """Compact a whole conversation once and look for each of its facts."""
    session = Session("talk", "chat", {"messages": talk.messages})
    everything = Page(session.messages, talk)
    facts = [fact for fact in talk.facts if everything.see(fact) == "right"]
    sent = make(session, window)(session.payload, session.messages)
    total, page = Score(1, sum(map(counted, sent)), len(facts)), Page(sent, talk)
    for fact in facts:
        sight = page.see(fact)
        setattr(total, sight, getattr(total, sight) + 1)
    return total


def policies() -> dict[str, MakePolicy]:
    """Return all policies; here a window of the newest messages has the whole target."""
    once = {name: make for name, make in all_policies().items() if not name.startswith("last N")}
    return {**once, "last N": lambda _, window: Sliding(window // 2)}


def measure(job: tuple[Sequence[Talk], str, int]) -> Score:
    """Score one policy on some conversations, at *target* tokens per request if it can."""
    talks, name, target = job
    make = policies()[name]

    def run(factor: float) -> Score:
        total = Score()
        for talk in talks:
            total += score(talk, make, int(2 * target * factor))
        return total

    return match_sent_tokens(run, lambda total: total.tokens, target * len(talks))


def rows(totals: dict[str, Score]) -> Iterator[list[str]]:
    """Yield the rows of a table."""
    for name, total in totals.items():
        shares = (total.right, total.wrong, total.alone, total.hidden)
        yield [
            name,
            f"{total.tokens // total.talks:,}",
            *(f"{100 * share / total.facts:.1f}" for share in shares),
        ]


def print_tables(split: str, targets: Sequence[int] = ()) -> None:
    """Print a table for each data set and target."""
    head = ["policy", "tokens", "with its name, %", "with another's", "with none", "not shown"]
    with ProcessPoolExecutor(2) as pool:
        for dataset, read in DATASETS.items():
            talks = [talk for talk in read(datasets(), split) if talk.facts]
            for target in targets or TARGETS:
                names = list(policies())
                scores = pool.map(measure, [(talks, name, target) for name in names])
                totals = dict(zip(names, scores, strict=True))
                some = next(iter(totals.values()))
                print(
                    f"\n{dataset}, {split}, to {target:,} tokens: {some.talks} talks, "
                    f"{some.facts:,} facts\n\n{table(head, list(rows(totals)))}",
                    flush=True,
                )
