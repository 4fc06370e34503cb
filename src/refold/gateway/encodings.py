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


def decoder(encoding: str) -> Decoder | None:
    """What turns the pieces of a body into plain bytes; None for a coding that cannot be read here."""
    match encoding.strip().lower():
        case "" | "identity":
            return bytes
        case "gzip" | "x-gzip":
            return zlib.decompressobj(wbits=31).decompress
        case "deflate":
            return zlib.decompressobj().decompress
        case "zstd" if zstandard is not None:
            return _typed(zstandard.ZstdDecompressor().decompressobj().decompress)
        case "br" if brotli is not None:
            return _typed(brotli.Decompressor().process)
    return None


def decoded(body: bytes, encoding: str, limit: int) -> bytes | None:
    """*body* in plain bytes, the very object where no coding is named; None where the coding is unknown,
    the data is broken or cut short, or more than *limit* bytes come out."""
    if not encoding or encoding.strip().lower() in {"", "identity"}:
        return body
    try:
        match encoding.strip().lower():
            case "gzip" | "x-gzip":
                return _inflated(zlib.decompressobj(wbits=31), body, limit)
            case "deflate":
                return _inflated(zlib.decompressobj(), body, limit)
            case "zstd" if zstandard is not None:
                plain: bytes = zstandard.ZstdDecompressor().stream_reader(body).read(limit + 1)
                return plain if len(plain) <= limit else None
    except Exception:  # noqa: BLE001 - broken data, in the words of several libraries
        return None
    return None


def _inflated(inflater: Any, body: bytes, limit: int) -> bytes | None:
    plain: bytes = inflater.decompress(body, limit + 1)
    return plain if inflater.eof and len(plain) <= limit else None


def _typed(function: Any) -> Decoder:
    return lambda piece: bytes(function(piece))
