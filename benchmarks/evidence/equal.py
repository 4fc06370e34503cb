"""Equal tokens: widen or narrow a policy's window until it sends as much as another."""

from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")
TRIES = 3
NEAR = 0.03
"""Relative difference in tokens that is allowed."""


def match_sent_tokens(
    run: Callable[[float], Result], sent: Callable[[Result], int], wanted: int
) -> Result:
    """Return the run whose tokens are nearest to *wanted*.

    *run* takes the factor for the windows. A policy that cannot get near keeps its nearest run.
    """
    factor, runs = 1.0, list[Result]()
    for _ in range(TRIES):
        runs.append(run(factor))
        share = sent(runs[-1]) / wanted
        is_stuck = len(runs) > 1 and sent(runs[-1]) == sent(runs[-2])
        if abs(share - 1) <= NEAR or is_stuck:
            break
        factor = min(4.0, max(0.25, factor / share))
    return min(runs, key=lambda result: abs(sent(result) - wanted))
