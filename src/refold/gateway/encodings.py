"""Content codings, read on the side: what goes through is never recompressed."""

import zlib
from collections.abc import Callable
from typing import Any

try:
    import zstandard
except ImportError:  # without the extra `zst` such bodies pass through unread
    zstandard = None  # type: ignore[assignment]
try:
    import brotli  # type: ignore[import-untyped]
except ImportError:  # likewise
    brotli = None

Decoder = Callable[[bytes], bytes]

PARTS = 10_000
"""Members of gzip, or frames of zstd, that a body may consist of."""
STEP = 16 * 1024
"""Bytes that are read at a time. What is behind the end of a part is copied, so it should not be much."""
ZSTD_STEP = 1024
"""Likewise of zstd, which is not told how much may come out: at most 32 MiB of so many bytes."""


def decoder(encoding: str) -> Decoder | None:
    """What turns the pieces of a body into plain bytes; None for a coding that cannot be read here."""
    match encoding.strip().lower():
        case "" | "identity":
            return bytes
        case "gzip" | "x-gzip":
            return _continued(_gzip)
        case "deflate":
            return zlib.decompressobj().decompress
        case "zstd" if zstandard is not None:
            return _continued(_zstd)
        case "br" if brotli is not None:
            return _typed(brotli.Decompressor().process)
    return None


def decoded(body: bytes, encoding: str, limit: int) -> bytes | None:
    """*body* in plain bytes, the very object where no coding is named; None where the coding is unknown,
    the data is broken, cut short or more than a body, or more than *limit* bytes come out."""
    if not encoding or encoding.strip().lower() in {"", "identity"}:
        return body
    try:
        match encoding.strip().lower():
            case "gzip" | "x-gzip":
                return _whole(body, limit, _gzip)
            case "deflate":
                return _whole(body, limit, zlib.decompressobj, most=1)
            case "zstd" if zstandard is not None:
                return _whole(body, limit, _zstd, step=ZSTD_STEP)
    except Exception:  # noqa: BLE001 - broken data, in the words of several libraries
        return None
    return None


def _gzip() -> Any:
    return zlib.decompressobj(wbits=31)


def _zstd() -> Any:
    return zstandard.ZstdDecompressor().decompressobj()


def _whole(body: bytes, limit: int, part: Callable[[], Any], most: int = PARTS, step: int = STEP) -> bytes | None:
    """What all parts of *body* hold together; there may be *most*. Zeros behind the last are filling."""
    pieces, at, room = list[bytes](), 0, limit
    for _ in range(most):
        reader = part()
        while not reader.eof:
            piece = body[at : at + step]
            plain = reader.decompress(piece) if part is _zstd else reader.decompress(piece, room + 1)
            pieces.append(plain)
            at, room = at + len(piece) - len(reader.unused_data), room - len(plain)
            if not piece or room < 0:
                return None
        if at == len(body) or (not body[at] and not body[at:].strip(b"\0")):
            return b"".join(pieces)
    return None


def _continued(part: Callable[[], Any]) -> Decoder:
    """Reads one part after the other, as they come."""
    reader = part()

    def read(piece: bytes) -> bytes:
        nonlocal reader
        pieces = list[bytes]()
        while piece:
            if reader.eof:
                reader = part()
            pieces.append(reader.decompress(piece))
            piece = reader.unused_data.lstrip(b"\0")
        return b"".join(pieces)

    return read


def _typed(function: Any) -> Decoder:
    return lambda piece: bytes(function(piece))
