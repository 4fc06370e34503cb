"""Exact text counters, offline: the extra `exact`. Imported on demand, never by `import refold`."""

import re
from collections.abc import Callable
from functools import partial
from importlib import import_module
from itertools import pairwise
from typing import Any

from refold.errors import RefoldError, install_hint

CHUNK = 100_000
"""Characters given to an encoder at once. Both recurse or panic on a million of one character."""

_SEAM = re.compile(r"\n(?=[A-Za-z])")
"""Where a text can be cut without changing its count in any byte-pair vocabulary: between a line
end and a letter."""


def exact(vocabulary: str = "o200k_base") -> Callable[[str], int]:
    """Return a counter of texts that is exact for *vocabulary*; for `refold.tokens.count.counter`.

    splintr-rs carries its vocabularies in the package (o200k_base, cl100k_base, llama3, qwen3,
    deepseek_v3, glm4, kimi_k2, mistral_v3, gemma3, ...) and needs no network. tiktoken serves the
    names splintr does not know, if its own file is on the machine already. Special tokens spelled
    in a text count as the text they are; lone surrogates as U+FFFD. Texts above 100,000
    characters are counted in pieces, cut where no token crosses; inside a run of more than 100,000
    characters without a line that begins with a letter, a token more per cut is possible.

    Raises `RefoldError` when neither package is installed or neither knows *vocabulary*.
    """
    tried: list[str] = []
    for load in (_splintr, _tiktoken):
        try:
            return partial(_count, load(vocabulary))
        except ImportError as error:
            tried.append(f"{error.name} is not installed")
        except Exception as error:  # noqa: BLE001 - each loader has errors of its own
            tried.append(f"{load.__name__.strip('_')}: {error}")
    raise RefoldError(
        f"no exact counter for {vocabulary!r} ({'; '.join(tried)}); "
        f"{install_hint('exact')}, which brings splintr-rs with its vocabularies"
    )


def _splintr(vocabulary: str) -> Callable[[str], list[int]]:
    encode: Callable[[str], list[int]] = (
        import_module("splintr").Tokenizer.from_pretrained(vocabulary).encode_ordinary
    )
    return encode


def _tiktoken(vocabulary: str) -> Callable[[str], list[int]]:
    encoding: Any = import_module("tiktoken").get_encoding(vocabulary)
    encode: Callable[[str], list[int]] = encoding.encode_ordinary
    return encode


def _count(encode: Callable[[str], list[int]], text: str) -> int:
    clean = (
        text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        if _has_surrogates(text)
        else text
    )
    return sum(len(encode(clean[start:stop])) for start, stop in pairwise(_cuts(clean)))


def _has_surrogates(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _cuts(text: str) -> list[int]:
    """Return positions that part *text* into pieces of at most about CHUNK characters."""
    cuts = [0]
    while len(text) - cuts[-1] > CHUNK:
        limit = cuts[-1] + CHUNK
        seam = _last(text, limit - CHUNK // 4, limit)
        cuts.append(seam or limit)
    return [*cuts, len(text)]


def _last(text: str, start: int, stop: int) -> int:
    """Return the last good seam in a stretch; 0 if it has none."""
    return max((match.end() for match in _SEAM.finditer(text, start, stop)), default=0)
