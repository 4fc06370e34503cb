"""What every view of one transcript shares."""

from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate

from refold.lens import Lens
from refold.log import Log
from refold.messages import Message
from refold.transcript import Transcript


class Ground:
    """A transcript with its token sums and legal cuts, each worked out once."""

    def __init__(self, transcript: Transcript, lens: Lens, sums: Log[int]) -> None:
        self.transcript, self.lens, self.sums = transcript, lens, sums

    @classmethod
    def of(cls, transcript: Transcript, lens: Lens) -> "Ground":
        """Count a transcript from its beginning."""
        return cls(transcript, lens, Log(accumulate(map(lens.count, transcript.messages), initial=0)))

    def extend(self, messages: Sequence[Message]) -> "Ground":
        """The ground of the transcript followed by *messages*, in the time of what is added."""
        sums = list(accumulate(map(self.lens.count, messages), initial=self.sums[-1]))[1:]
        return Ground(self.transcript.extend(messages), self.lens, self.sums.extend(sums))

    @cached_property
    def cuts(self) -> frozenset[int]:
        """Legal cuts of the whole transcript, edits aside."""
        return self.lens.rules.cuts(self.transcript.messages)

    def tokens(self, start: int, stop: int) -> int:
        """Tokens of `messages[start:stop]` as they were said."""
        return self.sums[stop] - self.sums[start]
