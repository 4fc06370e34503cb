"""Searching what edits have hidden."""

from typing import NamedTuple

from refold.hidden import hidden as hidden_in
from refold.readable import readable
from refold.recalling.index import Index
from refold.recalling.snippets import snippet
from refold.terms import folded
from refold.view import View


class Hit(NamedTuple):
    """A hidden message that a query found."""

    edit: str
    """Short id of the edit that hides it: `view.unfold` takes it."""
    position: int
    """Of the message in the transcript."""
    role: str
    snippet: str
    """The part of it that holds most of the query, on one line."""
    score: float
    """Higher is better; comparable within one search only."""


def recall(view: View, query: str, limit: int = 10, *, index: Index | None = None, width: int = 240) -> tuple[Hit, ...]:
    """The *limit* best of the messages that the edits of *view* hide and that hold words of *query*.

    Best are those that hold the query as it stands, then by BM25; of equal ones the later. Chinese, Japanese and
    Korean words of any length are found. A query without letters or digits, or whose words stand nowhere, is
    looked for as a string. *width* is the length of a snippet in characters. With an *index* that is
    kept, a search costs only what has been hidden since the one before; without, one is made for
    this search. Nothing in *query* is syntax. Raises `StoreError` when the index's file fails.
    """
    hidden = hidden_in(view)
    if not hidden or not query.strip() or limit <= 0:
        return ()
    if index is None:
        with Index() as own:
            found = _found(view, hidden, query, own)
    else:
        found = _found(view, hidden, query, index)
    best = sorted(found.items(), key=lambda one: (-one[1], -one[0]))[:limit]
    return tuple(_hit(view, at, hidden[at], query, score, width) for at, score in best)


def _hit(view: View, at: int, edit: str, query: str, score: float, width: int) -> Hit:
    message = view.transcript.messages[at]
    return Hit(edit, at, message.role, snippet(readable(message), query, width), score)


def _found(view: View, hidden: dict[int, str], query: str, index: Index) -> dict[int, float]:
    said = view.transcript
    index.add(said, max(hidden) + 1)
    found = index.find({said.tips[at + 1]: at for at in hidden}, query)
    return {at: round(score, 6) for at, score in found.items()} or _scan(view, hidden, query)


def _scan(view: View, hidden: dict[int, str], query: str) -> dict[int, float]:
    """Hidden messages that hold the query as a string, however it is made up."""
    wanted = folded(query).strip()
    said = view.transcript.messages
    return {at: 1.0 for at in hidden if wanted in folded(readable(said[at]))}
