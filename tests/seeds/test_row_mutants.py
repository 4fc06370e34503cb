"""The mutations of `make mutants PRESETS=1`: they fit the source, and the run tells which of them survive (F24)."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.seeds.row_mutants import mutations, read_named_tests
from tests.support.examples import nightly
from tests.support.pages import ROOT


def test_f24_every_row_with_a_named_test_has_a_mutation():
    assert {mutation.row for mutation in mutations()} == set(read_named_tests())


def test_f24_the_text_of_every_mutation_occurs_once_in_its_file():
    """Else what the run says would be about something else."""
    stale = [
        mutation
        for mutation in mutations()
        if (ROOT / mutation.file).read_text("utf-8").count(mutation.old) != 1
    ]
    assert stale == []


@nightly
@pytest.mark.slow
def test_f24_the_run_reports_surviving_broken_and_outdated_mutations(tmp_path: Path):
    """One of four is killed; a mutation that no test notices, one that fits nowhere and one that breaks an
    import are not."""
    table = tmp_path / "few.toml"
    policy = "src/refold/presets/two_layer.py"
    table.write_text(
        f"""S1-07 = [
        ["{policy}", "DEFAULT_TOKEN_THRESHOLD = 60_000", "DEFAULT_TOKEN_THRESHOLD = 6_000"],
        ["{policy}", "Always protected, whatever else is.", "Always protected."],
        ["{policy}", "no such text", ""],
        ["{policy}", "import Scorer", "import Nothing"],
        ]"""
    )
    command = [sys.executable, ROOT / "tests" / "seeds/row_mutants.py", table]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "S1-07 survived: " in done.stdout
    assert "'no such text' stands 0 times" in done.stdout
    assert "S1-07 broken: " in done.stdout
    assert done.stdout.endswith("1 of 4 mutations killed\n")
