"""The only kind of change: show *insert* instead of `messages[start:stop]`."""

from dataclasses import dataclass, field
from hashlib import blake2b

from refold.messages import Message


@dataclass(frozen=True, slots=True)
class Edit:
    """Show *insert* instead of `messages[start:stop]` of one exact history."""

    start: int
    stop: int
    insert: tuple[Message, ...]
    tip: str
    """Hash of `messages[:stop]`: the edit holds for exactly that history."""
    by: str = ""
    """The repr of the strategy that made it."""
    id: str = field(init=False, repr=False, compare=False)
    """16 hex digits; the start of it is enough wherever it is unambiguous."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "id", edit_id(self.start, self.stop, self.tip, self.by))


def edit_id(start: int, stop: int, tip: str, by: str) -> str:
    """Name an edit by its place and its maker, not by what it shows: so a stub can say its own name."""
    return blake2b(f"{start}:{stop}:{tip}:{by}".encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
