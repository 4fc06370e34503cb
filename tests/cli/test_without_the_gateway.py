"""The command line with only its own extra installed."""

import gc
import subprocess
import sys

import pytest

from refold.cli import main
from refold.gateway import NEEDED

WITHOUT = "import sys; sys.modules.update(dict.fromkeys({packages!r})); {then}"


@pytest.mark.parametrize("module", [
    "refold.cli.commands", "refold.cli.hook", "refold.cli.run", "refold.gateway.pipeline.pipeline",
    "refold.gateway.settings", "refold.session_files", "refold.compactor.compactor", "refold.corpus",
])  # fmt: skip
def test_modules_are_imported_without_the_packages_of_the_gateway(module: str) -> None:
    code = WITHOUT.format(packages=NEEDED, then=f"import {module}")
    subprocess.run([sys.executable, "-c", code], check=True)


def test_importing_the_gateway_without_its_extra_names_the_extra() -> None:
    code = WITHOUT.format(packages=NEEDED, then="from refold.gateway import Config")
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 1 and "extra 'gateway'" in ran.stderr


def test_garbage_collection_is_enabled_after_a_command_has_run(monkeypatch) -> None:
    """The garbage collector is off only while a command is loaded."""
    monkeypatch.setattr(sys, "argv", ["refold", "--version"])
    try:
        with pytest.raises(SystemExit):
            main()
        assert gc.isenabled()
    finally:
        gc.enable()
