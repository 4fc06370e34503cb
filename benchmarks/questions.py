"""Evidence retention: how much of what a question needs is in the request when the question comes.

Evidence is what a memory behind a recorded answer shares with its session (realmem), a value that
appeared in just one message (CrossWOZ), or each message of the day that a question names
(MemoryBank). *When due* a chat is compacted at the budget only, else anew before every question.

python -m benchmarks.questions [datasets, by default ../shared/datasets or $REFOLD_SHARED/datasets]
"""

import json
import os
import re
import sys
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.table import table
from refold.budget.budget import Budget
from refold.compactor.compactor import Compactor
from refold.core.view import View
from refold.messages import Message, Text, user
from refold.retrieval import Index, recall
from refold.strategies import SummarizeTo
from refold.text.plain import fold, readable_text, terms
from refold.tokens.count import count_message

ROOT = Path(__file__).parent.parent
counted = lru_cache(maxsize=20_000)(count_message)
"""Token counter shared by all policies."""
HITS = 10
MOST = 3_000
"""Maximum number of tokens reserved for them."""
WIDTH = 4
"""Characters of a snippet for each token that a hit may take."""


class Need(NamedTuple):
    """One piece of evidence for one question."""

    at: int
    """Position of the question, after all messages before it."""
    query: str
    """The question."""
    value: str = ""
    """The answer as stated, folded: it is kept if the request contains it."""
    grams: frozenset[str] = frozenset()
    """Or the n-grams of the evidence: it is kept if the request holds at least half of them."""


@dataclass(frozen=True)
class Talk:
    """A conversation and what the questions in it or after it need."""

    messages: list[tuple[str, str]]
    """Role and text."""
    needs: list[Need]


class Sent(NamedTuple):
    """The texts of a request and its tokens."""

    texts: list[str]
    tokens: int


@lru_cache(maxsize=20_000)
def grams(text: str) -> frozenset[str]:
    """Return the sequences of three terms: words, or pairs of Chinese characters."""
    words = list(terms(text))
    return frozenset(" ".join(words[at : at + 3]) for at in range(len(words) - 2))


# --- policies -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class LastTokens:
    """The newest messages that fit, and the end of the one before them."""

    def requests(self, talk: Talk, budget: int) -> Iterator[tuple[int, str, Sent]]:
        """Yield the position, question and request of each question."""
        costs = [counted(Message(role, (Text(text),))) for role, text in talk.messages]
        for (at, query), _ in groupby(talk.needs, key=lambda need: need[:2]):
            first, tokens = at, 0
            while first and tokens + costs[first - 1] <= budget:
                first -= 1
                tokens += costs[first]
            part = fit(talk.messages[first - 1][1], budget - tokens) if first else ""
            texts = [part, *(text for _, text in talk.messages[first:at])]
            yield at, query, Sent(texts, tokens + (count_message(user(part)) if part else 0))


@dataclass(frozen=True)
class Summary:
    """The rule summary and a tail, with a *share* of the budget for search results.

    With *target* 1.0 it compacts before every question, as the tail is cut anew each time. Below
    1.0 it compacts only when the budget is reached, down to that share of it.
    """

    share: float = 0.0
    target: float = 1.0

    def requests(self, talk: Talk, budget: int) -> Iterator[tuple[int, str, Sent]]:
        """Yield the position, question and request of each question."""
        trigger = budget - min(MOST, int(self.share * budget))
        goal = int(self.target * trigger)
        strategies = [SummarizeTo(goal, keep) for keep in (0.5, 0.25, 0.1)]
        limits = Budget(trigger, goal, progress=0.0, hysteresis=0.0)
        compactor = Compactor(strategies, limits, format="openai_chat", count=counted)
        session, done, index = compactor.session(), 0, Index()
        for (at, query), _ in groupby(talk.needs, key=lambda need: need[:2]):
            if at > done:
                session.append(
                    *({"role": role, "content": text} for role, text in talk.messages[done:at])
                )
            done, view = at, session.view
            recalled_texts = (
                recall_for(view, query, budget - view.tokens, index) if self.share else Sent([], 0)
            )
            yield (
                at,
                query,
                Sent(
                    [*map(readable_text, view.messages), *recalled_texts.texts],
                    view.tokens + recalled_texts.tokens,
                ),
            )


def fit(text: str, room: int) -> str:
    """Return the end of *text*, at most *room* tokens."""
    size = len(text)
    while size and (cost := count_message(user(text[-size:]))) > room:
        size = min(size - 1, size * max(0, room) // cost)
    return text[len(text) - size :] if size else ""


def recall_for(view: View, query: str, room: int, index: Index) -> Sent:
    """Return the results of a search for the question in at most *room* tokens."""
    texts, budget_left = list[str](), room
    width = max(80, WIDTH * room // HITS)
    for hit in recall(view, query, HITS, index=index, width=width):
        line = f"[edit {hit.edit}, position {hit.position}, {hit.role}] {hit.snippet}"
        cost = count_message(user(line))
        if cost <= budget_left:
            texts.append(line)
            budget_left -= cost
    return Sent(texts, room - budget_left)


WHEN_DUE, LAST_AT_EQUAL_TOKENS = "rule summary, when due", "last N tokens, as many as that"
POLICIES: dict[str, LastTokens | Summary] = {
    "last N tokens": LastTokens(),
    "rule summary": Summary(),
    WHEN_DUE: Summary(target=0.9),
    "rule summary and recall at 10": Summary(0.4),
}


class Score(NamedTuple):
    """Score of one policy."""

    needed: int = 0
    hits: int = 0
    questions: int = 0
    tokens: int = 0

    def __add__(self, other: "Score") -> "Score":  # type: ignore[override]
        return Score(*(a + b for a, b in zip(self, other, strict=True)))


def measure(job: tuple[Talk, int]) -> dict[str, Score]:
    """Run every policy on one conversation at one budget."""
    talk, budget = job
    needs = {key: list(group) for key, group in groupby(talk.needs, key=lambda need: need[:2])}
    scores = {
        name: sum_of(policy.requests(talk, budget), needs, budget)
        for name, policy in POLICIES.items()
    }
    mean = scores[WHEN_DUE].tokens // scores[WHEN_DUE].questions
    return {**scores, LAST_AT_EQUAL_TOKENS: sum_of(LastTokens().requests(talk, mean), needs, mean)}


def sum_of(
    requests: Iterable[tuple[int, str, Sent]], needs: dict[Any, list[Need]], budget: int
) -> Score:
    """Return the score of some requests."""
    total = Score()
    for at, query, sent in requests:
        wanted, text = needs[at, query], fold("\n".join(sent.texts))
        held = frozenset().union(*map(grams, sent.texts)) if wanted[0].grams else frozenset[str]()
        hits = sum(is_kept(need, text, held) for need in wanted)
        if sent.tokens > budget:
            raise AssertionError(
                f"a request of {sent.tokens:,} tokens exceeds the budget of {budget:,}"
            )
        total += Score(len(wanted), hits, 1, sent.tokens)
    return total


def is_kept(need: Need, text: str, held: frozenset[str]) -> bool:
    """Return whether a request with this text and these n-grams holds the evidence."""
    return need.value in text if need.value else 2 * len(need.grams & held) >= len(need.grams)


# --- datasets -----------------------------------------------------------------------------------


def realmem(root: Path) -> list[Talk]:
    """Return each person's sessions; questions need the memories behind their recorded answers."""
    return [
        _person(json.loads(path.read_text(encoding="utf-8")))
        for path in sorted(root.glob("realmem/*.json"))
    ]


def _person(data: dict[str, Any]) -> Talk:
    messages, needs, source = list[tuple[str, str]](), list[Need](), dict[str, frozenset[str]]()
    for session in data["dialogues"]:
        turns = session["dialogue_turns"]
        for at, turn in enumerate(turns):
            if turn.get("is_query") and at + 1 < len(turns):
                needs += _used(
                    len(messages), turn["content"], turns[at + 1].get("memory_used") or [], source
                )
            messages.append((turn["speaker"].lower(), turn["content"] or "..."))
        source[session["session_uuid"]] = grams("\n".join(turn["content"] for turn in turns))
    return Talk(messages, needs)


def _used(
    at: int, query: str, memories: list[dict[str, str]], source: dict[str, frozenset[str]]
) -> Iterator[Need]:
    """Yield the n-grams that a memory shares with the session it was taken from."""
    for memory in memories:
        shared = grams(memory["content"]) & source.get(memory["session_uuid"], frozenset())
        if len(shared) >= 3:
            yield Need(at, query, grams=shared)


def crosswoz(root: Path, together: int = 20) -> list[Talk]:
    """Return twenty dialogues in a row, then questions by name for values stated only once."""
    talks = list[Talk]()
    for path in sorted(root.glob("crosswoz_zh/*.zip")):
        with zipfile.ZipFile(path) as archive:
            dialogues = list(json.loads(archive.read(archive.namelist()[0])).values())
        talks += [
            _dialogues(dialogues[at : at + together]) for at in range(0, len(dialogues), together)
        ]
    return talks


def _dialogues(dialogues: Sequence[dict[str, Any]]) -> Talk:
    messages, facts = list[tuple[str, str]](), list[tuple[str, str]]()
    for dialogue in dialogues:
        named = dict[str, str]()
        for message in dialogue["messages"]:
            messages.append(
                ("user" if message["role"] == "usr" else "assistant", message["content"])
            )
            acts = [act[1:] for act in message["dialog_act"] if act[0] == "Inform"]
            named.update((domain, value) for domain, slot, value in acts if slot == "名称")
            if message["role"] == "sys":
                facts += [
                    (f"{named[domain]}的{slot}是什么？", fold(value))
                    for domain, slot, value in acts
                    if slot != "名称" and domain in named and value in message["content"]
                ]
    texts = [fold(text) for _, text in messages]
    once = {
        value for _, value in facts if len(value) >= 4 and sum(value in text for text in texts) == 1
    }
    return Talk(
        messages, [Need(len(messages), query, value) for query, value in facts if value in once]
    )


DAY = re.compile(r"(\d+)月(\d+)[日号]")


def memorybank(root: Path) -> list[Talk]:
    """Return ten days of chat, then the probing questions that name, and need, one of the days."""
    folder = root / "memorybank"
    if not folder.is_dir():
        return []
    people = json.loads((folder / "cn__memory_bank_cn.json").read_text(encoding="utf-8"))
    lines = (folder / "cn__probing_questions_cn.jsonl").read_text(encoding="utf-8").splitlines()
    asked = {
        name: questions
        for line in lines
        if line.strip()
        for name, questions in json.loads(line).items()
    }
    return [_days(person, asked.get(name, [])) for name, person in people.items()]


def _days(person: dict[str, Any], questions: list[str]) -> Talk:
    messages, days = list[tuple[str, str]](), dict[tuple[int, int], list[str]]()
    for date, turns in person["history"].items():
        year, month, day = map(int, date.split("-"))
        for turn in turns:
            messages += [
                ("user", f"[{year}年{month}月{day}日] {turn['query']}"),
                ("assistant", turn["response"]),
            ]
        days[month, day] = [text for turn in turns for text in (turn["query"], turn["response"])]
    needs = list[Need]()
    for question in questions:
        if date_found := DAY.search(question):
            day_grams = map(grams, days.get((int(date_found[1]), int(date_found[2])), []))
            needs += [
                Need(len(messages), question, grams=wanted)
                for wanted in day_grams
                if len(wanted) >= 3
            ]
    return Talk(messages, needs)


DATASETS = {
    "realmem": (realmem, (4_000, 8_000, 16_000)),
    "CrossWOZ, Chinese": (crosswoz, (1_000, 2_000, 4_000)),
    "MemoryBank, Chinese": (memorybank, (800, 1_200, 1_600)),
}


# --- the page -----------------------------------------------------------------------------------


def report(name: str, talks: Sequence[Talk], rows: dict[int, dict[str, Score]]) -> str:
    """Return the heading and the table of a dataset."""
    size = sum(counted(user(text)) for talk in talks for _, text in talk.messages) // len(talks)
    first_row = next(iter(rows.values()))
    first = next(iter(first_row.values()))
    sizes = f"{len(talks)} conversations of {size:,} tokens on average, {first.questions:,} questions, {first.needed:,} pieces of evidence"
    head = ["budget, tokens", *first_row]
    lines = [[f"{budget:,}", *cells(scores)] for budget, scores in rows.items()]
    return f"{name}: {sizes}\n\n{table(head, lines)}"


def cells(scores: dict[str, Score]) -> Iterator[str]:
    """Yield the evidence kept and the mean tokens of a request for each policy."""
    for score in scores.values():
        yield f"{score.hits / max(1, score.needed):.1%} in {score.tokens // max(1, score.questions):,}"


def main() -> None:
    """Print tables of all conversations, of those the rules were chosen on, and of the others."""
    shared = Path(os.environ.get("REFOLD_SHARED", ROOT.parent / "shared"))
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else shared / "datasets"
    with ProcessPoolExecutor(2) as pool:
        for name, (read, budgets) in DATASETS.items():
            talks = [talk for talk in read(root) if talk.needs]
            if not talks:
                print(f"\n{name}: not there, skipped")
                continue
            jobs = [(talk, budget) for budget in budgets for talk in talks]
            scores = list(pool.map(measure, jobs))
            for half, part in (
                ("all", slice(None)),
                ("chosen on", slice(0, None, 2)),
                ("the others", slice(1, None, 2)),
            ):
                rows = {
                    b: sum_by_policy(scores[n * len(talks) : (n + 1) * len(talks)][part])
                    for n, b in enumerate(budgets)
                }
                print(f"\n{report(f'{name}, {half}', talks[part], rows)}", flush=True)


def sum_by_policy(runs: Iterable[dict[str, Score]]) -> dict[str, Score]:
    """Return the sums over several conversations by policy."""
    total: dict[str, Score] = {}
    for scores in runs:
        for policy, score in scores.items():
            total[policy] = total.get(policy, Score()) + score
    return total


if __name__ == "__main__":
    main()
