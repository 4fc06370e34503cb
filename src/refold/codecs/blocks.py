"""Functions shared by the codecs: reading blocks as parts, writing parts over their original
blocks, and hashes and sizes of embedded media.

A codec defines how to read a block (`read`: from an object to a part) and how to write a part over
a block (`write`: from a block, None for a new one, and a part). This module does the rest: unknown
blocks are carried as opaque parts, and unchanged blocks stay the same objects.
"""

import binascii
import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from sys import intern
from typing import Any

from refold.errors import FormatError
from refold.messages import Content, Media, Message, Opaque, Part, Text, ToolCall, ToolResult
from refold.text.json_values import JsonObject, canonicalize, parse_or_text

LIST = (list, tuple)
"""Types of a list; `isinstance` with a union is several times slower."""
REASONING = "reasoning_content"
"""Field for the reasoning of a turn in DeepSeek, Kimi and servers of open models."""
Block = Any
"""Block of a message's content, as parsed from JSON."""
Read = Callable[[Block], Any]
Write = Callable[[Block | None, Any], Block]
"""Function from a block, None for a new one, and its new value to the new block."""


# --- values ---------------------------------------------------------------------------------------


def as_dict(item: Any, expected: str) -> Any:
    """Return *item* as a dict, also if it is an object of a vendor's SDK.

    Raises `FormatError` for anything but an object; the message names what was *expected*.
    """
    if isinstance(item, dict):
        return item
    if isinstance(item, Mapping):
        return dict(item)
    if hasattr(item, "model_dump"):
        return item.model_dump(mode="json", exclude_none=True)
    raise FormatError(f"{expected} is an object, not {describe_type(item)}")


def is_object(item: Any) -> bool:
    """Return whether *item* is a JSON object or an object of a vendor's SDK."""
    return isinstance(item, Mapping) or hasattr(item, "model_dump")


def with_reasoning(item: Any, latest: Any) -> Any:
    """Return a new turn with an empty reasoning field if *latest*, an existing turn, has the field,
    else *item* itself. An API that requires it requires it in every turn (DS-1)."""
    has = is_object(latest) and isinstance(as_dict(latest, "an entry").get(REASONING), str)
    return {**item, REASONING: item.get(REASONING, "")} if has and is_object(item) else item


def as_list(value: Any) -> Sequence[Any]:
    """Return *value* if it is a list or tuple, else an empty one."""
    return value if isinstance(value, LIST) else ()


def describe_type(value: Any) -> str:
    """Return the JSON name of a value's type, for error messages."""
    names = {
        str: "a string",
        bool: "a boolean",
        int: "a number",
        float: "a number",
        list: "a list",
        dict: "an object",
    }
    return "null" if value is None else names.get(type(value), f"a Python {type(value).__name__}")


def describe_misfit(entries: Sequence[Any]) -> str:
    """Return why no format fits: an entry that is not an object, or the fields of the first
    entry."""
    for at, entry in enumerate(entries):
        if not is_object(entry):
            return f"entry {at} is {describe_type(entry)}"
    fields = as_dict(entries[0], "an entry")
    return f"entry 0 has the fields {', '.join(map(repr, list(fields)[:8]))}"


def intern_text(word: str) -> str:
    """Intern a role, name or id, which parsing would otherwise duplicate."""
    return intern(word) if type(word) is str else word


def expect_text(value: Any) -> str:
    """Return *value* if it is a string, else raise `TypeError`, so that the block is carried."""
    if not isinstance(value, str):
        raise TypeError(describe_type(value))
    return value


def as_base64(data: Any) -> str:
    """Return embedded data, bytes or base64, as base64. Raise `TypeError` if it is neither."""
    return b64encode(data).decode("ascii") if isinstance(data, bytes) else expect_text(data)


def expect_name(value: Any) -> str:
    """Return a name or id, interned. Raise `TypeError` if it is not a string."""
    return intern(value) if type(value) is str else expect_text(value)


def rate_entries(entries: Iterable[Any], rate: Callable[[JsonObject], int | None]) -> int:
    """Return 1 plus the sum of *rate* for all entries, which are objects.

    It is 0 if *rate* returns None for an entry, which cannot be of the format, or an entry is no
    object.
    """
    score = 1
    for entry in entries:
        points = rate(as_dict(entry, "an entry")) if is_object(entry) else None
        if points is None:
            return 0
        score += points
    return score


# --- reading --------------------------------------------------------------------------------------


def as_opaque(
    block: Block, moved: Iterable[str] = ("cache_control",), opens: Any = "", closes: Any = ""
) -> Opaque:
    """Carry an unknown block as an opaque part, without the fields that clients move each turn."""
    kind = block.get("type") if isinstance(block, dict) else None
    if isinstance(block, dict):
        block = {key: value for key, value in block.items() if key not in moved}
    text = canonicalize(block)
    if '"cache_control"' in text:
        text = canonicalize(_without_marks(json.loads(text)))
    return Opaque(
        kind if isinstance(kind, str) else "unknown",
        text,
        opens if isinstance(opens, str) else "",
        closes if isinstance(closes, str) else "",
    )


def _without_marks(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_marks(item) for key, item in value.items() if key != "cache_control"}
    return [_without_marks(item) for item in value] if isinstance(value, list) else value


def block_reader(read: Read, carry: Callable[[Block], Opaque] = as_opaque) -> Read:
    """Return a function that reads one block; a string becomes a text.

    *read* gets an object. If it returns None, or raises `KeyError`, `TypeError` or `AttributeError`
    because of an unexpected shape, the block is carried.
    """

    def read_block(block: Block) -> Part:
        if type(block) is not dict:
            if isinstance(block, str):
                return Text(block)
            if not is_object(block):
                return carry(block)
            block = as_dict(block, "a block")
        try:
            return read(block) or carry(block)
        except (KeyError, TypeError, AttributeError):
            plain = _with_plain_fields(block)
            return carry(block) if plain is block else read_block(plain)

    return read_block


def _with_plain_fields(block: JsonObject) -> JsonObject:
    """Convert SDK objects in the fields of a block, such as the `function` of a call, to dicts. The
    same block is returned if there are none."""
    objects = {key: value for key, value in block.items() if hasattr(value, "model_dump")}
    plain = {key: as_dict(value, "a field") for key, value in objects.items()}
    return {**block, **plain} if plain else block


def content_reader(read: Read, carry: Callable[[Block], Opaque] = as_opaque) -> Read:
    """Return a function that reads a block in a result: calls and thinking are opaque there."""

    def read_content_block(block: Block) -> Content:
        part = read(block)
        return part if isinstance(part, _CONTENT) else carry(block)

    return read_content_block


_CONTENT = (Text, Media, Opaque)


def read_content(value: Any, read: Read) -> tuple[Any, ...]:
    """Read content that is a string, a list of blocks or null.

    A string is one text part, and an empty one no part, so that equivalent spellings are equal. Any
    other value is one opaque part.
    """
    if isinstance(value, str):
        return (Text(value),) if value else ()
    if isinstance(value, LIST):
        return tuple([read(block) for block in value])
    return () if value is None else (as_opaque(value),)


# --- writing --------------------------------------------------------------------------------------


def write_content(value: Any, new: Sequence[Part], read: Read, write: Write) -> Any:
    """Update the content *value* to the parts *new*.

    A string stays a string if one text suffices, a list stays a list, and a block whose part is
    unchanged stays the same object.
    """
    old = read_content(value, read)
    if old == tuple(new):
        return value
    if not isinstance(value, LIST):
        if len(new) <= 1 and all(isinstance(part, Text) for part in new):
            return new[0].text if new else ""  # type: ignore[union-attr]  # a Text, as checked
        value = [write(None, part) for part in old]
    return write_blocks(value, old, new, write)


def write_blocks(
    blocks: Sequence[Block], old: Sequence[Part], new: Sequence[Part], write: Write
) -> list[Block]:
    """Return *blocks*, whose parts are *old*, updated to the parts *new*."""
    out = []
    for at, part in zip(align(old, new), new, strict=True):
        block = None if at is None else blocks[at]
        out.append(block if at is not None and old[at] == part else write(block, part))
    return out


def join_contents(first: Any, second: Any, write: Write) -> list[Block]:
    """Return the blocks of two contents in order; a string becomes a text block."""
    out = list[Block]()
    for content in (first, second):
        is_text = isinstance(content, str) and content
        out += [write(None, Text(content))] if is_text else as_list(content)
    return out


def block_fields(block: Block) -> JsonObject:
    """Return the fields of a block; empty if it is not an object."""
    return _with_plain_fields(as_dict(block, "a block")) if is_object(block) else {}


def write_part(block: Block | None, part: Part, name: str) -> Block:
    """Write a part that is the same in all formats: a text or a carried part.

    Raises `FormatError` for other parts; *name* is the kind of entry that cannot hold them.
    """
    match part:
        case Text(text):
            return {**(block_fields(block) or {"type": "text"}), "text": text}
        case Opaque():
            return parse_or_text(part.json)
        case Media(kind):
            raise FormatError(f"the bytes of an embedded {kind} are only in its original entry")
    raise FormatError(f"{name} cannot hold this {type(part).__name__}")


def is_link(media: Media) -> bool:
    """Return whether media has a web URL, which can be written anywhere."""
    return media.ref.startswith(("http://", "https://"))


def align(old: Sequence[Part], new: Sequence[Part]) -> list[int | None]:
    """Return for each new part the index of the old part that it is or replaces, or None. Indexes
    rise."""
    if len(old) == len(new) and all(map(_is_akin, old, new)):
        return list(range(len(old)))
    at, unchanged, out = 0, set(new), list[int | None]()
    for part in new:
        rest = range(at, len(old))
        akin = (k for k in rest if _is_akin(old[k], part) and old[k] not in unchanged)
        match = next((k for k in rest if old[k] == part), None)
        match = next(akin, None) if match is None else match
        at = at if match is None else match + 1
        out.append(match)
    return out


def pair_with_old(
    blocks: Sequence[Block], old: Sequence[Part], new: Sequence[Part]
) -> list[tuple[Any, Part]]:
    """Return each new part with the block of the old part that it is or replaces, or None."""
    places = zip(align(old, new), new, strict=True)
    return [(None if at is None else blocks[at], part) for at, part in places]


def _is_akin(old: Part, new: Part) -> bool:
    """Return whether *old* may have become *new*. A call without id may have got one (DS-2)."""
    return type(old) is type(new) and getattr(old, "id", "") in ("", getattr(new, "id", ""))


def parse_arguments(call: ToolCall) -> Any:
    """Return a call's arguments as the object that an API requires; others under `arguments`."""
    value = parse_or_text(call.arguments)
    return value if isinstance(value, dict) else {"arguments": value}


# --- calls without ids (Gemini, legacy function calls) --------------------------------------------


def _open_calls(prior: Sequence[Message]) -> list[ToolCall]:
    """Return the unanswered calls of the last turn."""
    answered: set[str] = set()
    for message in reversed(prior):
        calls = [part for part in message.parts if isinstance(part, ToolCall)]
        if calls:
            return [call for call in calls if call.id not in answered]
        if not message.results or any(name.startswith("?") for name in message.results):
            return []
        answered.update(message.results)
    return []


def match_results(results: Sequence[ToolResult], prior: Sequence[Message]) -> list[str]:
    """Return the id of the call that each result answers.

    That is the first open call of its name, else the first remaining one. An unmatched result gets
    an id that begins with `?`.
    """
    calls = _open_calls(prior)
    ids: list[str] = []
    for result in results:
        call = next((call for call in calls if call.name == result.name), None)
        if call is not None:
            calls.remove(call)
        ids.append(call.id if call is not None else "")
    return [id or (calls.pop(0).id if calls else f"?{len(prior)}.{n}") for n, id in enumerate(ids)]


# --- images, sound and documents ------------------------------------------------------------------

_STANDARD = str.maketrans("-_", "+/", " \t\r\n=")
_SEGMENTS = 200
"""Maximum number of JPEG segments read; real files have a dozen before the frame header."""


def read_media(kind: str, mime: str, data: str | None, url: str | None) -> Media:
    """Read a media part from base64 *data* or a *url* (https, `data:`, or a file id).

    *ref* is the URL, or `blake2b:` and a hash of the base64 text in normal form (standard alphabet,
    no padding, no line breaks), so that re-encoded data has the same name. Width and height
    (pixels) are read from PNG, JPEG, GIF and WebP headers; size is in bytes. Only a few header
    bytes are decoded, and no input raises.
    """
    for text in (data, url):
        if isinstance(text, str) and text[:5].lower() == "data:":
            head, _, data = text.partition(",")
            mime, url = mime or head[5:].partition(";")[0], None
    if not isinstance(data, str) or not data:
        return Media(kind, mime, url if isinstance(url, str) else "")
    plain = data.translate(_STANDARD)
    width, height = _dimensions(plain)
    digest = blake2b(plain.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return Media(kind, mime, f"blake2b:{digest}", width, height, len(plain) * 3 // 4)


def kind_of_mime(mime: str) -> str:
    """Return the kind of `Media` for a MIME type: image, audio, video, else document."""
    family = mime.partition("/")[0]
    return family if family in ("image", "audio", "video") else "document"


def _decode_range(plain: str, start: int, stop: int) -> bytes:
    """Decode only the bytes *start* to *stop*; fewer at the end or for invalid data."""
    first = start // 3 * 4
    text = plain[first : (stop + 2) // 3 * 4]
    if len(text) % 4 == 1:
        text = text[:-1]
    try:
        return b64decode(text + "=" * (-len(text) % 4), validate=True)[
            start % 3 : start % 3 + stop - start
        ]
    except (binascii.Error, ValueError):
        return b""


def _dimensions(plain: str) -> tuple[int, int]:
    """Return width and height in pixels; (0, 0) if the header is not readable."""
    head = _decode_range(plain, 0, 30)
    if head[:8] == b"\x89PNG\r\n\x1a\n" and len(head) >= 24:
        return _big(head[16:20]), _big(head[20:24])
    if head[:6] in {b"GIF87a", b"GIF89a"} and len(head) >= 10:
        return _little(head[6:8]), _little(head[8:10])
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP" and len(head) == 30:
        return _webp(head)
    if head[:3] == b"\xff\xd8\xff":
        return next(_jpeg_frames(plain), (0, 0))
    return 0, 0


def _webp(head: bytes) -> tuple[int, int]:
    match head[12:16]:
        case b"VP8X":
            return _little(head[24:27]) + 1, _little(head[27:30]) + 1
        case b"VP8L":
            bits = _little(head[21:25])
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8 ":
            return _little(head[26:28]) & 0x3FFF, _little(head[28:30]) & 0x3FFF
    return 0, 0


def _jpeg_frames(plain: str) -> Iterator[tuple[int, int]]:
    """Yield width and height of the first frame, if there is one. Segment lengths are followed, so
    embedded thumbnails are skipped."""
    at = 2
    for _ in range(_SEGMENTS):
        segment = _decode_range(plain, at, at + 9)
        if len(segment) < 9 or segment[0] != 0xFF:
            return
        marker = segment[1]
        if marker == 0xFF:  # fill byte
            at += 1
        elif 0xC0 <= marker <= 0xCF and marker not in {0xC4, 0xC8, 0xCC}:
            yield _big(segment[7:9]), _big(segment[5:7])
            return
        else:
            at += 2 + _big(segment[2:4])


def _big(data: bytes) -> int:
    return int.from_bytes(data, "big")


def _little(data: bytes) -> int:
    return int.from_bytes(data, "little")
