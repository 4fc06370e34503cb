"""What the user said, without what their client put into their mouth, and how often they said it."""

import re

from refold.messages import user
from refold.speakers import request_of

_TIMES = re.compile(r" \(×([1-9]\d{0,8})\)\Z")


def counted(text: str, times: int) -> str:
    """A request and how often it was made: `continue (×400)`. Once is not said, unless *text* itself ends like that."""
    return f"{text} (×{times})" if times > 1 or _TIMES.search(text) else text


def uncounted(text: str) -> tuple[str, int]:
    """A request and how often it was made, from what `counted` makes of it."""
    found = _TIMES.search(text)
    return (text[: found.start()], int(found[1])) if found else (text, 1)


def asked(text: str) -> str:
    """The user's own words: what a client put beside them is left out (conformance 40, F4; `refold.speakers`).
    Empty when nothing else is in it.
    """
    return request_of(user(text))
