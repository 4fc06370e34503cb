"""Memories, their storage in SQLite, and their extraction from messages by rules, without
secrets."""

import os
import re
import sqlite3
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from typing import Any, Literal, NamedTuple, Protocol

from refold.core.strategy import Asking
from refold.core.tool_groups import tool_results
from refold.core.view import View
from refold.messages import Message
from refold.speakers import own_words, segments
from refold.speakers.carriers import IN_RESULT
from refold.stores.schema import MEMORIES_ID
from refold.stores.sql import DatabaseClient
from refold.stores.sqlite import SQLiteDatabase, any_word_query, phrase_query
from refold.summarizers.heuristic.lexicon import (
    PREFERRING,
    find_conclusions,
    find_constraints,
    iter_statements,
)
from refold.text.clip import clip_scanned, one_line
from refold.text.plain import fold, terms
from refold.text.summary_wrapper import without_summary

# --- memories and where they are kept -------------------------------------------------------------


Kind = Literal["fact", "preference", "decision"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """One thing worth knowing after its messages are hidden or the conversation is over."""

    kind: Kind
    """`fact`, `preference` (what the user wants or forbids) or `decision` (what was decided or
    found)."""
    text: str
    """A sentence in the language of the conversation, without secrets (`refold.memory.redact`)."""
    concept: str = ""
    """Keyword of its concept, if a model was asked for one."""
    start: int = 0
    """Start of the source `messages[start:stop]`."""
    stop: int = 0
    tip: str = ""
    """Hash of `messages[:stop]`, which identifies the conversation and the place in it."""
    when: float = 0.0
    """Time of extraction, in seconds since 1970-01-01 UTC."""
    by: str = ""
    """The repr of the extractor."""

    @property
    def id(self) -> str:
        """16 hex digits of kind, concept and text: equal content is one memory. Case, width and
        spaces make no difference."""
        same = " ".join(unicodedata.normalize("NFKC", self.text).casefold().split())
        body = f"{self.kind}\0{self.concept}\0{same}".encode("utf-8", "surrogatepass")
        return blake2b(body, digest_size=8).hexdigest()


class MemorySink(Protocol):
    """A store of memories. It needs two methods."""

    def store(self, memories: Iterable[Memory]) -> int:
        """Store all of *memories* or none, one for each id. Known ones stay unchanged. Return how
        many were new. `flush` reports any exception, which stops nothing."""

    def search(self, query: str, limit: int = 10) -> Sequence[Memory]:
        """Return at most *limit* matches, best first."""


# --- memories in SQLite ---------------------------------------------------------------------------


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
"""Fields of a memory in the order of the columns."""
SELECT = "SELECT kind, concept, text, start, stop, tip, at, by FROM memories "
INDEX_TERMS = "INSERT INTO words (rowid, terms) VALUES (?, ?)"
UNINDEX_TERMS = "INSERT INTO words (words, rowid, terms) VALUES ('delete', ?, ?)"
DELETE = "DELETE FROM memories WHERE seq = ?"
BY_ID = "SELECT seq, concept, text FROM memories WHERE scope = ? AND id = ?"
LATEST = SELECT + "WHERE scope = ? ORDER BY seq DESC LIMIT ?"
HOLDING = SELECT + "WHERE scope = ? AND instr(FOLD(text), ?) ORDER BY seq DESC LIMIT ?"
FIND = (
    SELECT + "JOIN words ON words.rowid = seq WHERE words MATCH ? AND scope = ? "
    "ORDER BY bm25(words), seq DESC LIMIT ?"
)


class SQLiteMemories(DatabaseClient):
    """Stores memories in the SQLite file at *path* (`:memory:` for no file), separately for each
    *scope*.

    A scope is whatever memories belong to: a user, a project. The file cannot be that of an edit
    store. It survives a kill and, with *synchronous* `FULL`, a power cut. *timeout* is how many
    seconds to wait for other writers. Usable from several threads, processes and forked children.
    Raises `StoreError`.
    """

    _database: SQLiteDatabase
    _whole: "SQLiteMemories | None" = None
    """The owner of the connection, referenced to keep it alive."""

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
        """Return the memories of another *scope* in the same file, over the same connection."""
        memories = copy(self)
        memories.scope, memories._whole = _clean(scope), self  # noqa: SLF001 - of its own kind
        return memories

    def store(self, memories: Iterable[Memory]) -> int:
        """Store all of *memories* or none. Known ones stay unchanged. Return how many were new.
        Raises `StoreError`."""
        new = list(memories)
        with self._database.transaction() as connection:
            return sum(self._insert(connection, memory) for memory in new)

    def search(self, query: str, limit: int = 10) -> Sequence[Memory]:
        """Return the *limit* best matches: memories with *query* as a phrase, then those with some
        of its words. If there are none, return the latest that contain it, as in the middle of a
        word; for an empty query the latest. *query* has no syntax. Raises `StoreError`."""
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
        """Delete the memories with these ids and return how many existed. Raises `StoreError`."""
        ids = list(ids)
        with self._database.transaction() as connection:
            return sum(self._delete(connection, id) for id in ids)

    def _insert(self, connection: sqlite3.Connection, memory: Memory) -> int:
        values = (memory.id, *(getattr(memory, name) for name in FIELDS))
        row = [_clean(value) if isinstance(value, str) else value for value in values]
        result = connection.execute(STORE, (self.scope, *row))
        if result.rowcount:
            words = _index_terms(_clean(memory.concept), _clean(memory.text))
            connection.execute(INDEX_TERMS, (result.lastrowid, words))
        return result.rowcount

    def _delete(self, connection: sqlite3.Connection, id: str) -> int:
        row = connection.execute(BY_ID, (self.scope, _clean(id))).fetchone()
        if row is None:
            return 0
        seq, concept, text = row
        connection.execute(UNINDEX_TERMS, (seq, _index_terms(concept, text)))
        connection.execute(DELETE, (seq,))
        return 1

    def _select(self, connection: sqlite3.Connection, query: str, *values: Any) -> list[Memory]:
        rows = connection.execute(query, values).fetchall()
        return [Memory(**dict(zip(FIELDS, row, strict=True))) for row in rows]


class ProcessMemories(SQLiteMemories):
    """Keeps memories in the process, for tests and short-lived agents. Thread-safe."""

    def __init__(self) -> None:
        super().__init__(":memory:")


def _index_terms(concept: str, text: str) -> str:
    return " ".join(terms(f"{concept} {text}"))


def _clean(text: str) -> str:
    """Return *text* without NUL and lone surrogates, which SQLite cannot store."""
    return text.replace("\0", "").encode("utf-8", "replace").decode("utf-8")


# --- extractors -----------------------------------------------------------------------------------


class Extraction(NamedTuple):
    """The result of an extractor."""

    memories: tuple[Memory, ...]
    reason: str = ""
    """Why it did less than asked for; empty if it did not."""


Extractor = Callable[[View, Sequence[int]], Asking[Extraction]]
"""Extracts memories from the messages of a view's transcript at some positions. It may
`yield Ask`."""


def make_memory(view: View, kind: Kind, text: str, at: int, by: str, concept: str = "") -> Memory:
    """Return a memory of the message at position *at*, without secrets."""
    tip = view.transcript.tips[at + 1]
    return Memory(
        kind=kind, text=redact(text), concept=concept, start=at, stop=at + 1, tip=tip, by=by
    )


# --- secrets --------------------------------------------------------------------------------------


REDACTED = "[redacted]"

_KEYS = re.compile(
    r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]{0,30}PRIVATE KEY-----|\Z)"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"  # Amazon
    r"|\bgh[opsur]_[A-Za-z0-9]{20,}|\bgithub_pat_[A-Za-z0-9_]{20,}|\bglpat-[A-Za-z0-9_-]{16,}"
    # OpenAI, Anthropic, Stripe; a name such as `pk_user_id_foreign_key` has no digit
    r"|\b(?:sk|pk|rk)[-_](?=[A-Za-z_-]{0,100}[0-9])(?:[A-Za-z0-9]+[-_])*[A-Za-z0-9_-]{16,}"
    r"|\bxox[abeoprs]-[A-Za-z0-9-]{10,}"  # Slack
    r"|\bAIza[A-Za-z0-9_-]{30,}|\bya29\.[A-Za-z0-9_-]{20,}"  # Google
    r"|\b(?:hf|npm|pypi|dop_v1|shpat)[_-][A-Za-z0-9_-]{20,}"
    r"|\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?"  # JSON Web Tokens
)
_LOGIN = re.compile(
    r"(?P<before>\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@]{0,100}:)[^\s/]{1,200}(?=@)", re.IGNORECASE
)
_BEARER = re.compile(  # not "Basic authentication"
    r"(?P<before>\b(?:Bearer|Basic)\s+)(?!(?-i:[A-Z]?[a-z]{1,40})[.,;:!?)]{0,3}(?:\s|\Z))"
    r"[A-Za-z0-9._~+/=-]{12,}",
    re.IGNORECASE,
)
_NAMED = re.compile(
    r"(?P<before>(?:\b|_|(?-i:(?<=[a-z0-9])(?=[A-Z])))(?:pass(?:word|wd|phrase)|pwd|"
    r"secret(?:[_-]?(?:access[_-]?)?key)?|client[_-]?secret|"
    r"(?:api|access|auth|private|encryption)[_-]?(?:key|token)|token|credentials?|pin)[\"']?"
    r"(?:\s{0,3}(?:=>|[:=：＝])\s{0,3}|\s{1,3}(?:is|was)\s{1,3})"
    r"|(?:密码|口令|密钥|令牌|验证码|パスワード|비밀번호)[\"']?\s{0,3}(?:是|为|為|[:=：＝])\s{0,3})"
    r"(?P<secret>\"[^\"\n]{3,300}(?=\")|'[^'\n]{3,300}(?=')|`[^`\n]{3,300}(?=`)"
    r"|[\"'`「“]?[^\s\"'`」”,;，。；、]{3,300})",
    re.IGNORECASE,
)
_HARMLESS = re.compile(
    r"\[redacted\]|(?:null|none|true|false|required|optional|missing|"
    r"invalid|wrong|expired|the|a|not|set|stored|kept|in)\b|[<${%(]",
    re.IGNORECASE,
)


def redact(text: str) -> str:
    """Return *text* with `[redacted]` in place of obvious secrets: private keys, tokens of
    well-known services (Amazon, GitHub, GitLab, OpenAI, Anthropic, Stripe, Slack, Google, Hugging
    Face, npm, PyPI, DigitalOcean, Shopify), JSON Web Tokens, passwords in URLs, `Bearer` and
    `Basic` headers, and values after names such as `password =`, `api_key:` or `密码是`. Secrets in
    other forms are not recognised."""
    text = _KEYS.sub(REDACTED, text)
    for pattern in (_LOGIN, _BEARER):
        text = pattern.sub(rf"\g<before>{REDACTED}", text)
    return _NAMED.sub(_after_name, text)


def _after_name(match: re.Match[str]) -> str:
    secret = match["secret"].lstrip("\"'`「“")
    is_limit = match.string[max(0, match.start() - 3) : match.start()].lower() == "max"  # max_token
    if (is_limit and re.fullmatch(r"\d+\W*", secret)) or _HARMLESS.match(secret):
        return match[0]
    return match["before"] + match["secret"].removesuffix(secret) + REDACTED


# --- extraction by rules --------------------------------------------------------------------------


LONGEST = 300
"""Maximum characters of a memory. Longer sentences are cut."""

_DECIDES = re.compile(
    r"\b(?:(?:I|we)(?:['’]ve| have)? (?:decided|chose|agreed|settled|finali[sz]ed|booked|confirmed)"
    r"|let['’]?s (?:go with|use|stick with)|(?:I|we)['’]?(?:ll| will) (?:go with|use|take)"
    r"|final(?:ly)? (?:choice|decision))\b"
    r"|决定|決定|就(?:用|选|選|定|要)|[确確]定(?:用|选|選|了)|敲定|改成|改用|定下[来來]",
    re.IGNORECASE,
)
_STATES = re.compile(
    r"\b(?:my|our) (?:\w+ ){1,4}(?:is|are|was|were|has|starts?|runs?)\b"
    r"|\b(?:I am|I['’]m|we are|we['’]re) (?:an? |the |from |in |at |on |"
    r"based |using |working |running |\d)"
    r"|\b(?:I|we) (?:live|work|use|have|own|moved|study|teach|run|deploy|host|earn|"
    r"weigh|speak)\b|\bcall me\b"
    r"|我[们們]?(?:叫|是|住|来自|來自|在\w|有|用|使用|会|會|今年|负责|負責|学|學)|我[们們]?的\w{1,10}(?:是|叫|在|有|为|為)",
    re.IGNORECASE,
)


_VALUE = re.compile(
    r"\"(\w{0,40}(?:id|Id|ID|number|code|sha|hash|ref|key|email|uuid|token|name|path|url|date|Date|号|號|编号|編號|码|碼|标识|標識|路径|路徑|日期|邮箱|郵箱))\"\s{0,4}:\s{0,4}\"?([\w@.:/+#-]{3,80})(?=[\",\s}\]])"
)
"""Matches fields that identify something."""


@dataclass(frozen=True, slots=True)
class RuleExtractor:
    """Extracts memories from messages by rules. Asks no model. Deterministic.

    From the user's own words it takes preferences, standing constraints, decisions and facts about
    the user. From the assistant's it takes decisions and findings, from tool results the values of
    id fields (`order_id: W7731`).
    """

    max_each: int = 40
    """Maximum decisions of the assistant (those with the highest weight) and maximum values, per
    call."""

    def __call__(self, view: View, positions: Sequence[int]) -> Asking[Extraction]:
        """Return the memories in the messages at *positions*."""
        yield from ()
        messages = view.transcript.messages
        own = [(at, without_summary(messages[at])) for at in positions]
        statements = [
            *(item for at, message in own for item in _user_statements(at, message)),
            *_weightiest(own, self.max_each),
            *_values(own, self.max_each),
        ]
        by = repr(self)
        memories = [make_memory(view, kind, text, at, by) for at, kind, text in statements]
        # Each content once, at its first position.
        distinct = {memory.id: memory for memory in reversed(memories)}
        return Extraction(tuple(distinct.values())[::-1])


Statement = tuple[int, Kind, str]
"""Position of a message, kind and text of a statement in it."""


def _user_statements(at: int, message: Message) -> Iterator[Statement]:
    """Yield the statements in the user's own words, without words in tool results, which a tool can
    forge. Secrets are redacted first: the beginning of a cut one would stay."""
    words = (own_words(segment) for segment in segments(message) if segment.voice == "person")
    own = redact("\n\n".join(text for text in words if not text.startswith(IN_RESULT)))
    binding = set(find_constraints(own))
    for statement in iter_statements(own, is_rule=True):
        line = one_line(statement.words, LONGEST)
        is_short = len(line.encode("utf-8", "replace")) < 9
        if statement.is_head or is_short or line.endswith(("?", "？")):
            continue
        if _DECIDES.search(line):
            yield at, "decision", line
        elif line in binding or PREFERRING.is_in(line):
            yield at, "preference", line
        elif _STATES.search(line):
            yield at, "fact", line


def _weightiest(messages: Sequence[tuple[int, Message]], limit: int) -> list[Statement]:
    """Return the assistant's sentences with the highest decision weight, in conversation order."""
    weighed = [
        (-weight, at, text)
        for at, message in messages
        if message.role == "assistant"
        for weight, text in find_conclusions(
            clip_scanned(redact(message.text)), final=not message.calls
        )
    ]
    return [
        (at, "decision", text) for at, text in sorted(row[1:] for row in sorted(weighed)[:limit])
    ]


def _values(messages: Sequence[tuple[int, Message]], limit: int) -> list[Statement]:
    """Return the newest values of id fields in tool results, each with its last position."""
    values = dict[str, tuple[int, str]]()
    for at, message in messages:
        for result in tool_results(message):
            for name, value in _VALUE.findall(clip_scanned(result.text)):
                values.pop(value, None)
                values[value] = at, name
    newest = islice(reversed(values.items()), limit)
    return [(at, "fact", f"{name}: {value}") for value, (at, name) in newest]
