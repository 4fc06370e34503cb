"""pydantic-ai's harness with Refold as a tier of `TieredCompaction`, which replaces the history by
the result of its tiers."""

from pydantic_ai_harness import TieredCompaction

from adapters import pydantic_ai
from adapters.framework import Job, Regression, Talk, Timing
from adapters.session import TARGET

PACKAGE = "pydantic-ai-harness"
REGRESSIONS: tuple[Regression, ...] = ()
TIMINGS: tuple[Timing, ...] = ()


def talk(job: Job) -> Talk:
    """Run the turns. The harness asks from its target on, and Refold's budget decides."""
    return pydantic_ai.talk(
        job, lambda refold: TieredCompaction(tiers=[refold], target_tokens=TARGET)
    )
