"""Markdown summaries: fixed headings, a list under each (conformance 34)."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar

from refold.summarizers.forms.form import strip_scratchpads

Item = TypeVar("Item")

_BULLET = re.compile(r"(?:[-*•+]|\d{1,3}[.)、])\s+")
_EMPTY_WORDS = frozenset({
    "-", "none", "none.", "(none)", "[none]", "n/a", "(n/a)", "nothing", "nothing.", "null", "(empty)", "empty", "...", "…",
    "无", "无。", "（无）", "暂无", "没有", "なし", "없음",
})  # fmt: skip


def clean_items(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the stripped texts, each once, without empty ones (also `None`, `n/a`, `无`)."""
    stripped = (text.strip() for text in texts)
    return tuple(dict.fromkeys(text for text in stripped if has_content(text)))


def has_content(text: str) -> bool:
    """Return whether a text has content."""
    return bool(text) and text.casefold() not in _EMPTY_WORDS


def bullet_list(texts: Iterable[str]) -> str:
    """Return a Markdown list. Further lines of a text are indented by two spaces."""
    return "\n".join("- " + text.replace("\n", "\n  ") for text in texts)


def list_items(body: str) -> Iterator[str]:
    """Yield the texts of a list. A line that is neither an item nor indented is a text by
    itself."""
    now = list[str]()
    for line in _dedent(body):
        bullet = _BULLET.match(line)
        if bullet or (line.strip() and not line.startswith("  ")):
            yield "\n".join(now)
            now = [line[bullet.end() :] if bullet else line]
        elif now:
            now.append(line.removeprefix("  "))
    yield "\n".join(now)


def _dedent(body: str) -> list[str]:
    """Return the lines without their common indentation. A first line after a tag is not
    indented."""
    first, *rest = body.split("\n")
    depth = min((len(line) - len(line.lstrip(" \t")) for line in rest if line.strip()), default=0)
    if first.strip() and not any(_BULLET.match(line, depth) for line in rest):
        depth = 0
    return [first.lstrip(), *(line[depth:] for line in rest)]


def comparison_key(text: str) -> str:
    """Return a key that is equal for texts with the same words. Case, spaces and final punctuation
    do not count."""
    return " ".join(text.casefold().split()).rstrip(".。;；!！ ") or text


def merge_items(
    old: Iterable[Item], new: Iterable[Item], text_of: Callable[[Item], str] = str
) -> tuple[Item, ...]:
    """Return both lists, the old first. Of two items with equal texts, the newer replaces the older
    in its place."""
    fresh = {comparison_key(text_of(item)): item for item in new}
    merged = [fresh.pop(comparison_key(text_of(item)), item) for item in old]
    return (*merged, *fresh.values())


def latest_items(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the texts as `clean_items`, but of equal ones the latest at its own place."""
    latest = dict[str, str]()
    for text in texts:
        key = comparison_key(text)
        latest.pop(key, None)
        latest[key] = text
    return clean_items(latest.values())


_FENCE = re.compile(r"(?:```|~~~)")


class Heading(NamedTuple):
    """One section of a Markdown summary."""

    title: str
    about: str
    """What belongs there, for the prompt."""
    kind: Literal["log", "state", "standing"] = "log"
    """`log`: merged, and the oldest entries are dropped first if room is short. `state`: replaced
    by an update. `standing`: merged and never dropped."""
    required: bool = True
    aliases: tuple[str, ...] = ()
    """Other titles that models use for it, also in other languages."""


@dataclass(frozen=True, slots=True)
class Sections:
    """The content of a Markdown summary: (title, entries) in the form's order, without empty
    sections. Entries are stripped, and those without content are left out."""

    entries: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def __post_init__(self) -> None:
        cleaned = ((title, clean_items(texts)) for title, texts in self.entries)
        object.__setattr__(
            self, "entries", tuple((title, texts) for title, texts in cleaned if texts)
        )

    def __getitem__(self, title: str) -> tuple[str, ...]:
        """Return the entries under a title, or an empty tuple."""
        return dict(self.entries).get(title, ())


def drop_oldest(value: Sections, titles: Iterable[str], least: int = 0) -> Sections | None:
    """Return *value* without the oldest entry of the longest of these sections, or None if that has
    no more than *least* entries."""
    longest = max(titles, key=lambda title: len(value[title]), default="")
    if len(value[longest]) <= least:
        return None
    shorter = ((title, texts[1:] if title == longest else texts) for title, texts in value.entries)
    return Sections(tuple(shorter))


@dataclass(frozen=True, slots=True)
class SectionsForm:
    """Markdown with these headings in this order, as a form."""

    name: str
    headings: tuple[Heading, ...]

    @property
    def template(self) -> str:
        """The headings, and what belongs under each."""
        return (
            "Answer in Markdown with exactly these headings, in this order, and a list under each. "
            "Write `- none` where there is nothing to say.\n\n"
            + "\n".join(f"## {heading.title}\n- {heading.about}" for heading in self.headings)
        )

    def parse(self, text: str) -> Sections | None:
        """Return the sections in *text*, or None if a required heading is missing or all sections
        are empty. Headings may be of any level, bold or numbered. Other headings are content."""
        bodies = self._read_bodies(text)
        if self._missing_from(bodies):
            return None
        value = self._sections(
            (title, list_items("\n".join(lines))) for title, lines in bodies.items()
        )
        return value if value.entries else None

    def list_missing(self, text: str) -> list[str]:
        """Return the required headings that *text* lacks."""
        return self._missing_from(self._read_bodies(text))

    def _read_bodies(self, text: str) -> dict[str, list[str]]:
        bodies: dict[str, list[str]] = {}
        for title, line in self._lines(strip_scratchpads(text, self._pattern())):
            bodies.setdefault(title, [""]).append(line)
        return bodies

    def _missing_from(self, titles: Collection[str]) -> list[str]:
        required = (heading.title for heading in self.headings if heading.required)
        return [title for title in required if title not in titles]

    def render(self, value: Sections) -> str:
        """Return every heading with its entries."""
        return "\n".join(
            f"## {h.title}\n{bullet_list(value[h.title])}".rstrip() for h in self.headings
        )

    def merge(self, previous: Sections | None, new: Sections) -> Sections:
        """Return *previous* merged with *new*, by the kind of each heading."""
        if previous is None:
            return new
        return self._sections(
            (
                h.title,
                latest_items((*(previous[h.title] if h.kind != "state" else ()), *new[h.title])),
            )
            for h in self.headings
        )

    def shorten(self, value: Sections) -> Sections | None:
        """Return *value* without the oldest entry of the longest section of kind `log`, or None if
        all of these are empty."""
        return drop_oldest(value, [h.title for h in self.headings if h.kind == "log"])

    def _sections(self, entries_by_title: Iterable[tuple[str, Iterable[str]]]) -> Sections:
        texts = {title: tuple(entries) for title, entries in entries_by_title}
        return Sections(tuple((h.title, texts.get(h.title, ())) for h in self.headings))

    def _pattern(self) -> re.Pattern[str]:
        words = sorted(
            (word for h in self.headings for word in (h.title, *h.aliases)), key=len, reverse=True
        )
        titles = "|".join(re.escape(word).replace(r"\ ", r"[ _-]") for word in words)
        return re.compile(
            rf"^(#{{1,6}}[ \t]{{0,4}})?(\d{{1,2}}[.)][ \t]{{0,4}})?(\*\*|__)?({titles})(?:\*\*|__)?[ \t]{{0,4}}([:：])?(?:\*\*|__)?(.*)$",
            re.IGNORECASE | re.MULTILINE,
        )

    def _title(self, line: str, pattern: re.Pattern[str]) -> tuple[str, str] | None:
        """Return the title in a heading line and the rest of that line, or None."""
        match = pattern.match(line)
        if not match:
            return None
        marked, rest = match[1] or match[2] or match[3], match[6].strip()
        if rest and not (marked and match[5]):
            return None
        # None also for letters that only a pattern takes for the same, such as `ı` for `i`.
        title = self._titles_by_word().get(re.sub(r"[ _-]", " ", match[4]).casefold())
        return (title, rest) if title else None

    def _titles_by_word(self) -> dict[str, str]:
        words = ((word, h.title) for h in self.headings for word in (h.title, *h.aliases))
        return {re.sub(r"[ _-]", " ", word).casefold(): title for word, title in words}

    def _lines(self, text: str) -> Iterator[tuple[str, str]]:
        """Yield (title, line) of each line under a heading. Code fences are content, unless a fence
        surrounds the whole answer."""
        pattern, title, around, fenced = self._pattern(), "", False, False
        for line in text.split("\n"):
            fence = bool(_FENCE.match(line))
            if fence and (not title or (around and not fenced and not line.strip("`~ \t\r"))):
                around = not title
                continue
            fenced ^= fence
            if not (fenced or fence) and (heading := self._title(line, pattern)):
                title, rest = heading
                yield title, rest
            elif title:
                yield title, f"  {line}" if fenced or fence else line


HANDOVER = SectionsForm(
    "handover",
    (
        Heading("Done", "what was finished, with its outcome", aliases=("Completed", "已完成", "完成的工作")),
        Heading("In progress", "what is being worked on now", "state", aliases=("Currently working on", "进行中")),
        Heading("Files modified", "path: what was changed", aliases=("Modified files", "修改的文件", "文件修改")),
        Heading("Next", "what has to be done next", "state", aliases=("Next steps", "下一步", "接下来")),
        Heading(
            "User preferences", "a standing request, rule or constraint of the user, verbatim", "standing",
            aliases=("Persistent user preferences", "Key user requests", "用户偏好"),
        ),
    ),
)  # fmt: skip
"""Done, in progress, files modified, next, and preferences that persist (S4-10)."""

TLDR = SectionsForm(
    "tldr",
    (
        Heading(
            "Key Objectives",
            "what the user wants, and the problem to solve",
            "standing",
            aliases=("主要目标",),
        ),
        Heading(
            "Tools Used & Results",
            "tool, purpose and outcome",
            aliases=("Tools Used and Results", "使用的工具与结果"),
        ),
        Heading(
            "Key Findings",
            "a fact or conclusion that is needed later",
            aliases=("主要发现", "关键发现"),
        ),
        Heading("Current Status", "where things stand", "state", aliases=("当前状态",)),
        Heading("Next Steps", "an open question, or what to do next", "state", aliases=("下一步",)),
    ),
)
"""Objectives, tools, findings, status, next steps: the five sections of a TLDR (S3-14)."""
