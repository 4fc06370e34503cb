"""Hand-over: whether a request shows a successor the state of the work after 1, 5 and 10
compactions."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import accumulate, product
from typing import NamedTuple

from benchmarks.evidence.equal import match_sent_tokens
from benchmarks.evidence.items import COUNTED, LABELLED, Items, plain, read_items
from benchmarks.evidence.needs import iter_blocks, read_arguments
from benchmarks.evidence.peers import all_policies
from benchmarks.evidence.policies import REFERENCE, MakePolicy
from benchmarks.evidence.replay import count_sent
from benchmarks.evidence.sessions import Session, load_sessions
from benchmarks.evidence.visible import counted
from benchmarks.replay import expand_groups, iter_strings
from benchmarks.table import table
from refold.messages import Message, ToolCall

COMPACTIONS = (1, 5, 10)
CYCLES = 6
"""Windows per session: ten compactions from the whole window down to half of it."""
AFTER = (0.05, 0.2, 0.35)
"""Distances after a compaction at which requests are examined, in windows."""
LEAST_SESSION = 50_000
STATE = re.compile(
    r"\b(?:created|new|added|modified|changed|edited|updated|written|patched|committed)\b|创建|新建|新增|修改|写入",
    re.IGNORECASE,
)
KINDS = (
    "request",
    "instructions",
    "files",
    "with state",
    "again later",
    "last check",
    "under way",
    "open",
    "next step",
)
Counts = Counter[tuple[str, str]]
"""Number of items of each kind (`all`) and of those that are shown (`shown`)."""


class Point(NamedTuple):
    """A model call and the items to hand over at it."""

    compactions: int
    at: int
    items: Items
    later: frozenset[str]
    """The changed files that a later call names."""


def find_points(session: Session, window: int) -> Iterator[Point]:
    """Yield a few calls shortly after each compaction that a window leads to."""
    totals = [0, *accumulate(map(counted, session.messages))]
    for count, after in product(COMPACTIONS, AFTER):
        reached = window * (1 + (count - 1) / 2 + after)
        at = next((call for call in session.calls if totals[call] >= reached), None)
        if at is not None:
            items = read_items(session.messages[:at])
            rest = "\n".join(iter_call_texts(session.messages[at:]))
            later = frozenset(path for path in items.files if names_path(rest, path))
            yield Point(count, at, items, later)


def iter_call_texts(messages: Sequence[Message]) -> Iterator[str]:
    """Yield the strings in the arguments of all calls."""
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolCall):
                yield from iter_strings(read_arguments(part))


def slash(path: str) -> str:
    """Replace the backslashes of a Windows path by slashes."""
    return path.replace("\\", "/")


def base_name(path: str) -> str:
    """Return the last component of a path."""
    return slash(path).rpartition("/")[2]


def path_suffixes(path: str) -> list[str]:
    """Return a path and its suffixes of at least two components, longest first."""
    path = slash(path)
    pieces = path.strip("/").split("/")
    return [path, *("/".join(pieces[at:]) for at in range(1, max(1, len(pieces) - 1)))]


def names_path(text: str, path: str) -> bool:
    """Return whether a text names a file by its path or by at least its last two components."""
    return any(find_tail(text, tail) >= 0 for tail in path_suffixes(path))


def find_tail(text: str, tail: str) -> int:
    """Return the offset of a path in a text if it is not part of another path, else -1."""
    match = re.search(rf"(?<![\w.-]){re.escape(tail)}(?![\w/-]|\.\w)", slash(text))
    return match.start() if match else -1


class Shown:
    """The contents of a request."""

    def __init__(self, messages: Sequence[Message], history: Sequence[Message]) -> None:
        originals = {block for message in history for block in iter_blocks(message)}
        self.blocks = [expand_groups(slash(block)) for m in messages for block in iter_blocks(m)]
        self.line = plain("\n".join(self.blocks))
        self.rows = [row for block in self.blocks for row in block.splitlines()]
        self.calls = {
            text
            for message in messages
            for part in message.parts
            if isinstance(part, ToolCall) and "\n".join((part.name, *strings_of(part))) in originals
            for text in strings_of(part)
        }

    def has(self, text: str) -> bool:
        """Return whether a text appears word for word."""
        return slash(text) in self.line

    def has_file(self, path: str, basenames: Counter[str]) -> bool:
        """Return whether a file is named unambiguously."""
        name = base_name(path)
        if basenames[name] == 1 and find_tail(self.line, name) >= 0:
            return True
        return any(names_path(block, path) for block in self.blocks)

    def has_state(self, path: str) -> bool:
        """Return whether a line, the heading above it or the call itself says that a file was
        changed."""
        tails = [*path_suffixes(path), base_name(path)]
        for text in self.calls:
            if any(find_tail(text, tail) >= 0 for tail in tails):
                return True
        heading = ""
        for row in self.rows:
            if row.startswith("#") or row.rstrip().endswith((":", "：")):
                heading = row
            if any(tail in row for tail in tails) and STATE.search(f"{heading} {row}"):
                return True
        return False

    def has_figures(self, line: str) -> bool:
        """Return whether the figures of a test or build appear in one line."""
        pairs = COUNTED.findall(line) or LABELLED.findall(line)
        return any(all(pair in row for pair in pairs) for row in map(plain, self.rows))


def strings_of(call: ToolCall) -> list[str]:
    """Return the strings in the arguments of a call."""
    return list(iter_strings(read_arguments(call)))


def count_shown(point: Point, shown: Shown) -> Counts:
    """Count the items to hand over and those that are shown."""
    items, counts = point.items, Counts()
    basenames = Counter(map(base_name, items.touched))

    def count(kind: str, verdicts: Sequence[bool]) -> None:
        counts[kind, "all"] += len(verdicts)
        counts[kind, "shown"] += sum(verdicts)

    count("request", [shown.has(items.request)] if items.request else [])
    count("instructions", [shown.has(text) for text in items.instructions])
    named = {path: shown.has_file(path, basenames) for path in items.files}
    count("files", list(named.values()))
    count("with state", [named[path] and shown.has_state(path) for path in items.files])
    count("again later", [named[path] for path in point.later])
    count("last check", [shown.has_figures(items.check)] if items.check else [])
    count("under way", [shown.has(text) for text in items.under_way])
    count("open", [shown.has(text) for text in items.open])
    count("next step", [shown.has(items.next)] if items.next else [])
    return counts


class Replayed(NamedTuple):
    """What one policy showed of some sessions."""

    counts: dict[int, Counts]
    """Counts by number of compactions."""
    tokens: int
    """Tokens of the requests at the points."""


def replay_points(
    session: Session, make: MakePolicy, factor: float
) -> Iterator[tuple[Point, Shown]]:
    """Yield each point of a session and what a policy shows there."""
    points = {point.at: point for point in find_points(session, session.size // CYCLES)}
    policy = make(session, int(factor * session.size / CYCLES))
    for at, body in session.requests():
        sent = policy(body, session.messages[:at])
        if at in points:
            yield points[at], Shown(sent, session.messages[:at])
        if at >= max(points):
            return


def measure(job: tuple[Sequence[Session], str, int]) -> Replayed:
    """Replay sessions under one policy, in windows at which it sends *wanted* tokens in total."""
    sessions, name, wanted = job
    make = all_policies()[name]

    def count(factor: float) -> tuple[int, float]:
        windows = [int(factor * session.size / CYCLES) for session in sessions]
        sent = (count_sent(s, make, window) for s, window in zip(sessions, windows, strict=True))
        return sum(sent), factor

    tokens, factor = match_sent_tokens(count, lambda run: run[0], wanted)
    counts = dict[int, Counts]()
    for session in sessions:
        for point, shown in replay_points(session, make, factor):
            counts.setdefault(point.compactions, Counts()).update(count_shown(point, shown))
    return Replayed(counts, tokens)


def cell(counts: Mapping[int, Counts], kind: str) -> str:
    """Return the share of a kind that is shown after each number of compactions."""
    shares = []
    for count in COMPACTIONS:
        total = counts.get(count, Counts())
        whole = total[kind, "all"]
        shares.append(f"{100 * total[kind, 'shown'] / whole:.0f}" if whole else "-")
    return " / ".join(shares)


def print_tables(split: str, least: Sequence[int] = ()) -> None:
    """Print a table of the sessions with at least *least* tokens."""
    sessions = list(load_sessions(split, at_least=(least or [LEAST_SESSION])[0]))
    make = all_policies()[REFERENCE]
    wanted = sum(count_sent(session, make, session.size // CYCLES) for session in sessions)
    with ProcessPoolExecutor(2) as pool:
        runs = pool.map(measure, [(sessions, name, wanted) for name in all_policies()])
        rows = dict(zip(all_policies(), runs, strict=True))
    items = {
        kind: sum(counts[kind, "all"] for counts in rows[REFERENCE].counts.values())
        for kind in KINDS
    }
    print(
        f"\nhand-over, {split}: {len(sessions)} sessions, windows of a {CYCLES}th of each; "
        f"shown after {' / '.join(map(str, COMPACTIONS))} compactions, %\n"
    )
    head = ["policy", "sent", *(f"{kind} ({items[kind]})" for kind in KINDS)]
    body = [
        [name, f"{row.tokens / wanted:.2f}", *(cell(row.counts, kind) for kind in KINDS)]
        for name, row in rows.items()
    ]
    print(table(head, body), flush=True)
