"""Several scores as one."""

from collections.abc import Sequence
from dataclasses import dataclass

from refold.scorer import Scorer, scores
from refold.view import View


@dataclass(frozen=True)
class Weighted:
    """The weighted sum of scorers, divided by the sum of the weights, so that it keeps to 0.0 to 1.0
    when they do: `Weighted(((1.0, Recency()), (0.5, Freshness())))`. Scorers of weight 0 are not
    asked. Raises ValueError for a negative weight, or when none is positive.
    """

    terms: tuple[tuple[float, Scorer], ...]
    """Weight and scorer."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "terms", tuple((weight, scorer) for weight, scorer in self.terms))
        weights = [weight for weight, _ in self.terms]
        if min(weights, default=0) < 0 or not any(weights):
            raise ValueError("weights must not be negative, and one must be positive")

    def __call__(self, view: View) -> Sequence[float]:
        """A score for each message."""
        terms = [(weight, scores(scorer, view)) for weight, scorer in self.terms if weight]
        total = sum(weight for weight, _ in terms)
        return [sum(weight * found[at] for weight, found in terms) / total for at in range(len(view.transcript))]
