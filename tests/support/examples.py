"""How many examples a test tries: few on every change, many at night (`make nightly`)."""

import os

import pytest
from hypothesis import settings

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"

thorough = settings(
    max_examples=settings().max_examples + (settings().max_examples if NIGHTLY else 5)
)
"""Decorates the laws that everything else stands on: five examples more, at night twice as many."""


nightly = pytest.mark.skipif(not NIGHTLY, reason="dear: `make nightly` runs it")
"""Marks what is dear and rarely breaks."""


def examples_at_night(by_day: int, at_night: int) -> int:
    """Choose *few*, or *many* in the nightly run."""
    return at_night if NIGHTLY else by_day
