"""Identifiers: which words of a text are some, and which of them a later tool call will most likely use.

`score_identifier` is the whole ranking. Its figures were set on recorded sessions; docs/summaries.md says how well they do.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import sqrt
from typing import NamedTuple

from refold.summarizers.heuristic.words import Source, candidate_names, clip_scanned, skeleton
from refold.text.plain import without_escapes

MAX_IDENTIFIER = 120
"""Characters of an identifier; what is longer is data."""
SIMILAR_HALVING = 4
"""So many names of one shape (`job-17`, `job-18`) halve the worth of the next."""

_KIND = re.compile(
    r"(?P<url>https?://)"
    r"|(?P<noise>[\d.:,/_-]*$|.*(?:\.\.\.|//)|[-._/~$@]+\w{0,2}$|\d+-?(?:[a-z]+|[AP]M)$|@\w+$|/\w+$|[sy]/.*|[A-Z]?[a-z]+(?:-[a-z]+)*$|[A-Z]+s?$"
    r"|(?=.*\d)(?=.*[A-Z])(?=.*[a-z])[A-Za-z0-9]{25,}$)"
    r"|(?P<common>__\w+__$|(?:Math|console|JSON|Object|Array|Promise|process|sys|os|np|re|str|self|String|Enum|Map|List)\.\w+)"
    r"|(?P<path>(?=.*/).*[^/]\.[A-Za-z]\w{0,11}$)"
    r"|(?P<folder>(?=.*/)[\w.~$@/-]+$)"
    r"|(?P<file>[\w-]+\.(?:py|pyi|js|jsx|ts|tsx|md|json|jsonl|yml|yaml|toml|txt|rs|go|java|rb|c|h|cc|cpp|cs|ex|exs|sh|css|html|sql|cfg|ini|lock|rst|xml)$)"
    r"|(?P<dotted>.*[A-Za-z_]\.[A-Za-z_])"
    r"|(?P<id>(?=.*\d)[\w$@-]+$)"
    r"|(?P<snake>_?[a-z0-9$]+_\w+$|(?=[^_]*_[^a-z]*[a-z])\w+$)"
    r"|(?P<upper>[A-Z0-9]+_[A-Z0-9_]+$)"
    r"|(?P<pascal>(?=[A-Z][A-Za-z]*[a-z][A-Z])[A-Za-z]+$)"
    r"|(?P<camel>[a-z$@]\w+$)"
)
_WEIGHT = {
    "url": 0.7, "path": 2.0, "folder": 0.7, "file": 0.4, "dotted": 1.0, "id": 1.3, "snake": 1.2,
    "upper": 1.0, "pascal": 1.3, "camel": 1.2, "value": 1.6, "common": 0.3,
}  # fmt: skip
_DEFINED = re.compile(
    r"\b(?:def|class|function|func|fn|interface|type|struct|enum|trait|defmodule|defp|module|const)[ \t]+((?:[^\W\d]|\$)[\w.$]{2,80})"
)
_VALUE = re.compile(
    r"\"(\w{0,40}(?:id|Id|ID|number|code|sha|hash|ref|key|email|uuid|token|name|path|url|date|Date|号|號|编号|編號|码|碼|标识|標識|路径|路徑|日期|邮箱|郵箱))\"\s{0,4}:\s{0,4}\"?([\w@.:/+#-]{3,80})(?=[\",\s}\]])"
)
_NUMBER = re.compile(r"(?<![0-9a-f])[a-f]*+\d[0-9a-f]*+")
_HANDLE = re.compile(r"\bedit [0-9a-f]{8}\b")
"""How a stub of ours names its edit, where a caller feeds what was sent back as history."""
_FIELD = re.compile(r"\"((?:[^\W\d]|\$)[\w$-]{2,60})\"\s{0,4}:")


class Entry(NamedTuple):
    """One line of the index."""

    kind: str
    """`path` (listed, never opened), `value` (of a field) or `name`."""
    text: str
    field: str = ""
    """Of a value: the field it stood in."""


@dataclass(frozen=True, slots=True)
class IdentifierTally:
    """Where identifiers stood, filled in one pass."""

    last: dict[str, int] = field(default_factory=dict)
    """The last message it occurs in."""
    names: dict[str, str] = field(default_factory=dict)
    """Identifier by the word it was found as, empty for what is none."""
    kinds: dict[str, str] = field(default_factory=dict)
    """Kind by identifier."""
    defined: set[str] = field(default_factory=set)
    used: set[str] = field(default_factory=set)
    """Named in a tool call."""
    fields: dict[str, str] = field(default_factory=dict)
    """Field by value."""
    keys: set[str] = field(default_factory=set)
    """Field names of structured results: the tool's vocabulary, not news."""


def note_identifiers(tally: IdentifierTally, text: str, at: int, source: Source = "said") -> None:
    """Take down the identifiers of one text of message *at*; of a `result` also fields and definitions."""
    text = without_escapes(clip_scanned(text))
    text = _HANDLE.sub("edit", text) if "edit " in text else text
    if source == "result":
        tally.defined.update(_DEFINED.findall(text))
        if '":' in text or '" :' in text:
            tally.keys.update(_FIELD.findall(text))
            _note_values(tally, text)
    for word in candidate_names(text, source):
        name = tally.names.get(word)
        if name is None:
            name = tally.names[word] = _admit(tally, _trim(word))
        if name:
            tally.last[name] = at
            if source == "call":
                tally.used.add(name)


def _note_values(tally: IdentifierTally, text: str) -> None:
    """Take down values by field. Numbers and dates, which are no identifiers elsewhere, are some here."""
    for key, value in _VALUE.findall(text):
        tally.fields[value] = key
        if len(value) > 3 and value[0].isdigit() and not identifier_kind(value):
            tally.names[value], tally.kinds[value] = value, "value"


def _admit(tally: IdentifierTally, name: str) -> str:
    """The name if it is an identifier, else nothing."""
    sort = identifier_kind(name)
    if sort:
        tally.kinds[name] = sort
    return name if sort else ""


def _trim(word: str) -> str:
    word = word.rstrip(".-/:~@") if not word.startswith("http") else word.rstrip(".-:")
    word = word.lstrip("-") if not word.startswith("..") else word
    return (
        word.removeprefix("./")
        .removeprefix("a/")
        .removeprefix("b/")
        .removeprefix("this.")
        .removeprefix("self.")
    )


def identifier_kind(word: str) -> str:
    """What sort of identifier a word is; empty for an ordinary word, a number or data."""
    if not 3 < len(word) <= MAX_IDENTIFIER:
        return ""
    match = _KIND.match(skeleton(word))
    return "" if not match or match.lastgroup == "noise" else str(match.lastgroup)


class IdentifierStats(NamedTuple):
    """What is known of an identifier when the index is made."""

    kind: str
    age: int
    """Messages since it last occurred."""
    defined: bool
    """Whether a definition of it was seen."""
    used: bool
    """Whether a tool call has named it already."""
    cost: float
    """Tokens, estimated; a quarter of them for the folder of a path."""


def score_identifier(name: IdentifierStats) -> float:
    """How much it is worth to list an identifier.

    weight of its kind x 1.5 if it was defined here x 0.7 if a call has used it already
    / (1 + age / 60) / sqrt(1 + cost).

    How often it occurs is left out on purpose: on recorded sessions it made the ranking worse. What
    has been in sight all along and was not used will not be; and what is used often stays in sight.
    """
    worth: float = _WEIGHT[name.kind] * (1.5 if name.defined else 1.0) * (0.7 if name.used else 1.0)
    return worth / (1 + name.age / 60) / sqrt(1 + name.cost)


def rank_identifiers(
    tally: IdentifierTally, now: int, skip: Iterable[str] = ()
) -> tuple[Entry, ...]:
    """The index, most useful first, without *skip* (files listed with their state elsewhere). Nothing can be taken
    down in *tally* afterwards: its words, most of what it holds, are let go."""
    tally.names.clear()
    gone = set(skip) | (tally.keys - set(tally.fields))
    points = {
        name: score_identifier(_stats_of(tally, name, now))
        for name in tally.last
        if name not in gone
    }
    return tuple(_entry(tally, name) for name in _spread_similar(points))


def _spread_similar(points: dict[str, float]) -> list[str]:
    """Names by points, best first; of names that differ in their digits alone each further one has less."""
    alike, varied = Counter[str](), dict[str, float]()
    for name in sorted(points, key=lambda name: (-points[name], name)):
        shape = _NUMBER.sub("#", name)
        varied[name] = points[name] / (1 + alike[shape] / SIMILAR_HALVING)
        alike[shape] += 1
    return sorted(varied, key=lambda name: (-varied[name], name))


def _stats_of(tally: IdentifierTally, name: str, now: int) -> IdentifierStats:
    folder, _, last = name.rpartition("/")
    # Paths of one folder share its name.
    cost = (
        1 + len(last.encode("utf-8", "replace")) / 4 + len(folder.encode("utf-8", "replace")) / 16
    )
    return IdentifierStats(
        _kind_of(tally, name),
        now - tally.last[name],
        name in tally.defined,
        name in tally.used,
        cost,
    )


def _kind_of(tally: IdentifierTally, name: str) -> str:
    return "value" if name in tally.fields else tally.kinds[name]


def _entry(tally: IdentifierTally, name: str) -> Entry:
    sort = _kind_of(tally, name)
    if sort == "value":
        return Entry("value", name, tally.fields[name])
    return Entry("path" if sort == "path" else "name", name)


def interleave(new: tuple[Entry, ...], old: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """Two rankings as one: 1 / (10 + rank), the old one's at 0.7 of that, added up where both have it."""
    points: dict[Entry, float] = {}
    for entries, weight in ((new, 1.0), (old, 0.7)):
        for rank, entry in enumerate(entries):
            points[entry] = points.get(entry, 0.0) + weight / (10 + rank)
    return tuple(sorted(points, key=lambda entry: (-points[entry], entry)))
