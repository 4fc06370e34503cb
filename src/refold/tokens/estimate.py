"""How many tokens a text has, without a vocabulary: pairs and fours of character classes, weighted.

A byte-pair vocabulary splits text at changes of character class (word starts, capitals inside
words, groups of three digits, runs of punctuation), then splits rare words further. Both are
visible in which classes of characters follow one another. So each character's class and the next
one's make one byte, a table says what that byte is worth, and the sum of the text is its estimate;
the same for four neighbours in coarser classes. All of it runs in C: `bytes.translate` classifies
and weighs, shifting the text as one big integer puts neighbours side by side, a checksum adds up.

`weights.json` holds the weights, fitted to o200k; docs/decisions/0005-estimator.md tells how,
docs/models.md how well.
"""

import json
import math
import string
from functools import lru_cache
from operator import mul
from pathlib import Path
from typing import NamedTuple
from zlib import adler32

LEFT_OUT = bytes(range(0x80, 0xC0)) + b"\r"
"""Bytes of UTF-8 after the first of a character, so that a character is one class; and carriage
returns, which share a token with their line feed."""

LEADS = (
    (0xC2, "E"),
    (0xD0, "Y"),
    (0xD4, "B"),
    (0xE0, "I"),
    (0xE2, "S"),
    (0xE3, "J"),
    (0xE4, "H"),
    (0xEA, "K"),
    (0xEE, "F"),
    (0xF0, "M"),
)
"""The first byte from which a class of characters outside ASCII begins. E: Latin and Greek, Y:
Cyrillic, B: Hebrew, Arabic and their neighbours, I: Indic scripts, Thai and Georgian, S: symbols,
J: kana and CJK punctuation, H: Han, K: Hangul, F: full width and private, M: emoji."""


def _classes(rest: int, *members: bytes, beyond: int) -> bytes:
    """Return a table that gives each ASCII character the number of its group, or *rest*."""
    table = bytearray([rest] * 128 + [beyond] * 128)
    for number, group in enumerate(members):
        for byte in group:
            table[byte] = number
    return bytes(table)


SIXTEEN = _classes(
    14,
    b"\n",
    b" ",
    b"\t\v\f",
    b"aeiouy",
    b"bcdfghklmnprstvw",
    b"jqxz",
    string.ascii_uppercase.encode(),
    string.digits.encode(),
    b"\"'`",
    b"()[]{}<>",
    b"_",
    b"-./",
    b",;:",
    beyond=15,
)
"""Kinds of space, vowels, consonants, rare letters, capitals, digits, kinds of punctuation, and
everything outside ASCII. What follows the last character counts as class 0, a line's end."""

FOUR = _classes(
    3, b" \n\t\v\f", b"aeiouyAEIOUY", b"bcdfghjklmnpqrstvwxzBCDFGHJKLMNPQRSTVWXZ", beyond=3
)
"""Spaces, vowels, consonants, and everything else: in fours, the shape of words."""


def _scripts() -> bytes:
    table = bytearray(b"-" * 256)
    for name, members in {
        "a": string.ascii_lowercase,
        "u": string.ascii_uppercase,
        "d": string.digits,
    }.items():
        for byte in members.encode():
            table[byte] = ord(name)
    for first, name in LEADS:
        table[first:] = name.encode() * (256 - first)
    return bytes(table)


SCRIPT = _scripts()
"""A letter for each script and for small letters, capitals and digits; `-` for other ASCII."""


class Script(NamedTuple):
    """What a script's characters are worth beyond what pairs and fours tell."""

    letter: bytes
    """Its letter in `SCRIPT`."""
    patterns: tuple[bytes, ...]
    """In letters of `SCRIPT`."""
    weights: tuple[float, ...]
    """Tokens of each pattern."""
    byte_patterns: tuple[bytes, ...]
    byte_weights: tuple[float, ...]


# benchmarks/fit_tokens.py writes these, and fit_emoji.py finds those of emoji (F and M)
_DATA = json.loads(Path(__file__).with_name("weights.json").read_text("utf-8"))
STEP: float = _DATA["step"]
"""Tokens of one unit of the weights of pairs and fours."""
ZERO: int = _DATA["zero"]
"""What the weights of a character's pair and four are above their worth, together."""
PAIRS, FOURS = (bytes.fromhex("".join(_DATA[name])) for name in ("pairs", "fours"))
"""Of each pair of classes, and of each four."""
SCRIPTS = tuple(
    Script(
        letter.encode(),
        tuple(map(str.encode, weights["letters"])),
        tuple(weights["letters"].values()),
        tuple(map(bytes.fromhex, weights["bytes"])),
        tuple(weights["bytes"].values()),
    )
    for letter, weights in _DATA["scripts"].items()
)


SHORT = 16
"""Characters up to which estimates are remembered."""
PIECE = 16_384
"""Bytes worked on at a time: what fits a processor's cache takes half the time."""


def estimate(text: str) -> int:
    """Estimate the tokens of *text* in the o200k vocabulary; 0 for an empty text.

    Mean error per conversation is below 5 % on English, code, JSON, terminal output, Chinese,
    Japanese, Korean and emoji (docs/models.md). Linear in time (docs/decisions/0005-estimator.md);
    takes any text, lone surrogates included.
    """
    return _short(text) if len(text) <= SHORT else _estimate(text)


def _estimate(text: str) -> int:
    if not text:
        return 0
    raw = text.encode("utf-8", "surrogatepass")
    weight = (
        _weight(raw)
        if len(raw) <= PIECE
        else sum(_weight(raw[at : at + PIECE]) for at in range(0, len(raw), PIECE))
    )
    tokens = STEP * weight + (0 if text.isascii() else _beyond_ascii(raw))
    return max((len(raw) + 127) // 128, min(len(raw), round(tokens)))


_short = lru_cache(maxsize=4_096)(_estimate)
"""Names of tools, roles and the like come again and again."""


def _weight(raw: bytes) -> int:
    if not raw.isascii() or b"\r" in raw:
        raw = raw.translate(None, LEFT_OUT)  # so that a character is one class
    pairs, fours = pairs_of(raw), fours_of(raw)
    return total(pairs.translate(PAIRS) + fours.translate(FOURS)) - ZERO * len(pairs)


def total(data: bytes) -> int:
    """Sum up *data*, five times as fast as `sum`.

    The lower half of Adler-32 is one more than the sum modulo 65,521, which 256 bytes cannot reach.
    """
    if len(data) <= 256:
        return (adler32(data) & 0xFFFF) - 1
    return sum([(adler32(data[at : at + 256]) & 0xFFFF) - 1 for at in range(0, len(data), 256)])


def pairs_of(raw: bytes) -> bytes:
    """Return for each byte its class of `SIXTEEN` and, in the lower four bits, that of the next."""
    classes = raw.translate(SIXTEEN)
    text = int.from_bytes(classes, "little")
    return (text << 4 | text >> 8).to_bytes(len(classes), "little")


def fours_of(raw: bytes) -> bytes:
    """Return for each byte its class of `FOUR` and those of the next three, two bits each."""
    classes = raw.translate(FOUR)
    text = int.from_bytes(classes, "little")
    text = text << 2 | text >> 8
    return (text << 4 | text >> 16).to_bytes(len(classes), "little")


def _beyond_ascii(raw: bytes) -> float:
    """Estimate the tokens of other scripts, beyond what pairs and fours tell.

    Counts of patterns, in the letters of `SCRIPT` and in bytes, looked for only if the script
    occurs.
    """
    letters = raw.translate(SCRIPT, LEFT_OUT)
    return math.fsum(
        sum(map(mul, weights, map(letters.count, patterns)))
        + sum(map(mul, byte_weights, map(raw.count, byte_patterns)))
        for letter, patterns, weights, byte_patterns, byte_weights in SCRIPTS
        if letter in letters
    )
