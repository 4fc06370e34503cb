"""What every view of one transcript shares."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from types import MappingProxyType
from typing import Any, TypeVar

from refold.messages import Message
from refold.rules.rule import Rules
from refold.tokens.count import count_message
from refold.transcript import Log, Transcript


def as_estimated(tokens: int) -> int:
    """No calibration: the estimate is the figure."""
    return tokens


@dataclass(frozen=True, slots=True)
class Lens:
    """Everything about a conversation that is not said in it."""

    count: Callable[[Message], int] = count_message
    """Tokens of one message, its framing included."""
    rules: Rules = Rules()
    fixed: int = 0
    """Tokens of the system prompt and the tool definitions, which no edit touches."""
    calibrate: Callable[[int], int] = as_estimated
    """From estimated tokens of a whole request to expected ones (see `refold.compactor.calibration`)."""
    model: str = ""
    """The model that the conversation goes to, where its request names none."""


T = TypeVar("T")
Columns = Mapping[Callable[[Message], Any], Log[Any]]
NONE: Columns = MappingProxyType({})


class Ground:
    """A transcript with its token sums and legal cuts, each worked out once."""

    def __init__(self, transcript: Transcript, lens: Lens, sums: Log[int], columns: Columns = NONE) -> None:
        self.transcript, self.lens, self.sums = transcript, lens, sums
        self._columns = dict(columns)

    @classmethod
    def of(cls, transcript: Transcript, lens: Lens) -> "Ground":
        """Count a transcript from its beginning."""
        return cls(transcript, lens, Log(accumulate(map(lens.count, transcript.messages), initial=0)))

    def extend(self, messages: Sequence[Message]) -> "Ground":
        """The ground of the transcript followed by *messages*, in the time of what is added."""
        sums = list(accumulate(map(self.lens.count, messages), initial=self.sums[-1]))[1:]
        return Ground(self.transcript.extend(messages), self.lens, self.sums.extend(sums), self._columns)

    def through(self, lens: Lens) -> "Ground":
        """The same transcript with the same sums, through another lens."""
        return Ground(self.transcript, lens, self.sums, self._columns)

    def column(self, of: Callable[[Message], T]) -> Log[T]:
        """*of* of every message, worked out once for each while the transcript grows. *of* must be pure."""
        known: Log[T] = self._columns.get(of, Log())
        if len(known) < len(self.transcript):
            known = self._columns[of] = known.extend(map(of, self.transcript.messages[len(known) :]))
        return known

    @cached_property
    def cuts(self) -> frozenset[int]:
        """Legal cuts of the whole transcript, edits aside."""
        return self.lens.rules.cuts(self.transcript.messages)

    def tokens(self, start: int, stop: int) -> int:
        """Tokens of `messages[start:stop]` as they were said."""
        return self.sums[stop] - self.sums[start]
