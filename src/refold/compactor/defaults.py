"""The default strategies: sensible ones, gentlest first."""

from typing import Any

from refold.core.strategy import Strategy
from refold.strategies import (
    ClearThinking,
    ClearToolInputs,
    ClearToolResults,
    ClipResults,
    DropDuplicates,
    Summarize,
    SummarizeTo,
)

TAIL = 0.8
"""The share of the target that the newest messages may take."""


def default_strategies(target: int = 60_000) -> tuple[Strategy, ...]:
    """Return what `refold.compact` and the command line use by default, gentlest first.

    *target* is the number of tokens that the budget comes down to: what is older than its newest
    four fifths, then than two fifths, is summarised, so that little of it goes unused. Summaries
    come before the clearing of results: on recorded sessions that keeps more of what later calls
    use at the same size (docs/benchmarks.md). A summary takes at most a tenth of *target*, from 600
    to 4,000 tokens.
    """
    return (
        DropDuplicates(),
        ClipResults(limit=50_000),
        ClearThinking(keep=2),
        fill(target, TAIL),
        fill(target, TAIL / 2),
        ClearToolResults(keep=3),
        ClearToolInputs(keep=3),
        Summarize(keep=8, max_tokens=summary_room(target)),
    )


def summary_room(target: int) -> int:
    """Return the tokens of a summary in a request of *target* tokens: a tenth of them, from 600 to
    4,000."""
    return max(600, min(4_000, target // 10))


def fill(target: int, keep: float, **how: Any) -> SummarizeTo:
    """Return a `SummarizeTo` that comes down to *target* tokens: the newest messages take the share
    *keep* of them, the summary `summary_room`. *how*: its other settings."""
    tokens = max(1, target)
    # four digits, not four places: of a large target never nothing
    most = float(f"{summary_room(target) / tokens:.4g}")
    return SummarizeTo(tokens, keep=keep, at_most=min(1.0, most), **how)
