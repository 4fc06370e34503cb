"""Log lines as JSON objects: what happened and how long it took, never content and never a key."""

import json
import logging
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from refold.gateway.messages import REASONS
from refold.gateway.metrics import Counters

LOGGER = logging.getLogger("refold.gateway")
"""Takes one record a request; silent until a handler is set, as libraries are."""
INCOMPLETE_RESPONSE = "ASGI callable returned without completing response."
"""What the server says when an answer is broken off as its upstream was; our own line of that
request says so too."""
LEVELS = ("debug", "info", "warning", "error")


class JSONFormatter(logging.Formatter):
    """One JSON object a record: `time` (UTC), `level`, `event`, then the record's own fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line. Of an exception the type and the places are told, not the message, which
        may quote a request."""
        at = (
            time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z"
        )
        line: dict[str, Any] = {
            "time": at,
            "level": record.levelname.lower(),
            "event": record.getMessage()[:500],
        }
        line |= getattr(record, "fields", {})
        if record.exc_info and record.exc_info[1] is not None:
            line |= error_fields(record.exc_info[1])
        return json.dumps(line, ensure_ascii=False, default=str)


def error_fields(error: BaseException) -> dict[str, Any]:
    """Return what a record's `fields` say of *error*: its type and its places, not its message,
    which may quote a request."""
    return {"error": type(error).__name__, "at": traceback_places(error.__traceback__)}


def report_failure(counters: Counters, api: str, reason: str, error: BaseException) -> None:
    """Count and log a failure. An error's text may quote content or a key, so only its kind is
    logged."""
    fields = {"reason": reason, "meaning": REASONS[reason], "api": api, **error_fields(error)}
    LOGGER.warning("passed through", extra={"fields": fields})
    counters.add("failures", reason=reason)


def log_passthrough(api: str, reason: str) -> None:
    """Log that a request passes through for what it is, not for a failure. It is counted with all
    requests."""
    fields = {"reason": reason, "meaning": REASONS[reason], "api": api}
    LOGGER.warning("passed through", extra={"fields": fields})


def is_not_duplicate(record: logging.LogRecord) -> bool:
    """Is this not told by another line?"""
    return record.msg != INCOMPLETE_RESPONSE


def traceback_places(trace: TracebackType | None) -> list[str]:
    """Return where an exception went through: `file:line` from outside in, the last ten."""
    places = list[str]()
    while trace is not None:
        places.append(f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}")
        trace = trace.tb_next
    return places[-10:]


def configure_logging(level: str = "info") -> None:
    """Let the gateway and its server log to standard error. *level*: debug, info, warning,
    error."""
    if level not in LEVELS:
        raise ValueError(f"no log level is called {level!r}; there are {', '.join(LEVELS)}")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JSONFormatter())
    handler.addFilter(is_not_duplicate)
    for name in ("refold", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level.upper())
