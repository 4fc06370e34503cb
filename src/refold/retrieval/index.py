"""A full-text index of messages, in memory or in a file; only new messages cost time.

A message is identified by the tip behind it, so one file serves any number of conversations, and
what two branches share is in it once. The file holds no texts, only which terms are where.
"""

import os
import sqlite3
from collections.abc import Mapping

from refold.stores.sql import DatabaseClient
from refold.stores.sqlite_connection import SQLiteDatabase
from refold.stores.sqlite_schema import INDEX_ID
from refold.text.plain import readable_text
from refold.text.terms import any_word_query, phrase_query, terms
from refold.transcript import Transcript

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
PHRASE_BONUS = 100.0
"""Added to the score of a message that holds the query word for word."""


class Index(DatabaseClient):
    """Find messages by their words, in the file at *path* or (`:memory:`) in memory.

    *timeout* is how many seconds to wait for other writers. Usable from several threads and
    processes. The file can be deleted at any time: it is made again from the transcripts. Raises
    `StoreError`.
    """

    _database: SQLiteDatabase

    def __init__(self, path: str | os.PathLike[str] = ":memory:", *, timeout: float = 30.0) -> None:
        super().__init__(SQLiteDatabase(os.fspath(path), timeout, "NORMAL", MIGRATIONS, INDEX_ID))
        self._database.open()

    def add(self, transcript: Transcript, stop: int | None = None) -> int:
        """Index those of `messages[:stop]` (by default all) that are new; return their number.

        Raises `StoreError`.
        """
        end = len(transcript) if stop is None else stop
        start = self._count_indexed(transcript, end)
        if start == end:
            return 0
        with self._database.transaction() as connection:
            return sum(_index_message(connection, transcript, at) for at in range(start, end))

    def find(self, hidden: Mapping[str, int], query: str) -> dict[int, float]:
        """Score the messages that hold any word of *query*, by position. Raises `StoreError`.

        hidden: the tips of the messages to search, each with its position.
        """
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
        """Count the messages that are indexed: with one tip, all before it are."""
        low, high = 0, end
        with self._database.connection("read") as connection:
            while low < high:
                middle = (low + high + 1) // 2
                row = connection.execute(IS_INDEXED, (transcript.tips[middle],)).fetchone()
                low, high = (middle, high) if row else (low, middle - 1)
        return low


def _index_message(connection: sqlite3.Connection, transcript: Transcript, at: int) -> int:
    """Index one message unless another process was faster; 1 if it was new."""
    inserted = connection.execute(ADD_TIP, (transcript.tips[at + 1],))
    if inserted.rowcount:
        connection.execute(
            ADD_TERMS, (inserted.lastrowid, " ".join(terms(readable_text(transcript.messages[at]))))
        )
    return inserted.rowcount
