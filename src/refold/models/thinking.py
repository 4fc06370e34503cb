"""Reasoning that a model put into its text, taken out."""

import re

_TAGS = r"(?:think|thinking|thought|thoughts|reasoning)"
_LEADING = re.compile(rf"\s*+<({_TAGS})>.*?(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE)
_HEADLESS = re.compile(rf"^[^\S\n]*+</{_TAGS}>[ \t]*+(?:\n|\Z)", re.IGNORECASE | re.MULTILINE)
"""A closing tag alone on its line."""
_OPENING = re.compile(rf"<{_TAGS}>", re.IGNORECASE)


def unthought(text: str) -> str:
    """*text* without the reasoning that it begins with: `<think>…</think>`, such a block that never
    closes (then nothing is left), or one whose opening tag the chat template swallowed. Tags further
    down, as in a summary that speaks of them, stay. Without reasoning the text comes back as it is."""
    at = 0
    while found := _LEADING.match(text, at):
        at = found.end()
    if at == 0 and (found := _HEADLESS.search(text)) and not _OPENING.search(text, 0, found.end()):
        at = found.end()
    return text[at:].strip() if at else text
