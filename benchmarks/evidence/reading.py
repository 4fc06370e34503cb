"""How much of a long history a summary must read: what is lost if it reads only the newest part.

Recorded sessions are concatenated in random orders until they hold several million tokens. All but
the newest messages are summarised, once by reading the maximum that is read of unsummarised
history, a million tokens, and once by reading less.
"""

import random
from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean
from time import process_time
from typing import NamedTuple

from benchmarks.evidence.sessions import load_sessions
from benchmarks.table import table
from refold.core.view import View
from refold.messages import Message
from refold.summarizers.heuristic import read_material, write_summary
from refold.summarizers.heuristic.steps import LONGEST, read_source
from refold.text.summary_wrapper import wrap_summary
from refold.tokens.count import estimate

READ = (LONGEST, 500_000, LONGEST // 4)
"""Tokens read; the others are compared with the first."""
ROOM = 6_000
"""Tokens of a summary."""
TAIL = 30
"""Messages after the summary."""
ORDERS = 5
MILLIONS = 3
TEXTS = ("Task", "Current text", "Excerpts", "Decisions")
"""Sections that quote; the other sections say what state the work is in."""


class Reading(NamedTuple):
    """A summary made from a part of a history."""

    lines: dict[bool, set[str]]
    """Lines that quote under True, lines about the state of the work under False."""
    seconds: float
    """Processor time."""


def join_messages(split: str, tokens: int, order: int) -> list[Message]:
    """Return the messages of randomly chosen sessions, concatenated until they hold *tokens*
    tokens."""
    sessions = list(load_sessions(split, at_least=5_000))
    chance, messages, total = random.Random(order), list[Message](), 0
    while total < tokens:
        session = chance.choice(sessions)
        messages += session.messages
        total += session.size
    return messages


def read(view: View, tokens: int) -> Reading:
    """Summarise all but the newest messages, reading *tokens* tokens of them: an earlier summary
    stands for the rest."""
    stop = len(view.transcript) - TAIL
    first = next(at for at in range(stop) if view.base.tokens(at, stop) <= tokens)
    if tokens < LONGEST:
        view = view.apply(view.fold(0, first, wrap_summary("What came before.")))
    start = process_time()
    text = write_summary(read_material(read_source(view, 0, stop)), ROOM, estimate)
    seconds = process_time() - start
    lines, is_quote = defaultdict[bool, set[str]](set), False
    for line in filter(None, text.splitlines()):
        is_quote = line[3:].startswith(TEXTS) if line.startswith("## ") else is_quote
        lines[is_quote].add(line)
    return Reading(lines, seconds)


def print_tables(split: str, millions: Sequence[int] = ()) -> None:
    """Print the share of its lines that a summary has for each number of tokens that it reads."""
    for size in millions or (MILLIONS,):
        views = (View.of(join_messages(split, size * 1_000_000, n)) for n in range(ORDERS))
        readings = [[read(view, tokens) for tokens in READ] for view in views]
        rows = []
        for tokens, column in zip(READ, zip(*readings, strict=True), strict=True):
            row = [f"{tokens:,}"]
            for is_quote in (False, True):
                wholes = [whole.lines[is_quote] for whole, *_ in readings]
                shares = [
                    100 * len(part.lines[is_quote] & whole) / len(whole)
                    for part, whole in zip(column, wholes, strict=True)
                ]
                row.append(f"{fmean(shares):.0f} ({min(shares):.0f})")
            rows.append([*row, f"{fmean(part.seconds for part in column):.2f}"])
        print(f"\n{split}: {size} million tokens, {ORDERS} orders of the sessions\n")
        head = ("tokens read", "state, % (least)", "quotes, % (least)", "seconds")
        print(table(head, rows), flush=True)
