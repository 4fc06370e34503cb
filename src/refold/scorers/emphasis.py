"""What somebody says matters: important, remember, never, 重要, 记住, 务必."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from refold.messages import Message
from refold.view import View

SCANNED = 100_000
"""Characters of a text that are looked at."""
CUES = re.compile(
    r"\b(?:important|importantly|remember|never|always|must|do not forget|don['’]t forget|keep in mind|make sure|"
    r"note that|critical|crucial|essential|mandatory|at all costs|under no circumstances|from now on)\b"
    r"|重要|记住|記住|记得|記得|牢记|牢記|别忘|別忘|不要忘|勿忘|务必|務必|切记|切記|关键|關鍵|注意|必须|必須|绝不|絕不|永远不|永遠不|"
    r"千万|千萬|一定要|禁止|严禁|嚴禁|以后都|今后"
    r"|大事|大切|覚えて|忘れない|必ず|絶対に|決して|중요|기억해|잊지|반드시|절대",
    re.IGNORECASE,
)
"""Words of emphasis in English, Chinese, Japanese and Korean."""


@dataclass(frozen=True)
class Emphasis:
    """1.0 for a message of one of *roles* whose text holds a word of emphasis, 0.0 for any other
    (what a tool answers is never emphasis). *words*, if given, are looked for instead of the
    built-in ones, as they are written or in another case; `Emphasis(("assistant",), ("important",))`
    finds the responses that seed row S3-25 keeps. Raises ValueError for an empty word.
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
            return bool(CUES.search(text))
        lower = text.lower()
        return any(word.lower() in lower for word in self.words)
