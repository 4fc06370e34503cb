"""Other libraries as policies: each runs in a process of the environment that it is installed
in."""

import atexit
import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.evidence.chat import iter_chat
from benchmarks.evidence.policies import POLICIES, MakePolicy
from benchmarks.evidence.sessions import ROOT, Session
from refold.codecs.detect import open_payload
from refold.messages import Message

WORKER = Path(__file__).with_name("peers_worker.py")
OPENHANDS = Path(__file__).with_name("openhands_worker.py")
QUIET = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "OPENHANDS_SUPPRESS_BANNER": "1"}


def peers_python() -> Path:
    """Return the peers' interpreter: REFOLD_PEERS, or the one of `make evidence`."""
    return Path(os.environ.get("REFOLD_PEERS", ROOT / ".bench-evidence" / "bin" / "python"))


def openhands_python() -> Path:
    """Return the interpreter of OpenHands' SDK, which needs a newer Python: see `make adapters`."""
    root = Path(os.environ.get("REFOLD_ADAPTERS", ROOT / ".adapters"))
    return root / "openhands" / "bin" / "python"


class Worker:
    """A process that compacts with other libraries; it ends when its input ends."""

    def __init__(self, python: Path, script: Path = WORKER) -> None:
        self._process = subprocess.Popen(
            [python, "-I", script],  # isolated: it never sees this repository
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **QUIET},
            text=True,
        )

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """Send a line and read a line. Raises RuntimeError if the process ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        if not (line := self._process.stdout.readline()):
            raise RuntimeError(f"the worker of the peers ended: {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End the process."""
        with self._process:
            pass


@cache
def worker_of(script: Path, _: int) -> Worker:
    """Return one worker for all sessions of a process, by its id; importing the libraries takes
    seconds."""
    worker = Worker(openhands_python() if script == OPENHANDS else peers_python(), script)
    atexit.register(worker.close)
    return worker


def find_peers() -> dict[str, Path]:
    """Return the names of the peers that can run here, each with its script."""
    pythons = {WORKER: peers_python(), OPENHANDS: openhands_python()}
    return {
        name: script
        for script, python in pythons.items()
        if python.exists()
        for name in worker_of(script, os.getpid()).ask({})["peers"]
    }


@dataclass
class Peer:
    """A policy that sends what another library makes of the messages."""

    name: str
    script: Path
    window: int
    sent: int = -1
    """Number of messages that the worker has; -1 before the session begins there."""

    def __call__(self, _: dict[str, Any], messages: Sequence[Message]) -> Sequence[Message]:
        """Send the new messages to the worker and return what it sends."""
        worker = worker_of(self.script, os.getpid())
        if self.sent < 0:
            worker.ask({"peer": self.name, "window": self.window})
            self.sent = 0
        new = list(iter_chat(messages[self.sent :]))
        self.sent = len(messages)
        return open_payload({"messages": worker.ask({"new": new})["send"]}).decode()


@dataclass(frozen=True)
class MakePeer:
    """Creates the policy of a peer for each session; can be sent to another process."""

    name: str
    script: Path

    def __call__(self, _: Session, window: int) -> Peer:
        """Return a policy without state."""
        return Peer(self.name, self.script, window)


@cache
def all_policies() -> dict[str, MakePolicy]:
    """Return our policies, the controls, and the peers that can run here."""
    peers = {name: MakePeer(name, script) for name, script in find_peers().items()}
    return {**POLICIES, **peers}
