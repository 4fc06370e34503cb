"""One run of one agent, alone or through the gateway."""

import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from clients import task
from clients.client import HUB, Client, Command
from clients.gateway import RunningGateway, run_gateway, total
from clients.model import WINDOW, Model, is_for_an_answer
from clients.outside import refuse_way_out
from clients.speech import count_mistaken, count_unsaid
from refold import check
from refold.cli.run import end_process
from refold.testing.scripted_provider import ScriptedProvider

SECONDS = 240
"""Maximum duration of a run in seconds."""
LATE_AFTER = 9
"""Number of answers after which the user types the next text."""
QUIET = 60
"""Seconds without a model request after which a client has stopped and waits for the user."""
REFOLD = (sys.executable, "-m", "refold")
RUN = "refold run"
WAYS = ("direct", "window told", "window not told", RUN)
"""Without the gateway; with it and the window in refold.toml; with it and the window learnt from a
context error; configured for the model itself and started by `refold run`, which puts a gateway
between them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a run. Counts and tokens are sums over the run."""

    client: Client
    way: str
    requests: int
    """Requests of the conversation that the model answered."""
    aside: int
    """Other requests that the model answered: titles, the client's own summaries."""
    refused: int
    """Context errors of the model."""
    errors: int
    """Errors that reached the client."""
    tokens_before: int
    """Tokens that the client sent: those that the model got, plus the gateway's estimate of those
    that edits saved."""
    tokens_sent: int
    """Tokens of the requests that the model answered."""
    edited: int
    """Requests that were sent with edits."""
    reread: int
    """Repeated reads of files whose codes the model had seen."""
    invalid: int
    """Requests with a violation that `refold.check` finds, including refused ones."""
    unsaid: int
    """Answered requests that lack the user's request of the open turn."""
    mistaken: int
    """Answered requests in which Refold attributes other text to the user."""
    status: int
    """Exit code of the client, or -1 if it was stopped."""
    is_done: bool
    """Whether the result is there and right."""
    seconds: float
    machines: tuple[str, ...]
    """Other machines that it tried to reach."""
    printed: str
    """End of its output."""

    @property
    def is_fine(self) -> bool:
        """Whether the run went as it should. Alone, a context error must come. Through the gateway,
        the client must not see one."""
        if self.way == "direct":
            return self.errors > 0
        faults = (
            *(self.status, self.errors, self.invalid),
            *(self.reread, self.unsaid, self.mistaken),
        )
        return self.is_done and self.edited > 0 and not any(faults)


def run(client: Client, way: str, install: Path) -> Outcome:
    """Run *client*, installed in *install*, in a temporary directory."""
    model = Model(client.make_script())
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        home, work, place = (root / name for name in ("home", "work", "gateway"))
        for directory in (home, work, place):
            directory.mkdir()
        task.lay_out(work)
        upstream = stack.enter_context(ScriptedProvider(model))
        windows = {client.model: WINDOW} if way == "window told" else {}
        gateway = (
            None
            if way in {"direct", RUN}
            else stack.enter_context(run_gateway(place, upstream.url, windows))
        )
        way_out = stack.enter_context(refuse_way_out())
        command = client.configure(home, gateway.url if gateway else upstream.url)
        environment = (
            bare_environment(home, install) | way_out.environment | dict(command.environment)
        )
        words = [str(program_path(client, install))]
        if way == RUN:
            (place / "refold.toml").write_text(
                f'log = "warning"\n[windows]\n"{client.model}" = {WINDOW}\n', encoding="utf-8"
            )
            words = [*REFOLD, "run", "--config", str(place / "refold.toml"), *words]
            environment |= {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
        stack.callback(end_process, home / HUB, "")
        start = time.monotonic()
        status, printed = _run_program(words, command, work, environment, model)
        return Outcome(
            client=client,
            way=way,
            seconds=time.monotonic() - start,
            status=status,
            printed=printed[:3000],
            is_done=task.is_done(work, late=client.is_interrupted),
            requests=len(model.requests),
            aside=model.aside,
            refused=model.refused,
            reread=model.script.reread,
            invalid=sum(
                bool(check(received.json, client.api))
                for received in upstream.received
                if is_for_an_answer(received)
            ),
            unsaid=count_unsaid(model.requests, client),
            mistaken=count_mistaken(model.requests, client),
            machines=tuple(sorted(way_out.asked)),
            **(_read_report(home, model) if way == RUN else _count(gateway, model)),
        )


def _count(gateway: RunningGateway | None, model: Model) -> dict[str, int]:
    """Return the gateway's counts, or without a gateway the model's."""
    sent = model.tokens
    if gateway is None:
        return {
            "tokens_before": sent,
            "tokens_sent": sent,
            "edited": 0,
            "errors": model.refused,
        }
    counts = gateway.counts()
    saved = total(counts, "refold_tokens_before_total") - total(counts, "refold_tokens_after_total")
    failed = sum(
        total(counts, "refold_http_requests_total", f'status="{digit}') for digit in (4, 5)
    )
    edited = total(counts, "refold_requests_total", 'outcome="edited"')
    return {
        "tokens_before": sent + saved,
        "tokens_sent": sent,
        "edited": edited,
        "errors": failed,
    }


def _read_report(home: Path, model: Model) -> dict[str, int]:
    """Return the figures of `refold report` afterwards, from the user's store."""
    report = subprocess.run(
        [*REFOLD, "report", "--json"],
        env={"HOME": str(home), "PYTHONPATH": os.environ.get("PYTHONPATH", "")},
        cwd=home,
        capture_output=True,
        check=False,
    )
    if report.returncode:  # no store: the gateway got no call
        return {"tokens_before": 0, "tokens_sent": model.tokens, "edited": 0, "errors": 1}
    total = json.loads(report.stdout)["total"]
    sums = (total, total["unreported"])  # aider requests no usage in its streams
    return {
        "tokens_before": model.tokens + sum(each["would_input"] - each["input"] for each in sums),
        "tokens_sent": model.tokens,
        "edited": sum(each["edited"] for each in sums),
        "errors": 0,
    }


def program_path(client: Client, install: Path) -> Path:
    """Return the path of a client's program."""
    folder = install / client.package if client.is_python else install / "node_modules"
    return folder / ("bin" if client.is_python else ".bin") / client.program


def bare_environment(home: Path, install: Path) -> dict[str, str]:
    """Return an environment without the user's variables, with the installed Node."""
    quiet = {
        "TERM": "dumb",
        "NO_COLOR": "1",
        "DO_NOT_TRACK": "1",
        "NO_UPDATE_NOTIFIER": "1",
        "LANG": "C.UTF-8",
    }
    path = f"{install / 'node_modules/.bin'}{os.pathsep}{os.environ['PATH']}"
    return {"PATH": path, "HOME": str(home), **quiet}


def _run_program(
    program: list[str], command: Command, work: Path, environment: dict[str, str], model: Model
) -> tuple[int, str]:
    """Run the program while the user's texts are typed. Return its exit code and output."""
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(
            [*program, *command.arguments],
            cwd=work,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
        until = time.monotonic() + SECONDS
        type_texts(process, command.typed, model, until)
        try:
            status = process.wait(max(1.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            status = -1
        out.seek(0)
        return status, out.read().decode("utf-8", "replace")


def type_texts(
    process: subprocess.Popen[bytes], texts: tuple[str, ...], model: Model, until: float
) -> None:
    """Write to a program's standard input: the next text after some more answers of the model, or
    once it is asked no more."""
    assert process.stdin is not None
    for at, text in enumerate(texts):
        while (
            len(model.requests) < at * LATE_AFTER
            and process.poll() is None
            and time.monotonic() < min(until, model.asked_at + QUIET)
        ):
            time.sleep(0.02)
        try:
            process.stdin.write(text.encode())
            process.stdin.flush()
        except BrokenPipeError:
            break
    with suppress(BrokenPipeError):
        process.stdin.close()
