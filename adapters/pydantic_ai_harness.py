"""pydantic-ai's harness: Refold as a tier of `TieredCompaction`, which keeps what its tiers leave."""

from pydantic_ai_harness import TieredCompaction

from adapters import pydantic_ai
from adapters.framework import Job, Regression, Talk, Timing
from adapters.session import TARGET

PACKAGE = "pydantic-ai-harness"
REGRESSIONS: tuple[Regression, ...] = ()
TIMINGS: tuple[Timing, ...] = ()


def talk(job: Job) -> Talk:
    """Hold turns. The harness asks from the target on, and Refold's budget says whether it is due."""
    return pydantic_ai.talk(
        job, lambda refold: TieredCompaction(tiers=[refold], target_tokens=TARGET)
    )
