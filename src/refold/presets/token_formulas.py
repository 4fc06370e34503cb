"""The token formulas of the five seed systems, as counters of texts that one can choose.

They are here for those who know one of these systems and its thresholds; `refold.tokens.estimate`
is several times nearer (docs/models.md). All round up, so that parts never add up to nothing. But
for `quarter`, which is known for it (C0-6), none counts a character outside ASCII as a quarter of a
token: kana, Hangul, full-width forms and further ideographs count as ideographs do, emoji as two
tokens, anything else as one (contradictions C1-12, C2-1, C2-2, C4-1).
"""

import math
import re

IDEOGRAPHS = re.compile("[\u3400-\u4dbf\u4e00-\u9fff]+")
"""The blocks that the seeds call CJK: unified ideographs and their extension A."""
PUNCTUATION = re.compile("[\u3000-\u303f]+")
BLANKS = re.compile("[ \n\t\r]+")
EMOJI = re.compile("[\U0001f000-\U0001faff]+")
WIDE = re.compile(
    "[\u1100-\u11ff\u2e80-\u2fff\u3040-\u33ff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\ufe30-\ufe4f\uff00-\uffef\U0001b000-\U0001b2ff\U00020000-\U0003ffff]+"
)
"""Every other wide character: kana, Hangul, compatibility forms, full width, further ideographs."""
BEYOND_ASCII = re.compile("[^\x00-\x7f]+")


def quarter(text: str) -> int:
    """Four characters a token, as LangChain's `count_tokens_approximately` has it (S0-34)."""
    return math.ceil(len(text) / 4)


def two_ratios(text: str) -> int:
    """1.5 Chinese characters a token, 4 others (S1-14, S1-15)."""
    chinese, wide, emoji, rest = _kinds(text)
    return math.ceil((chinese + wide) / 1.5 + 2 * emoji + rest + _ascii(text) / 4)


def rather_over(text: str) -> int:
    """1.5 tokens an ideograph, 1 its punctuation, 0.25 a blank, 0.3 any other character of ASCII:
    meant to be over rather than under (S2-24, S2-25)."""
    chinese, wide_count, emoji, rest = _kinds(text)
    marks, blanks = _count(PUNCTUATION, text), _count(BLANKS, text)
    wide = 1.5 * (chinese + wide_count) + marks + 2 * emoji + (rest - marks)
    return math.ceil(round(wide + 0.25 * blanks + 0.3 * (_ascii(text) - blanks), 6))


def chinese_and_ascii(text: str) -> int:
    """1.5 tokens a Chinese character, a quarter of one for ASCII (S4-17)."""
    chinese, wide, emoji, rest = _kinds(text)
    return math.ceil(1.5 * (chinese + wide) + 2 * emoji + rest + _ascii(text) / 4)


def _kinds(text: str) -> tuple[int, int, int, int]:
    """Return how many ideographs, other wide characters, emoji, and anything else that is not
    ASCII."""
    chinese, wide, emoji = (_count(kind, text) for kind in (IDEOGRAPHS, WIDE, EMOJI))
    return chinese, wide, emoji, len(text) - _ascii(text) - chinese - wide - emoji


def _ascii(text: str) -> int:
    return len(text) - _count(BEYOND_ASCII, text)


def _count(kind: re.Pattern[str], text: str) -> int:
    return sum(map(len, kind.findall(text)))
