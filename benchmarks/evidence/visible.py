"""Measures of which needs a request still satisfies: plain recall, tied recall, edits."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Self

from benchmarks.billing import PRICES, common
from benchmarks.evidence.chat import iter_chat
from benchmarks.evidence.needs import Name, OldLines, iter_blocks, iter_lines
from refold import check
from refold.messages import Message
from refold.tokens.count import count_message

WINDOW = 160
"""Characters of a line, or of the text around an occurrence, that may tie a name."""
TIES = 2
"""Number of other content words that the line and the original text around the name must share."""
WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{2,}|\d{2,}|[\u3400-\u9fff\u3040-\u30ff\uac00-\ud7a3]+")
COMMON = frozenset(
    [
        "the",
        "and",
        "for",
        "that",
        "this",
        "with",
        "from",
        "have",
        "has",
        "was",
        "were",
        "are",
        "not",
        "but",
        "you",
        "your",
        "can",
        "will",
        "would",
        "should",
        "into",
        "onto",
        "then",
        "than",
        "when",
        "where",
        "which",
        "what",
        "who",
        "how",
        "all",
        "any",
        "its",
        "our",
        "their",
        "there",
        "here",
        "they",
        "them",
        "also",
        "only",
        "just",
        "more",
        "most",
        "some",
        "such",
        "use",
        "used",
        "using",
        "via",
        "per",
        "about",
        "after",
        "before",
        "over",
        "under",
        "out",
        "new",
        "old",
        "now",
        "one",
        "two",
        "been",
        "being",
        "does",
        "did",
        "done",
        "let",
        "may",
        "must",
        "get",
        "got",
        "see",
    ]
)
"""English words that tie nothing."""
STATE = re.compile(
    r"\b(created|modified|changed|edited|written|deleted|removed|renamed|read)\b|创建|新建|修改|删除|读取"
)
"""A path that is listed with one of these states counts as tied."""
SEPARATOR = re.compile(r"[,;|·、，；]|\s-\s")
SHORTEST_LIST = 3
LIST_SHARE = 0.8


counted = lru_cache(maxsize=20_000)(count_message)
"""Token counter shared by all policies."""


def has_violation(messages: Sequence[Message]) -> bool:
    """Return whether an API would refuse these messages in the format of Chat Completions."""
    chat = list(iter_chat(messages))
    return not chat or bool(check({"messages": chat}, "openai_chat"))


def bill_of(tokens: int, read: int) -> float:
    """Return the cost in dollars of *tokens* if *read* of them are cached and the rest is written
    to the cache."""
    return (read * PRICES.cached + (tokens - read) * PRICES.written) / 1e6


def content_words(text: str) -> set[str]:
    """Return the words that say what a text is about, and the character pairs of CJK text."""
    words = set[str]()
    for word in WORD.findall(text):
        if word.isascii():
            words.update(
                piece for piece in re.split(r"_|(?<=[a-z])(?=[A-Z])", word) if len(piece) > 2
            )
        else:
            words.update(word[at : at + 2] for at in range(len(word) - 1))
    return {word.lower() for word in words} - COMMON


def is_list_of_names(line: str) -> bool:
    """Return whether a line is a bare list of one-word items, which ties nothing."""
    items = [item.strip() for item in SEPARATOR.split(line.partition(": ")[2] or line)]
    items = [item for item in items if item]
    single = sum(" " not in item for item in items)
    return len(items) >= SHORTEST_LIST and single >= LIST_SHARE * len(items)


def around(text: str, at: int, length: int) -> str:
    """Return the line of an occurrence, at most `WINDOW` characters of it."""
    start = max(text.rfind("\n", 0, at) + 1, at - WINDOW // 2)
    stop = text.find("\n", at)
    return text[start : min(stop if stop >= 0 else len(text), max(at + length, start + WINDOW))]


def iter_occurrences(name: str, text: str) -> Iterator[str]:
    """Yield the text around each occurrence of *name*."""
    at = text.find(name)
    while at >= 0:
        yield around(text, at, len(name))
        at = text.find(name, at + len(name))


@dataclass(frozen=True)
class History:
    """What the transcript holds before a call."""

    blocks: frozenset[str]
    by_name: dict[str, list[str]] = field(hash=False)
    """Blocks that hold each needed name."""


@dataclass(frozen=True)
class Request:
    """What a policy sends: unchanged blocks of the transcript, and texts that it wrote."""

    whole: tuple[str, ...]
    rewritten: tuple[str, ...]

    @classmethod
    def of(cls, messages: Iterable[Message], history: History) -> "Request":
        """Split messages into unchanged and rewritten blocks by comparison with the transcript."""
        whole, rewritten = list[str](), list[str]()
        for message in messages:
            for block in iter_blocks(message):
                (whole if block in history.blocks else rewritten).append(block)
        return cls(tuple(whole), tuple(rewritten))

    def has(self, name: str) -> bool:
        """Return whether the string is anywhere in the request."""
        return any(name in block for block in (*self.whole, *self.rewritten))

    def ties(self, name: str, history: History) -> bool:
        """Return whether the request says what *name* is about."""
        if any(name in block for block in self.whole):
            return True
        lines = [line for block in self.rewritten for line in iter_occurrences(name, block)]
        return bool(lines) and self._ties_rewritten(name, lines, history)

    def _ties_rewritten(self, name: str, lines: Sequence[str], history: History) -> bool:
        own = content_words(name)
        is_path = "/" in name or "." in name
        telling = [line for line in lines if not is_list_of_names(line)]
        if is_path and any(STATE.search(line) for line in lines):
            return True
        candidates = [words for line in telling if len(words := content_words(line) - own) >= TIES]
        return bool(candidates) and any(
            len(words & context) >= TIES
            for block in history.by_name.get(name, ())
            for near in iter_occurrences(name, block)
            if len(context := content_words(near) - own) >= TIES
            for words in candidates
        )

    def lines(self) -> set[str]:
        """Return all lines of the request, normalized."""
        return {line for block in (*self.whole, *self.rewritten) for line in iter_lines(block)}


@dataclass
class Score:
    """What was sent and which needs were satisfied, over any number of calls."""

    sessions: int = 0
    calls: int = 0
    sent: int = 0
    """Tokens."""
    full: int = 0
    """Tokens of the same requests without compaction."""
    full_read: int = 0
    """Tokens of these that the previous request contained."""
    read: int = 0
    """Tokens sent that a prompt cache holds: messages of the common prefix with the previous
    request."""
    breaks: int = 0
    """Requests that do not continue the previous one."""
    invalid: int = 0
    """Requests that break a rule of Chat Completions although the recorded ones break none."""
    names: int = 0
    plain: int = 0
    tied: int = 0
    reused: int = 0
    reused_tied: int = 0
    edits: int = 0
    editable: int = 0
    made_tokens: int = 0
    made_tied: int = 0

    def __iadd__(self, other: "Score") -> Self:
        for key, value in vars(other).items():
            setattr(self, key, getattr(self, key) + value)
        return self

    def add_request(
        self,
        before: Sequence[Message],
        sent: Sequence[Message],
        history: Sequence[Message],
        answered: int,
    ) -> None:
        """Count a request that is sent instead of a history.

        *before* is the previous request, which stood for *answered* messages of the history.
        """
        same = common(before, sent)
        self.calls += 1
        self.full += sum(map(counted, history))
        self.full_read += sum(map(counted, history[:answered]))
        self.sent += sum(map(counted, sent))
        self.read += sum(map(counted, sent[:same]))
        self.breaks += same < len(before)
        self.invalid += has_violation(sent) and not has_violation(history)

    @property
    def dollars(self) -> float:
        """Return the bill of the input with a prompt cache."""
        return bill_of(self.sent, self.read)

    @property
    def full_dollars(self) -> float:
        """Return the bill of the input without compaction."""
        return bill_of(self.full, self.full_read)

    def add_names(self, needs: Iterable[Name], request: Request, history: History) -> None:
        """Count the identifiers that one call needs."""
        for need in needs:
            tied = request.ties(need.text, history)
            if need.is_reused:
                self.reused += 1
                self.reused_tied += tied
                continue
            self.names += 1
            self.plain += tied or request.has(need.text)
            self.tied += tied
            self.made_tied += tied and not any(need.text in block for block in request.whole)

    def add_edits(self, edits: Iterable[OldLines], request: Request) -> None:
        """Count the edits whose old lines can all be read."""
        lines: set[str] | None = None
        for edit in edits:
            lines = request.lines() if lines is None else lines
            self.edits += 1
            self.editable += lines.issuperset(edit.lines)
