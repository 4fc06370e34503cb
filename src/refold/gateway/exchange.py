"""One exchange with the gateway: the request, what is sent for it, the gateway's own answers."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

Headers = tuple[tuple[str, str], ...]
RawHeaders = tuple[tuple[bytes, bytes], ...]
APIS = ("anthropic", "openai_chat", "openai_responses", "gemini")
"""Wire formats of requests."""
_COUNT_PATHS = ("/messages/count_tokens", "/count-tokens:rawPredict")
_AUXILIARY_PATHS = (*_COUNT_PATHS, ":countTokens", "/responses/compact", "/input_tokens")
"""Suffixes of paths that carry a conversation but ask for no answer."""

REASONS = {
    "": "nothing was due",
    "path": "not the path of a conversation",
    "empty": "no message",
    "light": "too short for anything to be worth an edit",
    "encoding": "in a coding that cannot be unpacked, or too large when unpacked",
    "unreadable": "no JSON, no conversation of this API, or too many messages",
    "signed": "signed with its body, so that no byte of it may change",
    "unstrict": "no strict JSON, so that providers may read it otherwise than we do",
    "delta": "the provider holds the history",
    "thread": "a message thread was refused, so that the client sends its history",
    "previous_response_id": "a delta was refused, so that the client sends its history",
    "compaction": "the client's own compaction",
    "title": "a title or a commit message",
    "classifier": "a classifier's question about a transcript",
    "memory": "an agent that keeps memories",
    "prewarm": "a request that only warms the cache",
    "shown": "what was decided before is shown again",
    "hard": "the window is nearly full",
    "prepared": "a summary that was prepared is used",
    "pays": "a compaction that pays",
    "native": "the provider's own clearing or compaction was asked for",
    "engine": "only what its engine is told of the session was added",
    "hour": "only the cache marks were changed, to keep it for an hour",
    "cap": "only the cap of output tokens was lowered",
    "context": "the upstream said that the request is too long",
    "binding": "the upstream took signed thinking to be of another conversation",
    "store": "the store failed",
    "deadline": "it could not be decided in time",
    "busy": "another request of the conversation is being worked on",
    "resting": "the store is left alone for a while after failures",
    "internal": "an error of the gateway",
}
"""Every reason that an `Outgoing` may have, with its meaning."""

Outcome = Literal["untouched", "edited", "side", "opaque", "failed", "refused", "retried", "shadow"]
"""What was done with a request. `untouched`: nothing was due. `edited`: it was changed. `side`: a
title, a classifier, a client's own compaction, left alone. `opaque`: the provider holds the
history, or it cannot be read. `failed`: no decision in time. `refused`: answered at once, so that
the client sends its full history. `retried`: edited again after the upstream refused it. `shadow`:
would have been edited or refused, and is sent as it came (`Settings.shadow`)."""


@dataclass(frozen=True, slots=True)
class RequestHead:
    """A request without its body."""

    method: str
    path: str
    """As it came, percent-encoded, without the query."""
    query: str = field(repr=False)
    headers: RawHeaders = field(repr=False)
    """In order, with repeats, names in lower case."""
    first_values: Mapping[bytes, bytes] = field(init=False, repr=False, compare=False)
    """The first header of each name."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "first_values", dict(reversed(self.headers)))

    def get(self, name: bytes) -> bytes:
        """Return the first header of this name; empty if there is none."""
        return self.first_values.get(name, b"")

    @property
    def target(self) -> str:
        """Path and query."""
        return f"{self.path}?{self.query}" if self.query else self.path

    @property
    def length(self) -> int | None:
        """Declared size of the body in bytes; None if none is declared."""
        declared = self.get(b"content-length")
        return int(declared) if declared else None

    @property
    def has_body(self) -> bool:
        """Whether a body follows."""
        return bool(self.length) or bool(self.get(b"transfer-encoding"))


@dataclass(frozen=True, slots=True)
class Incoming:
    """One request as a client sent it."""

    api: str
    """One of `APIS`; empty for any other path, which is passed through."""
    upstream: str
    """Its upstream's name."""
    path: str
    """Path and query, without the upstream's prefix and the values of keys."""
    headers: Headers
    """Names in lower case."""
    body: bytes = field(repr=False)
    credential: str = field(default="", repr=False)
    """Salted hash of the client's key, never the key."""

    @property
    def is_signed(self) -> bool:
        """Whether a signature (Amazon's SigV4) covers the body, so that no byte of it may
        change."""
        is_amazon = self.header("authorization").startswith("AWS4-")
        return is_amazon and self.header("x-amz-content-sha256") != "UNSIGNED-PAYLOAD"

    def header(self, name: str) -> str:
        """Return the first header of this name; empty if there is none."""
        return next((value for key, value in self.headers if key == name), "")


class GatewayResponse(NamedTuple):
    """An answer of the gateway itself, in the format of the caller's API."""

    status: int
    headers: Headers
    body: bytes


@dataclass(frozen=True, slots=True)
class Outgoing:
    """What to send upstream in place of an `Incoming`."""

    body: bytes = field(repr=False)
    """The same object as the incoming body if nothing is to be done."""
    edits: tuple[str, ...] = ()
    """Ids of the edits that it shows."""
    tokens_before: int = 0
    """Estimated tokens of the request as it came; 0 if it was not counted."""
    tokens_after: int = 0
    """Estimated tokens of *body*."""
    outcome: Outcome = "untouched"
    reason: str = ""
    """A key of `REASONS`, used as a label of counters."""
    ticket: Any = field(default=None, repr=False)
    """State for `Pipeline.record_answer` and `Pipeline.commit`; None if they have nothing to do."""
    headers: Headers = ()
    """Headers that replace the client's own, names in lower case."""
    model: str = ""
    """Model that the request names; empty if it was not read."""
    response: GatewayResponse | None = None
    """Answer to send instead; nothing goes upstream."""
    session: Any = field(default=None, repr=False)
    """Session as the engine knows it (`refold.gateway.pipeline.engines`), if the engine is told."""

    def as_shadow(self, body: bytes) -> "Outgoing":
        """Return the request as it came, with the original *body*. The ticket keeps what would have
        been shown."""
        if self.body is body and self.response is None:
            return self
        sent = self.tokens_before or self.tokens_after
        return Outgoing(body, (), sent, sent, "shadow", self.reason, self.ticket, (), self.model)


def is_token_count(path: str) -> bool:
    """Return whether this path counts a conversation's tokens, at Anthropic or for Claude on Vertex
    AI."""
    return path.partition("?")[0].endswith(_COUNT_PATHS)


def is_auxiliary(path: str) -> bool:
    """Return whether this path of a conversation's API does not ask for an answer."""
    return path.partition("?")[0].endswith(_AUXILIARY_PATHS)


def decode_headers(headers: RawHeaders) -> tuple[tuple[str, str], ...]:
    """Return headers as text (`decode_header`)."""
    try:
        return tuple([(name.decode(), value.decode()) for name, value in headers])
    except UnicodeDecodeError:
        return tuple((decode_header(name), decode_header(value)) for name, value in headers)


def decode_header(value: bytes) -> str:
    """Return a header as text: UTF-8, which encodes to the same bytes, else Latin-1."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def encode_headers(headers: Iterable[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    """Return headers as UTF-8 bytes."""
    return [(name.encode(), value.encode()) for name, value in headers]


class HTTPException(Exception):  # noqa: N818 - it is an answer, not an error
    """A request that the gateway answers itself, with this status and message."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        headers: Headers = (),
        close: bool = False,
        reason: str = "",
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.close = status, message, close
        self.headers = (*headers, ("connection", "close")) if close else headers
        self.reason = reason or f"http_{status}"


def error_response(api: str, error: HTTPException) -> GatewayResponse:
    """Return *error* in the format of the API's provider."""
    return provider_error(api, error.status, error.message, error.headers)


def provider_error(
    api: str,
    status: int,
    message: str,
    headers: Headers = (),
    *,
    param: str | None = None,
    code: str | None = None,
    **details: Any,
) -> GatewayResponse:
    """Return an error in the format of the API's provider, with OpenAI's *param* and *code* or
    Anthropic's *details*."""
    error: dict[str, Any] = {"message": message}
    body: dict[str, Any] = {"error": error}
    if api == "anthropic":
        error |= {"type": _ANTHROPIC_TYPES.get(status, _error_type(status)), **details}
        body = {"type": "error", **body}
    elif api == "gemini":
        usual = "INTERNAL" if status >= 500 else "INVALID_ARGUMENT"
        error |= {"code": status, "status": _GEMINI_STATUSES.get(status, usual)}
    else:
        kind = _OPENAI_TYPES.get(status, _error_type(status))
        code = code or _OPENAI_CODES.get(status)
        error |= {"type": kind, "param": param, "code": code}
    return json_response(status, body, headers)


def json_response(status: int, value: Any, headers: Headers = ()) -> GatewayResponse:
    """Return an answer with *value* as its JSON body."""
    body = json.dumps(value).encode()
    fixed = (("content-type", "application/json"), ("content-length", str(len(body))))
    return GatewayResponse(status, (*fixed, *headers), body)


def _error_type(status: int) -> str:
    return "api_error" if status >= 500 else "invalid_request_error"


_ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    503: "overloaded_error",
    504: "timeout_error",
}
_GEMINI_STATUSES = {
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    501: "UNIMPLEMENTED",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_OPENAI_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    500: "server_error",
    502: "server_error",
    503: "server_error",
    504: "server_error",
}
_OPENAI_CODES = {
    404: "not_found",
    413: "request_too_large",
    502: "upstream_unreachable",
    504: "upstream_timeout",
}
