"""What is told of failures: fields that a log is searched by, and not a word of what was said."""

import asyncio
import json
import logging
import sys
from typing import Any

import pytest

from refold.gateway.conversations.workers import BackgroundJobs, Prefetch, Workers
from refold.gateway.logs import JSONFormatter, LineFormatter, error_fields
from refold.gateway.metrics import Counters

SECRET = "the user's words"


def lines(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, Any]]:
    """The lines of one event, as they stand on standard error."""
    ours = (record for record in caplog.records if record.name == "refold.gateway")
    return [
        line
        for line in map(json.loads, map(JSONFormatter().format, ours))
        if line["event"] == event
    ]


def test_an_error_is_logged_with_its_type_and_places():
    with pytest.raises(ValueError, match=SECRET) as caught:
        int(SECRET)
    fields = error_fields(caught.value)
    assert fields["error"] == "ValueError" and SECRET not in str(fields)
    assert [place.partition(":")[0] for place in fields["at"]] == ["test_logs.py"]
    assert error_fields(ValueError(SECRET)) == {"error": "ValueError", "at": []}


def test_a_summary_that_could_not_be_prepared_is_logged_in_fields(caplog: pytest.LogCaptureFixture):
    def wish() -> None:
        raise ValueError(SECRET)

    async def prepared(counters: Counters) -> None:
        workers = Workers(1, None)
        background = BackgroundJobs(workers, counters, summary_timeout=60.0)
        background.start_prefetch(Prefetch(job=wish))
        await asyncio.gather(*background.tasks)
        await background.aclose()
        workers.close()

    counters = Counters()
    with caplog.at_level(logging.WARNING, "refold.gateway"):
        asyncio.run(prepared(counters))
    (line,) = lines(caplog, "no summary was prepared")
    assert (line["level"], line["error"]) == ("warning", "ValueError")
    assert line["at"][-1].startswith("test_logs.py:") and SECRET not in str(line)
    assert counters.get("prepared", result="failed") == 1


def test_a_line_for_people_says_how_a_request_went_and_nothing_that_was_said():
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
            "refold", logging.ERROR, __file__, 1, "it \x1b[31mfailed\n", (), sys.exc_info()
        )
    line = LineFormatter().format(failed)
    assert "  error  it \ufffd[31mfailed\ufffd  error=ValueError" in line
    assert SECRET not in line
