"""Images, sound and documents: named by a hash of their data, measured by their headers."""

import binascii
from base64 import b64decode
from collections.abc import Iterator
from hashlib import blake2b

from refold.messages import Media

_STANDARD = str.maketrans("-_", "+/", " \t\r\n=")
_SEGMENTS = 200
"""JPEG segments looked at before giving up; real files have a dozen before the frame header."""


def read_media(kind: str, mime: str, data: str | None, url: str | None) -> Media:
    """Read a media part from base64 *data* or a *url* (https, `data:`, or a file id).

    *ref* is the URL, or `blake2b:` and the hash of the base64 text in one spelling (standard
    alphabet, no padding, no line breaks), so that clients which re-encode name the same bytes.
    Width and height (pixels) are read from PNG, JPEG, GIF and WebP headers; size is in bytes.
    Nothing but a few header bytes is decoded, and no input raises.
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
    """Return the kind of a `Media` by its MIME type: what is no image, sound or video is a
    document."""
    family = mime.partition("/")[0]
    return family if family in ("image", "audio", "video") else "document"


def _decode_range(plain: str, start: int, stop: int) -> bytes:
    """Decode bytes *start* to *stop* and nothing else; fewer at the end or in garbage."""
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
    """Return width and height in pixels; (0, 0) when the header says nothing we can read."""
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
    """Yield sizes of frames; a segment says its length, so embedded thumbnails are skipped."""
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
