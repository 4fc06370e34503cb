"""Tokens of texts, messages and parts. Texts are estimated without a vocabulary, or counted exactly
for one; framing goes by constants, media by formula."""

import json
import math
import re
import string
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from importlib import import_module
from itertools import pairwise
from operator import mul
from pathlib import Path
from typing import Any, NamedTuple
from zlib import adler32

from refold.errors import RefoldError, install_hint
from refold.messages import (
    Content,
    Media,
    Message,
    Opaque,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)

# --- an estimate without a vocabulary -------------------------------------------------------------
# Pairs and fours of character classes, weighted.
#
# A byte-pair vocabulary splits text at changes of character class (word starts, capitals inside
# words, groups of three digits, runs of punctuation), then splits rare words further. Both are
# visible in which classes of characters follow one another. So each character's class and the next
# one's make one byte, a table says what that byte is worth, and the sum of the text is its
# estimate; the same for four neighbours in coarser classes. All of it runs in C: `bytes.translate`
# classifies and weighs, shifting the text as one big integer puts neighbours side by side, a
# checksum adds up.
#
# `weights.json` holds the weights, fitted to o200k; docs/decisions/0005-estimator.md tells how,
# docs/models.md how well.

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


# --- images, documents and sound ------------------------------------------------------------------
# They count by their size: the bytes are never read as text.

UNKNOWN = 1_500
"""Tokens of anything whose size is unknown: about the most that a picture costs."""
EDGE = 1_568
"""Pixels of the longer edge above which Anthropic scales a picture down."""
PIXELS = 750
"""Pixels a token, as Anthropic documents."""
MOST = 1_600
"""Tokens of the largest picture, after scaling."""
PAGE = 2_000
"""Tokens of a PDF page; Anthropic documents 1,500 to 3,000 for its text."""
PAGE_BYTES = 50_000
"""Bytes of a PDF page, where pages cannot be counted."""
SOUND = 32, 16_000
"""Tokens a second (as Gemini documents) and bytes a second (128 kbit/s)."""
FILM = 295, 250_000
"""Tokens a second (258 a frame and 32 of sound, with framing; Gemini) and bytes a second
(2 Mbit/s)."""
BYTES = 4
"""Bytes a token of a plain text sent as a document."""


def media_tokens(media: Media) -> int:
    """Return tokens by Anthropic's formula for pictures and PDF, Gemini's for sound and film."""
    if media.kind == "image":
        return _picture(media.width, media.height)
    if not media.size:
        return UNKNOWN
    if media.mime.startswith("text/"):
        return -(-media.size // BYTES)
    if media.kind == "document":
        return PAGE * -(-media.size // PAGE_BYTES)
    rate, bytes_a_second = FILM if media.kind == "video" else SOUND
    return -(-rate * media.size // bytes_a_second)


def tile_tokens(media: Media) -> int:
    """Return tokens as `media_tokens` does, with pictures by OpenAI's tiles (GPT-4o).

    Scaled into 2,048 x 2,048, the shorter edge to 768, then 85 tokens and 170 for each tile of 512
    pixels.
    """
    if media.kind != "image" or not (media.width and media.height):
        return media_tokens(media)
    scale = min(1, 2_048 / max(media.width, media.height))
    scale *= min(1, 768 / (scale * min(media.width, media.height)))
    across, down = (-(-max(1, round(edge * scale)) // 512) for edge in (media.width, media.height))
    return 85 + 170 * across * down


def _picture(width: int, height: int) -> int:
    if not (width and height):
        return UNKNOWN
    scale = min(1, EDGE / max(width, height))
    return max(1, min(MOST, round(width * height * scale * scale / PIXELS)))


# --- messages and parts ---------------------------------------------------------------------------


Counter = Callable[[Message], int]
"""Tokens of one message, its framing included."""
TextCounter = Callable[[str], int]
"""Tokens of a text: `estimate`, `refold.tokens.count.exact()`, or any tokenizer's."""
MediaCounter = Callable[[Media], int]

MESSAGE = 4
"""Framing of a message: start, role, separator, end (OpenAI's chat format; 3 and the role)."""
CALL = 8
"""Framing of a tool call besides its name: channel, recipient and constraint in OpenAI's harmony
format. The call's id is not shown to the model."""
RESULT = 4
"""Framing of a tool result besides its content."""
TOOL = 8
"""Framing of a tool definition."""
SIGNED = 6.5
"""Characters of a signature or of encrypted content for each token of the reasoning it holds.
Measured on 467 thinking blocks of Claude Sonnet 4.5 whose whole text is known (6.55 by o200k)."""
BLOB = 512
"""A run of this many base64 characters in a part we do not understand is data, not text."""

_BLOBS = re.compile(r"(?:[A-Za-z0-9+/_-]{60,}+=*+(?>(?:\\[rn])*))+")


def count_message(message: Message) -> int:
    """Estimate the tokens of one message: within 5 % of o200k on average (docs/models.md)."""
    return _message(estimate, media_tokens, message)


def counter(text: TextCounter, media: MediaCounter = media_tokens) -> Counter:
    """Return a counter of messages that uses a counter of texts.

    >>> count = counter(lambda text: len(text.split()))
    >>> count(Message("user", (Text("three words here"),))) - MESSAGE
    3
    """
    return partial(_message, text, media)


def part_counter(count: Counter) -> Callable[[Part | Content], int]:
    """Return a counter of parts that uses a counter of messages: of what a part adds to one."""
    framing = count(Message("user"))
    return lambda part: count(Message("user", (part,))) - framing


def is_estimator(count: Counter) -> bool:
    """Does *count* estimate texts as `count_message` does?

    If so, `refold.compactor.calibration` holds for its figures.
    """
    return count is count_message or (
        isinstance(count, partial) and count.func is _message and count.args[0] is estimate
    )


def count_fixed(system: Iterable[Part], tools: Iterable[str], text: TextCounter = estimate) -> int:
    """Count the tokens of a system prompt and of tool definitions (each as JSON)."""
    prompt = sum(part_tokens(part, text) for part in system)
    return (prompt + MESSAGE if prompt else 0) + sum(text(tool) + TOOL for tool in tools)


def part_tokens(
    part: Part | Content, text: TextCounter = estimate, media: MediaCounter = media_tokens
) -> int:
    """Count the tokens of one part, its framing included.

    Thinking counts as its text or as what its signature holds, whichever is more: providers send
    a summary, or nothing, beside the signature of the whole and bill the whole. Base64 data
    inside parts we do not understand never counts as text.
    """
    if isinstance(part, Text):  # the two commonest, without the cost of matching
        return text(part.text)
    if isinstance(part, ToolResult):
        return RESULT + sum([part_tokens(item, text, media) for item in part.content])
    match part:
        case Thinking(words, signature):
            return max(text(words), int(len(signature) / SIGNED))
        case ToolCall(_, name, arguments):
            return CALL + text(name) + text(arguments)
        case Media():
            return media(part)
        case Opaque(_, json):
            return _json_tokens(json, text)


def _message(text: TextCounter, media: MediaCounter, message: Message) -> int:
    return MESSAGE + sum([part_tokens(part, text, media) for part in message.parts])


def _json_tokens(json: str, text: TextCounter) -> int:
    """Count the tokens of JSON.

    A long base64 string in it counts as the reasoning it may hold, at most as a medium.
    """
    if len(json) < BLOB:
        return text(json)
    blobs = [match for match in _BLOBS.finditer(json) if match.end() - match.start() >= BLOB]
    pieces, at = list[str](), 0
    for blob in blobs:
        pieces.append(json[at : blob.start()])
        at = blob.end()
    hidden = sum(min(UNKNOWN, int((blob.end() - blob.start()) / SIGNED)) for blob in blobs)
    return text("".join([*pieces, json[at:]])) + hidden


# --- exact counters of texts ----------------------------------------------------------------------
# Offline, with the extra `exact`.

CHUNK = 100_000
"""Characters given to an encoder at once. Both recurse or panic on a million of one character."""

_SEAM = re.compile(r"\n(?=[A-Za-z])")
"""Where a text can be cut without changing its count in any byte-pair vocabulary: between a line
end and a letter."""


def exact(vocabulary: str = "o200k_base") -> Callable[[str], int]:
    """Return a counter of texts that is exact for *vocabulary*; for `refold.tokens.count.counter`.

    splintr-rs carries its vocabularies in the package (o200k_base, cl100k_base, llama3, qwen3,
    deepseek_v3, glm4, kimi_k2, mistral_v3, gemma3, ...) and needs no network. tiktoken serves the
    names splintr does not know, if its own file is on the machine already. Special tokens spelled
    in a text count as the text they are; lone surrogates as U+FFFD. Texts above 100,000
    characters are counted in pieces, cut where no token crosses; inside a run of more than 100,000
    characters without a line that begins with a letter, a token more per cut is possible.

    Raises `RefoldError` when neither package is installed or neither knows *vocabulary*.
    """
    tried: list[str] = []
    for load in (_splintr, _tiktoken):
        try:
            return partial(_count_in_pieces, load(vocabulary))
        except ImportError as error:
            tried.append(f"{error.name} is not installed")
        except Exception as error:  # noqa: BLE001 - each loader has errors of its own
            tried.append(f"{load.__name__.strip('_')}: {error}")
    raise RefoldError(
        f"no exact counter for {vocabulary!r} ({'; '.join(tried)}); "
        f"{install_hint('exact')}, which brings splintr-rs with its vocabularies"
    )


def _splintr(vocabulary: str) -> Callable[[str], list[int]]:
    encode: Callable[[str], list[int]] = (
        import_module("splintr").Tokenizer.from_pretrained(vocabulary).encode_ordinary
    )
    return encode


def _tiktoken(vocabulary: str) -> Callable[[str], list[int]]:
    encoding: Any = import_module("tiktoken").get_encoding(vocabulary)
    encode: Callable[[str], list[int]] = encoding.encode_ordinary
    return encode


def _count_in_pieces(encode: Callable[[str], list[int]], text: str) -> int:
    try:
        text.encode()
    except UnicodeEncodeError:  # lone surrogates
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return sum(len(encode(text[start:stop])) for start, stop in pairwise(_cuts(text)))


def _cuts(text: str) -> list[int]:
    """Return positions that part *text* into pieces of at most about CHUNK characters."""
    cuts = [0]
    while len(text) - cuts[-1] > CHUNK:
        limit = cuts[-1] + CHUNK
        seams = (match.end() for match in _SEAM.finditer(text, limit - CHUNK // 4, limit))
        cuts.append(max(seams, default=limit))
    return [*cuts, len(text)]
