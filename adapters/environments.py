"""The environment of a framework, created once, and again if its requirements change.

`python -m adapters.environments openhands` only creates it.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]


class UnavailableError(Exception):
    """Raised if a framework cannot run here. The message says why."""


def requirements_path(name: str, kind: str = "adapters") -> Path:
    """Return the path of a framework's pinned requirements."""
    return ROOT / "requirements" / f"{kind}-{name}.txt"


def create_environment(name: str, root: Path, kind: str = "adapters") -> Path:
    """Return the interpreter of `root/name`, created if missing. Raises `UnavailableError`."""
    requirements, home = requirements_path(name, kind), root / name
    python, mark = home / "bin" / "python", home / "installed"
    pins = requirements.read_text(encoding="utf-8")
    if mark.exists() and mark.read_text(encoding="utf-8") == pins:
        return python
    base = _find_python(pins)
    shutil.rmtree(home, ignore_errors=True)
    _run([base, "-m", "venv", str(home)])
    _run([str(python), "-m", "pip", "install", "--quiet", "--requirement", str(requirements)])
    mark.write_text(pins, encoding="utf-8")
    return python


def _find_python(pins: str) -> str:
    """Return a Python new enough for a framework. Raises `UnavailableError`."""
    match = re.search(r"^# python 3\.(\d+)$", pins, re.MULTILINE)
    least = int(match.group(1)) if match else 0
    if sys.version_info >= (3, least):
        return sys.executable
    names = [
        os.environ.get("REFOLD_PYTHON", ""),
        *(f"python3.{minor}" for minor in range(least, 20)),
    ]
    for name in filter(None, names):
        path = shutil.which(name)
        if (
            path
            and subprocess.run([path, "--version"], capture_output=True, check=False).returncode
            == 0
        ):
            return path
    raise UnavailableError(
        f"it needs Python 3.{least}, and none is here (REFOLD_PYTHON names a path)"
    )


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UnavailableError(f"{' '.join(command)}: {done.stderr.strip()[-300:]}")


def environment_of(home: Path) -> dict[str, str]:
    """Return a framework's environment variables: none of the user's, no telemetry."""
    quiet = {
        "OPENAI_API_KEY": "none",
        "ANTHROPIC_API_KEY": "none",
        "GOOGLE_API_KEY": "none",
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "DO_NOT_TRACK": "1",
        "PYTHONWARNINGS": "ignore",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    paths = f"{ROOT}{os.pathsep}{ROOT / 'src'}"
    return {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": paths, **quiet}


def run_worker(python: Path, name: str, task: str, place: Path, seconds: float = 300) -> str:
    """Run a task of `adapters.worker` and return its result; both are JSON. Raises RuntimeError."""
    with tempfile.TemporaryDirectory(dir=place) as files:
        given, result = Path(files) / "task.json", Path(files) / "result.json"
        given.write_text(task, encoding="utf-8")
        command = [str(python), "-m", "adapters.worker", name, str(given), str(result)]
        done = subprocess.run(
            command,
            cwd=place,
            env=environment_of(place),
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
        )
        if done.returncode or not result.exists():
            raise RuntimeError(f"{name}: {done.stdout[-1_000:]}{done.stderr[-3_000:]}")
        return result.read_text(encoding="utf-8")


if __name__ == "__main__":
    for wanted in sys.argv[1:]:
        try:
            create_environment(
                wanted, Path(os.environ.get("REFOLD_ADAPTERS", ".adapters")).absolute()
            )
        except UnavailableError as reason:
            print(f"{wanted} is skipped: {reason}", file=sys.stderr)
