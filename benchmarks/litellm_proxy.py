"""The LiteLLM proxy as a peer, in `.bench-litellm`: its requirements conflict with those of the
other peers."""

import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLACE = ROOT / ".bench-litellm"
PINS = ROOT / "requirements" / "bench-litellm.txt"
PROGRAM = PLACE / "bin" / "litellm"
DONE = PLACE / "installed"

CONFIG = """\
model_list:
  - model_name: bench
    litellm_params:
      model: openai/bench
      api_base: {url}/v1
      api_key: k
"""
SETTINGS = {
    "LITELLM_LOG": "ERROR",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # prices are not fetched
    "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",  # no key to check
}


def install():
    """Install the pinned version if it is missing. Return False, with a message, if that fails."""
    if DONE.exists() and DONE.read_text() == PINS.read_text():
        return True
    if not (PLACE / "bin" / "python").exists():
        venv.create(PLACE, with_pip=True)
    pip = [PLACE / "bin" / "python", "-m", "pip", "install", "--quiet", "--requirement", PINS]
    if subprocess.run(pip, check=False).returncode:
        print(
            f"The LiteLLM proxy could not be installed into {PLACE.name}: no row of it.",
            file=sys.stderr,
        )
        return False
    DONE.write_text(PINS.read_text())
    return True


def start(directory, url, port):
    """Start the proxy as a process, with the model `bench` at *url*."""
    path = Path(directory) / "litellm.yaml"
    path.write_text(CONFIG.format(url=url))
    command = [PROGRAM, "--config", path, "--port", str(port), "--num_workers", "1"]
    environment = {**os.environ, **SETTINGS}
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def version():
    """Return the pinned version."""
    return next(
        line.strip().rpartition("=")[2] for line in PINS.open() if line.startswith("litellm==")
    )
