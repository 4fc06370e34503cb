"""What everything that holds a database open has in common."""

from types import TracebackType
from typing import Protocol, Self


class Closable(Protocol):
    """Something to let go of."""

    def close(self) -> None:
        """Let go; twice is fine."""


class Linked:
    """Holds a link to a database, until it is closed: by `close`, at the end of a `with` block, or with the program."""

    _link: Closable

    def close(self) -> None:
        """Let go of the database. Nothing else can be done with it after; closing twice is fine."""
        self._link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
