"""The gateway as an ASGI application, for any server and any number of processes. It decides who
may send requests, and returns memory after a peak of requests."""

import asyncio
import ctypes
import gc
import logging
import sys
from base64 import b64decode
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from hmac import compare_digest
from ipaddress import ip_address
from time import perf_counter
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit

from refold.gateway.api.app import Api, is_page, send_page
from refold.gateway.config import Config
from refold.gateway.exchange import (
    APIS,
    GatewayResponse,
    HTTPException,
    RequestHead,
    encode_headers,
    error_response,
    json_response,
    provider_error,
)
from refold.gateway.http.client import HTTPClient
from refold.gateway.http.request import ClientDisconnected, Receive, client_api, read_head
from refold.gateway.http.response import ON_DISCONNECT, ResponseWriter, Send, Tracing
from refold.gateway.logs import LOGGER, AccessLogEntry, describe_fault, log
from refold.gateway.metrics import CONTENT_TYPE, Counters, Samples, render
from refold.gateway.pipeline.engines import SessionEnds
from refold.gateway.pipeline.pipeline import Pipeline
from refold.gateway.relay import Relay, refuse_websocket
from refold.gateway.settings import is_loopback, is_own_path

# --- the application ------------------------------------------------------------------------------


Application = Callable[[Mapping[str, Any], Receive, Send], Awaitable[None]]
"""An ASGI 3 application."""


class Gateway:
    """Passes requests on to their upstreams, compacted if that is due.

    *api*, if given, answers the paths below `/refold/` other than health and readiness, after the
    admin check. *traces* creates spans, by default with the process's tracer provider.
    `in_progress` is the number of requests being answered."""

    def __init__(
        self,
        config: Config,
        pipeline: Pipeline,
        api: Api | None = None,
        traces: Tracing | None = None,
    ) -> None:
        self.config, self.pipeline = config, pipeline
        self.in_progress = 0
        self.started = self.stopping = False
        self._client = HTTPClient(config.limits)
        self._ends = SessionEnds(self._client.send, pipeline.counters)
        self._relay = Relay(config, pipeline, self._client, traces or Tracing(), self._ends)
        self._api, self._peaks = api, LoadPeaks(release_memory)
        self.scrape: Callable[[], Samples] = self.read_metrics
        """Function that returns the samples of `/metrics`: of this process or of several."""
        begin_counters(pipeline.counters, config)

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request, connection or lifespan."""
        match scope["type"]:
            case "http":
                await self._http(scope, receive, send)
            case "websocket":
                await _refuse_websocket(scope, send)
            case "lifespan":
                await self._lifespan(receive, send)

    @property
    def is_ready(self) -> bool:
        """Whether it can take requests."""
        return self.started and not self.stopping

    @property
    def buffered_bytes(self) -> int:
        """Bytes of upstreams' answers that wait for slow clients."""
        return self._client.buffered_bytes

    def read_metrics(self) -> Samples:
        """Return all metrics of this process."""
        return self.pipeline.counters.samples(
            http_requests_in_progress=self.in_progress, http_buffered_bytes=self.buffered_bytes
        )

    def render_metrics(self) -> bytes:
        """Return the body of `/metrics`."""
        return render(self.scrape())

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            match (await receive())["type"]:
                case "lifespan.startup":
                    self.started = True
                    await send({"type": "lifespan.startup.complete"})
                case "lifespan.shutdown":
                    self.stopping = True
                    await self._ends.aclose()
                    await self.pipeline.aclose()
                    self._client.close()
                    await send({"type": "lifespan.shutdown.complete"})
                    return

    async def _http(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        if root := scope.get("root_path"):
            scope = {**scope, "path": scope["path"].removeprefix(root)}
        if is_own_path(scope["path"]) or _is_browser_at_root(scope):
            await self._answer_own(scope, receive, send)
            return
        entry, started = AccessLogEntry(method=scope["method"]), perf_counter()
        on_disconnect = (scope.get("extensions") or {}).get(ON_DISCONNECT)
        writer = ResponseWriter(send, entry, self.config.limits.silence_seconds, on_disconnect)
        self.in_progress += 1
        self._peaks.update(self.in_progress)
        try:
            await self._answer(scope, receive, writer)
        finally:
            self.in_progress -= 1
            self._peaks.update(self.in_progress)
            entry.total_ms = (perf_counter() - started) * 1000
            self._log_request(entry)

    async def _answer(
        self, scope: Mapping[str, Any], receive: Receive, writer: ResponseWriter
    ) -> None:
        """Answer, with an error in the format of the caller's API if need be."""
        head, entry = None, writer.log_entry
        try:
            head = read_head(scope, self.config.limits)
            entry.path = head.path[:200]
            self._check_admission(head, scope)
            await self._relay.answer(head, receive, writer)
        except HTTPException as error:
            await self._refuse(head, error, writer)
        except ClientDisconnected:
            entry.client_disconnected = True
        except asyncio.CancelledError:
            entry.stopped = True
            raise
        except Exception as error:  # noqa: BLE001 - a bug in one request must not stop others
            entry.internal_error = describe_fault(error)
            failure = HTTPException(500, "The gateway failed.", reason="fault")
            await self._refuse(head, failure, writer)

    def _check_admission(self, head: RequestHead, scope: Mapping[str, Any]) -> None:
        if has_admin_token(head, self.config.admin_token):
            words = "Nothing that carries the gateway's admin token is sent on"
            words += "; its own paths are /metrics and those below /refold/."
            raise HTTPException(404, words, reason="admin")
        if self.in_progress > (most := self.config.limits.requests):
            words = f"The gateway answers {most:,} requests at once: [limits] in refold.toml."
            again = (("retry-after", "1"),)
            raise HTTPException(503, words, headers=again, reason="busy")
        if refusal := check_origin(head.first_values, policy_for(self.config, scope)):
            raise refusal

    async def _refuse(
        self, head: RequestHead | None, error: HTTPException, writer: ResponseWriter
    ) -> None:
        """Answer with *error*. If an answer has begun, the server closes the connection. Never
        raises `ClientDisconnected`."""
        self.pipeline.counters.add("http_refused", reason=error.reason)
        writer.log_entry.reason = writer.log_entry.reason or error.reason
        if writer.has_started:
            return
        try:
            api = client_api(head) if head is not None else "openai_chat"
            await writer.respond(*error_response(api, error))
        except ClientDisconnected:
            writer.log_entry.client_disconnected = True

    def note_refusal(self, status: int) -> None:
        """Count and log what the server refused before it became a request."""
        self.pipeline.counters.add("http_refused", reason=f"http_{status}")
        log("refused", logging.INFO, status=status)

    def _log_request(self, entry: AccessLogEntry) -> None:
        add = self.pipeline.counters.add
        add(
            "http_requests",
            api=entry.api or "other",
            upstream=entry.upstream,
            status=str(entry.status),
        )
        if entry.client_disconnected:
            add("http_client_disconnects", upstream=entry.upstream)
        if entry.upstream_broke_off:
            add("http_truncated", upstream=entry.upstream)
        level = logging.INFO
        if entry.internal_error:
            level = logging.ERROR
        elif entry.upstream_broke_off or entry.stopped or entry.status >= 500:
            level = logging.WARNING
        if LOGGER.isEnabledFor(level):
            log("request", level, **entry.as_fields())

    # --- the gateway's own paths ------------------------------------------------------------------

    async def _answer_own(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer health, readiness and the page, which holds no data, for everybody, the rest for
        administrators."""
        writer = ResponseWriter(send, AccessLogEntry(), self.config.limits.silence_seconds)
        path = scope["path"]
        if b"%" in (scope.get("raw_path") or b""):  # could slip past a proxy's rules
            await writer.respond(*provider_error("", 404, "There is nothing at this path."))
        elif path == "/":
            page = ("location", "/refold/"), ("content-length", "0"), ("cache-control", "no-store")
            await writer.respond(307, page, b"")
        elif path == "/refold/health":
            await writer.respond(*_status(200, "ok"))
        elif path == "/refold/ready":
            await writer.respond(
                *(_status(200, "ready") if self.is_ready else _status(503, "stopping"))
            )
        elif self._api is not None and is_page(scope):
            await send_page(scope, writer)
        elif not may_administer(scope, self.config.admin_token):
            self.pipeline.counters.add("http_refused", reason="admin")
            await writer.respond(*_refuse_administrator(has_token=bool(self.config.admin_token)))
        elif path == "/metrics" and scope["method"] in {"GET", "HEAD"}:
            body = self.render_metrics()
            sizes = (("content-type", CONTENT_TYPE), ("content-length", str(len(body))))
            await writer.respond(200, sizes, body)
        elif self._api is not None:
            await self._api(scope, receive, send)
        else:
            await writer.respond(*provider_error("", 404, "There is nothing at this path."))


def begin_counters(counters: Counters, config: Config) -> None:
    """Create the counters of deploy/alerts.yml at 0: Prometheus sees no increase in a counter that
    first appears with a failure."""
    for reason in ("store", "deadline", "busy", "internal", "model"):
        counters.add("failures", 0, reason=reason)
    counters.add("http_refused", 0, reason="busy")
    counters.add("ledger_lost", 0)
    counters.add("log_lines_dropped", 0)
    counters.add("http_accept_failures", 0)
    for doing in ("reckon", "record", "write", "sessions"):
        counters.add("ledger_failures", 0, doing=doing)
    for upstream in config.upstreams:
        for api in upstream.apis or APIS:
            counters.add("context_errors", 0, api=api, upstream=upstream.name, result="given_up")


def _refuse_administrator(*, has_token: bool) -> GatewayResponse:
    if has_token:
        words = "The admin token is needed: authorization: Bearer TOKEN."
        return provider_error("", 401, words, (("www-authenticate", "Bearer"),))
    words = "This gateway has no admin token, so it shows this only on its own machine, as "
    words += "http://127.0.0.1 or http://localhost, and not through a proxy: REFOLD_ADMIN_TOKEN "
    words += "sets one, for anywhere else."
    return provider_error("", 403, words, code="no_admin_token")


def _status(status: int, word: str) -> GatewayResponse:
    return json_response(status, {"status": word}, (("cache-control", "no-store"),))


async def _refuse_websocket(scope: Mapping[str, Any], send: Send) -> None:
    """Answer 426, after which clients that try WebSocket first use HTTP. Servers that cannot send
    426 answer 403."""
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1008})
        return
    status, headers, body = error_response("openai_responses", refuse_websocket())
    raw = encode_headers(headers)
    await send({"type": "websocket.http.response.start", "status": status, "headers": raw})
    await send({"type": "websocket.http.response.body", "body": body})


def _is_browser_at_root(scope: Mapping[str, Any]) -> bool:
    """Return whether a person opens `/` in a browser. Clients of an API accept no HTML there."""
    accepts = (value for name, value in scope["headers"] if name == b"accept")
    is_root = scope["path"] == "/" and scope["method"] in {"GET", "HEAD"}
    return is_root and any(b"text/html" in value for value in accepts)


# --- admission ------------------------------------------------------------------------------------
# Checks of host names, of the origins of pages (a browser sends requests for any page) and of
# administrators.

Headers = Mapping[bytes, bytes]
"""First header of each name, in lower case."""
_KEY_HEADERS = (b"authorization", b"x-api-key", b"x-goog-api-key", b"api-key")
_FORM_TYPES = (b"", b"application/x-www-form-urlencoded", b"multipart/form-data", b"text/plain")
"""Content types that a page may post anywhere without a preflight (the Fetch standard's
safelist)."""
_FORWARDED = frozenset(
    {b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip", b"via"}
)
"""Headers that show that a proxy on this machine forwards somebody else's request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OriginPolicy:
    """The host names that requests may use, and the origins whose pages may send them. Programs
    send no origin. The default is this machine's own."""

    allowed_hosts: tuple[str, ...] = ()
    """Host names of the gateway besides this machine's. `*` is a wildcard."""
    allowed_origins: tuple[str, ...] = ()
    """Other origins whose pages may send requests: `https://chat.example`, `null`. `*` is a
    wildcard."""
    allows_local: bool = False
    """Whether host names that no public server can have, and origins that no web site can have
    (`vscode-webview://...`), are accepted."""
    checks_names: bool = True
    """Whether host names are checked."""


def policy_for(config: Config, scope: Mapping[str, Any]) -> OriginPolicy:
    """Return the policy for requests to upstreams. Host names are checked if only this machine can
    connect, because the name of any web site may resolve to it (DNS rebinding); otherwise if some
    are configured."""
    at = scope.get("server")
    local = is_loopback(config.host) and at is not None and is_loopback(str(at[0]))
    return OriginPolicy(
        allowed_hosts=config.allowed_hosts,
        allowed_origins=config.allowed_origins,
        allows_local=True,
        checks_names=local or bool(config.allowed_hosts),
    )


def check_origin(headers: Headers, sites: OriginPolicy) -> HTTPException | None:
    """Return the error (403) for a request to a foreign host name, or of a page that may not send
    it; None for all others."""
    host = _text(headers, b"host").lower()
    if host and sites.checks_names and not _is_own_name(_host_name(f"//{host}"), sites):
        words = (
            f"This gateway is not called {host[:100]!r}: if it is, add that name to allowed_hosts"
        )
        return HTTPException(403, f"{words} in refold.toml.", reason="foreign_host")
    origin = _text(headers, b"origin").lower()
    if origin:
        if _is_admitted(origin, host, headers, sites):
            return None
        words = f"Pages of {origin[:100]!r} may not use this gateway: if they may, add that to"
        words += " allowed_origins in refold.toml."
        return HTTPException(403, words, reason="foreign_site")
    if headers.get(b"sec-fetch-site") == b"cross-site":
        return HTTPException(
            403, "Pages of other sites may not use this gateway.", reason="foreign_site"
        )
    return None


def _is_own_name(name: str, sites: OriginPolicy) -> bool:
    if _is_this_machine(name) or _matches(name, sites.allowed_hosts):
        return True
    return sites.allows_local and (
        "." not in name or name.endswith(".internal") or _is_address(name)
    )


def _is_admitted(origin: str, host: str, headers: Headers, sites: OriginPolicy) -> bool:
    """Return whether pages of this origin may send requests: this machine's, the gateway's own, and
    configured ones."""
    if _matches(origin, sites.allowed_origins):
        return True
    scheme, _, place = origin.partition("://")
    if scheme in {"http", "https"}:
        return _is_this_machine(_host_name(f"//{place}")) or (sites.allows_local and place == host)
    return sites.allows_local and (origin != "null" or _has_preflight_headers(headers))


def _has_preflight_headers(headers: Headers) -> bool:
    """Return whether a request has what a page's browser sends only after a preflight. Any page can
    have the origin `null`, but its preflight is refused. Applications that disable that check, as
    Electron's can, come through."""
    if headers.keys() & set(_KEY_HEADERS):
        return True
    return headers.get(b"content-type", b"").partition(b";")[0].strip().lower() not in _FORM_TYPES


def _is_this_machine(name: str) -> bool:
    """Return whether *name* always resolves to this machine."""
    return is_loopback(name) or name.endswith(".localhost")


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _matches(text: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(text, pattern.lower()) for pattern in patterns)


@lru_cache(maxsize=64)
def _host_name(address: str) -> str:
    try:
        return (urlsplit(address).hostname or "").rstrip(".")
    except ValueError:
        return "."  # nobody's


def _text(headers: Headers, name: bytes) -> str:
    return headers.get(name, b"").decode("latin-1")


def has_admin_token(head: RequestHead, token: str) -> bool:
    """Return whether a request carries the *token* in any header, with or without a scheme, as user
    or password, in a cookie, or in its query. False without a *token*."""
    if not token:
        return False
    values = [value for _, value in head.headers]
    pairs = b"&".join([head.query.encode(), *values]).replace(b";", b"&").split(b"&")
    values += map(unquote_to_bytes, {pair.partition(b"=")[2] for pair in pairs})
    words = [*values, *(value.lstrip().partition(b" ")[2] for value in values)]
    for _, value in head.headers:
        if value[:6].lower() == b"basic ":
            with suppress(ValueError):
                words += b64decode(value[6:]).partition(b":")
    return any(compare_digest(word.strip(), token.encode()) for word in words)


def may_administer(scope: Mapping[str, Any], token: str) -> bool:
    """Return whether the caller may see and change what the gateway does.

    If there is a token, the caller must send it: `authorization: Bearer TOKEN`, the scheme in any
    case (RFC 9110, 11.1), the token compared in constant time. If not, the caller must be a program
    on this machine that calls it by a local name. Pages whose host name resolves here and callers
    behind a proxy are refused."""
    headers = [(bytes(name).lower(), bytes(value)) for name, value in scope["headers"]]
    if token:
        brought = next((value for name, value in headers if name == b"authorization"), b"")
        scheme, _, word = brought.partition(b" ")
        return scheme.lower() == b"bearer" and compare_digest(word.strip(b" "), token.encode())
    client, first = scope.get("client"), dict(reversed(headers))
    return (
        client is not None
        and is_loopback(client[0])
        and first.keys().isdisjoint(_FORWARDED)
        and sum(name == b"host" for name, _ in headers) == 1
        and check_origin(first, OriginPolicy()) is None
    )


# --- memory after a peak --------------------------------------------------------------------------
# The C library keeps freed memory unless it is told to return it.

PEAK_REQUESTS = 64
"""Number of concurrent requests that makes a peak."""
RELEASE_DELAY_SECONDS = 1.0
"""Seconds from a peak's end to the release: connections are closed by then."""
RELEASE_INTERVAL_SECONDS = 60.0
"""Seconds between two releases. During one, nothing else runs."""


class LoadPeaks:
    """Calls *release* in a thread, *pause* seconds after the end of a peak: when at most a quarter
    of its requests are still in progress. It is called at most once in *every* seconds."""

    def __init__(
        self,
        release: Callable[[], object],
        pause: float = RELEASE_DELAY_SECONDS,
        every: float = RELEASE_INTERVAL_SECONDS,
    ) -> None:
        self._release, self._pause, self._every = release, pause, every
        self._height, self._next = 0, 0.0

    def update(self, in_progress: int) -> None:
        """Record the number of requests in progress. Call it in the event loop."""
        self._height = max(self._height, in_progress)
        if self._height < PEAK_REQUESTS or in_progress * 4 > self._height:
            return
        loop = asyncio.get_running_loop()
        if loop.time() >= self._next:
            self._height, self._next = in_progress, loop.time() + self._every
            loop.call_later(self._pause, lambda: loop.run_in_executor(None, self._release))


def release_memory() -> None:
    """Collect the reference cycles that failed answers leave (errors and frames) and have glibc
    return free memory."""
    gc.collect()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
