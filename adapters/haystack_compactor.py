"""Haystack's `CompactionHook` with Refold as its compactor: hidden messages leave the state."""

from typing import Any

from haystack.hooks.compaction import CompactionHook

from adapters import haystack
from adapters.framework import MODEL, Job, Regression, Talk, Timing
from adapters.session import TARGET, TRIGGER, WINDOW
from refold import Compactor
from refold.adapters.haystack import RefoldCompactor

PACKAGE = "haystack-ai"
REGRESSIONS: tuple[Regression, ...] = ()
TIMINGS: tuple[Timing, ...] = ()


def talk(job: Job) -> Talk:
    """Run the turns. The hook decides when to compact, and how far."""
    return haystack.talk(job, _hook)


def _hook(generator: Any, compactor: Compactor) -> dict[str, Any]:
    refold = RefoldCompactor(MODEL)
    refold.compactor = compactor  # a compactor whose store outlives the process
    shares = {"compact_at": TRIGGER / WINDOW, "compact_to": TARGET / WINDOW}
    hook = CompactionHook(refold, context_window=WINDOW, **shares)
    return {"chat_generator": generator, "hooks": {"before_llm": [hook]}}
