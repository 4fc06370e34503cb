"""What kind of failure a call ended in, and its text without secrets.

Exceptions are recognised by what they carry (`status_code`, `response.headers`) and by their class
names, so that no SDK is needed to read those of another.
"""

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from refold.core.strategy import Answer, Failure, FailureKind

ERROR_LIMIT = 240
"""Characters of a failure that are kept."""
_READ = 4_000
"""Characters of a failure that are looked at."""

_OVERFLOW = re.compile(
    r"context.?(?:length|window|size)|maximum context"
    r"|(?:prompt|input|request) (?:is |was )?too (?:long|large)"
    r"|too many tokens"
    r"|(?:input|prompt) token(?: count|s)? .{0,40}exceed"
    r"|exceeds? .{0,40}(?:token|context)|reduce the length",
    re.IGNORECASE,
)
"""How providers say that a request is larger than the model's window."""
_QUOTA = re.compile(
    r"insufficient_quota|exceeded your current quota|credit balance|billing", re.IGNORECASE
)
_SECRET = re.compile(
    r"(?i:bearer\s+)\S+"
    r"|(?i:(?:api|access|secret|auth)[-_ ]?(?:key|token)"
    r"(?:\s+provided)?['\"]?\s*[:=]\s*['\"]?)[^\s'\",}]+"
    r"|(?i:[?&](?:key|token|api_key|sig)=)[^\s&'\"]+"
    r"|//[^/\s@]+@"
    r"|\b(?:sk|pk|rk|gsk|xai|hf|ghp|AIza)[-_A-Za-z0-9*]{8,}"
    r"|(?<![A-Za-z0-9_-])(?=[A-Za-z_-]*+[0-9])[A-Za-z0-9_-]{32,}"
)
"""What looks like a key: after words that announce one, with a known beginning, or long and
random."""

_KINDS: Mapping[int, FailureKind] = {
    401: "auth",
    402: "quota",
    403: "auth",
    408: "timeout",
    409: "overload",
    413: "overflow",
    425: "overload",
    429: "rate",
    501: "request",
    504: "timeout",
}


def answer_of_exception(error: Exception, secrets: Iterable[str | None] = ()) -> Answer:
    """Return the answer of a model whose call ended in *error*, without *secrets*."""
    text = type(error).__name__
    with suppress(Exception):  # whatever an SDK's exception does to say what it is
        text = f"{text}: {error}"
    return Answer("", "error", shorten_error(text, secrets), failure=failure_of_exception(error))


def answer_of_status(
    status: int, text: str, headers: Mapping[str, str], secrets: Iterable[str | None] = ()
) -> Answer:
    """Return the answer of a server that replied with an error's status."""
    error = shorten_error(f"HTTP {status}: {text}", secrets)
    return Answer("", "error", error, failure=failure_of_status(status, text, headers))


def answer_of_timeout(seconds: float) -> Answer:
    """Return the answer of a model that gave none in time."""
    return Answer(
        "", "error", f"no answer within {seconds:.3g} seconds", failure=Failure("timeout")
    )


def shorten_error(text: str, secrets: Iterable[str | None] = ()) -> str:
    """Return a failure's text on one short line, without *secrets* and what looks like one."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, "***")
    return " ".join(_SECRET.sub("***", text[:_READ]).split())[:ERROR_LIMIT]


def failure_of_exception(error: Exception) -> Failure:
    """Classify an exception of any SDK."""
    name, status = type(error).__name__, getattr(error, "status_code", None)
    if isinstance(error, TimeoutError) or "Timeout" in name:
        return Failure("timeout")
    if isinstance(error, OSError) or "Connection" in name or "Protocol" in name:
        return Failure("connection")
    if "ContextWindow" in name:
        return Failure("overflow")
    if "ResponseValidation" in name:
        return Failure("reply")
    if isinstance(status, int):
        return failure_of_status(status, str(error), _headers(error))
    return Failure("other")


def failure_of_status(status: int, text: str, headers: Mapping[str, str]) -> Failure:
    """Classify a reply by its status, text and headers."""
    if status == 429 and _QUOTA.search(text[:_READ]):
        return Failure("quota")
    if status in (400, 413, 422) and _OVERFLOW.search(text[:_READ]):
        return Failure("overflow")
    kind = _KINDS.get(status, "overload" if status >= 500 else "request")
    return Failure(kind, retry_after(headers))


def _headers(error: Exception) -> Mapping[str, str]:
    """The headers of the reply; LiteLLM keeps them in a place of its own."""
    headers = getattr(error, "litellm_response_headers", None) or getattr(
        getattr(error, "response", None), "headers", None
    )
    return headers if isinstance(headers, Mapping) else {}


def retry_after(headers: Mapping[str, Any]) -> float | None:
    """Return the seconds to wait as `retry-after-ms` or `retry-after` says, the latter in seconds
    or as a date."""
    lower = {str(name).lower(): str(value).strip() for name, value in headers.items()}
    milliseconds, text = _number(lower.get("retry-after-ms")), lower.get("retry-after", "")
    if milliseconds is not None:
        return milliseconds / 1_000
    seconds = _number(text)
    return _seconds_until(text) if seconds is None and text else seconds


def _number(text: str | None) -> float | None:
    return float(text) if text and re.fullmatch(r"\d{1,9}(?:\.\d{1,9})?", text, re.ASCII) else None


def _seconds_until(date: str) -> float | None:
    try:
        when = parsedate_to_datetime(date)
    except ValueError:
        return None
    return max(0.0, (when.replace(tzinfo=when.tzinfo or UTC) - datetime.now(UTC)).total_seconds())
