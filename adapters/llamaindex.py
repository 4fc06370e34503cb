"""LlamaIndex: what to write stands in docs/frameworks.md, and runs."""

from adapters.framework import Regression, Timing

PACKAGE = "llama-index-core"
REGRESSIONS: tuple[Regression, ...] = ()
TIMINGS: tuple[Timing, ...] = ()
