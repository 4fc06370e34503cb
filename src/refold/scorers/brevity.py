"""What takes few tokens is cheap to keep."""

from collections.abc import Sequence
from dataclasses import dataclass

from refold.view import View


@dataclass(frozen=True)
class Brevity:
    """1.0 for nothing, a half for a message of *half* tokens, less for a longer one: with it the
    clearing of one long result comes before that of ten short ones. Raises ValueError for a *half*
    that is not positive."""

    half: float = 1_000.0

    def __post_init__(self) -> None:
        if self.half <= 0:
            raise ValueError("half must be positive")

    def __call__(self, view: View) -> Sequence[float]:
        """A score for each message."""
        tokens = (view.ground.tokens(at, at + 1) for at in range(len(view.transcript)))
        return [self.half / (self.half + count) for count in tokens]
