"""Signed thinking that its provider takes to be of another conversation (AN-7): knowing the error, and finding the block.

It comes to that where thinking was made behind edits that are not known here: the caller has another key by now, or the
store was lost.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, NoReturn

from refold.core.view import View
from refold.gateway.policy.error_text import error_sentences
from refold.messages import Thinking

_BOUND_WORDS = "bound to a different conversation"
_INVALID_SIGNATURE = re.compile(r"invalid (?:''|signature) in (?:''|(?:redacted_)?thinking) block", re.IGNORECASE)
"""The same of older models, who say no more; the names stand in quotation marks."""
_PLACE = re.compile(r"messages\.(\d{1,9})\.content\.(\d{1,9})")
_KINDS = ("thinking", "redacted_thinking")


def is_thinking_refused(api: str, status: int, body: bytes) -> bool:
    """Does this reply of an upstream say that a signature does not belong where it stands?"""
    if api != "anthropic" or status != 400:
        return False
    said = error_sentences(body)
    return _BOUND_WORDS in said or (b"signature" in body and _INVALID_SIGNATURE.search(said) is not None)


def refused_block(sent: bytes, error: bytes) -> int:
    """Which block of thinking of the request *sent* the *error* names, from 0; 0 where it names none."""
    found = _PLACE.search(error_sentences(error))
    if found is None:
        return 0
    named = int(found[1]), int(found[2])
    return sum(place < named for place in _thinking_places(json.loads(sent)))


def block_position(view: View, place: int) -> int:
    """Where in the transcript the block of thinking stands that is shown as number *place*; 0 where there are not so many."""
    for item in view.iter_items():
        place -= sum(isinstance(part, Thinking) for message in item.messages for part in message.parts)
        if place < 0:
            return item.start
    return 0


def _thinking_places(body: Any) -> Iterator[tuple[int, int]]:
    for at, message in enumerate(body["messages"]):
        blocks = message["content"] if isinstance(message["content"], list) else ()
        yield from ((at, part) for part, block in enumerate(blocks) if block.get("type") in _KINDS)


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
