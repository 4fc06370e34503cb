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
from refold.transcript import AppendLog, Transcript


def keep_estimate(tokens: int) -> int:
    """No calibration: the estimate is the figure."""
    return tokens


@dataclass(frozen=True, slots=True)
class Profile:
    """Everything about a conversation that is not said in it."""

    count: Callable[[Message], int] = count_message
    """Tokens of one message, its framing included."""
    rules: Rules = Rules()
    fixed_tokens: int = 0
    """Tokens of the system prompt and the tool definitions, which no edit touches."""
    calibrate: Callable[[int], int] = keep_estimate
    """From estimated tokens of a whole request to expected ones (see `refold.compactor.calibration`)."""
    model: str = ""
    """The model that the conversation goes to, where its request names none."""


T = TypeVar("T")
Columns = Mapping[Callable[[Message], Any], AppendLog[Any]]
NO_COLUMNS: Columns = MappingProxyType({})


class CountedTranscript:
    """A transcript with its token sums and legal cuts, each worked out once."""

    def __init__(
        self, transcript: Transcript, profile: Profile, sums: AppendLog[int], columns: Columns = NO_COLUMNS
    ) -> None:
        self.transcript, self.profile, self.token_sums = transcript, profile, sums
        self._columns = dict(columns)

    @classmethod
    def of(cls, transcript: Transcript, profile: Profile) -> "CountedTranscript":
        """Count a transcript from its beginning."""
        return cls(transcript, profile, AppendLog(accumulate(map(profile.count, transcript.messages), initial=0)))

    def extend(self, messages: Sequence[Message]) -> "CountedTranscript":
        """The base of the transcript followed by *messages*, in the time of what is added."""
        sums = list(accumulate(map(self.profile.count, messages), initial=self.token_sums[-1]))[1:]
        return CountedTranscript(
            self.transcript.extend(messages), self.profile, self.token_sums.extend(sums), self._columns
        )

    def with_profile(self, profile: Profile) -> "CountedTranscript":
        """The same transcript with the same sums, through another profile."""
        return CountedTranscript(self.transcript, profile, self.token_sums, self._columns)

    def map_cached(self, of: Callable[[Message], T]) -> AppendLog[T]:
        """*of* of every message, worked out once for each while the transcript grows. *of* must be pure."""
        known: AppendLog[T] = self._columns.get(of, AppendLog())
        if len(known) < len(self.transcript):
            known = self._columns[of] = known.extend(map(of, self.transcript.messages[len(known) :]))
        return known

    @cached_property
    def cuts(self) -> frozenset[int]:
        """Legal cuts of the whole transcript, edits aside."""
        return self.profile.rules.cuts(self.transcript.messages)

    def tokens(self, start: int, stop: int) -> int:
        """Tokens of `messages[start:stop]` as they were said."""
        return self.token_sums[stop] - self.token_sums[start]
