"""Which answers are good for a summary. What is refused here is never stored (conformance 32 to 34)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from refold.strategy import Answer

Kind = Literal["good", "nobody", "overflow", "failed", "rejected", "cut off", "off template"]

_THOUGHT = r"think|thinking|thought|analysis|reasoning|scratchpad|reflection|antthinking|internal_monologue"
_THOUGHTS = re.compile(rf"<({_THOUGHT})\b[^<>]{{0,200}}>.*?(?:</\1\s*>|\Z)", re.IGNORECASE | re.DOTALL)
_STRAY_END = re.compile(rf"^.*</(?:{_THOUGHT})\s*>", re.IGNORECASE | re.DOTALL)
_FENCE = re.compile(r"```(?:\w+)?\n(.*?)\n?```", re.DOTALL)
_SUMMARY = re.compile(r"<summary>(.*?)(?:</summary>|\Z)", re.IGNORECASE | re.DOTALL)
_TOO_LONG = re.compile(
    r"context.{0,3}length|context.{0,3}window|maximum context|prompt is too long|too many (?:input )?tokens|"
    r"(?:input|request|prompt)[^.]{0,40}(?:too (?:long|large)|exceeds)|上下文.{0,6}(?:超|长)",
    re.IGNORECASE,
)
_FINISHES = {
    "length": "the answer was cut off by its length",
    "filter": "the answer was filtered",
    "tool": "the model called a tool",
}


class Reply(NamedTuple):
    """What an answer is worth."""

    kind: Kind
    text: str = ""
    """The text that is good, or why there is none."""


def reply(answer: Answer | None) -> Reply:
    """The text of an answer without its reasoning, or why it is no good: nobody answered, it failed,
    was cut off, filtered or called a tool, is empty or holds nothing but reasoning."""
    if answer is None:
        return Reply("nobody", "there is no model to ask")
    if answer.finish == "error":
        return Reply("overflow" if _is_overflow(answer) else "failed", answer.error or "the model did not answer")
    if answer.finish == "length":
        return Reply("cut off", _FINISHES["length"])
    if answer.finish != "stop":
        return Reply(
            "rejected", _FINISHES.get(answer.finish, f"the answer ended for an unknown reason ({answer.finish})")
        )
    text = without_reasoning(answer.text)
    if not text:
        return Reply(
            "rejected", "the answer holds nothing but reasoning" if answer.text.strip() else "the answer is empty"
        )
    return Reply("good", text)


def without_reasoning(text: str) -> str:
    """What a model answered, without reasoning in tags and without what it was wrapped in."""
    text = _STRAY_END.sub("", _THOUGHTS.sub("", text)).strip()
    if found := _SUMMARY.fullmatch(text):
        text = found[1].strip()
    if found := _FENCE.fullmatch(text):
        text = found[1].strip()
    return text


def _is_overflow(answer: Answer) -> bool:
    if answer.fault is not None and answer.fault.kind != "other":
        return answer.fault.kind == "overflow"
    return bool(_TOO_LONG.search(answer.error))


@dataclass(frozen=True, slots=True)
class Headings:
    """Free text under required Markdown headings: the form of a summary without typed values."""

    titles: tuple[str, ...]

    name = "headings"

    @property
    def template(self) -> str:
        """The description of the shape, for a prompt."""
        if not self.titles:
            return ""
        heads = "\n".join(f"## {title}" for title in self.titles)
        return f"Write Markdown with exactly these headings, in this order; under one that has nothing, write: none.\n\n{heads}"

    def parse(self, text: str, /) -> str | None:
        """The text from its first heading on; None if one of the headings is missing."""
        if not self.titles:
            return text.strip() or None
        places = [_heading(title).search(text) for title in self.titles]
        starts = [place.start() for place in places if place]
        return text[min(starts) :].strip() if len(starts) == len(self.titles) and _says(text, self.titles) else None

    def render(self, value: str, /) -> str:
        """The text."""
        return value

    def merge(self, previous: str | None, new: str, /) -> str | None:  # noqa: ARG002 - a form's
        """The new text: a model has brought it up to date."""
        return new

    def shorter(self, value: str, /) -> str | None:  # noqa: ARG002 - a form's
        """None: nothing here knows what matters least."""
        return None


def _heading(title: str) -> re.Pattern[str]:
    """A heading as models write it: any level, bold, numbered, with a colon."""
    return re.compile(rf"^[ \t]*#{{1,6}}[ \t]+(?:\d+[.)][ \t]*)?\**{re.escape(title)}\b", re.IGNORECASE | re.MULTILINE)


def _says(text: str, titles: Sequence[str]) -> bool:
    """Is there anything besides the headings?"""
    bare = _heading_lines(titles).sub("", text)
    return bool(re.sub(r"\W|\bnone\b|无", "", bare, flags=re.IGNORECASE))


def _heading_lines(titles: Sequence[str]) -> re.Pattern[str]:
    names = "|".join(map(re.escape, titles))
    return re.compile(rf"^[ \t]*#{{1,6}}[ \t].*(?:{names}).*$", re.IGNORECASE | re.MULTILINE)
