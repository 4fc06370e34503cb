"""Reasoning that a model put into its text, taken out."""

import re

_TAGS = r"(?:think|thinking|thought|thoughts|reasoning)"
_LEADING = re.compile(rf"\s*<({_TAGS})>.*?(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE)
_HEADLESS = re.compile(rf".*?^\s*</{_TAGS}>[ \t]*(?:\n|\Z)", re.DOTALL | re.IGNORECASE | re.MULTILINE)
_OPENING = re.compile(rf"<{_TAGS}>", re.IGNORECASE)


def unthought(text: str) -> str:
    """*text* without the reasoning that it begins with: `<think>…</think>`, such a block that never
    closes (then nothing is left), or one whose opening tag the chat template swallowed. Tags further
    down, as in a summary that speaks of them, stay. Without reasoning the text comes back as it is."""
    rest = text
    while found := _LEADING.match(rest):
        rest = rest[found.end() :]
    if rest is text and (found := _HEADLESS.match(text)) and not _OPENING.search(found[0]):
        rest = text[found.end() :]
    return text if rest is text else rest.strip()
