"""How much is tried: little on every change, very much at night (`make nightly`)."""

import os

from hypothesis import settings

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"

thorough = settings(max_examples=3 * settings().max_examples)
"""Decorates the laws that everything else stands on: three times the examples of the profile."""


def at_night(few: int, many: int) -> int:
    """*few*, or *many* in the nightly run."""
    return many if NIGHTLY else few
