"""Where retrospective edits live. Four methods make a store."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from refold.edits import Edit


class Store(Protocol):
    """Keeps edits by the tip they were made for. Nothing of the conversation need be in it."""

    def load(self, tips: Sequence[str]) -> Sequence[Edit]:
        """Every edit made for one of *tips*, in the order in which they were saved.

        Raises `StoreError`."""

    def save(self, edits: Iterable[Edit]) -> None:
        """Keep *edits*; when this returns they are safe. One id is kept once, the later wins.

        All or none of them are kept. Raises `StoreError`."""

    def remove(self, ids: Iterable[str]) -> None:
        """Forget the edits with these full ids; unknown ids are passed over. Raises `StoreError`."""

    def version(self) -> int:
        """A number that changes whenever anybody else may have changed the store; cheap to ask."""


def renewals(store: object) -> int:
    """How often *store* has noticed that its file or table is another than before, deleted or replaced while it was open
    (its `renewed`, where it has that): what is known is then to be written again (C12)."""
    return int(getattr(store, "renewed", 0))


class Claims(Protocol):
    """A store in which several processes tell each other what they are at. Optional: a store without it is a
    whole store."""

    def claim(self, name: str, owner: str, seconds: float) -> bool:
        """Take *name* for so many seconds from now, or longer where *owner* has it already; False where somebody
        else has it. What nobody renews is free when its time is over. Raises `StoreError`."""

    def release(self, name: str, owner: str) -> None:
        """Give *name* back, if *owner* has it. Raises `StoreError`."""
