"""How messages are counted and where they may be cut, and a transcript with these counts."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from refold.edits import Edit
from refold.messages import Message, Text, user
from refold.rules.rule import Rules
from refold.tokens.count import count_message
from refold.transcript import AppendLog, Transcript


def keep_estimate(tokens: int) -> int:
    """Return the estimate unchanged: no calibration."""
    return tokens


@dataclass(frozen=True, slots=True)
class Profile:
    """Properties of a conversation that are not in its messages."""

    count: Callable[[Message], int] = count_message
    """Function that counts the tokens of one message, framing included."""
    rules: Rules = Rules()
    fixed_tokens: int = 0
    """Tokens of the system prompt and tool definitions, which no edit changes."""
    calibrate: Callable[[int], int] = keep_estimate
    """Function from estimated to expected tokens of a whole request
    (`refold.compactor.calibration`)."""
    model: str = ""
    """Model that the request names or goes to; empty if unknown."""

    def has_empty(self, insert: Sequence[Message], span: Sequence[Message]) -> bool:
        """Return whether *insert*, shown for *span*, has a message without parts, an empty text, or
        a blank one that *span* lacks and the provider refuses (AN-5, BR-5)."""
        texts = {part for each in insert for part in each.parts if isinstance(part, Text)}
        if Text("") in texts or not all(message.parts for message in insert):
            return True
        blank = {text for text in texts if text.text.isspace()}
        blank = blank and blank.difference(*(message.parts for message in span))
        return any(self.rules.check((user(text.text),)) for text in blank)


class ViewItem(NamedTuple):
    """A run of the transcript with the messages shown for it. Each unedited message has its own."""

    start: int
    stop: int
    messages: tuple[Message, ...]
    """The messages that are shown."""
    edit: Edit | None
    tokens: int
    """Estimated tokens of these messages."""


T = TypeVar("T")
Columns = Mapping[Callable[[Message], Any], AppendLog[Any]]
NO_COLUMNS: Columns = MappingProxyType({})


class CountedTranscript:
    """A transcript with its token sums and legal cuts, each computed once."""

    def __init__(
        self,
        transcript: Transcript,
        profile: Profile,
        token_sums: AppendLog[int],
        columns: Columns = NO_COLUMNS,
        under: dict[str, dict[int, tuple[Edit, Any]]] | None = None,
    ) -> None:
        """*token_sums*: tokens before each message, and their total at the end. *under*: cached
        results of `compute_under` by name and first message of the edit."""
        self.transcript, self.profile, self.token_sums = transcript, profile, token_sums
        self.total_tokens = token_sums[-1]
        self._columns = dict(columns)
        self._under = {} if under is None else under
        self._facts = dict[Callable[[CountedTranscript], Any], Any]()

    def __reduce__(self) -> tuple[Any, ...]:
        return CountedTranscript, (self.transcript, self.profile, self.token_sums)  # no caches

    @classmethod
    def of(cls, transcript: Transcript, profile: Profile) -> "CountedTranscript":
        """Count a transcript from its start."""
        tokens = map(profile.count, transcript.messages)
        return cls(transcript, profile, AppendLog(accumulate(tokens, initial=0)))

    def extend(self, messages: Sequence[Message]) -> "CountedTranscript":
        """Return the transcript followed by *messages*. Only the new messages are counted."""
        tokens = map(self.profile.count, messages)
        _, *sums = accumulate(tokens, initial=self.total_tokens)
        transcript, token_sums = self.transcript.extend(messages), self.token_sums.extend(sums)
        return CountedTranscript(transcript, self.profile, token_sums, self._columns, self._under)

    def with_profile(self, profile: Profile) -> "CountedTranscript":
        """Return the same transcript with another profile. Nothing is counted again."""
        return CountedTranscript(
            self.transcript, profile, self.token_sums, self._columns, self._under
        )

    def map_cached(self, function: Callable[[Message], T]) -> AppendLog[T]:
        """Return *function* of each message. *function* is pure; results are cached as the
        transcript grows."""
        column: AppendLog[T] = self._columns.get(function, AppendLog())
        if len(column) < len(self.transcript):
            new = self.transcript.messages[len(column) :]
            column = self._columns[function] = column.extend(map(function, new))
        return column

    def compute_once(self, function: Callable[["CountedTranscript"], T]) -> T:
        """Return the result of the pure *function* of this transcript, computed at the first call.
        A longer transcript computes its own."""
        if function not in self._facts:
            self._facts[function] = function(self)
        fact: T = self._facts[function]
        return fact

    def compute_under(self, edit: Edit, name: str, compute: Callable[[], T]) -> T:
        """Return the cached result of the pure function *compute*, called *name*, for an edit and
        the messages it hides. It stays valid while the transcript grows."""
        results = self._under.setdefault(name, {})
        if (entry := results.get(edit.start)) and (entry[0] is edit or entry[0] == edit):
            value: T = entry[1]
            return value
        value = compute()
        results[edit.start] = edit, value
        return value

    @cached_property
    def cuts(self) -> frozenset[int]:
        """Legal cuts of the whole transcript, without regard to edits."""
        return self.profile.rules.cuts(self.transcript.messages)

    def tokens(self, start: int, stop: int) -> int:
        """Return the unedited tokens of `messages[start:stop]`."""
        return self.token_sums[stop] - self.token_sums[start]

    def iter_items(self, start: int, stop: int) -> Iterator[ViewItem]:
        """Yield the messages from *start* to *stop* as unedited items."""
        sums = pairwise(self.token_sums[start : stop + 1])
        pairs = zip(self.transcript.messages[start:stop], sums, strict=True)
        for at, (message, (before, after)) in enumerate(pairs, start):
            yield ViewItem(at, at + 1, (message,), None, after - before)
