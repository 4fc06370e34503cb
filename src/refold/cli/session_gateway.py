"""A gateway for as long as one command runs: how it is started, and what its process does.

It starts beside the command, whose first request waits in the queue of the socket; so this module
imports nothing that takes time before it is in a process of its own.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any, cast

from refold import gateway
from refold.errors import StoreError

RECORD = "30d"
"""How long transcripts are kept, so that the page can show them."""
RESTARTS = 3
"""Of a gateway that ends by itself."""
END_SECONDS = 5.0
"""That it may take to write what it has not written yet."""
LOG_BYTES = 1_000_000
NOTHING_KEPT = "refold: nothing is kept: "
"""What the gateway's log says of a store that cannot be used."""
IS_POSIX = os.name == "posix"


@dataclass(frozen=True, slots=True)
class Order:
    """What the process of the gateway is told."""

    urls: Mapping[str, str]
    """Base URLs by the first part of the path that leads to them."""
    store: str
    config: str = ""
    """A refold.toml; empty for none."""
    shadow: bool = False


class SessionGateway:
    """A gateway of this process. Its socket stays open here, so that one that ends by itself is
    started again at the same address."""

    def __init__(self, data: Path, port: int) -> None:
        """Listen on *port*, 0 for any. Raises OSError if it is taken."""
        self._data, self._is_ending = data, threading.Event()
        self._listening = socket.create_server(("127.0.0.1", port), backlog=128)
        self._process: subprocess.Popen[bytes] | None = None
        self.port: int = self._listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = data / "gateway.log"
        self._log_begins = 0

    def start(self, order: Order, warn: Any) -> None:
        """Start it; *warn* gets a line when it ends by itself. Raises OSError."""
        self._log_begins = self.log.stat().st_size if self.log.exists() else 0
        self._process = process = self._spawn(order)
        threading.Thread(target=self._watch, args=(process, order, warn), daemon=True).start()

    @property
    def trouble(self) -> str:
        """Why nothing is kept, as far as the log has it by now."""
        with suppress(OSError):
            log = self.log.read_bytes()
            begin = self._log_begins if self._log_begins <= len(log) else 0  # else it is a new one
            for line in log[begin:].decode("utf-8", "replace").splitlines():
                if line.startswith(NOTHING_KEPT):
                    return line.removeprefix(NOTHING_KEPT)
        return ""

    def close(self) -> None:
        """End it, once it has written what it has to."""
        self._is_ending.set()
        if (process := self._process) is not None:
            with suppress(OSError):
                cast("IO[bytes]", process.stdin).close()
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._listening.close()

    def _spawn(self, order: Order) -> subprocess.Popen[bytes]:
        """Start the process in a session of its own: the terminal's signals are the command's."""
        if not IS_POSIX:  # no socket is handed over there: the process binds the port itself
            self._listening.close()
        is_long = self.log.exists() and self.log.stat().st_size > LOG_BYTES
        paths = (str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", ""))
        with self.log.open("wb" if is_long else "ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "refold.cli.session_gateway"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=self._data,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
                pass_fds=[self._listening.fileno()] if IS_POSIX else [],
                start_new_session=True,
            )
        place = {"socket": self._listening.fileno() if IS_POSIX else -1, "port": self.port}
        pipe = cast("IO[bytes]", process.stdin)
        with suppress(OSError):  # it has ended already: who watches it will see
            pipe.write(json.dumps({**place, **asdict(order)}).encode() + b"\n")
            pipe.flush()
        if not IS_POSIX:
            _await_port(self.port, process)
        return process

    def _watch(self, process: subprocess.Popen[bytes], order: Order, warn: Any) -> None:
        for _ in range(RESTARTS):
            process.wait()
            if self._is_ending.is_set():
                return
            warn(f"the gateway ended, and is started again; {self.log} says why")
            self._process = process = self._spawn(order)
        process.wait()
        if not self._is_ending.is_set():
            warn("the gateway ended again: requests fail from now on")
            self._listening.close()


def _await_port(port: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 30
    while process.poll() is None and time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return


# --- in the process of the gateway -------------------------------------------------------------


def serve_session() -> None:
    """Serve until standard input ends, which it does with the process that wrote the order there.
    A store that cannot be used is no reason not to serve."""
    order = json.loads(sys.stdin.buffer.readline())
    number, port = order.pop("socket"), order.pop("port")
    if number >= 0:
        listening = socket.socket(fileno=number)
    else:
        listening = socket.create_server(("127.0.0.1", port))
    config = _make_config(Order(**order), port)
    threading.Thread(target=_stop_at_end, daemon=True).start()
    try:
        gateway.run(config, listening)
    except (StoreError, OSError, ImportError) as error:  # the last: no client of its database
        sys.stderr.write(f"{NOTHING_KEPT}{error}\n")
        gateway.run(replace(config, store=":memory:", record=""), listening)


def _stop_at_end() -> None:
    sys.stdin.buffer.read()
    signal.raise_signal(signal.SIGTERM)


def _make_config(order: Order, port: int) -> "gateway.Config":
    """Return the settings: the user's, for one user on this machine."""
    config = gateway.load_config(order.config) if order.config else gateway.Config(log="warning")
    config = gateway.with_environment(config)
    upstreams = [
        gateway.Upstream(name=name, url=url, prefix=f"/{name}") for name, url in order.urls.items()
    ]
    return replace(
        config,
        host="127.0.0.1",
        port=port,
        upstreams=tuple(upstreams),
        store=order.store,
        tenant="one",
        workers=1,
        record=config.record or RECORD,
        files=config.files is not False,
        settings=replace(config.settings, shadow=order.shadow or config.settings.shadow),
        limits=replace(config.limits, grace_seconds=1),
    )


if __name__ == "__main__":
    serve_session()
