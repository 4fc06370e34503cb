"""Shared parts of the tests of the providers' SDKs."""

from importlib import import_module
from typing import Any

import pytest


class LazyModule:
    """A module that is imported when a public name of it is first read.

    Each process that runs tests collects all of them, and most use no SDK: importing these took
    most of the time of collecting.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # pytest asks every value of a file for such names
            raise AttributeError(name)
        return getattr(import_module(self._name), name)


IGNORE_SDK_WARNINGS = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
"""Ignores the SDKs' warnings, which are errors in our tests otherwise."""
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
"""A one-pixel PNG file in base64."""
