"""What the model itself looks at matters more."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from refold.readable import plain_text
from refold.view import View

Attend = Callable[[Sequence[str]], Sequence[float]]
"""From the texts of all messages, oldest first, to how much the last one attends to each, at least 0. With a local model:
the attention from the last message's tokens, mean over heads and layers, summed over the tokens of each text. Called in
the middle of a compaction, once."""


@dataclass(frozen=True)
class Attention:
    """A model's attention to each message, as a share of the greatest: 1.0 for what the last message attends to most.

    Providers of models do not tell it, so *attend* is to be brought along; without, every score is 0.0. Of
    each message the first *chars* characters are given to it. *name* stands for it in the repr, which names edits.
    Row S1-38. Raises ValueError when it does not return one weight of at least 0 for each text.
    """

    attend: Attend | None = field(default=None, repr=False)
    name: str = ""
    chars: int = 2_000

    def __call__(self, view: View) -> Sequence[float]:
        """A score for each message."""
        said = view.transcript.messages
        if self.attend is None or not said:
            return [0.0] * len(said)
        weights = self.attend([plain_text(message)[: self.chars] for message in said])
        if len(weights) != len(said) or not all(weight >= 0 for weight in weights):
            raise ValueError(f"{self.name or 'attend'} gave no weight of at least 0 for each of {len(said)} texts")
        most = max(weights)
        return [weight / most if most else 0.0 for weight in weights]
