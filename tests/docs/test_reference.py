"""docs/reference.md is what `make reference` writes."""

import subprocess
import sys

import pytest

from tests.support.pages import ROOT


@pytest.mark.slow
def test_the_reference_is_what_the_public_names_say() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "docs" / "reference.py"], capture_output=True, text=True, check=True
    )
    assert done.stdout == (ROOT / "docs" / "reference.md").read_text("utf-8"), "run: make reference"
