"""Results of calls as answers: replies of OpenAI's two APIs or Anthropic's, and failures.

Exceptions are recognised by their attributes (`status_code`, `response.headers`) and class names,
so that no SDK is needed.
"""

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from refold.core.strategy import Answer, Failure, FailureKind
from refold.text.json_values import Record, dig, object_at, objects_at, objects_in, text_at
from refold.tokens.usage import read_usage

CHAT, RESPONSES, MESSAGES = "openai_chat", "openai_responses", "anthropic"
"""Names of the formats, as of their codecs."""

# --- failures: their kind, and their text without secrets ------------------------------------

ERROR_LIMIT = 240
"""Maximum characters kept of an error."""
_READ = 4_000
"""Maximum characters searched of an error."""

_OVERFLOW = re.compile(
    r"context_length_exceeded|context_?window_?exceeded|model_context_window|exceed_context_size"
    r"|(?:prompt|input|request) (?:is |was )?too (?:long|large)|exceed(?:s|ed)? (?:the |this |its )?(?:model'?s? )?(?:maximum |max )?context"
    r"|exceed context limit|maximum context length|context (?:size|window) (?:of|is|exceed)"
    r"|context (?:size|window|length) (?:has been |was )?(?:exceeded|overflow)|context the overflows"
    r"|context length of only|(?:longer|greater|larger) than the (?:model'?s )?(?:max(?:imum)? )?(?:context|model) (?:length|size)"
    r"|configured context size is|exceed the configured limit of \d"
    r"|maximum prompt length is \d|exceeded model token limit|too large for model with \d|current length is \d+ while limit is"
    r"|input token count.{0,60}exceeds|token count of \d+ exceeds the limit|exceeds the max(?:imum)? number of (?:input )?tokens"
    r"|number of input tokens.{0,20} exceeds? |(?:total|prompt) tokens.{0,40} exceed (?:the )?max|(?:input|prompt) length.{0,40}exceeds? |prompt exceeds max(?:imum)? length|too long to fit into the model|range of input length should be"
    r"|tokens in request more than max tokens allowed|tokens \+ .{0,20} must be <= ?\d|must have less than \d+ tokens|too many (?:input )?tokens"
    r"|longer than the maximum model length|上下文.{0,6}(?:超|长)"
    r"|reduce the length of (?:the|your) (?:messages|prompt|input)|request_too_large|request entity too large|exceeds the available context size",
    re.IGNORECASE,
)
"""Providers' phrases for a request that exceeds the model's window."""
_THROTTLED = re.compile(
    r"rate[ _-]?limit|too many requests|tokens per (?:minute|day|hour)|throttl|please wait",
    re.IGNORECASE,
)
"""Phrases of rate limits, where a shorter request would not help."""
_ANSWER_CAP = re.compile(
    r"\bmax_(?:completion_|output_)?tokens\W{0,2} must be (?:less|lower|smaller|at most|<)",
    re.IGNORECASE,
)
"""Phrase for a cap on the answer that is too large, whatever the length of the request."""
_QUOTA = re.compile(
    r"insufficient_quota|exceeded your current quota|credit balance|billing", re.IGNORECASE
)
_RATE = re.compile(r"retry in (\d{1,5}(?:\.\d{1,9})?)s\b", re.IGNORECASE)
"""Google's phrase, with the seconds, for a rate limit, which it calls a quota."""
_SECRET = re.compile(
    r"(?i:bearer\s+)\S+"
    r"|(?i:(?:api|access|secret|auth)[-_ ]?(?:key|token)"
    r"(?:\s+provided)?['\"]?\s*[:=]\s*['\"]?)[^\s'\",}]+"
    r"|(?i:[?&](?:key|token|api_key|sig)=)[^\s&'\"]+"
    r"|//[^/\s@]+@"
    r"|\b(?:sk|pk|rk|gsk|xai|hf|ghp|AIza)[-_A-Za-z0-9*]{8,}"
    r"|(?<![A-Za-z0-9_-])(?=[A-Za-z_-]*+[0-9])[A-Za-z0-9_-]{32,}"
)
"""Possible keys: after a phrase that announces one, with a known prefix, or long and random."""

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
    """Return the answer for a call that raised *error*, without *secrets*."""
    text = type(error).__name__
    with suppress(Exception):  # an SDK's exception may fail to describe itself
        text = f"{text}: {error}"
    return Answer("", "error", shorten_error(text, secrets), failure=failure_of_exception(error))


def answer_of_status(
    status: int, text: str, headers: Mapping[str, str], secrets: Iterable[str | None] = ()
) -> Answer:
    """Return the answer for a reply with an error status."""
    error = shorten_error(f"HTTP {status}: {text}", secrets)
    return Answer("", "error", error, failure=failure_of_status(status, text, headers))


def answer_of_timeout(seconds: float) -> Answer:
    """Return the answer for a timeout."""
    return Answer(
        "", "error", f"no answer within {seconds:.3g} seconds", failure=Failure("timeout")
    )


def shorten_error(text: str, secrets: Iterable[str | None] = ()) -> str:
    """Return an error's text as one line of at most `ERROR_LIMIT` characters, with *secrets* and
    possible keys replaced by `***`."""
    for secret in secrets:
        if bare := (secret or "").strip():  # a key from a file may end with a line break
            text = text.replace(bare, "***")
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


def is_overflow(text: str) -> bool:
    """Return whether an error says that the request exceeds the model's window."""
    is_other = _THROTTLED.search(text) or _ANSWER_CAP.search(text)
    return _OVERFLOW.search(text) is not None and not is_other


def failure_of_status(status: int, text: str, headers: Mapping[str, str]) -> Failure:
    """Classify a reply by its status, text and headers."""
    text = text[:_READ]
    if status == 429 and _QUOTA.search(text):
        again = None if "limit: 0," in text else _RATE.search(text)
        return Failure("rate", float(again[1])) if again else Failure("quota")
    if status in (400, 413, 422) and _OVERFLOW.search(text) and not _ANSWER_CAP.search(text):
        is_throttled = _THROTTLED.search(text)  # too many tokens in a minute, not in a request
        return Failure("rate", retry_after(headers)) if is_throttled else Failure("overflow")
    kind = _KINDS.get(status, "overload" if status >= 500 else "request")
    return Failure(kind, retry_after(headers))


def _headers(error: Exception) -> Mapping[str, str]:
    """Return the reply's headers; empty without any. LiteLLM has its own attribute for them."""
    headers = getattr(error, "litellm_response_headers", None) or getattr(
        getattr(error, "response", None), "headers", None
    )
    return headers if isinstance(headers, Mapping) else {}


def retry_after(headers: Mapping[str, Any]) -> float | None:
    """Return the seconds to wait, from `retry-after-ms` or `retry-after` (seconds or a date); None
    if neither can be read."""
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
    except (ValueError, OverflowError):
        return None
    return max(0.0, (when.replace(tzinfo=when.tzinfo or UTC) - datetime.now(UTC)).total_seconds())


# --- replies ---------------------------------------------------------------------------------

_TAGS = r"(?:think|thinking|thought|thoughts|reasoning)"
_LEADING = re.compile(rf"\s*+<({_TAGS})>.*?(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE)
_CLOSING_TAG_LINE = re.compile(
    rf"^[^\S\n]*+</{_TAGS}>[ \t]*+(?:\n|\Z)", re.IGNORECASE | re.MULTILINE
)
"""A closing tag alone on its line."""
_OPENING = re.compile(rf"<{_TAGS}>", re.IGNORECASE)


def strip_reasoning(text: str) -> str:
    """Return *text* without leading reasoning: `<think>…</think>`, an unclosed block (then nothing
    is left), or a block whose opening tag the chat template removed. Later tags, as in a summary
    about them, are kept. Text without reasoning is unchanged."""
    at = 0
    while match := _LEADING.match(text, at):
        at = match.end()
    if (
        at == 0
        and (match := _CLOSING_TAG_LINE.search(text))
        and not _OPENING.search(text, 0, match.end())
    ):
        at = match.end()
    return text[at:].strip() if at else text


_WORDS = {
    "stop": "stop end_turn stop_sequence eos eos_token completed",
    "length": "length max_tokens max_output_tokens model_context_window_exceeded model_length",
    "filter": "content_filter refusal safety recitation blocklist prohibited_content",
    "tool": "tool_calls function_call tool_use",
}
_FINISHES = {word: finish for finish, words in _WORDS.items() for word in words.split()}


def read_finish(word: str) -> str:
    """Return the finish reason (`stop`, `length`, `filter`, `tool`) for a provider's word. Unknown
    words are unchanged."""
    return _FINISHES.get(word.lower(), word)


def as_mapping(reply: Any) -> Record:
    """Return an SDK's reply as parsed JSON; empty if it is not an object."""
    if isinstance(reply, Mapping):
        return reply
    return reply.model_dump(warnings=False) if hasattr(reply, "model_dump") else {}


def read_chat(reply: Record, secrets: Iterable[str | None] = ()) -> Answer:
    """Read a reply of Chat Completions. An error in it is without *secrets*."""
    choice = next(objects_at(reply, "choices"), {})
    message = object_at(choice, "message")
    if not message or choice.get("finish_reason") == "error":  # OpenRouter's provider broke off
        failed = _unreadable(choice if "error" in choice else reply, secrets)
        return replace(failed, usage=read_usage(reply.get("usage")))
    return _answer(
        reply,
        _text(message.get("content"), "text"),
        choice.get("finish_reason"),
        calls=message.get("tool_calls") or message.get("function_call"),
        refused=message.get("refusal"),
    )


def read_responses(reply: Record, secrets: Iterable[str | None] = ()) -> Answer:
    """Read a reply of the Responses API, as `read_chat` does."""
    status, output = reply.get("status"), reply.get("output")
    if not isinstance(output, list) or status not in ("completed", "incomplete"):
        return _unreadable(reply, secrets)
    items = list(objects_in(output))
    blocks = [block for item in items for block in objects_at(item, "content")]
    return _answer(
        reply,
        _text(blocks, "output_text"),
        status if status == "completed" else dig(reply, "incomplete_details", "reason"),
        calls=any(str(item.get("type")).endswith("_call") for item in items),
        refused=any(block.get("type") == "refusal" for block in blocks),
    )


def read_messages(reply: Record, secrets: Iterable[str | None] = ()) -> Answer:
    """Read a reply of Anthropic's Messages, as `read_chat` does."""
    blocks = reply.get("content")
    if not isinstance(blocks, list):
        return _unreadable(reply, secrets)
    calls = any(block.get("type") == "tool_use" for block in objects_in(blocks))
    return _answer(reply, _text(blocks, "text"), reply.get("stop_reason"), calls=calls)


READERS = {CHAT: read_chat, RESPONSES: read_responses, MESSAGES: read_messages}


def _answer(
    reply: Record, text: str, word: Any, *, calls: object, refused: object = False
) -> Answer:
    """Return an answer. *word* is the provider's finish reason."""
    finish = read_finish(word) if isinstance(word, str) and word else "unknown"
    finish = "tool" if calls else "filter" if refused else finish
    model, usage = str(reply.get("model") or ""), read_usage(reply.get("usage"))
    return Answer(strip_reasoning(text).strip(), finish, model=model, usage=usage)


def _text(content: Any, kind: str) -> str:
    if isinstance(content, str):
        return content
    return "".join(text_at(b, "text") for b in objects_in(content) if b.get("type") == kind)


def _unreadable(reply: Record, secrets: Iterable[str | None]) -> Answer:
    """Return the failed answer for a reply with a success status but no answer. Some routers send
    errors this way."""
    error = object_at(reply, "error")
    code, text = error.get("code"), str(error.get("message") or "the reply holds no answer")
    if isinstance(code, int) and code >= 400:
        return answer_of_status(code, text, {}, secrets)
    return Answer("", "error", shorten_error(text, secrets), failure=Failure("reply"))
