"""Log lines of failures: searchable fields and no message text."""

import asyncio
import json
import logging
import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from refold.errors import StoreError
from refold.gateway import Config, Upstream, create_gateway
from refold.gateway.conversations.workers import BackgroundJobs, Prefetch, Workers
from refold.gateway.logs import (
    MAX_WAITING_LINES,
    JSONFormatter,
    LineFormatter,
    error_fields,
    report_failure,
    report_ledger_failure,
)
from refold.gateway.metrics import Counters
from refold.gateway.serve import Supervisor
from refold.stores import SQLiteStore
from tests.support.children import act_as_nobody

SECRET = "the user's words"


def lines(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, Any]]:
    """Return the lines of one event as written to standard error."""
    ours = (record for record in caplog.records if record.name == "refold.gateway")
    return [
        line
        for line in map(json.loads, map(JSONFormatter().format, ours))
        if line["event"] == event
    ]


def test_a_handler_of_the_users_own_shows_why_a_request_was_not_handled(
    caplog: pytest.LogCaptureFixture,
):
    """A gateway made in Python logs as its program does; it once showed the event alone."""
    report_failure(Counters(), "anthropic", "internal", ValueError(SECRET))
    assert "a request was not handled as usual  error='ValueError'" in caplog.messages[0]
    assert "reason='internal'" in caplog.messages[0] and SECRET not in caplog.text
    (line,) = lines(caplog, "a request was not handled as usual")
    assert line["reason"] == "internal"


def test_an_error_is_logged_with_its_type_and_location_but_no_message():
    with pytest.raises(ValueError, match=SECRET) as caught:
        int(SECRET)
    fields = error_fields(caught.value)
    assert fields["error"] == "ValueError" and SECRET not in str(fields)
    assert [place.partition(":")[0] for place in fields["at"]] == ["test_logs.py"]
    assert error_fields(ValueError(SECRET)) == {"error": "ValueError", "at": []}


def test_the_message_of_a_store_error_is_logged():
    fields = error_fields(StoreError("refold.db: cannot write: database or disk is full"))
    assert fields["message"] == "refold.db: cannot write: database or disk is full"


def test_a_read_only_store_is_reported_at_the_start(caplog: pytest.LogCaptureFixture):
    """The gateway used to start silently, and the cause of its failed writes was not visible."""
    if os.geteuid() != 0:
        pytest.skip("needs another user")
    with TemporaryDirectory() as folder:
        store = Path(folder) / "refold.db"
        SQLiteStore(store).close()
        upstream = Upstream(name="up", url="http://127.0.0.1:9")
        config = Config(upstreams=(upstream,), salt=b"s", store=str(store))

        def start() -> list[str]:
            gateway = create_gateway(config)
            try:
                SQLiteStore(store).remove(["id"])
            except StoreError as error:
                report_ledger_failure(gateway.pipeline.counters, "write", error)
            return [JSONFormatter().format(record) for record in caplog.records]

        with caplog.at_level(logging.WARNING, "refold.gateway"):
            Path(folder).chmod(0o777)
            store.chmod(0o666)
            assert act_as_nobody(start) == []
            store.chmod(0o444)
            first, last = map(json.loads, act_as_nobody(start))
    assert first["event"] == "the store cannot be written: edits are not saved"
    assert first["store"] == str(store)
    assert last["error"] == "StoreError" and "readonly database" in last["message"]


def test_log_lines_of_libraries_are_json_and_contain_no_quoted_data():
    """asyncio logs the exception of a task that is never awaited. psycopg logs that of a lost
    connection, whose details contain the data to be written."""
    program = (
        "import asyncio, logging\n"
        "from refold.gateway.logs import configure_logging\n"
        "configure_logging()\n"
        "async def fail(): raise ValueError('secret')\n"
        "async def main():\n"
        "    asyncio.create_task(fail())\n"
        "    await asyncio.sleep(0)\n"
        "asyncio.run(main())\n"
        "logging.getLogger('psycopg').warning('error ignored: secret')\n"
    )
    printed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True
    ).stderr
    (line,) = map(json.loads, printed.splitlines())
    assert line["event"] == "Task exception was never retrieved"
    assert line["error"] == "ValueError" and b"secret" not in printed


def test_a_log_line_with_a_lone_surrogate_is_written():
    """A client chooses the model's name. Its requests used to leave no log line, but a
    traceback."""
    program = (
        "from refold.gateway.logs import WRITER, configure_logging, log\n"
        "configure_logging()\n"
        "log('request', model='m\\ud83d')\n"
        "WRITER.flush()\n"
    )
    printed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True
    ).stderr
    (line,) = map(json.loads, printed.splitlines())
    assert line["model"] == "m\ud83d"


def test_log_lines_beyond_the_queue_limit_are_dropped_and_the_gap_is_logged():
    program = (
        "from refold.gateway.logs import *\n"
        "from refold.gateway.logs import WRITER\n"
        "configure_logging()\n"
        "for n in range(MAX_WAITING_LINES + 2_000): log('line', n=n)\n"
        "print(int(WRITER.counters.get('log_lines_dropped')), flush=True)\n"
        "input()\n"
        "WRITER.flush()\n"
        "log('the last')\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        dropped = int(process.stdout.readline())
        _, printed = process.communicate(b"\n")
    *numbered, gap, last = map(json.loads, printed.splitlines())
    assert 0 < dropped < 2_000
    assert [line["n"] for line in numbered] == list(range(MAX_WAITING_LINES + 2_000 - dropped))
    assert gap["event"] == "log lines dropped" and gap["count"] == dropped
    assert last["event"] == "the last"


@pytest.mark.parametrize("begin", ["end()", "Supervisor(1, end).run()"])
def test_the_last_line_before_a_crash_is_written(begin: str):
    program = (
        "import os, signal\n"
        "from refold.gateway.logs import configure_logging, log\n"
        "from refold.gateway.serve import Supervisor\n"
        "configure_logging()\n"
        "log('the first')\n"
        "above = os.getpid()\n"
        "def end():\n"
        "    for n in range(100): log('line', n=n)\n"
        "    if os.getpid() != above: os.kill(above, signal.SIGTERM)\n"
        "    raise ValueError('it crashed')\n"
        f"{begin}\n"
    )
    printed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=False
    ).stderr.decode()
    # The traceback is printed by another thread, so other lines may come in between.
    lines = map(json.loads, re.findall(r"\{[^{}\n]*\}", printed))
    assert [line.get("n") for line in lines] == [None, *range(100)]
    assert "ValueError: it crashed" in re.sub(r"\{[^{}\n]*\}\n", "", printed)


def test_a_worker_that_cannot_be_replaced_yet_does_not_end_the_others():
    """The error of the failed fork used to end the supervisor, and with it all workers."""
    program = (
        "import os, resource, signal, threading, time\n"
        "from refold.gateway.logs import configure_logging\n"
        "from refold.gateway.serve import Supervisor\n"
        "configure_logging()\n"
        "pipe, signals = os.pipe()\n"
        "def work():\n"
        "    os.write(signals, b'%8d' % os.getpid())\n"
        "    time.sleep(600)\n"
        "def kill_one():\n"
        "    workers = [int(os.read(pipe, 8)) for _ in range(2)]\n"
        "    most = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "    resource.setrlimit(resource.RLIMIT_NOFILE, (3, most[1]))\n"
        "    os.kill(workers[0], signal.SIGKILL)\n"
        "    time.sleep(2.5)\n"
        "    resource.setrlimit(resource.RLIMIT_NOFILE, most)\n"
        "    assert int(os.read(pipe, 8)) not in workers\n"
        "    os.kill(workers[1], 0)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "threading.Thread(target=kill_one, daemon=True).start()\n"
        "Supervisor(2, work).run()\n"
    )
    printed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, timeout=60
    ).stderr
    events = [json.loads(line)["event"] for line in printed.splitlines()]
    assert set(events) == {"a worker is replaced", "no worker can be started"}


def test_a_failure_outside_a_request_is_not_logged_as_one_of_a_request(
    caplog: pytest.LogCaptureFixture,
):
    """Waiting writes are retried once a second, whether there are requests or not."""
    report_failure(Counters(), "", "store", StoreError("refold.db: cannot write"))
    assert not lines(caplog, "a request was not handled as usual")
    (line,) = lines(caplog, "edits are not saved yet")
    assert line["message"] == "refold.db: cannot write"


def test_a_failed_summary_preparation_is_logged_without_the_error_message(
    caplog: pytest.LogCaptureFixture,
):
    def fail() -> None:
        raise ValueError(SECRET)

    async def prepare(counters: Counters) -> None:
        workers = Workers(1, None, Counters())
        background = BackgroundJobs(workers, counters, summary_timeout=60.0)
        background.start_prefetch(Prefetch(job=fail))
        await asyncio.gather(*background.tasks)
        await background.aclose()
        workers.close()

    counters = Counters()
    with caplog.at_level(logging.WARNING, "refold.gateway"):
        asyncio.run(prepare(counters))
    (line,) = lines(caplog, "no summary was prepared")
    assert (line["level"], line["error"]) == ("warning", "ValueError")
    assert line["at"][-1].startswith("test_logs.py:") and SECRET not in str(line)
    assert counters.get("prepared", result="failed") == 1


def test_a_text_log_line_describes_a_request_without_its_content():
    record = logging.LogRecord("refold", logging.INFO, __file__, 1, "request", (), None)
    record.fields = {
        "method": "POST", "path": "/v1/messages", "api": "anthropic", "model": "claude-x",
        "status": 200, "outcome": "compacted", "edits": 3, "tokens_before": 81_234,
        "tokens_after": 40_120, "total_ms": 1_240.0, "usage": {"input_tokens": 1}, "received_bytes": 9,
    }  # fmt: skip
    line = LineFormatter().format(record)
    assert line.split("  ")[1:] == [
        "POST /v1/messages", "200", "1.2 s", "claude-x", "81,234 → 40,120 tokens", "3 edits",
        "outcome=compacted",
    ]  # fmt: skip
    try:
        int(SECRET)
    except ValueError:
        failed = logging.LogRecord(
            "refold", logging.ERROR, __file__, 1, "it \x1b[31mfailed\nsecret", (), sys.exc_info()
        )
    line = LineFormatter().format(failed)
    assert "  error  it \ufffd[31mfailed  error=ValueError" in line
    assert SECRET not in line


class EndingProcess:
    """A process that ends after it was first asked whether it has."""

    def __init__(self) -> None:
        self._codes = iter([None])

    @property
    def exitcode(self) -> int | None:
        return next(self._codes, -9)


def test_a_worker_that_ends_while_it_is_looked_at_is_not_dropped_without_a_line():
    """It was replaced at once, and no line of the log said so."""
    supervisor = Supervisor(1, print)
    supervisor._running = [EndingProcess()]
    try:
        supervisor._drop_dead()
        assert len(supervisor._running) == 1, "the next look drops and reports it"
    finally:
        os.close(supervisor._alive)
        os.close(supervisor._life)
