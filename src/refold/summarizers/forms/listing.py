"""Lists of short texts: cleaned, written as Markdown items, and read back."""

import re
from collections.abc import Iterable, Iterator

_BULLET = re.compile(r"(?:[-*•+]|\d{1,3}[.)、])\s+")
_NOTHING = frozenset({
    "-", "none", "none.", "(none)", "[none]", "n/a", "(n/a)", "nothing", "nothing.", "null", "(empty)", "empty", "...", "…",
    "无", "无。", "（无）", "暂无", "没有", "なし", "없음",
})  # fmt: skip


def clean(texts: Iterable[str]) -> tuple[str, ...]:
    """Each text once, stripped; those that say nothing (`None`, `n/a`, `无`) left out."""
    stripped = (text.strip() for text in texts)
    return tuple(dict.fromkeys(text for text in stripped if said(text)))


def said(text: str) -> bool:
    """Does a text say anything?"""
    return bool(text) and text.casefold() not in _NOTHING


def bulleted(texts: Iterable[str]) -> str:
    """A Markdown list; further lines of a text are indented by two spaces."""
    return "\n".join("- " + text.replace("\n", "\n  ") for text in texts)


def items(body: str) -> Iterator[str]:
    """The texts of a list. A line that is neither an item nor indented is a text of its own."""
    now = list[str]()
    for line in _dedented(body):
        bullet = _BULLET.match(line)
        if bullet or (line.strip() and not line.startswith("  ")):
            yield "\n".join(now)
            now = [line[bullet.end() :] if bullet else line]
        elif now:
            now.append(line.removeprefix("  "))
    yield "\n".join(now)


def _dedented(body: str) -> list[str]:
    """The lines without the indentation that all of them have; a first line behind a tag has none of its own."""
    first, *rest = body.split("\n")
    depth = min((len(line) - len(line.lstrip(" \t")) for line in rest if line.strip()), default=0)
    if first.strip() and not any(_BULLET.match(line, depth) for line in rest):
        depth = 0
    return [first.lstrip(), *(line[depth:] for line in rest)]


def same(text: str) -> str:
    """What two texts have in common that say the same in the same words: for comparing them."""
    return " ".join(text.casefold().split()).rstrip(".。;；!！ ") or text


def joined(old: Iterable[str], new: Iterable[str]) -> tuple[str, ...]:
    """Both lists, the old first; of two texts that say the same, the newer wording in the older's place."""
    fresh = {same(text): text for text in new}
    kept = [fresh.pop(same(text), text) for text in old]
    return (*kept, *fresh.values())
