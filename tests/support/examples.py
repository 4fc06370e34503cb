"""Number of examples of a test: few by default, many in `make nightly`."""

import os

import pytest
from hypothesis import settings

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"

thorough = settings(
    max_examples=settings().max_examples + (settings().max_examples if NIGHTLY else 5)
)
"""Decorator for the fundamental laws: five more examples, nightly twice as many."""


nightly = pytest.mark.skipif(not NIGHTLY, reason="dear: `make nightly` runs it")
"""Marks expensive tests that rarely fail."""


def examples_at_night(by_day: int, at_night: int) -> int:
    """Return *few*, or *many* in the nightly run."""
    return at_night if NIGHTLY else by_day
