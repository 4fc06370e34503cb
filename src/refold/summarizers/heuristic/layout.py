"""A digest as text: Markdown sections in a fixed order, within a budget of tokens."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from refold.summarizers.heuristic.chat import RankedSentence, add_count, select_lines
from refold.summarizers.heuristic.cues import weigh_conclusion
from refold.summarizers.heuristic.digest import Digest, Todo
from refold.summarizers.heuristic.names import Entry
from refold.summarizers.heuristic.words import middle_cut

Cost = Callable[[str], int]
"""Tokens of a text."""

SHARES = {
    "Requests": 0.30,
    "Constraints": 0.25,
    "Decisions": 0.15,
    "Open work": 0.08,
    "Notes": 0.25,
    "Files": 0.15,
    "Commands": 0.06,
    "Talk": 0.4,
}
"""Share of the budget that each section may use. What they leave over goes to the index, what that leaves over to
the requests, and what those leave over to what the assistant noted beside its calls."""
CHAT_SHARES = {
    "Requests": 0.15,
    "Constraints": 0.10,
    "Decisions": 0.05,
    "Open work": 0.08,
    "Notes": 0.25,
    "Files": 0.15,
    "Commands": 0.0,
    "Talk": 1.0,
}
"""The shares where no tool was ever called: the talk gets what the others leave over."""
RECORD_SHARES = {
    "Requests": 0.30,
    "Constraints": 0.35,
    "Decisions": 0.05,
    "Open work": 0.25,
    "Notes": 0.0,
    "Files": 0.25,
    "Commands": 0.05,
    "Talk": 0.0,
}
"""The shares beside the words of a model, which tells of decisions itself."""
LATEST_SHARE = 0.2
"""Share of the budget that the latest request may use alone: while it is open, it stands beside the summary whole (D3)."""
FIRST_SHARE = 0.10
"""Share of the budget for the first request, the task itself, where the others leave no room for it."""
TITLE_TOKENS = 4
"""Tokens of a section's title."""
MIN_TOKENS = 40
"""Tokens below which a request is left out rather than cut."""
MARKS = {"pending": " ", "active": "~", "done": "x"}

_PART = re.compile(r"[./]")
_PLAIN_PATH = re.compile(r"[^\s\"'{},:]+")


def render(
    digest: Digest,
    room: int,
    cost: Cost,
    shares: Mapping[str, float] = SHARES,
    talk: Sequence[RankedSentence] = (),
) -> str:
    """*digest* in about *room* tokens by *cost*; what is newest or most useful stays. *talk* is its talk, ranked."""
    counts = _section("Counts", [_counts(digest)])
    rest_room = room - cost(counts)
    asked = [add_count(text, digest.repeats.get(text, 1)) for text in digest.requests]
    latest = _fit_text(asked[-1], int(rest_room * LATEST_SHARE), cost) if asked else ""
    rest_room = max(0, rest_room - cost(latest))
    wanted = cost("\n".join(asked[:-1])) + len(asked[:-1])
    earlier = min(max(0, int(room * shares["Requests"]) - cost(latest)), wanted)
    sections = {
        title: _section(title, lines(int(max(0, rest_room - earlier) * shares[title])))
        for title, lines in _section_lines(digest, cost).items()
    }
    rest_room -= sum(cost(section) for section in sections.values())
    first = int(room * FIRST_SHARE)
    requests = _select_requests(asked, latest, min(rest_room, earlier), first, cost)
    words = "\n".join((*requests, *sections.values()))

    def talk_in(rest: int) -> str:
        talk_room = int(min(shares["Talk"] * room, rest)) - TITLE_TOKENS
        return _section("Talk", select_lines(talk, talk_room, cost, words))

    earlier_cost = cost("\n".join(requests[:-1]))
    talk_text = "" if digest.calls else talk_in(rest_room - earlier_cost)
    rest_room -= cost(talk_text)
    index = index_lines(digest.index, rest_room - earlier_cost, cost, words + talk_text)
    if not talk_text:
        requests = _select_requests(asked, latest, rest_room - cost(index), first, cost)
    if digest.calls:  # names come before notes: a later call can do with less than a sentence
        talk_text = talk_in(rest_room - cost(index) - cost("\n".join(requests[:-1])))
    head = _section("Requests", map(list_item, requests))
    return "\n".join(filter(None, (head, *sections.values(), talk_text, index, counts)))


def _section_lines(digest: Digest, cost: Cost) -> dict[str, Callable[[int], list[str]]]:
    """What fills each section between the requests and the index, from the tokens it may take."""
    return {
        "Constraints": lambda room: _take_newest(map(list_item, digest.constraints), room, cost),
        "Decisions": lambda room: _take_strongest(digest.decisions, room, cost),
        "Open work": lambda room: _open_items(digest, room, cost),
        "Notes": lambda room: _notes(digest.notes, room, cost),
        "Files": lambda room: _files(digest.files, room, cost),
        "Commands": lambda room: _take_newest(_commands(digest.commands), room, cost),
    }


def _notes(notes: Sequence[str], room: int, cost: Cost) -> list[str]:
    return [
        list_item(text)
        for text in (_fit_text(note, room // len(notes), cost) for note in notes)
        if text
    ]


def _section(title: str, lines: Iterable[str]) -> str:
    body = "\n".join(lines)
    return f"## {title}\n{body}" if body else ""


def list_item(text: str) -> str:
    """A text as a list item: later lines are indented, so that none can pass for a heading."""
    return "- " + text.replace("\n", "\n  ")


def _take_newest(items: Iterable[str], room: int, cost: Cost) -> list[str]:
    """As many of the last items as fit, in order."""
    chosen = list[str]()
    for text in reversed(list(items)):
        room -= cost(text) + 1
        if room < 0:
            break
        chosen.append(text)
    return chosen[::-1]


def _take_strongest(sentences: Sequence[str], room: int, cost: Cost) -> list[str]:
    """The weightiest sentences for their length that fit, in order; of equal ones the later."""
    newest = len(sentences)
    keys = [(-(weigh_conclusion(s) + 2 * at / newest), -at) for at, s in enumerate(sentences)]
    chosen = set[int]()
    for at in sorted(range(newest), key=keys.__getitem__):
        price = cost(list_item(sentences[at])) + 1
        if price <= room:
            room -= price
            chosen.add(at)
    return [list_item(sentences[at]) for at in sorted(chosen)]


def _open_items(digest: Digest, room: int, cost: Cost) -> list[str]:
    """Items of the plan that are not done, the first ones first to stay; then the newest of what else is open."""
    plan: Sequence[Todo] = digest.todos or ()
    undone = (todo for todo in plan if todo.status != "done")
    todos = [f"- [{MARKS[todo.status]}] {' '.join(todo.text.split())}" for todo in undone]
    shown = _take_newest(todos[::-1], room, cost)[::-1]
    rest = room - sum(cost(text) + 1 for text in shown) if len(shown) == len(todos) else 0
    return [*shown, *_take_newest(map(list_item, digest.open), rest, cost)]


def _commands(commands: Mapping[str, str]) -> Iterator[str]:
    return (f"- [{outcome}] {command}" for command, outcome in commands.items())


def _counts(digest: Digest) -> str:
    calls = sorted(digest.calls.items(), key=lambda row: (-row[1], row[0]))[:20]
    tools = ", ".join(f"{_quote(tool)} {count}" for tool, count in calls)
    return f"messages {digest.messages}" + (f"; calls {tools}" if tools else "")


# --- requests --------------------------------------------------------------------------------


def _select_requests(
    requests: Sequence[str], latest: str, room: int, first: int, cost: Cost
) -> list[str]:
    """The latest, before it as many as fit, newest first, and the first one; in order."""
    if not requests:
        return []
    chosen, earlier = [latest], list(requests[:-1])
    kept_for_first = min(first, room, cost(earlier[0]) + 1) if earlier else 0
    room -= kept_for_first
    while len(earlier) > 1:
        text = _fit_text(earlier.pop(), room, cost)
        room -= cost(text) + 1
        if not text:
            break
        chosen.append(text)
    if earlier and (text := _fit_text(earlier[0], max(room, 0) + kept_for_first, cost)):
        chosen.append(text)
    return chosen[::-1]


def _fit_text(text: str, room: int, cost: Cost) -> str:
    """*text*, with its middle left out if it costs more than *room*; empty if too little would be left."""
    price = cost(text)
    if price <= room:
        return text
    if room < MIN_TOKENS:
        return ""
    limit = len(text)
    while price > room and limit > 8:
        limit = min(limit - 1, int(limit * max(0.1, room / price * 0.95)))
        price = cost(middle_cut(text, limit))
    return middle_cut(text, limit) if price <= room else ""


# --- files and names -------------------------------------------------------------------------


def _files(files: Mapping[str, str], room: int, cost: Cost) -> list[str]:
    """Paths by state: what was changed before what was only read, in each the last touched first to stay."""
    order = ("deleted", "created", "modified", "read")
    chosen: dict[str, list[str]] = {state: [] for state in order}
    folders = set[str]()
    ranks = sorted(enumerate(files.items()), key=lambda row: (row[1][1] == "read", -row[0]))
    for _, (path, state) in ranks:
        room -= _path_cost(path, folders, cost)
        if room < 0:
            break
        chosen[state].append(path)
    lists = ((state, chosen[state][::-1]) for state in reversed(order) if chosen[state])
    return [f"{state}: {' '.join(group_paths(paths))}" for state, paths in lists]


def index_lines(index: Sequence[Entry], room: int, cost: Cost, shown: str = "") -> str:
    """As much of the index as fits, the most useful first: listed paths, ids by field, names. What
    stands in *shown* already, or inside an entry chosen before, is not repeated.
    """
    chosen: dict[str, list[Entry]] = {"path": [], "value": [], "name": []}
    folders, fields, parts = set[str](), set[str](), set[str]()
    for entry in index:
        if room <= 0:
            break
        if entry.text in parts or entry.text in shown:
            continue
        is_path = entry.kind == "path"
        room -= _path_cost(entry.text, folders, cost) if is_path else cost(f" {entry.text}")
        room -= cost(entry.field) + 2 if entry.field and entry.field not in fields else 0
        fields.add(entry.field)
        parts.update(_PART.split(entry.text))
        chosen[entry.kind].append(entry)
    listed = group_paths([entry.text for entry in chosen["path"]])
    rows = (
        ("Listed", _one_row(listed)),
        ("Ids", _values_by_field(chosen["value"])),
        ("Names", _one_row(entry.text for entry in chosen["name"])),
    )
    return "\n".join(filter(None, (_section(title, lines) for title, lines in rows)))


def _one_row(words: Iterable[str]) -> list[str]:
    line = " ".join(words)
    return [line] if line else []


def _values_by_field(entries: Iterable[Entry]) -> Iterator[str]:
    fields: dict[str, list[str]] = {}
    for entry in entries:
        fields.setdefault(entry.field, []).append(entry.text)
    return (f"{field}: {' '.join(texts)}" for field, texts in fields.items())


def _path_cost(path: str, folders: set[str], cost: Cost) -> int:
    folder, _, name = path.rpartition("/")
    if folder in folders:
        return cost(name) + 1
    folders.add(folder)
    return cost(path) + 1


def group_paths(paths: Sequence[str]) -> Iterator[str]:
    """Paths, those of one folder as `folder/{a,b}`; odd ones as JSON strings."""
    plain = [path for path in paths if _PLAIN_PATH.fullmatch(path)]
    yield from (_quote(path) for path in paths if not _PLAIN_PATH.fullmatch(path))
    folders: dict[str, list[str]] = {}
    for path in plain:
        folder, slash, name = path.rpartition("/")
        folders.setdefault(folder + slash, []).append(name)
    for folder, names in folders.items():
        if len(names) > 1 and folder and all(names):
            yield f"{folder}{{{','.join(names)}}}"
        else:
            yield from (folder + name for name in names)


def _quote(text: str) -> str:
    return text if _PLAIN_PATH.fullmatch(text) else json.dumps(text, ensure_ascii=False)
