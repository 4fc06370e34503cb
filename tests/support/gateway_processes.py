"""Gateways as real processes, as `refold serve` starts them."""

import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import randrange

import httpx

from tests.support.children import default_signals


def free_port() -> int:
    """Return a free port below the ephemeral range, so that no other test gets it meanwhile."""
    while True:
        port = randrange(10_000, 32_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


PATIENT = "\n[compaction]\ndecide_timeout_seconds = 60\n"
"""A long timeout, so that decisions do not depend on the load of the machine."""


class GatewayProcess:
    """Run `refold serve` with a configuration in the folder *place*.

    It waits for its decisions unless the configuration has a table `[compaction]`. It logs to a
    file, or to *pipe*. *descriptors*, if not 0, limits its file descriptors.
    """

    def __init__(
        self,
        place: Path,
        name: str,
        config: str,
        *flags: str,
        pipe: int | None = None,
        descriptors: int = 0,
        **environment: str,
    ) -> None:
        self.port = free_port()
        patient = "" if "[compaction]" in config else PATIENT
        (place / f"{name}.toml").write_text(
            f"port = {self.port}\n{config}{patient}", encoding="utf-8"
        )
        self.log = place / f"{name}.log"
        command = [sys.executable, "-m", "refold", "serve", "--config", f"{name}.toml", *flags]
        with self.log.open("wb") as log, default_signals():
            self.process = subprocess.Popen(
                command, cwd=place, stderr=pipe or log, stdout=log, env=environment or None
            )
        if descriptors:
            resource.prlimit(self.process.pid, resource.RLIMIT_NOFILE, (descriptors, descriptors))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def is_ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/refold/ready", timeout=60).status_code == 200
        except httpx.HTTPError:
            return False

    def wait(self) -> None:
        for _ in range(6_000):
            if self.is_ready():
                return
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.1)
        raise AssertionError(self.log.read_text())

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(300)

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(300)


@contextmanager
def run_processes(*processes: GatewayProcess) -> Iterator[None]:
    """Wait until *processes* are ready, and stop them at the end."""
    try:
        for process in processes:
            process.wait()
        yield
    finally:
        for process in processes:
            if process.process.poll() is None:
                process.stop()
