"""smolagents: docs/frameworks.md has the code to write, which is run."""

from adapters.framework import Regression, Timing

PACKAGE = "smolagents"
REGRESSIONS: tuple[Regression, ...] = ()
TIMINGS: tuple[Timing, ...] = ()
