"""What somebody says matters: important, remember, never, 重要, 记住, 务必."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from refold.messages import Message
from refold.summarizers.rules.wording import STRESSING
from refold.view import View

SCANNED = 100_000
"""Characters of a text that are looked at."""


@dataclass(frozen=True)
class Emphasis:
    """1.0 for a message of one of *roles* whose text holds a word of emphasis, 0.0 for any other
    (what a tool answers is never emphasis). *words*, if given, are looked for instead of the
    built-in ones of nine languages (`refold.summarizers.rules.wording`), as they are written or in
    another case; `Emphasis(("assistant",), ("important",))` finds the responses that seed row S3-25 keeps. Raises ValueError for an empty word.
    """

    roles: Collection[str] = ("user",)
    words: Collection[str] = ()

    def __post_init__(self) -> None:
        for name in ("roles", "words"):  # sorted, so that the repr is always the same
            value = getattr(self, name)
            object.__setattr__(self, name, (value,) if isinstance(value, str) else tuple(sorted(set(value))))
        if "" in self.words:
            raise ValueError("an empty word is in every text")

    def __call__(self, view: View) -> Sequence[float]:
        """A score for each message."""
        return [float(self.holds(message)) for message in view.transcript.messages]

    def holds(self, message: Message) -> bool:
        """Does this message say that something matters? Also good as a predicate of messages to pin."""
        if message.role not in self.roles:
            return False
        text = message.text[:SCANNED]
        if not self.words:
            return STRESSING.within(text)
        lower = text.lower()
        return any(word.lower() in lower for word in self.words)
