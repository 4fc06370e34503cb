"""Read the code blocks of the documentation, for tests to run."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^(#+) (.*)$", re.MULTILINE)
DOOR = "I "
"""Heading prefix of a section that a reader enters directly: "I run a gateway"."""


def code_blocks(page: Path, language: str) -> Iterator[tuple[int, str]]:
    """Return line number and code of each block of *page* in *language*."""
    text = page.read_text(encoding="utf-8")
    return ((line, code) for line, name, code in read_blocks(text) if name == language)


def read_blocks(text: str) -> Iterator[tuple[int, str, str]]:
    """Return line number, language and code of each block of a page's *text*."""
    for match in _BLOCK.finditer(text):
        yield text.count("\n", 0, match.start()) + 2, match.group(1), match.group(2)


def texts_by_door(page: Path) -> dict[str, str]:
    """Return the text of *page* for each of its readers, by the heading of the door.

    A reader of one door has not read the others: their lines are empty, so lines keep their
    numbers. A page without doors has one reader.
    """
    text = page.read_text(encoding="utf-8")
    doors = dict(_find_doors(text))
    if not doors:
        return {"": text}
    return {
        name: "".join(
            line if not any(door != name and at in doors[door] for door in doors) else "\n"
            for at, line in enumerate(text.splitlines(keepends=True))
        )
        for name in doors
    }


def _find_doors(text: str) -> Iterator[tuple[str, range]]:
    """Return the headings of doors, with their lines up to the next heading of that level."""
    prose = _FENCED.sub(lambda block: "\n" * block[0].count("\n"), text)
    headings = [
        (prose.count("\n", 0, match.start()), len(match[1]), match[2])
        for match in _HEADING.finditer(prose)
    ]
    end = prose.count("\n") + 1
    for at, (line, level, name) in enumerate(headings):
        if name.startswith(DOOR):
            after = (begin for begin, depth, _ in headings[at + 1 :] if depth <= level)
            yield name, range(line, next(after, end))
