"""Token counts of texts, messages and parts. Texts are estimated without a vocabulary or counted
with one, framing has constants, and media have formulas."""

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
# A linear model over pairs and fours of character classes.
#
# A byte-pair vocabulary splits text at changes of character class (word starts, capitals inside
# words, groups of three digits, runs of punctuation), then splits rare words further. Both show in
# the sequence of character classes. So the classes of two neighbours make one byte, a table has the
# weight of that byte, and the sum of the weights is the estimate. The same is done for four
# neighbours in coarser classes. All of it runs in C: `bytes.translate` classifies and weighs,
# shifting the text as one big integer combines neighbours, and a checksum computes the sum.
#
# `weights.json` holds the weights, fitted to o200k (docs/decisions/0005-estimator.md; its accuracy
# is in docs/models.md).

LEFT_OUT = bytes(range(0x80, 0xC0)) + b"\r"
"""UTF-8 continuation bytes, so that each character has one class, and carriage returns, which share
a token with their line feed."""

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
"""The lowest lead byte of each class of characters outside ASCII. E: Latin and Greek, Y: Cyrillic,
B: Hebrew, Arabic and their neighbours, I: Indic scripts, Thai and Georgian, S: symbols, J: kana and
CJK punctuation, H: Han, K: Hangul, F: full width and private, M: emoji."""


def _classes(rest: int, *members: bytes, beyond: int) -> bytes:
    """Return a table from bytes to the index of their group among *members*; *rest* for other ASCII
    bytes, *beyond* for all from 0x80."""
    table = bytearray([rest] * 128 + [beyond] * 128)
    for number, group in enumerate(members):
        for byte in group:
            table[byte] = number
    return bytes(table)


PAIR_CLASSES = _classes(
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
"""Character classes in pairs: spaces, vowels, consonants, rare letters, capitals, digits,
punctuation, and all outside ASCII."""

QUAD_CLASSES = _classes(
    3, b" \n\t\v\f", b"aeiouyAEIOUY", b"bcdfghjklmnpqrstvwxzBCDFGHJKLMNPQRSTVWXZ", beyond=3
)
"""Character classes in fours, for the shape of words: spaces, vowels, consonants, all others."""


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
    """Weights for the characters of a script, in addition to those of pairs and fours."""

    letter: bytes
    """The script's letter in `SCRIPT`."""
    patterns: tuple[bytes, ...]
    """Patterns in letters of `SCRIPT`."""
    weights: tuple[float, ...]
    """Tokens of each pattern."""
    byte_patterns: tuple[bytes, ...]
    byte_weights: tuple[float, ...]


# written by benchmarks/fit_tokens.py; those of emoji (F and M) are fitted by fit_emoji.py
_DATA = json.loads(Path(__file__).with_name("weights.json").read_text("utf-8"))
STEP: float = _DATA["step"]
"""Tokens per unit of the weights of pairs and fours."""
ZERO: int = _DATA["zero"]
"""Zero point per character: the excess of the weights of its pair and four, together."""
PAIR_WEIGHTS, QUAD_WEIGHTS = (bytes.fromhex("".join(_DATA[name])) for name in ("pairs", "fours"))
"""Weights of all pairs and fours of classes, one byte each."""
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
"""Maximum length, in characters, of texts with cached estimates."""
PIECE = 16_384
"""Bytes processed at a time. What fits into a processor's cache takes half the time."""


def estimate(text: str) -> int:
    """Estimate the tokens of *text* in the o200k vocabulary; 0 for an empty text.

    The mean error per conversation is below 5 % for English, code, JSON, terminal output, Chinese,
    Japanese, Korean and emoji (docs/models.md). Takes linear time
    (docs/decisions/0005-estimator.md) and any text, lone surrogates included.
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
"""The cached estimate. Tool names, roles and other short texts recur."""


def _weight(raw: bytes) -> int:
    if not raw.isascii() or b"\r" in raw:
        raw = raw.translate(None, LEFT_OUT)  # so that each character has one class
    pairs, fours = pairs_of(raw), fours_of(raw)
    return total(pairs.translate(PAIR_WEIGHTS) + fours.translate(QUAD_WEIGHTS)) - ZERO * len(pairs)


def total(data: bytes) -> int:
    """Return the sum of *data*, five times as fast as `sum`.

    The lower half of Adler-32 is the sum plus 1, modulo 65,521, which 256 bytes cannot reach.
    """
    if len(data) <= 256:
        return (adler32(data) & 0xFFFF) - 1
    return sum([(adler32(data[at : at + 256]) & 0xFFFF) - 1 for at in range(0, len(data), 256)])


def pairs_of(raw: bytes) -> bytes:
    """Return for each byte its class of `PAIR_CLASSES` (upper four bits) and that of the next byte;
    after the last, class 0, a line end, is assumed."""
    classes = raw.translate(PAIR_CLASSES)
    text = int.from_bytes(classes, "little")
    return (text << 4 | text >> 8).to_bytes(len(classes), "little")


def fours_of(raw: bytes) -> bytes:
    """Return for each byte its class of `QUAD_CLASSES` and those of the next three bytes, two bits
    each; after the last, class 0, a space, is assumed."""
    classes = raw.translate(QUAD_CLASSES)
    text = int.from_bytes(classes, "little")
    text = text << 2 | text >> 8
    return (text << 4 | text >> 16).to_bytes(len(classes), "little")


def _beyond_ascii(raw: bytes) -> float:
    """Estimate the additional tokens of other scripts.

    Patterns, in letters of `SCRIPT` and in bytes, are counted only for scripts that occur.
    """
    letters = raw.translate(SCRIPT, LEFT_OUT)
    return math.fsum(
        sum(map(mul, weights, map(letters.count, patterns)))
        + sum(map(mul, byte_weights, map(raw.count, byte_patterns)))
        for letter, patterns, weights, byte_patterns, byte_weights in SCRIPTS
        if letter in letters
    )


# --- images, documents, audio and video -----------------------------------------------------------
# They are counted by size: the bytes are never read as text.

UNKNOWN = 1_500
"""Tokens of a medium of unknown size: about the maximum of an image."""
MAX_IMAGE_EDGE = 1_568
"""Pixels of the longer edge above which Anthropic scales an image down."""
PIXELS_PER_TOKEN = 750
"""Pixels per token, as documented by Anthropic."""
MAX_IMAGE_TOKENS = 1_600
"""Maximum tokens of an image, after scaling."""
TOKENS_PER_PAGE = 2_000
"""Tokens of a PDF page. Anthropic documents 1,500 to 3,000 for its text."""
PAGE_BYTES = 50_000
"""Assumed bytes of a page of a document, since pages are not counted."""
AUDIO_RATES = 32, 16_000
"""Audio: tokens per second (documented by Gemini) and assumed bytes per second (128 kbit/s)."""
VIDEO_RATES = 295, 250_000
"""Video: tokens per second (Gemini: 258 a frame and 32 of audio, with framing) and assumed bytes
per second (2 Mbit/s)."""
BYTES_PER_TOKEN = 4
"""Bytes per token of plain text that is sent as a document."""


def media_tokens(media: Media) -> int:
    """Return tokens by the formulas of Anthropic (images, documents) and Gemini (audio, video);
    `UNKNOWN` if the size is unknown."""
    if media.kind == "image":
        return _picture(media.width, media.height)
    if not media.size:
        return UNKNOWN
    if media.mime.startswith("text/"):
        return -(-media.size // BYTES_PER_TOKEN)
    if media.kind == "document":
        return TOKENS_PER_PAGE * -(-media.size // PAGE_BYTES)
    rate, bytes_a_second = VIDEO_RATES if media.kind == "video" else AUDIO_RATES
    return -(-rate * media.size // bytes_a_second)


def tile_tokens(media: Media) -> int:
    """Return tokens as `media_tokens` does, with images by OpenAI's tiles (GPT-4o).

    Larger images are scaled down into 2,048 x 2,048 pixels, then to a shorter edge of 768. They
    cost 85 tokens, and 170 for each tile of 512 x 512.
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
    scale = min(1, MAX_IMAGE_EDGE / max(width, height))
    return max(1, min(MAX_IMAGE_TOKENS, round(width * height * scale * scale / PIXELS_PER_TOKEN)))


# --- messages and parts ---------------------------------------------------------------------------


Counter = Callable[[Message], int]
"""A function that returns the tokens of one message, framing included."""
TextCounter = Callable[[str], int]
"""A function that returns the tokens of a text, such as `estimate` or `exact()`."""
MediaCounter = Callable[[Media], int]

MESSAGE = 4
"""Framing of a message: start, role, separator, end (OpenAI's chat format: 3 and the role)."""
CALL = 8
"""Framing of a tool call besides its name: channel, recipient and constraint in OpenAI's harmony
format. The model does not see the id of the call."""
RESULT = 4
"""Framing of a tool result besides its content."""
TOOL = 8
"""Framing of a tool definition."""
SIGNATURE_CHARS_PER_TOKEN = 6.5
"""Characters of a signature or of encrypted content per token of the reasoning in it. Measured on
467 thinking blocks of Claude Sonnet 4.5 with known text (6.55 by o200k)."""
MIN_BASE64_CHARS = 512
"""Base64 characters in a row from which a string in an unknown part is data, not text."""

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
    """Return a counter of the tokens that a part adds to a message, from a counter of messages."""
    framing = count(Message("user"))
    return lambda part: count(Message("user", (part,))) - framing


def is_estimator(count: Counter) -> bool:
    """Return whether *count* estimates texts as `count_message` does.

    If so, `refold.compactor.calibration` applies to its figures.
    """
    return count is count_message or (
        isinstance(count, partial) and count.func is _message and count.args[0] is estimate
    )


def count_fixed(system: Iterable[Part], tools: Iterable[str], text: TextCounter = estimate) -> int:
    """Count the tokens of a system prompt, framing included unless it is empty, and of tool
    definitions, each as JSON text."""
    prompt = sum(part_tokens(part, text) for part in system)
    return (prompt + MESSAGE if prompt else 0) + sum(text(tool) + TOOL for tool in tools)


def part_tokens(
    part: Part | Content, text: TextCounter = estimate, media: MediaCounter = media_tokens
) -> int:
    """Count the tokens of one part, framing included.

    Thinking counts as its text or as the content of its signature, whichever is more: providers
    send a summary or nothing beside the signature, and bill all of the thinking. Base64 data in
    unknown parts does not count as text.
    """
    if isinstance(part, Text):  # the two most common ones, without the cost of `match`
        return text(part.text)
    if isinstance(part, ToolResult):
        return RESULT + sum([part_tokens(item, text, media) for item in part.content])
    match part:
        case Thinking(words, signature):
            return max(text(words), int(len(signature) / SIGNATURE_CHARS_PER_TOKEN))
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

    A long base64 string counts as encrypted reasoning, but at most as a medium of unknown size.
    """
    if len(json) < MIN_BASE64_CHARS:
        return text(json)
    blobs = [
        match for match in _BLOBS.finditer(json) if match.end() - match.start() >= MIN_BASE64_CHARS
    ]
    pieces, at = list[str](), 0
    for blob in blobs:
        pieces.append(json[at : blob.start()])
        at = blob.end()
    hidden = sum(
        min(UNKNOWN, int((blob.end() - blob.start()) / SIGNATURE_CHARS_PER_TOKEN)) for blob in blobs
    )
    return text("".join([*pieces, json[at:]])) + hidden


# --- exact counters of texts ----------------------------------------------------------------------
# They work offline. Extra: `exact`.

CHUNK = 100_000
"""Characters passed to an encoder at once. Both recurse or panic on a million equal characters."""

_SEAM = re.compile(r"\n(?=[A-Za-z])")
"""Where a text can be split without changing its count in any byte-pair vocabulary: between a line
end and a letter."""


def exact(vocabulary: str = "o200k_base") -> Callable[[str], int]:
    """Return a counter of texts that is exact for *vocabulary*, to be passed to `counter`.

    splintr-rs carries its vocabularies in the package (o200k_base, cl100k_base, llama3, qwen3,
    deepseek_v3, glm4, kimi_k2, mistral_v3, gemma3, ...) and needs no network. tiktoken is used for
    names that splintr does not know, if its vocabulary file is already on the machine. Special
    tokens in a text count as ordinary text, lone surrogates as U+FFFD. Texts above 100,000
    characters are counted in pieces, split where no token crosses. In a run of more than 25,000
    characters without a line that begins with a letter, a split may add a token.

    Raises `RefoldError` if no installed package knows *vocabulary*.
    """
    tried: list[str] = []
    for load in (_splintr, _tiktoken):
        try:
            return partial(_count_in_pieces, load(vocabulary))
        except ImportError as error:
            tried.append(f"{error.name} is not installed")
        except Exception as error:  # noqa: BLE001 - each loader raises other errors
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
    """Return positions, from 0 to the end, between pieces of *text* of at most `CHUNK`
    characters."""
    cuts = [0]
    while len(text) - cuts[-1] > CHUNK:
        limit = cuts[-1] + CHUNK
        seams = (match.end() for match in _SEAM.finditer(text, limit - CHUNK // 4, limit))
        cuts.append(max(seams, default=limit))
    return [*cuts, len(text)]
