"""Environments of a user who installs something, without this directory or any user settings."""

import os
import shutil
import subprocess
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLACE = Path(os.environ.get("REFOLD_RELEASE", ROOT / ".release")).absolute()
TOOLS = PLACE / "tools" / "bin"
"""twine, uv, pipx and the linters, as pinned in requirements/release.txt."""


class CheckError(Exception):
    """Raised if a check fails. The message says what is wrong."""


def variables(home: Path) -> dict[str, str]:
    """Return the environment variables of a new user who reaches the same package index."""
    index = {name: text for name, text in os.environ.items() if name.startswith(("PIP_", "UV_"))}
    config = [Path.home() / ".config/pip/pip.conf", Path.home() / ".pip/pip.conf"]
    own = [("PIP_CONFIG_FILE", str(path)) for path in config if path.is_file()]
    return {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(home), **dict(own), **index}


def run(
    words: Sequence[str | Path],
    place: Path,
    extra: Mapping[str, str] | None = None,
    *,
    expected: int = 0,
) -> str:
    """Run a command in *place*; return its output. Raises `CheckError` unless it exits as
    *expected*."""
    done = subprocess.run(
        list(map(str, words)),
        cwd=place,
        env={**variables(place), **(extra or {})},
        capture_output=True,
        text=True,
        check=False,
        timeout=1_200,
    )
    if done.returncode != expected:
        shown = " ".join(map(str, words))[:200]
        tail = (done.stdout + done.stderr).strip()[-1_500:]
        raise CheckError(f"{shown}: exit {done.returncode}, not {expected}\n{tail}")
    return done.stdout + done.stderr


def create_environment(home: Path) -> Path:
    """Return the interpreter of a new, empty virtual environment at *home*."""
    shutil.rmtree(home, ignore_errors=True)
    venv.create(home)
    return home / "bin" / "python"


def megabytes(folder: Path) -> float:
    """Return the size of all files below *folder* in megabytes."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6
