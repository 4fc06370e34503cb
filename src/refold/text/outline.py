"""Outlines of long texts by kind, which keep what a plain cut would lose.

A kind is a pure function of a text and the terms asked for. It returns weighted lines, or None if
the shape of the text is of another kind.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from html import unescape
from itertools import islice
from os.path import commonprefix
from typing import Any

from refold.text.clip import head
from refold.text.outline_lines import (
    MIN_LINES,
    WIDTH,
    Line,
    Outline,
    outline_code,
    outline_diff,
    outline_log,
    outline_table,
    spread_evenly,
    weigh_asked,
    weigh_odd,
)
from refold.text.plain import is_path, split_path


def _favour(asked: Collection[str], lines: Sequence[Line]) -> list[Line]:
    """Return *lines* with more weight for those that contain the terms asked for."""
    extra = weigh_asked([line.text for line in lines], asked)
    return [
        line._replace(weight=line.weight + plus) for line, plus in zip(lines, extra, strict=True)
    ]


# --- listings and search results ------------------------------------------------------------------

ROW = 100
"""Maximum characters of a row of names."""
_PATH = re.compile(r"[\w.@+~#%,=\\/:*|-]+")
_MATCH = re.compile(r"((?:[A-Za-z]:(?=[/\\]))?[^\s:]{1,400}?)([:-])(\d{1,7})\2")


def outline_listing(text: str, asked: Collection[str]) -> Outline | None:
    """Outline a list of paths: each folder with some of its names, without the common prefix."""
    lines = list(filter(None, map(str.strip, text.split("\n"))))
    notes = [line for line in lines if not _PATH.fullmatch(line)]
    paths = [line for line in lines if _PATH.fullmatch(line)]
    folders = _folders_of(paths)
    if len(paths) < MIN_LINES or len(notes) > 0.2 * len(paths) or not any(folders):
        return None
    root, _ = split_path(commonprefix([*folders]))  # noqa: RUF071 - then up to a slash
    skip = len(root) if root.count("/") + root.count("\\") > 2 else 0
    weighed = [Line(f"in {root}:", 10.0, 0)] if skip else []
    weighed += [Line(note, 9.0, 0) for note in notes]
    for path, names in folders.items():
        top = len(weighed)
        for at, (row, count) in enumerate(_rows(f"{path[skip:] or '.'} ", names)):
            weight = 1 / (1 + at) if at else 2 - path.count("/") / 20
            weighed.append(Line(row, weight, count, top if at else 0 if skip else -1))
    return Outline(_favour(asked, weighed), noun="names")


def _folders_of(paths: Sequence[str]) -> dict[str, list[str]]:
    """Return the names in each folder. As in `ls -R`, a line `folder:` precedes its names."""
    folders, folder = dict[str, list[str]](), ""
    for path in paths:
        if path.endswith(":"):
            folder = path[:-1].removesuffix("/") + "/"
            folders.setdefault(folder, [])
            continue
        within, name = split_path(path.removesuffix("/"))
        folders.setdefault(within or folder, []).append(name + "/" * path.endswith("/"))
    return folders


def _rows(title: str, names: Sequence[str]) -> list[tuple[str, int]]:
    """Return names in rows, the first after *title*, each with its number of names."""
    rows = [(title, 0)]
    for name in names:
        text, count = rows[-1]
        if count and len(text) + len(name) > ROW:
            rows.append((f"  {name}", 1))
        else:
            rows[-1] = f"{text} {name}", count + 1
    return rows


def outline_search(text: str, asked: Collection[str]) -> Outline | None:
    """Outline the output of a search: each file once, with its first matches."""
    lines = text.split("\n")
    matches = [
        match if (match := _MATCH.match(line)) and is_path(match[1]) else None for line in lines
    ]
    written = sum(1 for line in lines if line.strip())
    if written < MIN_LINES or sum(map(bool, matches)) < 0.6 * written:
        return None
    near = weigh_asked(lines, asked)
    weighed, counts, path, top = list[Line](), Counter[str](), "", -1
    for line, match, extra in zip(lines, matches, near, strict=True):
        if not match:
            if line.strip() not in {"", "--"}:
                weighed.append(Line(line))
            continue
        counts[match[1]] += 1
        weight = (1 if match[2] == ":" else 0.3) / counts[match[1]] + extra
        if match[1] != path:
            path, top = match[1], len(weighed)
            weighed.append(Line(line, 1 + weight))
        else:
            weighed.append(Line(f"  {line[match.start(3) :]}", weight, 1, top))
    return Outline(weighed)


# --- JSON -----------------------------------------------------------------------------------------

SHORT = 160
"""Maximum characters of a JSON value on one line."""
BRIEF = 40
"""Maximum characters of a value in the line of a longer object."""
KEYS = 16
"""Maximum number of keys in the line of an object."""
DEPTH = 6
"""Maximum nesting depth of a JSON value."""


def outline_json(text: str, asked: Collection[str]) -> Outline | None:
    """Outline a JSON document: its shape, and unusual and sampled entries of long arrays.

    JSON lines are read as an array. A longer object has a line with its short fields, such as its
    id.
    """
    try:
        value = _read_json(text.strip())
        lines = [*_open(value, "", 0, 9.0, -1, 0)] if isinstance(value, dict | list) else []
    except (ValueError, RecursionError):
        return None
    return Outline(_favour(asked, lines), noun="entries") if lines else None


def _read_json(text: str) -> Any:
    if not text.startswith(("{", "[")):
        return None
    try:
        return json.loads(text)
    except ValueError:
        rows = [json.loads(row) for row in text.split("\n") if row.strip()]
        return rows if len(rows) > 1 else None


def _spell(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _open(
    value: Any, title: str, depth: int, weight: float, parent: int, at: int
) -> Iterator[Line]:
    """Yield the lines of a JSON value: one if it is short, else one for it and those of its items.

    *at* is the number of lines before it. Only array entries count when they are left out: the line
    of an object names its fields.
    """
    counts, title = int(title == "- "), " " * depth + title
    spelled = _spell(value)
    if len(spelled) <= SHORT or depth == DEPTH or not isinstance(value, dict | list):
        yield Line(title + _cut(spelled), weight, counts, parent)
        return
    brief, entries = _open_object(value) if isinstance(value, dict) else _open_array(value)
    yield Line(title + brief, weight, counts, parent)
    stop = at + 1
    for name, item, share in entries:
        for line in _open(item, name, depth + 1, share * weight / 2, at, stop):
            stop += 1
            yield line


def _open_object(value: Mapping[str, Any]) -> tuple[str, Sequence[tuple[str, Any, float]]]:
    """Return the line of an object, and title, value and weight of its long fields."""
    texts = {key: _spell(item) for key, item in value.items()}
    long = {key for key, text in texts.items() if len(text) > BRIEF}
    pairs = (
        f"{_cut(_spell(key), BRIEF)}:{'…' if key in long else texts[key]}"
        for key in islice(texts, KEYS)
    )
    brief = f"{{{','.join(pairs)}{',…' if len(texts) > KEYS else ''}}}"
    return brief, [(f"{_spell(key)}: ", value[key], 1.0) for key in texts if key in long]


def _open_array(value: Sequence[Any]) -> tuple[str, Sequence[tuple[str, Any, float]]]:
    """Return the line of an array, and title, value and weight of its entries."""
    shapes = list(map(_shape, value))
    rows = [{**_fields(item), "": shape} for item, shape in zip(value, shapes, strict=True)]
    shares = zip(value, weigh_odd(rows), spread_evenly(len(value)), strict=True)
    brief = f"{len(value):,} × {Counter(shapes).most_common(1)[0][0]}"
    return brief, [("- ", item, 0.5 * odd + 0.5 * even) for item, odd, even in shares]


def _shape(value: Any) -> str:
    """Return the keys of an object, or the type of another value."""
    if not isinstance(value, dict):
        return type(value).__name__
    names = ", ".join(_cut(key, BRIEF) for key in islice(value, KEYS))
    return f"{{{names}{', …' if len(value) > KEYS else ''}}}"


def _fields(item: Any) -> dict[str, str]:
    fields = item.items() if isinstance(item, dict) else ()
    return {key: _spell(field) for key, field in fields if not isinstance(field, dict | list)}


def _cut(text: str, size: int = SHORT) -> str:
    return text if len(text) <= size else f"{head(text, size)}…"


# --- HTML -----------------------------------------------------------------------------------------

_PAGE = re.compile(r"\s*(?:<!doctype html|<html|<head|<body)", re.IGNORECASE)
_TAG = re.compile(r"<([/!]?)([a-zA-Z][a-zA-Z0-9]{0,20})([^<>]*+)>")
_HEADINGS = {"h1": 1, "h2": 2, "h3": 3, "h4": 4, "h5": 5, "h6": 6, "dt": 6, "summary": 6}
"""Tags of headings and their levels."""
_LINK = re.compile(r"""\bhref=["']?([^"'\s>]{1,200})""")
_SILENT = re.compile("script|style|svg|template|noscript")
"""Tags whose content is not shown."""
_INLINE = re.compile(
    "abbr|b|code|em|font|i|img|kbd|label|mark|q|s|small|span|strong|sub|sup|time|u|var"
)
"""Tags that start no new line."""


def outline_html(text: str, asked: Collection[str]) -> Outline | None:
    """Outline a web page: headings first, then text and links, without scripts."""
    if not _PAGE.match(text):
        return None
    lines = [(level, line) for level, line in _read_page(text) if line]
    near = weigh_asked([line for _, line in lines], asked)
    weighed = [
        Line(f"{'#' * level} {line}", 1 + 1 / level)
        if level
        else Line(line, extra + min(1.0, len(line) / WIDTH) / 2)
        for (level, line), extra in zip(lines, near, strict=True)
    ]
    return Outline(weighed)


def _read_page(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of a page, each with its heading level, or 0."""
    begin, *comments = text.split("<!--")
    text = "".join((begin, *(comment.partition("-->")[2] for comment in comments)))
    pieces, level, at, silent, target = list[str](), 0, 0, "", ""
    for tag in _TAG.finditer(text):
        closes, name, attributes = tag[1], tag[2].lower(), tag[3]
        before, at = text[at : tag.start()], tag.end()
        if silent:
            silent = "" if closes and name == silent else silent
            continue
        pieces.append(before)
        if name == "a":
            pieces += [f" ({target})"] if target else []
            link = None if closes else _LINK.search(attributes)
            target = link[1] if link else ""
        elif name in {"td", "th"} and not closes:
            pieces.append(" | ")
        elif not _INLINE.fullmatch(name):
            yield level, " ".join(unescape("".join(pieces)).split())
            pieces.clear()
            level = 0 if closes else _HEADINGS.get(name, 0)
        silent = name if _SILENT.fullmatch(name) and not closes else ""
    yield 0, " ".join(unescape("".join([*pieces, text[at:]])).split())


# --- all ------------------------------------------------------------------------------------------

Kind = Callable[[str, Collection[str]], Outline | None]
KINDS: Mapping[str, Kind] = {
    "json": outline_json,
    "html": outline_html,
    "diff": outline_diff,
    "search": outline_search,
    "listing": outline_listing,
    "table": outline_table,
    "code": outline_code,
    "log": outline_log,
}
"""Kinds of texts in the order in which they are tried, the most specific shape first."""


def outline(
    text: str, asked: Collection[str], kinds: Collection[str] = tuple(KINDS)
) -> tuple[str, Outline] | None:
    """Return the first kind that fits a text, and its outline; None if that is not in *kinds*."""
    for kind, weigh in KINDS.items():
        if outlined := weigh(text, asked if kind in kinds else ()):
            return (kind, outlined) if kind in kinds else None
    return None
