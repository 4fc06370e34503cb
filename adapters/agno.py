"""Agno: what to write stands in docs/frameworks.md, and runs."""

from adapters.framework import Regression, Timing

PACKAGE = "agno"
REGRESSIONS: tuple[Regression, ...] = ()
TIMINGS: tuple[Timing, ...] = ()
