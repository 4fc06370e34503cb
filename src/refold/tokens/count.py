"""Tokens of messages and parts: text by any counter, framing by constants, media by formula; and
counters of texts that are exact for a vocabulary."""

import re
from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from itertools import pairwise
from typing import Any

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
from refold.tokens.estimate import estimate

# --- images, documents and sound by their size: the bytes are never read as text --------------

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


# --- messages and parts ------------------------------------------------------------------------

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

_BLOBS = re.compile(r"(?:[A-Za-z0-9+/_-]{60,}+=*+(?:\\[rn])*+)+")


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


# --- exact counters of texts, offline: the extra `exact` ----------------------------------------


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
