"""Error and speed of the estimator: `python -m benchmarks.tokens [DATASETS] [TEXTS]`.

DATASETS are real recorded conversations (see recordings.py; REFOLD_SHARED/datasets by default),
counted exactly with o200k. TEXTS may hold further texts, one folder per kind, with each file
counted as one conversation. Neither is part of the repository. The column `short` has the worst
under-count of a conversation, `text` that of any single text of 1,000 tokens or more.
"""

import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.recordings import read_conversations
from refold.tokens.count import estimate, exact

ROOT = Path(__file__).parent.parent
LONG = 1_000


class Row(NamedTuple):
    """Exact, estimated and naive tokens of one text."""

    exact: int
    estimated: int
    naive: int


def main(datasets: Path, texts: Path | None) -> None:
    o200k = exact()
    by_dataset, by_kind = defaultdict(list), defaultdict(list)
    every: list[str] = []
    for name, conversation in conversations(datasets, texts):
        kinds = defaultdict(list)
        for kind, text in conversation:
            kinds[kind].append(Row(o200k(text), estimate(text), len(text) // 4))
            every.append(text)
        by_dataset[name].append([row for rows in kinds.values() for row in rows])
        for kind, rows in kinds.items():
            by_kind[f"{name}: {kind}"].append(rows)
    table("dataset", by_dataset)
    print()
    table(
        "dataset: kind of text",
        {key: rows for key, rows in by_kind.items() if not key.endswith("text")},
    )
    print()
    speeds(every, o200k)


def conversations(
    datasets: Path, texts: Path | None
) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    for conversation in read_conversations(datasets):
        yield conversation.dataset, conversation.texts
    for file in sorted(texts.glob("*/*")) if texts else ():
        yield file.parent.name, [("text", file.read_text("utf-8"))]


def table(head: str, groups: dict[str, list[list[Row]]]) -> None:
    """Print the mean absolute error per conversation, mean bias and worst under-count, with chars/4
    beside them."""
    print(
        f"| {head} | conversations | tokens | error | bias | short | text | chars/4 error | chars/4 short |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for name, rows in groups.items():
        ours, naive = errors(rows, 1), errors(rows, 2)
        single = min(
            errors(([row] for rows_of_one in rows for row in rows_of_one if row.exact >= LONG), 1),
            default=0.0,
        )
        tokens = sum(row.exact for rows_of_one in rows for row in rows_of_one)
        print(
            f"| {name} | {len(rows)} | {tokens:,} | {mean(map(abs, ours)):.1%} | {mean(ours):+.1%} | {min(0.0, *ours):.1%} "
            f"| {min(0.0, single):.1%} | {mean(map(abs, naive)):.1%} | {min(0.0, *naive):.1%} |"
        )


def errors(rows: Iterable[list[Row]], column: int) -> list[float]:
    return [
        sum(row[column] for row in conversation_rows)
        / max(1, sum(row.exact for row in conversation_rows))
        - 1
        for conversation_rows in rows
    ]


def mean(values: Iterable[float]) -> float:
    values = list(values)
    return sum(values) / max(1, len(values))


def speeds(texts: list[str], o200k: Callable[[str], int]) -> None:
    """Print the MB of UTF-8 per second, best of three passes over everything."""
    print("| counter | MB/s | on 1 MB of code |")
    print("|---|---|---|")
    code = "\n".join(file.read_text("utf-8") for file in sorted((ROOT / "src").rglob("*.py")))
    code = (code * (1_000_000 // len(code) + 1))[:1_000_000]
    for name, count in (("estimate", estimate), ("exact o200k", o200k)):
        print(
            f"| {name} | {measure_speed(count, texts):.0f} | {measure_speed(count, [code]):.0f} |"
        )


def measure_speed(count: Callable[[str], int], texts: list[str]) -> float:
    size = sum(len(text.encode("utf-8", "replace")) for text in texts)
    return size / min(seconds(count, texts) for _ in range(3)) / 1e6


def seconds(count: Callable[[str], int], texts: list[str]) -> float:
    start = time.perf_counter()
    for text in texts:
        count(text)
    return time.perf_counter() - start


if __name__ == "__main__":
    shared = Path(os.environ.get("REFOLD_SHARED", ROOT.parent / "shared")) / "datasets"
    datasets, texts = (*map(Path, sys.argv[1:]), None, None)[:2]
    main(datasets or shared, texts)
