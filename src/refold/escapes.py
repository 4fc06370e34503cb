"""Escape sequences of terminals: colours and cursor moves in what programs print, also where somebody wrote them out."""

import re

_ESCAPES = re.compile(
    r"(?:\x1b|\\(?:x1[bB]|u001[bB]|0?33|e))"
    r"(?:\[[0-?]{0,40}[ -/]{0,4}[@-~]|\][^\x07\x1b\\\n]*+(?:\x07|\x1b\\))"  # colours and moves; titles and links
    r"|\x9b[0-?]{0,40}[ -/]{0,4}[@-~]"  # the same in a character of its own
    r"|\x1b(?:[@-Z\\-_=>]|[()][0-9A-Z])"
    r"|\[\d{1,3}(?:;\d{1,3}){0,9}m(?!\])"
)


def without_escapes(text: str) -> str:
    r"""*text* without the escape sequences of terminals, so that `\x1b[31mError` says `Error` (F3).

    Those written out (`\u001b[31m`) go as well, and `[31m`, whose first character was lost on the way.
    """
    return _ESCAPES.sub("", text) if "[" in text or "\x1b" in text or "\x9b" in text else text
