"""Agno: docs/frameworks.md has the code to write, which is run."""

from adapters.framework import Regression, Timing

PACKAGE = "agno"
REGRESSIONS: tuple[Regression, ...] = ()
TIMINGS: tuple[Timing, ...] = ()
