"""An append-only sequence whose prefixes share one buffer."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from threading import Lock
from typing import TypeVar, overload

T = TypeVar("T")


class Log(Sequence[T]):
    """An immutable sequence that grows in the time of what is added.

    `extend` returns a longer log and leaves this one as it is. Both read the same buffer; the
    first extension of a log appends to it, a second one (a fork) copies.
    """

    __slots__ = ("_buffer", "_length", "_lock")

    def __init__(self, items: Iterable[T] = ()) -> None:
        self._buffer = list(items)
        self._length = len(self._buffer)
        self._lock = Lock()

    def extend(self, items: Iterable[T]) -> "Log[T]":
        """This log followed by *items*."""
        new = list(items)
        grown: Log[T] = Log.__new__(Log)
        with self._lock:
            if len(self._buffer) == self._length:
                self._buffer.extend(new)
                grown._buffer, grown._lock = self._buffer, self._lock
            else:
                grown._buffer, grown._lock = [*self._buffer[: self._length], *new], Lock()
        grown._length = self._length + len(new)
        return grown

    def begins(self, other: Sequence[T]) -> bool:
        """Is this the beginning of *other*? Compared by value."""
        if not self._length <= len(other) or (self._length and self._buffer[0] != other[0]):
            return False  # as nearly always where it is not
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
        if not isinstance(other, Log):
            return NotImplemented
        return self._buffer[: self._length] == other._buffer[: other._length]

    __hash__ = None  # type: ignore[assignment]  # as for a list: its content is what it is

    def __repr__(self) -> str:
        return f"Log({list(self)!r})"
