"""Words of a text as a full-text index can find them, in any script.

Chinese, Japanese and Korean have no spaces between words, and cutting them into words by a
dictionary loses those that it does not know. So a run of such characters becomes its pairs and its
last character: `全文检索` is `全文 文检 检索 索`. A word of two or more characters is then a phrase of
pairs, and a single character the beginning of a pair or the last term.
"""

import re
import unicodedata
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from refold.text.plain import without_escapes

LONGEST = 64
"""Characters of a term; what is longer is data, and is found by its beginning."""
ASKED = 2_000
"""Characters of a query that are looked at."""
ALTERNATIVES = 128
"""Words and pairs of a query that are looked for, the first ones."""

_CJK = (
    "\u3005-\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u312f\u31a0-\u31bf"
    "\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\U00020000-\U000323af"
)
_RUN = re.compile(rf"([{_CJK}]+)|([^\W_{_CJK}]+)")


class Run(NamedTuple):
    """Letters and digits in a row."""

    text: str
    dense: bool
    """Of a script without spaces between words."""


def fold(text: str) -> str:
    """Return *text* in one spelling for full and half width, upper and lower case."""
    return text.lower() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()


def runs(text: str) -> Iterator[Run]:
    """Yield the runs of letters and digits of a text, folded, without escape sequences."""
    for dense, word in _RUN.findall(fold(without_escapes(text))):
        yield Run(dense, dense=True) if dense else Run(word[:LONGEST], dense=False)


def terms(text: str) -> Iterator[str]:
    """Yield the terms under which a text is indexed, in order."""
    for run in runs(text):
        yield from _terms(run)


def phrase_query(text: str) -> str:
    """Return an FTS5 query for all terms of *text*, one after another; empty if it has none.

    No character of *text* reaches the syntax of the query: terms are letters and digits, in quotes.
    """
    *first, last = [*runs(text[:ASKED])] or [Run("", dense=False)]
    single = last.dense and len(last.text) == 1
    ending = _terms(last)[:-1] if last.dense and not single else [last.text]
    wanted = " ".join([*(term for run in first for term in _terms(run)), *ending])
    return f'"{wanted}"' + "*" * single if wanted else ""


def any_word_query(text: str) -> str:
    """Return an FTS5 query for any word of *text*.

    Its words as phrases, what they consist of, and what of them touches (`5月6日`: `5月`, `月6`,
    `6日`).
    """
    words = text[:ASKED].split()
    inner = (term for word in words for run in runs(word) for term in _inner(run))
    touching = (_touching(a, b) for w in words for a, b in pairwise(runs(w)))
    queries = dict.fromkeys(map(phrase_query, (*words, *inner, *touching)))
    return " OR ".join([query for query in queries if query][:ALTERNATIVES])


def _touching(before: Run, after: Run) -> str:
    if before.dense == after.dense:
        return ""
    return (before.text[-1:] if before.dense else before.text) + (
        after.text[:1] if after.dense else after.text
    )


def _inner(run: Run) -> list[str]:
    return _terms(run)[:-1] or [run.text] if run.dense else [run.text]


def _terms(run: Run) -> list[str]:
    return [*map("".join, pairwise(run.text)), run.text[-1]] if run.dense else [run.text]
