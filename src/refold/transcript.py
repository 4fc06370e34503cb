"""The messages of a conversation, and a hash for every prefix of them."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import accumulate, islice
from threading import Lock
from typing import TypeVar, overload

from refold.edits import Edit
from refold.messages import (
    Content,
    Media,
    Message,
    Opaque,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)

T = TypeVar("T")
MIN_UNIQUE_ANSWER_CHARS = 40
"""Characters from which an answer is assumed to be unique."""


class AppendLog(Sequence[T]):
    """An immutable sequence that grows in the time of what is added.

    `extend` returns a longer log and leaves this one as it is. Both read the same buffer; the
    first extension of a log appends to it, a second one (a fork) copies.
    """

    __slots__ = ("_buffer", "_length", "_lock")

    def __init__(self, items: Iterable[T] = ()) -> None:
        self._buffer = list(items)
        self._length = len(self._buffer)
        self._lock = Lock()

    def extend(self, items: Iterable[T]) -> "AppendLog[T]":
        """Return this log followed by *items*."""
        new = list(items)
        longer: AppendLog[T] = AppendLog.__new__(AppendLog)
        with self._lock:
            if len(self._buffer) == self._length:
                self._buffer.extend(new)
                longer._buffer, longer._lock = self._buffer, self._lock
            else:
                longer._buffer, longer._lock = [*self._buffer[: self._length], *new], Lock()
        longer._length = self._length + len(new)
        return longer

    def is_prefix_of(self, other: Sequence[T]) -> bool:
        """Return whether this log is a prefix of *other*, compared by value."""
        if not self._length <= len(other) or (self._length and self._buffer[0] != other[0]):
            return False  # nearly always decided by the first item
        return self._buffer[: self._length] == list(other[: self._length])

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T]:
        return islice(self._buffer, self._length)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        if type(index) is int and 0 <= index < self._length:
            return self._buffer[index]
        if isinstance(index, slice):
            start, stop, step = index.indices(self._length)
            if step == 1:
                return tuple(self._buffer[start:stop])
            return tuple(self._buffer[i] for i in range(start, stop, step))
        if not -self._length <= index < self._length:
            raise IndexError(index)
        return self._buffer[index if index >= 0 else self._length + index]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AppendLog):
            return NotImplemented
        return self._buffer[: self._length] == other._buffer[: other._length]

    __hash__ = None  # type: ignore[assignment]  # as for a list: its content is what it is

    def __reduce__(self) -> tuple[type["AppendLog[T]"], tuple[list[T]]]:
        return AppendLog, (list(self),)  # a lock cannot be pickled

    def __repr__(self) -> str:
        return f"AppendLog({list(self)!r})"


class Joined(Sequence[Message]):
    """Two sequences of messages as one, without copying either."""

    def __init__(self, first: Sequence[Message], second: Sequence[Message]) -> None:
        self._first, self._second = first, second

    def __len__(self) -> int:
        return len(self._first) + len(self._second)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | Sequence[Message]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        at = range(len(self))[index] - len(self._first)
        return self._second[at] if at >= 0 else self._first[at]


class Transcript:
    """Messages, and `tips`: `tips[i]` is the hash of `messages[:i]` and of nothing else.

    It only ever grows, so a position in it never moves. System prompt and tools are not in it.
    """

    __slots__ = ("_hashed", "messages")

    def __init__(self, messages: AppendLog[Message], hashed: AppendLog[str]) -> None:
        """*hashed* holds the tips of a prefix of *messages*, at least the first."""
        self.messages, self._hashed = messages, hashed

    @classmethod
    def of(cls, messages: Iterable[Message] = (), salt: str = "") -> "Transcript":
        """Start a transcript. *salt* gives different tenants different tips."""
        key = salt.encode("utf-8", "surrogatepass")
        first = blake2b(key, digest_size=16).hexdigest() if salt else ""
        return cls(AppendLog(messages), AppendLog([first]))

    def extend(self, messages: Iterable[Message]) -> "Transcript":
        """Return this transcript followed by *messages*, in the time of what is added."""
        return Transcript(self.messages.extend(messages), self._hashed)

    @property
    def tips(self) -> AppendLog[str]:
        """Hashes of all prefixes, the empty one first.

        They are computed on first use, because most turns end without an edit.
        """
        hashed = self._hashed  # another thread may replace it meanwhile
        if len(hashed) <= len(self.messages):
            new = self.messages[len(hashed) - 1 :]
            tips = accumulate(new, _next_tip, initial=hashed[-1])
            self._hashed = hashed = hashed.extend(islice(tips, 1, None))
        return hashed

    def __len__(self) -> int:
        return len(self.messages)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Transcript):
            return NotImplemented
        return self.messages == other.messages and self._hashed[0] == other._hashed[0]

    __hash__ = None  # type: ignore[assignment]  # as for a list: its content is what it is

    def __repr__(self) -> str:
        return f"Transcript({len(self)} messages)"

    def matches(self, edit: Edit) -> bool:
        """Return whether *edit* was made for this history."""
        return 0 <= edit.start < edit.stop <= len(self) and self.tips[edit.stop] == edit.tip


class LazyTips(Sequence[str]):
    """Tips of a transcript from a position on, computed on first use."""

    def __init__(self, transcript: Transcript, start: int) -> None:
        self._transcript, self._start = transcript, start

    def __len__(self) -> int:
        return len(self._transcript) + 1 - self._start

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        return self._transcript.tips[self._start :][index]

    def __iter__(self) -> Iterator[str]:
        return iter(self._transcript.tips[self._start :])


def _next_tip(tip: str, message: Message) -> str:
    return blake2b(tip.encode() + hash_message(message), digest_size=16).hexdigest()


def hash_message(message: Message) -> bytes:
    """Return the hash of a message's identity, 16 bytes: its role and parts, without the sender.

    Thinking is left out, because clients drop, re-encode and restore signatures and encrypted
    reasoning (docs/formats.md).
    """
    fields = [message.role.encode("utf-8", "surrogatepass")]
    for part in message.parts:
        fields += _identity(part)
    return blake2b(b"".join(fields), digest_size=16).digest()


def answer_hash(message: Message) -> bytes | None:
    """Return the hash of an assistant message that is likely to be unique, because it has calls or
    a long text; else None."""
    is_distinct = message.role == "assistant" and (
        message.calls or len(message.text) >= MIN_UNIQUE_ANSWER_CHARS
    )
    return hash_message(message) if is_distinct else None


def count_common_messages(a: Sequence[str], b: Sequence[str]) -> int:
    """Return the number of messages at the start of two histories that are equal, given their tips,
    each the hash of everything before it."""
    lengths = range(1, min(len(a), len(b)))
    return bisect_left(lengths, True, key=lambda length: a[length] != b[length])


def _identity(part: Part | Content) -> Iterable[bytes]:
    """Return the fields of a part's identity, each with its length in bytes as a prefix."""
    if isinstance(part, Text):  # the two commonest, without the cost of matching
        return b"4:text", _with_length(part.text)
    if isinstance(part, ToolResult):
        content = [field for item in part.content for field in _identity(item)]
        head = (part.id, str(part.error), str(len(part.content)))
        return b"6:result", *map(_with_length, head), *content
    match part:
        case Thinking():
            return ()
        case ToolCall(id, name, arguments):
            return b"4:call", *map(_with_length, (id, name, arguments))
        case Media(kind, mime, ref):
            return b"5:media", *map(_with_length, (kind, mime, ref))
        case Opaque(kind, json):
            return b"6:opaque", *map(_with_length, (kind, json))


def _with_length(field: str) -> bytes:
    data = field.encode("utf-8", "surrogatepass")
    return b"%d:%b" % (len(data), data)
