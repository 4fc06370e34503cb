"""`refold serve` in a separate process."""

import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CONFIG = """\
port = {port}
log = "warning"

[[upstream]]
name = "model"
url = "{upstream}"
{windows}
"""


class RunningGateway:
    """A gateway that listens at `url`."""

    def __init__(self, url: str) -> None:
        self.url = url

    def counts(self) -> dict[str, float]:
        """Return its counters by name with labels."""
        with urllib.request.urlopen(f"{self.url}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
        return {name: float(value) for name, _, value in pairs}


def total(counts: dict[str, float], name: str, label: str = "") -> int:
    """Return the sum of a counter over all label sets with *label*."""
    return int(
        sum(
            value for key, value in counts.items() if key.partition("{")[0] == name and label in key
        )
    )


@contextmanager
def run_gateway(place: Path, upstream: str, windows: dict[str, int]) -> Iterator[RunningGateway]:
    """Run a gateway in *place*."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    table = (
        "[windows]\n" + "\n".join(f'"{model}" = {tokens}' for model, tokens in windows.items())
        if windows
        else ""
    )
    (place / "refold.toml").write_text(
        CONFIG.format(port=port, upstream=upstream, windows=table), encoding="utf-8"
    )
    with (place / "gateway.log").open("wb") as log:
        command = [sys.executable, "-m", "refold", "serve", "--config", "refold.toml"]
        process = subprocess.Popen(command, cwd=place, stdout=log, stderr=log)
    try:
        _wait(f"http://127.0.0.1:{port}", process)
        yield RunningGateway(f"http://127.0.0.1:{port}")
    finally:
        process.terminate()
        process.wait(30)


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 30
    while process.poll() is None and time.monotonic() < until:
        try:
            urllib.request.urlopen(f"{url}/refold/ready").close()
        except urllib.error.URLError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError("refold serve did not start")
