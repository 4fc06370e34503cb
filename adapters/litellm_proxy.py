"""LiteLLM's proxy with Refold named in its configuration, called by OpenAI's client."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

from openai import OpenAI

from adapters.framework import MODEL, Job, Regression, Talk, Timing
from adapters.litellm import Loop

PACKAGE = "litellm"
CONFIG = """\
model_list:
  - model_name: mechanic
    litellm_params: {{model: openai/{model}, api_base: {url}/v1, api_key: none}}
litellm_settings:
  callbacks: refold_callback.callback
"""
CALLBACK = """\
from pathlib import Path
from adapters.framework import Job
from refold.adapters.litellm import RefoldLogger

class Noting(RefoldLogger):
    async def async_log_success_event(self, **arguments):
        await super().async_log_success_event(**arguments)
        newest = self.compactors["openai_chat"].settings.reports.newest
        Path({reports!r}).write_text(str(len(newest)))

callback = Noting(**Job("", Path({place!r}), ()).options)
"""


def talk(job: Job) -> Talk:
    """Run the turns, each through another proxy."""
    reports = job.place / "reports"
    (job.place / "litellm.yaml").write_text(CONFIG.format(model=MODEL, url=job.url))
    callback = CALLBACK.format(reports=str(reports), place=str(job.place))
    (job.place / "refold_callback.py").write_text(callback)
    with _run_proxy(job.place) as url:
        ask = OpenAI(base_url=url, api_key="none", max_retries=0).chat.completions.create
        loop = Loop(
            job.place / "messages.json",
            lambda **kwargs: ask(model="mechanic", **kwargs),
            lambda **kwargs: list(ask(model="mechanic", stream=True, **kwargs)),
        )
        for turn in job.turns:
            loop.hold(turn)
        time.sleep(1)  # usage is reported in the background
    return Talk(loop.read(), loop.deltas, int(reports.read_text()))


@contextmanager
def _run_proxy(place: Path) -> Iterator[str]:
    """Run a proxy for the `with` block and yield its URL."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    program = Path(sys.executable).parent / "litellm"
    command = [program, "--config", place / "litellm.yaml", "--port", str(port)]
    settings = {"LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true"}
    with (place / "proxy.log").open("ab") as log:
        process = subprocess.Popen(command, env={**os.environ, **settings}, stdout=log, stderr=log)
    try:
        _wait(f"http://127.0.0.1:{port}/health/liveliness", process)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait()


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 120
    while time.monotonic() < until and process.poll() is None:
        try:
            with urlopen(url):
                return
        except OSError:
            time.sleep(0.3)
    raise RuntimeError(f"the proxy does not answer: exit {process.poll()}")


REGRESSIONS: tuple[Regression, ...] = ()
TIMINGS: tuple[Timing, ...] = ()
