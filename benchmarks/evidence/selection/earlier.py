"""What an earlier summary says that cannot be read from the original messages."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from benchmarks.evidence.selection.blocks import Block, Line, iter_lines
from benchmarks.evidence.selection.state import State

QUOTING = (
    "Current text",
    "Task",
    "Open work",
    "Files",
    "Commands",
    "Talk",
    "Listed",
    "Ids",
    "Names",
    "Counts",
)
"""Sections that hold nothing but what messages say; those from "Open work" on are a rule summary's."""
LISTING = frozenset(
    {
        "Latest request",
        "Earlier requests",
        "Requests",
        "Rules",
        "Constraints",
        "Decisions",
        "Checks",
        "Notes",
        "State",
        "Open",
    }
)
_MADE = re.compile(r"announced next: |last error: |\[[ x~]\] ")


class Section(NamedTuple):
    """One section of a summary."""

    title: str
    body: str


def split_sections(text: str) -> Iterator[Section]:
    """Yield the sections of *text*; what comes before the first heading has none."""
    title, lines = "", list[str]()
    for line in text.split("\n"):
        if line.startswith("## "):
            yield Section(title, "\n".join(lines))
            title, lines = line[3:].strip(), []
        else:
            lines.append(line)
    yield Section(title, "\n".join(lines))


def iter_items(body: str) -> Iterator[str]:
    """Yield list items with their indented lines, as they were before they were indented."""
    item: list[str] | None = None
    for line in body.split("\n"):
        if line.startswith("- "):
            if item is not None:
                yield "\n".join(item)
            item = [line[2:]]
        elif item is not None and line.startswith("  "):
            item.append(line[2:])
        elif line.strip() and item is not None:
            yield "\n".join(item)
            item = None
    if item is not None:
        yield "\n".join(item)


def take_over(text: str, state: State, blocks: list[Block]) -> None:
    """Put what a summary says into *state* and *blocks*: its original messages are not here."""
    for section in split_sections(text):
        match section.title:
            case "Latest request" | "Earlier requests" | "Requests":
                state.requests += (
                    item for item in iter_items(section.body) if item not in state.requests
                )
            case "Rules" | "Constraints":
                state.constraints.update(dict.fromkeys(iter_items(section.body)))
            case "Decisions":
                state.decisions.update(dict.fromkeys(iter_items(section.body), 3.0))
            case "Checks":
                rows = (item.partition(" -> ") for item in iter_items(section.body))
                state.checks.update({command: outcome for command, arrow, outcome in rows if arrow})
            case "Excerpts":
                blocks += _iter_excerpts(section.body)
            case "Notes":
                state.notes += iter_items(section.body)
            case title if section.body.strip():
                state.notes.append(
                    f"{title}\n{section.body.strip()}" if title else section.body.strip()
                )


def _iter_excerpts(body: str) -> Iterator[Block]:
    heading, lines = "earlier", list[Line]()
    for row in body.split("\n"):
        if row.startswith("### "):
            if lines:
                yield Block(0, "read", heading, lines)
            heading, lines = row[4:].removesuffix(" (modified since)"), []
        else:
            lines += iter_lines(row)
    if lines:
        yield Block(0, "read", heading, lines)


def amendments(text: str, state: State) -> list[str]:
    """The words of an earlier summary that we did not write: a user's amendment, a model's text.

    Excerpts, which come last, end at a blank line; a section that lists holds what *state* does.
    """
    own = {*state.requests, *state.constraints, *state.decisions, *state.notes}
    own.update(f"{command} -> {outcome}" for command, outcome in state.checks.items())
    words = list[str]()
    for section in split_sections(text):
        if section.title == "Excerpts":
            words.append(section.body.partition("\n\n")[2])
        elif section.title.startswith(QUOTING):
            continue
        elif section.title in LISTING:
            words += (
                item for item in iter_items(section.body) if item not in own and not _is_ours(item)
            )
        else:
            words.append(section.body)
    return [word.strip() for word in words if word.strip()]


def _is_ours(item: str) -> bool:
    """Is an item one that we write, or one that was cut to its room?"""
    return bool(_MADE.match(item)) or " characters …] " in item or " -> " in item
