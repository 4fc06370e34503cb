"""Media values: equal content has one name, sizes come from headers, and no input raises."""

import base64
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.codecs.blocks import read_media
from refold.messages import Media


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def png(width: int, height: int) -> bytes:
    body = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + body + struct.pack(">I", zlib.crc32(body))


def jpeg(width: int, height: int, before: bytes = b"") -> bytes:
    exif = b"\xff\xe1" + struct.pack(">H", len(before) + 2) + before
    frame = b"\xff\xc2" + struct.pack(">HBHHB", 17, 8, height, width, 3) + bytes(9)
    return b"\xff\xd8" + exif + b"\xff" + frame + b"\xff\xd9"


def webp(chunk: bytes) -> bytes:
    return b"RIFF" + struct.pack("<I", len(chunk) + 4) + b"WEBP" + chunk + bytes(20)


LOSSY = (
    b"VP8 "
    + struct.pack("<I", 10)
    + b"\x00\x00\x00\x9d\x01\x2a"
    + struct.pack("<HH", 640 | 1 << 14, 480)
)
LOSSLESS = b"VP8L" + struct.pack("<IBI", 5, 0x2F, 639 | 479 << 14)
EXTENDED = (
    b"VP8X" + struct.pack("<II", 10, 0) + (639).to_bytes(3, "little") + (479).to_bytes(3, "little")
)


@pytest.mark.parametrize(
    "data",
    [
        png(640, 480),
        png(640, 480) + bytes(100_000),
        b"GIF89a" + struct.pack("<HH", 640, 480) + bytes(9),
        b"GIF87a" + struct.pack("<HH", 640, 480),
        jpeg(640, 480),
        jpeg(640, 480, before=jpeg(160, 120) + bytes(60_000)),
        webp(LOSSY),
        webp(LOSSLESS),
        webp(EXTENDED),
    ],
    ids=[
        "png",
        "long png",
        "gif89",
        "gif87",
        "jpeg",
        "jpeg with a thumbnail",
        "lossy",
        "lossless",
        "extended",
    ],
)
def test_the_image_size_is_read_from_the_header(data):
    part = read_media("image", "image/x", b64(data), None)
    assert (part.width, part.height) == (640, 480)
    assert part.size == len(data)


@given(st.binary(min_size=1, max_size=300))
def test_every_base64_spelling_of_the_same_bytes_gives_one_reference(data):
    standard, safe = b64(data), base64.urlsafe_b64encode(data).decode()
    spellings = [
        standard,
        standard.rstrip("="),
        safe,
        safe.rstrip("="),
        base64.encodebytes(data).decode(),
    ]
    parts = {read_media("image", "image/png", text, None) for text in spellings}
    assert len(parts) == 1
    assert parts.pop().size == len(data)


def test_different_bytes_have_different_references():
    assert (
        read_media("image", "", b64(b"one"), None).ref
        != read_media("image", "", b64(b"two"), None).ref
    )


def test_a_data_url_is_read_as_the_data_in_it():
    data = b64(png(3, 4))
    expected = read_media("image", "image/png", data, None)
    assert read_media("image", "", None, f"data:image/png;base64,{data}") == expected
    assert read_media("image", "", f"data:image/png;base64,{data}", None) == expected


def test_a_url_or_file_id_is_used_as_the_reference():
    url = "https://example.org/a.png"
    assert read_media("image", "image/png", None, url) == Media("image", "image/png", url)
    assert read_media("document", "", None, None) == Media("document")
    assert read_media("document", "", "", "file-123").ref == "file-123"


@given(
    st.sampled_from([b"\x89PNG\r\n\x1a\n", b"GIF89a", b"\xff\xd8\xff", b"RIFF....WEBPVP8 ", b""]),
    st.binary(max_size=80),
)
def test_truncated_or_invalid_headers_do_not_raise(start, rest):
    part = read_media("image", "", b64(start + rest), None)
    assert part.width >= 0
    assert part.height >= 0


@given(st.text())
def test_text_that_is_not_base64_does_not_raise(text):
    assert read_media("image", "", text, None).kind == "image"


def test_lone_surrogates_and_other_types_do_not_raise():
    assert read_media("image", "", "\ud800", None).ref.startswith("blake2b:")
    assert read_media("image", "", 3, ["x"]).ref == ""


def test_a_jpeg_without_a_frame_header_has_no_size():
    assert read_media("image", "", b64(b"\xff\xd8\xff" + b"\xff" * 100_000), None).width == 0
