"""Search in hidden messages, by a full-text index.

The index identifies a message by the tip after it. So one file serves any number of conversations,
and messages that two branches share are indexed once. Only new messages take time. The file has no
texts, only the terms of each message.
"""

import os
import re
import sqlite3
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from refold.core.edit_stack import VisibleEdit
from refold.core.view import View
from refold.core.view_lines import speaker
from refold.messages import Message
from refold.speakers import segments
from refold.stores.schema import INDEX_ID
from refold.stores.sql import DatabaseClient
from refold.stores.sqlite import MAX_QUERY_CHARS, SQLiteDatabase, any_word_query, phrase_query
from refold.text.clip import ceiling, floor
from refold.text.plain import (
    fold,
    readable_text,
    runs,
    terms,
)
from refold.transcript import Transcript

# --- the index -------------------------------------------------------------------------------

TOKENIZER = "porter unicode61 remove_diacritics 2"
MIGRATIONS = (
    (
        "CREATE TABLE indexed (seq INTEGER PRIMARY KEY, tip TEXT NOT NULL UNIQUE)",
        f"CREATE VIRTUAL TABLE words USING fts5(terms, content='', tokenize='{TOKENIZER}')",
    ),
)
IS_INDEXED = "SELECT 1 FROM indexed WHERE tip = ?"
ADD_TIP = "INSERT OR IGNORE INTO indexed (tip) VALUES (?)"
ADD_TERMS = "INSERT INTO words (rowid, terms) VALUES (?, ?)"
FIND = (
    "SELECT indexed.tip, -bm25(words) FROM words "
    "JOIN indexed ON indexed.seq = words.rowid WHERE words MATCH ?"
)
PHRASE_BONUS = 10_000.0
"""Score bonus of a message that contains the query word for word: more than BM25 gives to all words
of the longest query."""
RELEVANT_SHARE = 0.3
"""Minimum score of a hit shown to people, as a share of the best."""


class Index(DatabaseClient):
    """A full-text index of messages, in the file at *path* or (`:memory:`) in memory.

    *timeout* is how many seconds to wait for other writers. Usable from several threads and
    processes. The file can be deleted at any time: it is rebuilt from the transcripts. Methods
    raise `StoreError` if it cannot be used.
    """

    _database: SQLiteDatabase

    def __init__(self, path: str | os.PathLike[str] = ":memory:", *, timeout: float = 30.0) -> None:
        super().__init__(SQLiteDatabase(os.fspath(path), timeout, "NORMAL", MIGRATIONS, INDEX_ID))
        self._database.open()

    def add(self, transcript: Transcript, stop: int | None = None) -> int:
        """Index the new messages of `messages[:stop]` (by default all) and return their number."""
        end = len(transcript) if stop is None else stop
        start = self._count_indexed(transcript, end)
        if start == end:
            return 0
        with self._database.transaction() as connection:
            return sum(_index_message(connection, transcript, at) for at in range(start, end))

    def find(self, hidden: Mapping[str, int], query: str) -> dict[int, float]:
        """Return the scores, by position, of the messages that contain any word of *query*, with
        `PHRASE_BONUS` for all of it word for word. *hidden* has the tips of the messages to search,
        each with its position."""
        scores = dict[int, float]()
        for wanted, bonus in ((any_word_query(query), 0.0), (phrase_query(query), PHRASE_BONUS)):
            for tip, score in self._matches(wanted):
                if (at := hidden.get(tip)) is not None:
                    scores[at] = (scores.get(at, 0.0) if bonus else score) + bonus
        return scores

    def _matches(self, wanted: str) -> list[tuple[str, float]]:
        if not wanted:
            return []
        with self._database.connection("read") as connection:
            return connection.execute(FIND, (wanted,)).fetchall()

    def _count_indexed(self, transcript: Transcript, end: int) -> int:
        """Return the number of indexed messages. If a tip is indexed, so are all before it."""
        low, high = 0, end
        with self._database.connection("read") as connection:
            while low < high:
                middle = (low + high + 1) // 2
                row = connection.execute(IS_INDEXED, (transcript.tips[middle],)).fetchone()
                low, high = (middle, high) if row else (low, middle - 1)
        return low


def _index_message(connection: sqlite3.Connection, transcript: Transcript, at: int) -> int:
    """Index one message unless another process has. Return 1 if it was new, else 0."""
    inserted = connection.execute(ADD_TIP, (transcript.tips[at + 1],))
    if inserted.rowcount:
        connection.execute(
            ADD_TERMS, (inserted.lastrowid, " ".join(terms(readable_text(transcript.messages[at]))))
        )
    return inserted.rowcount


# --- what is hidden --------------------------------------------------------------------------


def find_hidden(view: View) -> dict[int, str]:
    """Return the positions of hidden messages, each with the short id of the edit that hides it.

    A message that lost only its thinking is not hidden.
    """
    return {
        at: name
        for placed in view.visible_edits
        if not _still_shown(view, placed)
        for name in (placed.edit.id[:8],)
        for at in range(placed.edit.start, placed.edit.stop)
    }


def newly_hidden_positions(before: View | None, after: View) -> list[int]:
    """Return, in order, the positions that *after* hides and *before*, if given, does not."""
    hidden_before = find_hidden(before) if before is not None else {}
    return sorted(find_hidden(after).keys() - hidden_before.keys())


def _still_shown(view: View, placed: VisibleEdit) -> bool:
    """Return whether the edit replaces one message by one with all its readable text, if any."""
    edit = placed.edit
    if edit.stop - edit.start > 1 or len(edit.insert) != 1:
        return False
    return readable_text(view.transcript.messages[edit.start]) in readable_text(edit.insert[0])


MAX_PLACES = 2_000
"""Maximum number of matches compared in one text."""


def cut_snippet(text: str, query: str, width: int) -> str:
    """Cut *text* to *width* characters on one line, around the place with most of *query*.

    `…` marks omissions.
    """
    if len(text) <= width:
        return " ".join(text.split())
    start = max(0, min(_best_start(text, query, width) - width // 5, len(text) - width + 2))
    start = ceiling(text, start) if start else 0
    stop = floor(text, min(len(text), start + max(0, width - 2)))
    words = " ".join(text[start:stop].split())
    return f"{'…' * (start > 0)}{words}{'…' * (stop < len(text))}"[: max(0, width)]


def _best_start(text: str, query: str, width: int) -> int:
    """Return the start of the passage of *width* characters with the most distinct query words."""
    literal = text.lower().find(query.strip().lower())
    if literal >= 0:
        return min(literal, len(text) - 1)
    pattern = word_pattern(query)
    spans = (
        [
            (m.start(), m[0].lower())
            for m, _ in zip(pattern.finditer(text), range(MAX_PLACES), strict=False)
        ]
        if pattern
        else []
    )
    best, where, first, inside = 0, 0, 0, dict[str, int]()
    for at, word in spans:
        inside[word] = inside.get(word, 0) + 1
        while at - spans[first][0] > width * 3 // 5:
            gone = spans[first][1]
            inside[gone] -= 1
            if not inside[gone]:
                del inside[gone]
            first += 1
        worth = sum(map(len, inside))
        if worth > best:
            best, where = worth, spans[first][0]
    return where


def word_pattern(query: str) -> re.Pattern[str] | None:
    """Compile a pattern of the words of *query*, longest first, or return None without words."""
    words = {run.text for run in runs(query[:MAX_QUERY_CHARS])}
    pairs = {
        run.text[at : at + 2]
        for run in runs(query[:MAX_QUERY_CHARS])
        if run.dense
        for at in range(len(run.text) - 1)
    }
    wanted = sorted(words | pairs, key=lambda word: (-len(word), word))
    return re.compile("|".join(map(re.escape, wanted)), re.IGNORECASE) if wanted else None


class Hit(NamedTuple):
    """A hidden message that matches a query."""

    edit: str
    """Short id of the edit that hides it, as for `view.unfold`."""
    position: int
    """Position of the message in the transcript."""
    role: str
    """The role; `tool` for pure tool output, `tool and user` for results with other content."""
    snippet: str
    """The part of the message with most of the query, on one line."""
    score: float
    """Higher is better. Comparable within one search only."""


def recall(
    view: View, query: str, limit: int = 10, *, index: Index | None = None, width: int = 240
) -> tuple[Hit, ...]:
    """Return at most *limit* hidden messages of *view* that contain words of *query*, best first.

    Messages with the query word for word come first, then by BM25, then the later first. Chinese,
    Japanese and Korean words of any length are found. A query without letters or digits, or whose
    words do not occur, is searched as a string. *query* has no syntax. *width* is the length of a
    snippet in characters. With a reused *index* only newly hidden messages take time. Without one,
    an index is made for this search. Raises ValueError if *query* is not a string, `StoreError` if
    the index file fails.
    """
    if not isinstance(query, str):
        raise ValueError(f"the query must be a text, not {query!r}")  # noqa: TRY004 - as elsewhere
    hidden = find_hidden(view)
    if not hidden or not query.strip() or limit <= 0:
        return ()
    if index is None:
        with Index() as own:
            scores = _score_hidden(view, hidden, query, own)
    else:
        scores = _score_hidden(view, hidden, query, index)
    best = sorted(scores.items(), key=lambda item: (-item[1], -item[0]))[:limit]
    return tuple(_make_hit(view, at, hidden[at], query, score, width) for at, score in best)


def relevant_hits(hits: Sequence[Hit]) -> tuple[Hit, ...]:
    """Return the *hits* of a search that people should read: those with the query word for word,
    and those with at least `RELEVANT_SHARE` of the best score, phrase bonus excluded."""
    plain = [hit.score - PHRASE_BONUS * (hit.score >= PHRASE_BONUS) for hit in hits]
    least = RELEVANT_SHARE * max(plain, default=0.0)
    return tuple(
        hit
        for hit, score in zip(hits, plain, strict=True)
        if score >= least or hit.score >= PHRASE_BONUS
    )


def _make_hit(view: View, at: int, edit: str, query: str, score: float, width: int) -> Hit:
    message = view.transcript.messages[at]
    return Hit(
        edit, at, name_speakers(message), cut_snippet(readable_text(message), query, width), score
    )


def name_speakers(message: Message) -> str:
    """Return who speaks in *message*, in the words of `Hit.role`."""
    role, voices = speaker(message), {segment.voice for segment in segments(message)}
    if message.results and role != "tool":
        return f"tool and {role}"
    return "tool" if voices == {"tool"} else role


def _score_hidden(view: View, hidden: dict[int, str], query: str, index: Index) -> dict[int, float]:
    transcript = view.transcript
    index.add(transcript, max(hidden) + 1)
    scores = index.find({transcript.tips[at + 1]: at for at in hidden}, query)
    return {at: round(score, 6) for at, score in scores.items()} or _find_literal(
        view, hidden, query
    )


def _find_literal(view: View, hidden: dict[int, str], query: str) -> dict[int, float]:
    """Return the hidden messages that contain the query as a string."""
    wanted = fold(query).strip()
    messages = view.transcript.messages
    return {at: 1.0 for at in hidden if wanted in fold(readable_text(messages[at]))}
