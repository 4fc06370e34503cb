"""The field `model` of a body, read without parsing the other fields."""

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.json import Decoder

from refold.gateway.http.request import parse_object

MAX_PARSED_BYTES = 1024 * 1024
"""Maximum size of a body to be parsed if it is no strict JSON."""


class _NamedModel(Struct):
    model: Any = None


_decoder = Decoder(_NamedModel)


def read_model_field(text: bytes | None) -> Mapping[str, Any]:
    """Return an object with the field `model` of that in a JSON text; an empty one if there is
    none. Other fields are skipped: parsing a large body holds up all requests for seconds."""
    text = (text or b"").removeprefix(b"\xef\xbb\xbf")
    for source in _spellings(text):
        try:
            return {"model": _decoder.decode(source).model}
        except (ValueError, RecursionError):
            continue
    return parse_object(text) if len(text) <= MAX_PARSED_BYTES else {}


def _spellings(text: bytes) -> Iterator[bytes]:
    """Yield *text*, and *text* with other characters for surrogates: msgspec refuses lone ones."""
    yield text
    yield text.replace(b"\\ud", b"\\u0").replace(b"\\uD", b"\\u0")
