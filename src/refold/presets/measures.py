"""How other systems measure a conversation: where its kept tail begins, and the tokens of a
text."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from refold.core.strategy import Ending, Steps, Strategy
from refold.core.view import View
from refold.messages import Message
from refold.summarizers.tail import (
    count_shown,
    find_requests,
    find_tail_start,
    find_unanswered,
    find_unsummarized,
)

Start = Callable[[View], int]
"""Function from a view to the position of its kept tail, a legal cut. 0 if nothing is older."""


@dataclass(frozen=True)
class KeepFrom:
    """Runs *strategy*, which has a setting `keep` (`Summarize()`), and keeps everything from
    `start(view)` on.

    *pin* is passed on to it, so that `KeepImportant(KeepFrom(...), scorer)` works.
    """

    strategy: Any
    start: Start
    pin: Callable[[Message], bool] | None = None

    def __call__(self, view: View) -> Steps:
        """Propose the strategy's edits."""
        start = self.start(view)
        if not find_unsummarized(view, start):
            return Ending("noop", "everything older than what is kept is summarised already")
        keep = len(view.transcript) - start
        strategy: Strategy = replace(self.strategy, keep=keep, pin=self.pin or self.strategy.pin)
        return (yield from strategy(view))


@dataclass(frozen=True)
class OnlyBeyond:
    """Runs *strategy* only if gentler ones have left more than *tokens* tokens."""

    strategy: Strategy
    tokens: int

    def __call__(self, view: View) -> Steps:
        """Propose the strategy's edits, or none."""
        if view.tokens <= self.tokens:
            return Ending("noop", f"{view.tokens} of {self.tokens} tokens are left")
        return (yield from self.strategy(view))


@dataclass(frozen=True)
class LastTurns:
    """Start of the newest *turns* user requests, if they and all that followed have at most the
    share *most* of the shown tokens, else of a tail as near as possible to that share (C1-7)."""

    turns: int
    most: float = 0.5

    def __call__(self, view: View) -> int:
        """Return the start."""
        requests = find_requests(view)
        if 0 < self.turns <= len(requests):
            start = requests[-self.turns]
            if count_shown(view, start) <= self.most * count_shown(view):
                return start
        return find_tail_start(view, self.most)


@dataclass(frozen=True)
class LastMessages:
    """Start of the newest *count* messages. More stay if a call would be separated from its result,
    fewer if they have over *max_tokens* tokens. Unanswered content always stays (C2-10)."""

    count: int
    max_tokens: int

    def __call__(self, view: View) -> int:
        """Return the start."""
        end = len(view.transcript)
        whole = max((cut for cut in view.cuts if cut <= end - self.count), default=0)
        cuts = sorted(cut for cut in view.cuts if whole <= cut < end)
        waits = find_unanswered(view)
        fitting = (cut for cut in cuts if count_shown(view, cut) <= self.max_tokens)
        return min(next(fitting, waits), waits)


@dataclass(frozen=True)
class Unanswered:
    """Start of what the model has not answered yet: a request, unread results, open calls
    (C4-11)."""

    def __call__(self, view: View) -> int:
        """Return the start."""
        return find_unanswered(view)


# --- formulas for the tokens of a text ----------------------------------------------------------


IDEOGRAPHS = re.compile("[\u3400-\u4dbf\u4e00-\u9fff]+")
"""The blocks that the published systems call CJK: unified ideographs and their extension A."""
BLANKS = re.compile("[ \n\t\r]+")
EMOJI = re.compile("[\U0001f000-\U0001faff]+")
WIDE = re.compile(
    "[\u1100-\u11ff\u2e80-\u2fff\u3040-\u33ff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\ufe30-\ufe4f\uff00-\uffef\U0001b000-\U0001b2ff\U00020000-\U0003ffff]+"
)
"""Other wide characters: kana, Hangul, compatibility forms, full width, further ideographs."""
BEYOND_ASCII = re.compile("[^\x00-\x7f]+")


def quarter(text: str) -> int:
    """Return a token per 4 characters, rounded up, as LangChain's `count_tokens_approximately`
    (S0-34)."""
    return math.ceil(len(text) / 4)


def two_ratios(text: str) -> int:
    """Return the tokens, rounded up: 1.5 Chinese or other wide characters or 4 ASCII characters a
    token, 2 tokens an emoji, 1 any other character (S1-14, S1-15)."""
    chinese, wide, emoji, rest, plain = _kinds(text)
    return math.ceil((chinese + wide) / 1.5 + 2 * emoji + rest + plain / 4)


def rather_over(text: str) -> int:
    """Return the tokens, rounded up and rather too many: 1.5 for a wide character, 2 for an emoji,
    0.25 for a blank, 0.3 for any other ASCII character, 1 for any other (S2-24, S2-25)."""
    chinese, wide, emoji, rest, plain = _kinds(text)
    blanks = _count(BLANKS, text)
    beyond_ascii = 1.5 * (chinese + wide) + 2 * emoji + rest
    return math.ceil(round(beyond_ascii + 0.25 * blanks + 0.3 * (plain - blanks), 6))


def chinese_and_ascii(text: str) -> int:
    """Return the tokens, rounded up: 1.5 for a wide character, 2 for an emoji, 0.25 for an ASCII
    character, 1 for any other (S4-17)."""
    chinese, wide, emoji, rest, plain = _kinds(text)
    return math.ceil(1.5 * (chinese + wide) + 2 * emoji + rest + plain / 4)


def _kinds(text: str) -> tuple[int, int, int, int, int]:
    """Return the number of ideographs, other wide characters, emoji, other non-ASCII characters and
    ASCII characters."""
    chinese, wide, emoji = (_count(kind, text) for kind in (IDEOGRAPHS, WIDE, EMOJI))
    beyond = _count(BEYOND_ASCII, text)
    return chinese, wide, emoji, beyond - chinese - wide - emoji, len(text) - beyond


def _count(kind: re.Pattern[str], text: str) -> int:
    return sum(map(len, kind.findall(text)))
