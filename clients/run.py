"""One run of one agent: alone, or through the gateway."""

import os
import subprocess
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from clients import task
from clients.client import Client
from clients.gateway import Served, served, total
from clients.model import WINDOW, Model, is_for_an_answer
from clients.outside import outside
from refold import check
from refold.testing.scripted_provider import ScriptedProvider

SECONDS = 240
"""That a run may take."""
WAYS = ("direct", "window told", "window not told")
"""Without the gateway; with it and the window in refold.toml; with it, and the window to be learnt from a context error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of it. Counts and tokens are sums over the run."""

    client: Client
    way: str
    requests: int
    """Answered by the model, of the conversation itself."""
    aside: int
    """Answered by the model, without tools: titles, the client's own summaries."""
    refused: int
    """Context errors of the model."""
    reached: int
    """Errors that reached the client."""
    said: int
    """Tokens that the client sent: those that the model got and, as the gateway estimates them, those that edits saved."""
    sent: int
    """Tokens that the model got, in requests that it answered."""
    edited: int
    """Requests that went out edited."""
    again: int
    """Files that the model read more than once."""
    invalid: int
    """Of all that reached the model, refused ones included, those that `refold.check` finds fault with."""
    status: int
    """The client's exit status; -1 when it was stopped."""
    done: bool
    """Is the result there, and right?"""
    seconds: float
    machines: tuple[str, ...]
    """Other machines that it wanted to reach."""
    told: str
    """The end of what it printed."""

    @property
    def is_fine(self) -> bool:
        """Did it go as it should? Alone a context error must come; through the gateway nothing may be seen of it."""
        if self.way == "direct":
            return self.reached > 0
        return (
            self.done
            and self.status == 0
            and not self.reached
            and not self.invalid
            and self.edited > 0
        )


def run(client: Client, way: str, programs: Path) -> Outcome:
    """One run, in a directory of its own that is gone afterwards."""
    model = Model(client.read, client.shell)
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        home, work, place = (root / name for name in ("home", "work", "gateway"))
        for directory in (home, work, place):
            directory.mkdir()
        task.lay_out(work)
        upstream = stack.enter_context(ScriptedProvider(model))
        windows = {client.model: WINDOW} if way == "window told" else {}
        gateway = (
            None if way == "direct" else stack.enter_context(served(place, upstream.url, windows))
        )
        way_out = stack.enter_context(outside())
        command = client.settled(home, gateway.url if gateway else upstream.url, task.PROMPT)
        environment = {**bare(home), **way_out.environment, **command.environment}
        start = time.monotonic()
        status, told = _ran([str(programs / client.program), *command.arguments], work, environment)
        return Outcome(
            client=client,
            way=way,
            seconds=time.monotonic() - start,
            status=status,
            told=told[-2_000:],
            done=task.is_done(work),
            requests=len(model.requests),
            aside=model.aside,
            refused=model.refused,
            again=len(model.reads) - len(set(model.reads)),
            invalid=sum(
                bool(check(asked.json, client.api))
                for asked in upstream.received
                if is_for_an_answer(asked)
            ),
            machines=tuple(sorted(way_out.asked)),
            **_figures(gateway, model),
        )


def _figures(gateway: Served | None, model: Model) -> dict[str, int]:
    """What the gateway counted; without one, what the model saw."""
    if gateway is None:
        return {"said": model.tokens, "sent": model.tokens, "edited": 0, "reached": model.refused}
    counts = gateway.counts()
    saved = total(counts, "refold_tokens_before_total") - total(counts, "refold_tokens_after_total")
    failed = total(counts, "refold_http_requests_total", 'status="4') + total(
        counts, "refold_http_requests_total", 'status="5'
    )
    edited = total(counts, "refold_requests_total", 'outcome="edited"')
    return {"said": model.tokens + saved, "sent": model.tokens, "edited": edited, "reached": failed}


def bare(home: Path) -> dict[str, str]:
    """An environment that knows nothing of the user."""
    quiet = {
        "TERM": "dumb",
        "NO_COLOR": "1",
        "DO_NOT_TRACK": "1",
        "NO_UPDATE_NOTIFIER": "1",
        "LANG": "C.UTF-8",
    }
    return {"PATH": os.environ["PATH"], "HOME": str(home), **quiet}


def _ran(command: list[str], work: Path, environment: dict[str, str]) -> tuple[int, str]:
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(
            command,
            cwd=work,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
        try:
            status = process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            status = -1
        out.seek(0)
        return status, out.read().decode("utf-8", "replace")
