"""What was said lately matters more."""

from collections.abc import Sequence
from dataclasses import dataclass

from refold.view import View


@dataclass(frozen=True)
class Recency:
    """1.0 for the newest message, half of that for one that is *half* messages older, a third for
    one that is twice as old again. Raises ValueError for a *half* that is not positive."""

    half: float = 60.0

    def __post_init__(self) -> None:
        if self.half <= 0:
            raise ValueError("half must be positive")

    def __call__(self, view: View) -> Sequence[float]:
        """A score for each message."""
        last = len(view.transcript) - 1
        return [1 / (1 + (last - at) / self.half) for at in range(last + 1)]
