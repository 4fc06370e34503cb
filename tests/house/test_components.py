"""The report on skipped tests, and when a skip is a failure."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.components import COMPONENTS, component_of, is_failure, summarize_skips

ROOT = Path(__file__).parents[2]
REASONS = [
    "no browser: chromium and chromedriver are not installed",
    "PostgreSQL does not start here: OSError: x",
    "real recordings are not at /x (set REFOLD_SHARED)",
    "could not import 'splintr': No module named 'splintr'",
]


def run(folder: Path, test: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run pytest on one file with our conftest."""
    (folder / "test_it.py").write_text(test)
    (folder / "conftest.py").write_text("from conftest_of_refold import *\n")
    (folder / "conftest_of_refold.py").write_text(
        (ROOT / "tests" / "conftest.py").read_text(encoding="utf-8")
    )
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("REFOLD_", "PYTEST_"))
    }
    paths = os.pathsep.join(
        filter(None, (str(folder), str(ROOT), os.environ.get("PYTHONPATH", "")))
    )
    options = [
        "-q",
        "-p",
        "xdist.plugin",
        "-p",
        "no:cacheprovider",
        "-c",
        os.devnull,
        f"--rootdir={folder}",
        str(folder),
    ]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        env=clean | {"PYTHONPATH": paths, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"} | environment,
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
    )


SKIPPED = """
import pytest
@pytest.mark.parametrize("n", range(3))
def test_in_a_browser(n):
    pytest.skip("no browser: chromium and chromedriver are not installed")
def test_on_recordings():
    pytest.skip("real recordings are not at /x (set REFOLD_SHARED)")
def test_that_runs():
    pass
"""


def test_f28_skipped_tests_are_reported_with_the_install_command(tmp_path: Path) -> None:
    """19 tests of the page used to be skipped silently."""
    done = run(tmp_path, SKIPPED)
    assert done.returncode == 0, done.stdout + done.stderr
    _, _, end = done.stdout.partition("not run")
    assert "3 tests were not run: they need a browser" in end
    assert "apt-get install chromium chromium-driver" in end
    assert "REFOLD_SHARED" in end


def test_f28_if_all_is_required_missing_components_fail_except_recordings(tmp_path: Path) -> None:
    done = run(tmp_path, SKIPPED, REFOLD_REQUIRE="all")
    assert done.returncode == 1 and "3 failed, 1 passed, 1 skipped" in done.stdout
    assert "this is missing: no browser" in done.stdout
    whole = "import pytest\npytest.importorskip('no_such_package_of_any_kind')\n"
    missing = run(tmp_path, whole, REFOLD_REQUIRE="all")
    assert "this is missing: could not import 'no_such_package_of_any_kind'" in missing.stdout
    assert "1 error" in missing.stdout


@pytest.mark.parametrize("reason", REASONS)
def test_f28_every_component_is_recognised_by_its_skip_reason(reason: str) -> None:
    component = component_of(reason)
    assert component is COMPONENTS[REASONS.index(reason)]
    assert is_failure(reason, {"REFOLD_REQUIRE": "all"}) == component.required
    assert not is_failure(reason, {})
    first, then = summarize_skips([reason] * 2)
    assert first.startswith("2 tests were not run") and then.strip() == component.remedy


def test_skips_without_an_installable_component_are_reported_too() -> None:
    assert list(summarize_skips(["needs another user"])) == [
        "1 test was not run: needs another user"
    ]
    assert not is_failure("needs another user", {"REFOLD_REQUIRE": "all"})
