"""What an error says itself, without what it quotes: a request's text stands in many an error of the request."""

import json
import re
from collections.abc import Iterator
from typing import Any

MAX_SENTENCE = 20_000
"""Characters of one sentence that are looked at."""
MAX_DEPTH = 8
"""Levels of an error that are looked at."""

_HOLDERS = ("error", "errors", "detail", "details", "metadata")
_FIELDS = ("message", "Message", "msg", "code", "type", "status", "title", "error_type", "raw")
"""Where providers, and servers between them and us, say what is wrong. In `raw` OpenRouter hands on the provider's own words."""
_COUNTS = ("n_prompt_tokens", "n_ctx")
"""Where llama.cpp says how long the request is and the context."""

_QUOTED = re.compile(
    r"""(?<!\w)(?:(?P<mark>['"`])(?:\\.|(?!(?P=mark)(?!\w)).)*(?:(?P=mark)|\Z)|“[^”]*(?:”|\Z)|‘[^’]*(?:’|\Z))""",
    re.DOTALL,
)
"""Text in quotation marks, to the end where it was cut off. An apostrophe within a word is none."""
_NAMED = re.compile(rf"""['"](?:{"|".join(("error", "detail", *_FIELDS))})\\?['"]\s*:\s*b?\Z""")
"""What stands before the value of such a field, where an error is handed on within a sentence."""
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def error_sentences(body: bytes) -> str:
    """The sentences and codes of an error's body, each without what it quotes, one a line; and `n_ctx=8192` and the like."""
    return "\n".join(_sentences_of_text(body.decode("utf-8", "replace"), MAX_DEPTH))


def strip_quotes(text: str, depth: int = MAX_DEPTH) -> str:
    """*text* with nothing between its quotation marks, but for the fields of an error that is handed on in it
    (`upstream said {"error": {"message": "prompt is too long"}}`)."""
    pieces, end = list[str](), 0
    for found in _QUOTED.finditer(text):
        pieces.append(text[end : found.start()])
        end = found.end()
        if depth and _NAMED.search(text, max(0, found.start() - 20), found.start()):
            pieces.append(strip_quotes(_ESCAPED.sub(r"\1", found[0][1:-1]), depth - 1))
        else:
            pieces.append("''")
    return "".join((*pieces, text[end:]))


def _sentences_of_text(text: str, depth: int) -> Iterator[str]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        yield strip_quotes(text[:MAX_SENTENCE], depth)
    else:
        yield from _sentences_of_json(value, depth)


def _sentences_of_json(value: Any, depth: int) -> Iterator[str]:
    """What an error in JSON says, outermost first."""
    if not depth:
        return
    if isinstance(value, str):
        yield from (
            _sentences_of_text(value, depth - 1)
            if value.startswith("{")
            else (strip_quotes(value[:MAX_SENTENCE], depth),)
        )
    elif isinstance(value, list):
        for one in value:
            yield from _sentences_of_json(one, depth - 1)
    elif isinstance(value, dict):
        for name in (*_FIELDS, *_HOLDERS):
            if name in value:
                yield from _sentences_of_json(value[name], depth - 1)
        yield from (f"{name}={value[name]}" for name in _COUNTS if type(value.get(name)) is int)
