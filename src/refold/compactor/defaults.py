"""The default strategies: sensible ones, gentlest first."""

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


def default_strategies(target: int = 60_000) -> tuple[Strategy, ...]:
    """Return what `refold.compact` and the command line use by default, gentlest first.

    *target* is the number of tokens that the budget comes down to. Two fifths of it, at most 6,000
    tokens, go to a summary, the rest to the newest messages, so that little of it goes unused.
    Summaries come before the clearing of results: on recorded sessions that keeps more of what
    later calls use at the same size (docs/benchmarks.md).
    """
    return (
        DropDuplicates(),
        ClipResults(limit=50_000),
        ClearThinking(keep=2),
        SummarizeTo(max(1, target)),
        ClearToolResults(keep=3),
        ClearToolInputs(keep=3),
        Summarize(keep=8, max_tokens=summary_room(target)),
    )


def summary_room(target: int) -> int:
    """Return the cap of the last summary in a request of *target* tokens: a fifth of them, from 600
    to 3,000, as `SummarizeTo` takes at least."""
    return max(600, min(3_000, target // 5))
