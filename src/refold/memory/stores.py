"""What a memory is, and where memories go."""

import os
import sqlite3
import unicodedata
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal, Protocol

from refold.stores.schema import MEMORIES_ID
from refold.stores.sql import DatabaseClient
from refold.stores.sqlite_connection import SQLiteDatabase
from refold.text.plain import any_word_query, fold, phrase_query, terms

Kind = Literal["fact", "preference", "decision"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """One thing worth knowing after the messages that said it are hidden, or after the conversation
    is over."""

    kind: Kind
    """`fact`: what is so; `preference`: what the user wants or forbids; `decision`: what was
    decided or found."""
    text: str
    """A sentence, in the language in which it was said, without secrets
    (`refold.memory.redact`)."""
    concept: str = ""
    """Keyword of the concept it belongs to, where a model was asked for one."""
    start: int = 0
    """It was said in `messages[start:stop]`."""
    stop: int = 0
    tip: str = ""
    """Hash of `messages[:stop]`: names the conversation and the place in it."""
    when: float = 0.0
    """When it was taken down, in seconds since 1970-01-01 UTC."""
    by: str = ""
    """The repr of what extracted it."""

    @property
    def id(self) -> str:
        """16 hex digits of kind, concept and text: the same content is one memory, wherever it was
        said. Case, width and spaces make no difference."""
        same = " ".join(unicodedata.normalize("NFKC", self.text).casefold().split())
        body = f"{self.kind}\0{self.concept}\0{same}".encode("utf-8", "surrogatepass")
        return blake2b(body, digest_size=8).hexdigest()


class MemorySink(Protocol):
    """Where memories are kept. Two methods make a sink."""

    def store(self, memories: Iterable[Memory]) -> int:
        """Keep *memories*, all or none, one of each id: what is known stays as it is. How many were
        new. Whatever it raises is reported by `flush` and stops nothing."""

    def search(self, query: str, limit: int = 10) -> Sequence[Memory]:
        """The *limit* memories that match best, best first."""


MIGRATIONS = (
    (
        (
            "CREATE TABLE memories (seq INTEGER PRIMARY KEY, scope TEXT NOT NULL, "
            "id TEXT NOT NULL, kind TEXT NOT NULL, concept TEXT NOT NULL, text TEXT NOT NULL, "
            "start INTEGER NOT NULL, "
            "stop INTEGER NOT NULL, tip TEXT NOT NULL, "
            "at REAL NOT NULL, by TEXT NOT NULL, UNIQUE (scope, id))"
        ),
        (
            "CREATE VIRTUAL TABLE words "
            "USING fts5(terms, content='', tokenize='porter unicode61 remove_diacritics 2')"
        ),
    ),
)
STORE = (
    "INSERT OR IGNORE INTO memories (scope, id, kind, concept, text, start, stop, tip, at, by) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
FIELDS = ("kind", "concept", "text", "start", "stop", "tip", "when", "by")
"""A memory's fields in the order of the columns."""
SELECT = "SELECT kind, concept, text, start, stop, tip, at, by FROM memories "
LEARN = "INSERT INTO words (rowid, terms) VALUES (?, ?)"
UNLEARN = "INSERT INTO words (words, rowid, terms) VALUES ('delete', ?, ?)"
DELETE = "DELETE FROM memories WHERE seq = ?"
BY_ID = "SELECT seq, concept, text FROM memories WHERE scope = ? AND id = ?"
LATEST = SELECT + "WHERE scope = ? ORDER BY seq DESC LIMIT ?"
HOLDING = SELECT + "WHERE scope = ? AND instr(lower(text), ?) ORDER BY seq DESC LIMIT ?"
FIND = (
    SELECT + "JOIN words ON words.rowid = seq WHERE words MATCH ? AND scope = ? "
    "ORDER BY bm25(words), seq DESC LIMIT ?"
)


class SQLiteMemories(DatabaseClient):
    """Keeps memories in the SQLite file at *path* (`:memory:` for none), those of each *scope*
    apart.

    A scope is whatever memories belong to: a user, a project. The file is another than a store's;
    it survives a kill and, with *synchronous* `FULL`, a power cut. *timeout* is how many seconds to
    wait for other writers. Usable from several threads, processes and forked children. Raises
    `StoreError`.
    """

    _database: SQLiteDatabase
    _whole: "SQLiteMemories | None" = None
    """Whose connection this uses, so that it lives as long."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        scope: str = "",
        *,
        timeout: float = 30.0,
        synchronous: Literal["FULL", "NORMAL"] = "FULL",
    ) -> None:
        self.scope = _clean(scope)
        super().__init__(
            SQLiteDatabase(os.fspath(path), timeout, synchronous, MIGRATIONS, MEMORIES_ID)
        )
        self._database.open()

    def within(self, scope: str) -> "SQLiteMemories":
        """The memories of another *scope* in the same file, over the same connection."""
        memories = copy(self)
        memories.scope, memories._whole = _clean(scope), self  # noqa: SLF001 - of its own kind
        return memories

    def store(self, memories: Iterable[Memory]) -> int:
        """Keep *memories*, all or none; what is known stays as it is. How many were new. Raises
        `StoreError`."""
        new = list(memories)
        with self._database.transaction() as connection:
            return sum(self._insert(connection, memory) for memory in new)

    def search(self, query: str, limit: int = 10) -> Sequence[Memory]:
        """The *limit* memories that match best: those that hold *query* as it stands, then those
        that hold words of it; the latest ones for an empty query. Nothing in *query* is syntax.
        Raises `StoreError`."""
        with self._database.connection("read") as connection:
            if not query.strip():
                return self._select(connection, LATEST, self.scope, limit)
            matches: dict[str, Memory] = {}
            for text in (phrase_query(query), any_word_query(query)):
                if text:
                    rows = self._select(connection, FIND, text, self.scope, limit)
                    matches |= {memory.id: memory for memory in rows if memory.id not in matches}
            if not matches:
                text = _clean(fold(query).strip())
                return self._select(connection, HOLDING, self.scope, text, limit)
            return list(matches.values())[:limit]

    def forget(self, ids: Iterable[str]) -> int:
        """Forget the memories with these ids; how many there were. Raises `StoreError`."""
        ids = list(ids)
        with self._database.transaction() as connection:
            return sum(self._delete(connection, id) for id in ids)

    def _insert(self, connection: sqlite3.Connection, memory: Memory) -> int:
        values = (memory.id, *(getattr(memory, name) for name in FIELDS))
        row = [_clean(value) if isinstance(value, str) else value for value in values]
        result = connection.execute(STORE, (self.scope, *row))
        if result.rowcount:
            words = _index_terms(_clean(memory.concept), _clean(memory.text))
            connection.execute(LEARN, (result.lastrowid, words))
        return result.rowcount

    def _delete(self, connection: sqlite3.Connection, id: str) -> int:
        row = connection.execute(BY_ID, (self.scope, _clean(id))).fetchone()
        if row is None:
            return 0
        seq, concept, text = row
        connection.execute(UNLEARN, (seq, _index_terms(concept, text)))
        connection.execute(DELETE, (seq,))
        return 1

    def _select(self, connection: sqlite3.Connection, query: str, *values: Any) -> list[Memory]:
        rows = connection.execute(query, values).fetchall()
        return [Memory(**dict(zip(FIELDS, row, strict=True))) for row in rows]


class ProcessMemories(SQLiteMemories):
    """Keeps memories in the process, for tests and for agents that live no longer. Usable from
    several threads."""

    def __init__(self) -> None:
        super().__init__(":memory:")


def _index_terms(concept: str, text: str) -> str:
    return " ".join(terms(f"{concept} {text}"))


def _clean(text: str) -> str:
    """*text* as SQLite can keep it: no NUL, no lone surrogate."""
    return text.replace("\0", "").encode("utf-8", "replace").decode("utf-8")
