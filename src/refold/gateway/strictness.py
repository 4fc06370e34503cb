"""Is a body the JSON of RFC 8259, which every provider reads alike? Python's own reader takes more than that."""

import json
import re
from typing import NoReturn

_MARK = b"\xef\xbb\xbf"
_SUSPECT = re.compile(rb"[\x00-\x1f]|NaN|Infinity|\\u[dD][89a-fA-F]")
"""What a body that is not strict has somewhere. Strict ones may have it too: white space, or in texts."""


def is_strict(source: bytes) -> bool:
    """Is *source* strict JSON in UTF-8: no mark before it, no NaN, no bare control characters, no half characters?

    Where nothing is suspect the bytes are looked over and not parsed.
    """
    try:
        text = source.decode()
    except UnicodeDecodeError:
        return False
    if source.startswith(_MARK):
        return False
    if _SUSPECT.search(source) is None:
        return True
    try:
        json.dumps(json.loads(text, parse_constant=_refuse), ensure_ascii=False).encode()
    except (ValueError, RecursionError):  # a half character is one that UTF-8 has no form for
        return False
    return True


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)
