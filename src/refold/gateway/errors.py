"""Context errors: how providers say that a request is too long, and saying it in the caller's dialect."""

import json
import re
from typing import Any, NamedTuple

from refold.gateway.saying import said_in
from refold.gateway.sse import error_of

Headers = tuple[tuple[str, str], ...]

_SAID = re.compile(
    r"context_length_exceeded|context_?window_?exceeded|model_context_window"
    r"|prompt is too long|input is too long|exceeds? (?:the |this model'?s? |its )?(?:maximum |max )?context"
    r"|exceed context limit|maximum context length|context (?:size|window) (?:of|is|exceed)"
    r"|input token count.{0,60}exceeds|exceeds the maximum number of tokens|too many (?:input )?tokens"
    r"|reduce the length of the (?:messages|prompt|input)|request_too_large|exceeds the available context size",
    re.IGNORECASE,
)
_STATUS = frozenset({400, 413, 422, 500})
"""Statuses with which it is said; 500 by some servers of open models."""

_FIGURES = (
    re.compile(r"(?P<tokens>\d{1,12}) \+ (?P<output>\d{1,12}) > (?P<limit>\d{1,12})"),
    re.compile(r"(?P<tokens>\d{1,12}) tokens > (?P<limit>\d{1,12})"),
    re.compile(
        r"maximum context length (?:is|of) (?P<limit>\d{1,12}).{0,120}?\((?P<tokens>\d{1,12}) in the messages?,? (?P<output>\d{1,12}) in the completion",
        re.DOTALL,
    ),
    re.compile(
        r"maximum context length (?:is|of) (?P<limit>\d{1,12}).{0,160}?(?:resulted in|requested|has|contains?) (?:about )?(?P<tokens>\d{1,12})",
        re.DOTALL,
    ),
    re.compile(r"token count \(?(?P<tokens>\d{1,12})\)? exceeds .{0,60}?\(?(?P<limit>\d{1,12})"),
    re.compile(r"maximum context length (?:is|of) (?P<limit>\d{1,12})"),
)
"""Where the tokens of the request, those kept for the answer, and the limit stand."""


class Figures(NamedTuple):
    """What an error says of the request; 0 where it does not say."""

    tokens: int = 0
    output: int = 0
    limit: int = 0


def is_context_error(api: str, status: int, body: bytes) -> bool:
    """Does this reply of an upstream say that the request is too long for the model's window?

    For Responses also a stream that begins with status 200 and a `response.failed` event. What the error quotes
    (`refold.gateway.saying`) does not count: a request's text says anything.
    """
    if status == 200:
        failed = api == "openai_responses" and b"response.failed" in body
        return failed and "context_length_exceeded" in said_in(error_of(body))
    return status in _STATUS and _SAID.search(said_in(body)) is not None


def figures(body: bytes) -> Figures:
    """The numbers of a context error; none of those that it quotes."""
    said = said_in(body).replace(",", "")
    for pattern in _FIGURES:
        if found := pattern.search(said):
            return Figures(**{name: int(value) for name, value in found.groupdict().items() if value})
    return Figures()


def context_error(api: str, tokens: int = 0, limit: int = 0) -> tuple[int, Headers, bytes]:
    """Status, headers and body with which the provider itself would say that a request of *tokens* exceeds
    *limit*, so that clients recognise it and recover as they do. A limit that is not known is said as the
    common one."""
    status, error = _told(api, tokens, limit)
    return status, (("content-type", "application/json"),), json.dumps(error).encode()


def _told(api: str, tokens: int, limit: int) -> tuple[int, Any]:
    if api == "anthropic":
        limit = limit or 200_000
        said = f"prompt is too long: {max(tokens, limit + 1)} tokens > {limit} maximum"
        return 400, {"type": "error", "error": {"type": "invalid_request_error", "message": said}}
    if api == "gemini":
        limit = limit or 1_048_576
        said = (
            f"The input token count ({max(tokens, limit + 1)}) exceeds the maximum number of tokens allowed ({limit})."
        )
        return 400, {"error": {"code": 400, "message": said, "status": "INVALID_ARGUMENT"}}
    if api == "openai_responses":
        said = "Your input exceeds the context window of this model. Please adjust your input and try again."
        return 400, {"error": _openai(said, "input")}
    limit = limit or 128_000
    said = (
        f"This model's maximum context length is {limit} tokens. However, your messages resulted in "
        f"{max(tokens, limit + 1)} tokens. Please reduce the length of the messages."
    )
    return 400, {"error": _openai(said, "messages")}


def _openai(said: str, param: str) -> dict[str, str]:
    return {"message": said, "type": "invalid_request_error", "param": param, "code": "context_length_exceeded"}
