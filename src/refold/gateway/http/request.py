"""Incoming HTTP requests: checks, the API that a path belongs to, and what is forwarded."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from itertools import chain
from time import monotonic
from typing import Any, NamedTuple, TypedDict
from urllib.parse import quote, unquote

from refold.gateway.exchange import HTTPException, RawHeaders, RequestHead, is_token_count
from refold.gateway.settings import Limits, Upstream
from refold.gateway.tenants import is_key
from refold.text.json_values import object_at, parse_or_none
from refold.tokens.model_table import LONGEST_NAME

try:
    from msgspec.json import Decoder
except ImportError:  # without the extra `gateway` nothing is received
    Decoder = None  # type: ignore[assignment, misc]

Receive = Callable[[], Awaitable[Mapping[str, Any]]]

HOP_BY_HOP = frozenset(
    b"connection http2-settings keep-alive proxy-authenticate proxy-authorization proxy-connection "
    b"te trailer transfer-encoding upgrade".split()
)
"""Hop-by-hop headers (RFC 9110, 7.6.1). Those that `connection` names are added."""
_NOT_FORWARDED = HOP_BY_HOP | {b"host", b"content-length", b"expect"}
"""Headers that are not copied to the upstream request."""
_DOTS = re.compile(r"(?:^|/)\.\.?(?:/|$)")

_GENERATION_PATHS = (
    (re.compile(r"/chat/completions/?$"), "openai_chat"),
    (re.compile(r"/responses/?$"), "openai_responses"),
    (re.compile(r"^(?!.*/threads/).*/messages/?$"), "anthropic"),
    (re.compile(r"/anthropic/models/(?!count-)[^/]+:(?:r|streamR)awPredict$"), "anthropic"),
    (re.compile(r"/[^/]+:(?:generateContent|streamGenerateContent)$"), "gemini"),
)
_API_PATHS = (
    (
        re.compile(
            r"/v1(?:alpha|beta)\d*/|/(?:locations|publishers)/"
            r"|:(?:g|streamG)enerateContent$|:countTokens$"
        ),
        "gemini",
    ),
    (re.compile(r"^(?!.*/threads/).*/messages(?:/|$)"), "anthropic"),
    (re.compile(r"/responses(?:/|$)"), "openai_responses"),
    (re.compile(r"/chat/completions(?:/|$)"), "openai_chat"),
)
"""Paths of each API, whatever is requested. OpenAI's threads have messages too, and Google offers
Chat Completions and Claude below its own paths, with its own tokens."""


def read_head(scope: Mapping[str, Any], limits: Limits) -> RequestHead:
    """Return the head of a request from its ASGI scope.

    Raises `HTTPException` if its framing is ambiguous (RFC 9112, 6.3) or unsupported, its host is
    repeated or (HTTP/1.1) missing, its target is not ASCII, its path is not absolute or has dot
    segments, or its headers are too many or too large.
    """
    headers = tuple([(bytes(name), bytes(value)) for name, value in scope["headers"]])
    _check_head_size(headers, limits)
    _check_framing(headers, scope.get("http_version", "1.1"))
    path, query = _split_target(scope)
    if not path.startswith("/") or _has_dot_segments(path):
        raise HTTPException(400, "The path must be absolute and without dot segments.")
    return RequestHead(scope["method"], path, query, headers)


def _has_dot_segments(path: str) -> bool:
    plain = unquote(path) if "%" in path else path
    return "." in plain and _DOTS.search(plain.replace("\\", "/")) is not None


def _split_target(scope: Mapping[str, Any]) -> tuple[str, str]:
    """Return path and query as received."""
    raw = scope.get("raw_path")
    try:
        path = (raw.decode("ascii") if raw else quote(scope["path"])).partition("?")[0]
        query = scope.get("query_string", b"").decode("ascii")
    except UnicodeDecodeError as error:
        raise HTTPException(
            400, "Path and query are ASCII; write anything else with percent signs."
        ) from error
    return path.removeprefix(scope.get("root_path", "")), query


def _check_head_size(headers: RawHeaders, limits: Limits) -> None:
    if (
        len(headers) > limits.headers
        or len(b"".join(chain.from_iterable(headers))) > limits.head_bytes
    ):
        raise HTTPException(
            431,
            f"At most {limits.headers} headers of {limits.head_bytes} bytes together are taken.",
        )


def _check_framing(headers: RawHeaders, version: str) -> None:
    lengths, codings, hosts = list[bytes](), list[bytes](), list[bytes]()
    for name, value in headers:
        if name == b"content-length":
            lengths.append(value)
        elif name == b"transfer-encoding":
            codings.append(value)
        elif name == b"host":
            hosts.append(value)
    if len(lengths) > 1 or (lengths and codings) or (lengths and not lengths[0].isdigit()):
        raise HTTPException(400, "The size of the body is ambiguous.", close=True)
    if codings and version == "1.0":
        raise HTTPException(400, "HTTP/1.0 knows no transfer codings.", close=True)
    if codings and [coding.lower() for coding in codings] != [b"chunked"]:
        raise HTTPException(501, "The only transfer coding that is taken is chunked.", close=True)
    if len(hosts) > 1 or (not hosts and version == "1.1"):
        raise HTTPException(400, "A request needs one host header.", close=True)


class ClientDisconnected(Exception):  # noqa: N818 - it is what happened, not an error
    """The client has closed its connection."""


async def read_body(receive: Receive, most: int, limits: Limits, declared: int | None) -> bytes:
    """Return the whole body. Raises `HTTPException` (413 above *most* bytes, 408 if it comes too
    slowly for *limits*) and `ClientDisconnected`."""
    pieces = [piece async for piece in iter_body(receive, most, limits, declared)]
    return b"".join(pieces)  # a single piece is not copied


async def iter_body(
    receive: Receive, most: int, limits: Limits, declared: int | None
) -> AsyncIterator[bytes]:
    """Yield the body as it arrives. Raises as `read_body` does."""
    _check_body_size(declared or 0, most)
    size, has_more, rate = 0, True, limits.body_bytes_per_second
    patience = limits.body_seconds  # excludes the time that a slow upstream takes
    while has_more:
        begun = monotonic()
        piece, has_more = await _receive_piece(receive, patience, rate)
        patience += begun - monotonic() + len(piece) / rate
        patience = min(patience, limits.body_seconds)
        size += len(piece)
        _check_body_size(size, most)
        if piece:
            yield piece


async def _receive_piece(receive: Receive, seconds: float, rate: float) -> tuple[bytes, bool]:
    """Return a piece, and whether more follows."""
    try:
        async with asyncio.timeout(seconds):
            message = await receive()
    except TimeoutError as error:
        words = f"The body came too slowly: {rate:,g} bytes a second are the least."
        raise HTTPException(408, words, close=True) from error
    if message["type"] == "http.disconnect":
        raise ClientDisconnected
    return message.get("body", b""), message.get("more_body", False)


def _check_body_size(size: int, limit: int) -> None:
    if size > limit:
        raise HTTPException(
            413,
            f"The request is larger than the {limit:,} bytes that [limits] in refold.toml allows.",
            close=True,
        )


def generation_api(method: str, path: str) -> str:
    """Return the API of a request for an answer; empty for any other request, which passes
    unread."""
    return next(
        (api for pattern, api in _GENERATION_PATHS if method == "POST" and pattern.search(path)), ""
    )


def client_api(head: RequestHead) -> str:
    """Return the API that a client speaks, whatever it requests."""
    return generation_api("POST", head.path) or candidate_apis(head)[0]


def candidate_apis(head: RequestHead) -> tuple[str, ...]:
    """Return the possible APIs of a request, by its path, else by its key and headers; both of
    OpenAI's if nothing else fits."""
    by_path = next((api for pattern, api in _API_PATHS if pattern.search(head.path)), None)
    if by_path is not None:
        return (by_path,)
    if head.get(b"x-api-key") or b"sk-ant-" in head.get(b"authorization"):
        return ("anthropic",)
    if any(name.startswith(b"anthropic-") for name in head.first_values):
        return ("anthropic",)
    if head.get(b"x-goog-api-key") or head.query.startswith("key=") or "&key=" in head.query:
        return ("gemini",)
    return ("openai_chat", "openai_responses")


class UpstreamRequest(NamedTuple):
    """A request to an upstream."""

    upstream: Upstream
    method: str
    target: str
    """Path and query, exactly as sent."""
    headers: list[tuple[bytes, bytes]]
    body: bytes | AsyncIterator[bytes] | None


def upstream_headers(
    headers: RawHeaders, *, drop: Iterable[bytes] = ()
) -> list[tuple[bytes, bytes]]:
    """Return the headers for the upstream, unchanged, without hop-by-hop headers, `host`,
    `content-length`, `expect` and *drop*."""
    dropped = _NOT_FORWARDED.union(_connection_headers(headers), drop)
    return [header for header in headers if header[0] not in dropped]


def client_headers(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return an upstream's headers, whose names are in lower case, without hop-by-hop headers."""
    dropped = HOP_BY_HOP | _connection_headers(headers)
    return [header for header in headers if header[0] not in dropped]


def _connection_headers(headers: Iterable[tuple[bytes, bytes]]) -> frozenset[bytes]:
    """Return the names listed in `connection`, except framing headers and keys."""
    values = [value for name, value in headers if name == b"connection"]
    names = (name.strip().lower() for value in values for name in value.split(b","))
    framing = {b"content-length", b"content-encoding", b"content-type"}
    return frozenset(name for name in names if name not in framing and not is_key(name))


_VERBS = (
    "generateContent|streamGenerateContent|bidiGenerateContent|batchGenerateContent|generateAnswer|"
    "countTokens|computeTokens|embedContent|batchEmbedContents|asyncBatchEmbedContent|"
    "predict|predictLongRunning|rawPredict|streamRawPredict|serverStreamingPredict"
)
"""Google's methods, which end a path after a colon. Models may have one, too: `ft:gpt-4o:acme`."""
_MODEL_PREFIXES = ("/models/", "/tunedModels/", "/endpoints/")
_MODEL_PATH_MARKERS = ("/models/", "/model/", "/tunedModels/", "/endpoints/", "/deployments/")
"""Only paths that contain one of these name a model."""
_GOOGLE = re.compile(rf"/[a-zA-Z]+/(.+):(?:{_VERBS})$")
_AZURE = re.compile(r"/deployments/([^/]+)")
_BEDROCK = re.compile(
    r"/model/([^/]+)/(?:converse|converse-stream|invoke|invoke-with-response-stream|count-tokens)$"
)
_MODELS_PATH = re.compile(r"/models/(.+)$")
_PATH_SUFFIXES = re.compile(r"/v1/.*|/(?:(?:chat/)?completions|responses|messages|embeddings)/?$")
"""Path endings that may follow a model name."""


def request_model(path: str, body: Mapping[str, Any]) -> str:
    """Return the model that a request names, cut off after `LONGEST_NAME` characters; empty if it
    names none.

    In paths of Google's and Bedrock's methods the path names it, whatever the body says. Otherwise
    the body's `model` counts, then the rest of the path: Azure's deployment, `/v1/models/NAME`.
    *path* may have a query and percent signs.
    """
    path = path.partition("?")[0]
    model = body.get("model")
    model = model[:LONGEST_NAME] if isinstance(model, str) else ""
    if is_token_count(path) or not any(sign in path for sign in _MODEL_PATH_MARKERS):
        return model
    # Model names contain slashes, so the last match counts.
    tail = path[max(0, *(path.rfind(place) for place in _MODEL_PREFIXES)) :]
    if match := (tail.startswith(_MODEL_PREFIXES) and _GOOGLE.match(tail)) or _BEDROCK.search(path):
        return unquote(match[1])[:LONGEST_NAME]
    if model:
        return model
    match = _AZURE.search(path) or _MODELS_PATH.match(_PATH_SUFFIXES.sub("", tail))
    return unquote(match[1])[:LONGEST_NAME] if match else ""


_MAX_PARSED_BYTES = 1024 * 1024
"""Maximum size of a body to be parsed if it is no strict JSON."""


class _NamedModel(TypedDict, total=False):
    model: Any


_decoder = None if Decoder is None else Decoder(_NamedModel)


def read_model_field(text: bytes | None) -> Mapping[str, Any]:
    """Return an object with the field `model` of that in a JSON text; an empty one if there is
    none. Other fields are skipped: parsing a large body holds up all requests for seconds."""
    text = (text or b"").removeprefix(b"\xef\xbb\xbf")
    for spell in (bytes, _replace_surrogates):
        with suppress(ValueError, RecursionError):
            if _decoder is not None:
                return _decoder.decode(spell(text))
    return object_at(parse_or_none(text)) if len(text) <= _MAX_PARSED_BYTES else {}


def _replace_surrogates(text: bytes) -> bytes:
    """Return *text* with other characters for surrogates: msgspec refuses lone ones."""
    return text.replace(b"\\ud", b"\\u0").replace(b"\\uD", b"\\u0")
