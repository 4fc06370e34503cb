"""Log lines, as JSON objects or for people: events and durations, never content or keys."""

import json
import logging
import os
import time
from asyncio import CancelledError
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Thread
from types import TracebackType
from typing import Any

from refold.core.strategy import Answer
from refold.errors import StoreError
from refold.gateway.exchange import REASONS
from refold.gateway.metrics import Counters

LOGGER = logging.getLogger("refold.gateway")
"""Logger with a record for each request and each failure."""
INCOMPLETE_RESPONSE = "ASGI callable returned without completing response."
"""The server's message for an answer that was cut off with its upstream's. Our own line of that
request reports it too."""
LEVELS = ("debug", "info", "warning", "error")
STANDARD_ERROR = 2
MAX_WAITING_LINES = 10_000
"""Maximum number of waiting lines."""
FLUSH_SECONDS = 2.0
"""Maximum time that an ending process waits for its log."""


@dataclass(slots=True)
class AccessLogEntry:
    """What is logged and counted of one request: no content, no key."""

    method: str = ""
    path: str = ""
    api: str = ""
    upstream: str = ""
    model: str = ""
    """As named by the request."""
    session: str = ""
    """Its id on the page and in the API."""
    status: int = 0
    outcome: str = ""
    reason: str = ""
    edits: int = 0
    tokens_before: int = 0
    tokens_after: int = 0
    received_bytes: int = 0
    sent_bytes: int = 0
    prepare_ms: float = 0.0
    first_byte_ms: float = 0.0
    total_ms: float = 0.0
    usage: dict[str, int] = field(default_factory=dict)
    client_disconnected: bool = False
    """Whether the client left before the answer was complete."""
    upstream_broke_off: bool = False
    stopped: bool = False
    """Whether the gateway was stopped, and its `grace_seconds` were over, before the answer was
    complete."""
    internal_error: str = ""
    """Type and traceback places of an internal error."""

    def as_fields(self) -> dict[str, Any]:
        """Return the fields of a log line: all that are neither empty nor 0."""
        values = ((name, getattr(self, name)) for name in self.__dataclass_fields__)
        return {
            name: shown
            for name, value in values
            if (shown := round(value, 2) if isinstance(value, float) else value)
        }


class JSONFormatter(logging.Formatter):
    """Formats a record as a JSON object: `time` (UTC), `level`, `pid`, `event`, then the record's
    own fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, with type and places of an exception but not its message, which may
        quote a request."""
        at = (
            time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z"
        )
        line: dict[str, Any] = {
            "time": at,
            "level": record.levelname.lower(),
            "pid": record.process,
            "event": _event_of(record),
        }
        return json.dumps(line | _fields_of(record), ensure_ascii=False, default=str)


class LineFormatter(logging.Formatter):
    """Formats a record as a line for people: local time, event, outcome of a request."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without the message of an exception."""
        fields = _fields_of(record)
        event = _event_of(record)
        pieces = [time.strftime("%H:%M:%S", time.localtime(record.created))]
        if record.levelno >= logging.WARNING:
            pieces.append(record.levelname.lower())
        pieces += _request_pieces(fields) if event == "request" else [event]
        pieces += [f"{name}={value}" for name, value in fields.items() if value and name != "at"]
        return "".join(char if char.isprintable() else "\ufffd" for char in "  ".join(pieces))


def _event_of(record: logging.LogRecord) -> str:
    """Return our event, or a message's first line, up to 500 characters. In asyncio's messages the
    other lines quote exceptions."""
    event: str = getattr(record, "event", "")
    return event or record.getMessage().partition("\n")[0][:500]


def _fields_of(record: logging.LogRecord) -> dict[str, Any]:
    error = record.exc_info[1] if record.exc_info else None
    fields: dict[str, Any] = getattr(record, "fields", {})
    return fields | (error_fields(error) if error is not None else {})


def _request_pieces(fields: dict[str, Any]) -> list[str]:
    """Remove what a request's line begins with from its *fields*, and return it as text."""
    method, path, status = (fields.pop(name, "") for name in ("method", "path", "status"))
    seconds = fields.pop("total_ms", 0.0) / 1_000
    before, after = (fields.pop(f"tokens_{when}", 0) for when in ("before", "after"))
    sizes = f"{before:,} → {after:,} tokens" if before != after else f"{before:,} tokens"
    for name in ("received_bytes", "sent_bytes", "prepare_ms", "first_byte_ms", "usage", "api"):
        fields.pop(name, None)
    model = fields.pop("model", "")
    edits = fields.pop("edits", 0)
    pieces = [f"{method} {path}", str(status), f"{seconds:.1f} s", model, sizes * bool(before)]
    return [*filter(None, pieces), *([f"{edits} edits"] if edits else [])]


def log(event: str, level: int = logging.WARNING, **fields: Any) -> None:
    """Log *event* with these *fields*. Handlers other than ours show both, too, on one line."""
    pieces = [event, *(f"{name}={value!r}" for name, value in fields.items() if value)]
    LOGGER.log(level, "%s", "  ".join(pieces), extra={"event": event, "fields": fields})


def error_fields(error: BaseException) -> dict[str, Any]:
    """Return type and traceback places of *error* as log fields. Its message may quote a request,
    so only a store's is included, which quotes none."""
    fields = {"error": type(error).__name__, "at": traceback_places(error.__traceback__)}
    return {**fields, "message": str(error)[:500]} if isinstance(error, StoreError) else fields


def describe_fault(error: BaseException) -> str:
    """Return type and places of an unexpected *error* in one line."""
    return f"{type(error).__name__} at {' '.join(traceback_places(error.__traceback__))}"


def report_failure(counters: Counters, api: str, reason: str, error: BaseException) -> None:
    """Count and log a failure of a request in this *api*, or, if that is empty, of saving edits
    after requests. The text of an *error* may quote content or a key: see `error_fields`."""
    if api:
        fields = error_fields(error) | {"reason": reason, "meaning": REASONS[reason], "api": api}
        log("a request was not handled as usual", **fields)
    else:
        log("edits are not saved yet", reason=reason, **error_fields(error))
    counters.add("failures", reason=reason)


def report_model_failure(counters: Counters, answer: Answer | None) -> None:
    """Count and log a failure of the model for summaries, if *answer* has one; rules then
    summarise. Its message, which may quote a request, is left out."""
    failure = answer.failure if answer is not None else None
    if failure is not None and failure.kind != "breaker":  # its cause was reported
        counters.add("failures", reason="model")
        log("the model for summaries failed", kind=failure.kind)


def report_ledger_failure(counters: Counters, doing: str, error: BaseException) -> None:
    """Count and log a failure of the ledger, without content. Requests flow on."""
    counters.add("ledger_failures", doing=doing)
    log("the net ledger failed", doing=doing, **error_fields(error))


def log_passthrough(api: str, reason: str) -> None:
    """Log that a request passes through because of its kind. It is counted with all requests."""
    log("passed through", reason=reason, meaning=REASONS[reason], api=api)


def traceback_places(trace: TracebackType | None) -> list[str]:
    """Return the last ten places of a stack trace as `file:line`, outermost first."""
    places = list[str]()
    while trace is not None:
        places.append(f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}")
        trace = trace.tb_next
    return places[-10:]


def _is_duplicate_of_access_log(record: logging.LogRecord) -> bool:
    """Return whether the server logs here that an answer was cut off, which our own line of that
    request reports."""
    is_stopped = record.exc_info is not None and isinstance(record.exc_info[1], CancelledError)
    return record.msg == INCOMPLETE_RESPONSE or (record.name == "uvicorn.error" and is_stopped)


class LogWriter(logging.Handler):
    """Writes to standard error in its own thread, so that a pipe that nobody reads blocks nothing
    else. If `MAX_WAITING_LINES` lines wait, new ones are dropped until half of them are written;
    then the log says how many. Each forked process has a thread of its own."""

    _process = _missing = 0

    def __init__(self) -> None:
        super().__init__()
        self.counters = Counters()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a line to be written, or drop and count it if too many wait."""
        try:
            if self._process != os.getpid():
                self._start()
            if self._lines.qsize() >= (
                MAX_WAITING_LINES // 2 if self._missing else MAX_WAITING_LINES
            ):
                self._drop()
                return
            if missing := self._missing:
                self._missing = 0
                log("log lines dropped", logging.ERROR, count=missing)
            # A lone surrogate, as of a model's name in JSON, becomes its escape, as JSON writes it.
            self._lines.put(f"{self.format(record)}\n".encode(errors="backslashreplace"))
        except Exception:  # noqa: BLE001 - as every handler does
            self.handleError(record)

    def flush(self) -> None:
        """Wait until all lines are written, for at most `FLUSH_SECONDS`."""
        if self._process == os.getpid():
            is_written = Event()
            self._lines.put(is_written)
            is_written.wait(FLUSH_SECONDS)

    def _start(self) -> None:
        self._process, self._missing = os.getpid(), 0
        self._lines = SimpleQueue[bytes | Event]()  # the parent writes its own lines
        Thread(target=self._keep_writing, name="refold-log", daemon=True).start()

    def _drop(self) -> None:
        self._missing += 1
        self.counters.add("log_lines_dropped")

    def _keep_writing(self) -> None:
        while True:
            line = self._lines.get()
            if isinstance(line, Event):
                line.set()
                continue
            try:
                while line:  # unbuffered: nobody could flush while this waits
                    line = line[os.write(STANDARD_ERROR, line) :]
            except OSError:  # a full disk, or a reader that has gone
                self._drop()


WRITER = LogWriter()
"""Log writer of this process, used once logging is configured."""


def configure_logging(level: str = "info") -> None:
    """Make the gateway and its server log to standard error: lines for people on a terminal, JSON
    elsewhere. Raises ValueError if *level* is not one of `LEVELS`."""
    if level not in LEVELS:
        raise ValueError(f"no log level is called {level!r}; there are {', '.join(LEVELS)}")
    WRITER.setFormatter(LineFormatter() if os.isatty(STANDARD_ERROR) else JSONFormatter())
    WRITER.filters = [lambda record: not _is_duplicate_of_access_log(record)]
    # We log database failures ourselves: psycopg's messages quote the data.
    logging.getLogger("psycopg").setLevel(logging.CRITICAL)
    for name in ("refold", "uvicorn.error", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [WRITER], False
        logger.setLevel(level.upper())
