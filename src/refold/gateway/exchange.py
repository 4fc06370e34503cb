"""One exchange with the gateway: a request as it came, what becomes of it, answers of its own."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

Headers = tuple[tuple[str, str], ...]
RawHeaders = tuple[tuple[bytes, bytes], ...]
APIS = ("anthropic", "openai_chat", "openai_responses", "gemini")
"""The wire formats of requests."""
_COUNT_PATHS = ("/messages/count_tokens", "/count-tokens:rawPredict")
_AUXILIARY_PATHS = (*_COUNT_PATHS, ":countTokens", "/responses/compact", "/input_tokens")
"""Ends of paths that carry a conversation and ask something else."""

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
"""Every reason that an `Outgoing` may give, and what it means."""

Outcome = Literal["untouched", "edited", "side", "opaque", "failed", "refused", "retried", "shadow"]
"""What was done with a request. `untouched`: nothing was due. `edited`: what is sent differs.
`side`: a title, a classifier, a client's own compaction, which is left alone. `opaque`: a history
that the provider holds, or that cannot be read. `failed`: it could not be decided in time.
`refused`: it is answered at once, so that the client sends its full history. `retried`: edited once
more after the upstream refused it. `shadow`: it would have been edited or refused, and is sent as
it came (`Settings.shadow`)."""


@dataclass(frozen=True, slots=True)
class RequestHead:
    """A request without its body."""

    method: str
    path: str
    """As it came, percent signs and all, without the query."""
    query: str = field(repr=False)
    headers: RawHeaders = field(repr=False)
    """In order, repeats included, names in lower case."""
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
        """The declared size of the body in bytes; None where none is declared."""
        declared = self.get(b"content-length")
        return int(declared) if declared else None

    @property
    def has_body(self) -> bool:
        """Does a body follow?"""
        return bool(self.length) or bool(self.get(b"transfer-encoding"))


@dataclass(frozen=True, slots=True)
class Incoming:
    """One request as a client sent it."""

    api: str
    """One of `APIS`; empty for any other path, which is passed through."""
    upstream: str
    """Name of the configured upstream that it goes to."""
    path: str
    """With the query, as it came."""
    headers: Headers
    """Names in lower case."""
    body: bytes = field(repr=False)
    credential: str = field(default="", repr=False)
    """A salted hash of the client's key, never the key."""

    @property
    def is_signed(self) -> bool:
        """Does a signature (Amazon's, SigV4) cover the body, so that no byte of it may change?"""
        is_amazon = self.header("authorization").startswith("AWS4-")
        return is_amazon and self.header("x-amz-content-sha256") != "UNSIGNED-PAYLOAD"

    def header(self, name: str) -> str:
        """Return the first header of this name; empty if there is none."""
        return next((value for key, value in self.headers if key == name), "")


class GatewayResponse(NamedTuple):
    """An answer that the gateway gives itself, in the caller's dialect."""

    status: int
    headers: Headers
    body: bytes


@dataclass(frozen=True, slots=True)
class Outgoing:
    """What to send upstream in place of an `Incoming`."""

    body: bytes = field(repr=False)
    """The very object that came in, if nothing is to be done."""
    edits: tuple[str, ...] = ()
    """Ids of the edits that show in it."""
    tokens_before: int = 0
    """Estimated tokens of the request as it came; 0 if it was not counted."""
    tokens_after: int = 0
    """Estimated tokens of *body*."""
    outcome: Outcome = "untouched"
    reason: str = ""
    """Why, in one word that counters may be labelled with: `REASONS`."""
    ticket: Any = field(default=None, repr=False)
    """What `Pipeline.record_answer` and `Pipeline.commit` need; None if they have nothing to do."""
    headers: Headers = ()
    """Headers to send in place of the client's own of these names, in lower case."""
    model: str = ""
    """The model that the request names; empty if that was not read."""
    response: GatewayResponse | None = None
    """Answer with this and send nothing upstream."""
    session: Any = field(default=None, repr=False)
    """What its engine knows the conversation as (`refold.gateway.pipeline.engines`), if it is
    told."""

    def as_shadow(self, body: bytes) -> "Outgoing":
        """Return the request as it came, with the *body* that came; the ticket still has what would
        have been shown."""
        if self.body is body and self.response is None:
            return self
        sent = self.tokens_before or self.tokens_after
        return Outgoing(body, (), sent, sent, "shadow", self.reason, self.ticket, (), self.model)


def is_token_count(path: str) -> bool:
    """Does this path ask Anthropic, or Claude on Vertex AI, for the tokens of a conversation?"""
    return path.partition("?")[0].endswith(_COUNT_PATHS)


def is_auxiliary(path: str) -> bool:
    """Does this path of a conversation's API ask something else than an answer?"""
    return path.partition("?")[0].endswith(_AUXILIARY_PATHS)


def decode_headers(headers: RawHeaders) -> tuple[tuple[str, str], ...]:
    """Return headers as text, as `decode_header` reads them."""
    try:
        return tuple([(name.decode(), value.decode()) for name, value in headers])
    except UnicodeDecodeError:
        return tuple((decode_header(name), decode_header(value)) for name, value in headers)


def decode_header(value: bytes) -> str:
    """Return a header as text that is written as the same bytes again, if it is UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def encode_headers(headers: Iterable[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    """Return headers as bytes: UTF-8, as `decode_headers` reads them."""
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
    """Return *error* as the API's provider would say it."""
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
    """Return an error in the form of the API's provider: *param* and *code* as OpenAI has them,
    *details* as Anthropic."""
    error: dict[str, Any] = {"message": message}
    body: dict[str, Any] = {"error": error}
    if api == "anthropic":
        error |= {"type": _ANTHROPIC.get(status, _error_type(status)), **details}
        body = {"type": "error", **body}
    elif api == "gemini":
        usual = "INTERNAL" if status >= 500 else "INVALID_ARGUMENT"
        error |= {"code": status, "status": _GEMINI.get(status, usual)}
    else:
        kind, code = _OPENAI.get(status, _error_type(status)), code or _OPENAI_CODES.get(status)
        error |= {"type": kind, "param": param, "code": code}
    return json_response(status, body, headers)


def json_response(status: int, value: Any, headers: Headers = ()) -> GatewayResponse:
    """Return an answer with *value* as its body."""
    body = json.dumps(value).encode()
    fixed = (("content-type", "application/json"), ("content-length", str(len(body))))
    return GatewayResponse(status, (*fixed, *headers), body)


def _error_type(status: int) -> str:
    return "api_error" if status >= 500 else "invalid_request_error"


_ANTHROPIC = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    503: "overloaded_error",
    504: "timeout_error",
}
_GEMINI = {
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    501: "UNIMPLEMENTED",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_OPENAI = {
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
