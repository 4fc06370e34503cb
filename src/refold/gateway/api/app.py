"""`/refold/api` as an ASGI application, for those whom the gateway's admin check has let through."""

import json
from collections.abc import Awaitable, Callable, Mapping
from functools import cache, partial
from importlib.resources import files
from typing import Any

from refold.gateway.api.arguments import check_type, from_body, from_query
from refold.gateway.api.context import Desk, Problem, problem_of
from refold.gateway.api.fan_out import Peers, answered
from refold.gateway.api.openapi import document
from refold.gateway.api.operation import Operation
from refold.gateway.api.routes import OPERATIONS
from refold.gateway.http.body import ClientDisconnected, Receive, read_body
from refold.gateway.http.caller import AccessLogEntry, Caller, Send
from refold.gateway.messages import Headers, HTTPException
from refold.gateway.ops.logs import LOGGER, traceback_places
from refold.gateway.settings import Limits

ROOT = "/refold/api"
DOCUMENT = f"{ROOT}/openapi.json"
AT_ONCE = 8
"""Operations under way in one process; more are told to try again."""
PEERS_AT_ONCE = 64
"""Likewise, of those that another process asks for: each of its own asks here at most once at a time."""


class Api:
    """The operations of the table, and the document that describes them.

    *inner* answers every other path, where it is given. *peers* are other processes that know other conversations.
    """

    def __init__(
        self,
        desk: Desk,
        limits: Limits,
        inner: Callable[[Mapping[str, Any], Receive, Send], Awaitable[None]] | None = None,
        peers: Peers | None = None,
    ) -> None:
        self._desk, self._limits, self._inner, self._peers = desk, limits, inner, peers
        self._under_way = {False: 0, True: 0}  # by whether a peer asks
        self._routes = {one.path: one for one in OPERATIONS}
        self._document = json.dumps(document(OPERATIONS)).encode()

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        path = scope["path"]
        if self._inner is not None and path != ROOT and not path.startswith(f"{ROOT}/"):
            await self._inner(scope, receive, send)
            return
        caller = Caller(send, AccessLogEntry(), self._limits.silence_seconds)
        try:
            body = await self._answer(path, scope, receive)
        except ClientDisconnected:
            return
        except Problem as problem:
            await _refuse(caller, problem, _allowed(self._routes.get(path)) if problem.status == 405 else ())
        else:
            await _send(caller, 200, body)

    def is_peer(self, scope: Mapping[str, Any]) -> bool:
        """Does another process ask, for somebody who may?"""
        return self._peers is not None and self._peers.is_one(scope)

    async def _answer(self, path: str, scope: Mapping[str, Any], receive: Receive) -> bytes:
        """The body of a 200. Raises `Problem`, `Gone`."""
        operation = self._routes.get(path)
        if operation is None and path != DOCUMENT:
            raise Problem(404, "no_operation", f"There is nothing at this path; {DOCUMENT} says what there is.")
        if scope["method"] != (operation.method if operation else "GET"):
            raise Problem(405, "method", "This path takes another method.")
        if operation is None:
            return self._document
        peer = self.is_peer(scope)
        if self._under_way[peer] >= (PEERS_AT_ONCE if peer else AT_ONCE):
            raise Problem(503, "busy", "Too much is asked at once.")
        self._under_way[peer] += 1
        try:
            return await self._done(operation, scope, receive)
        except (Problem, HTTPException, Exception) as error:
            raise self._told(operation, error) from error
        finally:
            self._under_way[peer] -= 1

    async def _done(self, operation: Operation, scope: Mapping[str, Any], receive: Receive) -> bytes:
        arguments = await self._arguments(operation, scope, receive)
        if self._peers is None or self.is_peer(scope):
            answer = await operation.run(self._desk, arguments)
        else:
            answer = await answered(self._desk, self._peers, operation, arguments)
        return await self._desk.aside(partial(_dumped, answer))

    async def _arguments(self, operation: Operation, scope: Mapping[str, Any], receive: Receive) -> dict[str, Any]:
        if operation.method == "GET":
            return from_query(operation, scope.get("query_string", b""))
        headers = {bytes(name).lower(): bytes(value) for name, value in scope["headers"]}
        check_type(headers)
        declared = headers.get(b"content-length", b"")
        length = int(declared) if declared.isdigit() else None
        body = await read_body(receive, self._limits.body_bytes, self._limits.body_seconds, length)
        return await self._desk.aside(partial(from_body, operation, body))

    def _told(self, operation: Operation, error: Exception) -> Exception:
        """What to answer. Of what nobody foresaw only the kind and the places are logged: its words may quote content."""
        if isinstance(error, ClientDisconnected):
            return error
        if isinstance(error, HTTPException):
            return Problem(error.status, error.reason, error.message)
        if found := problem_of(error):
            return found
        fault = f"{type(error).__name__} at {' '.join(traceback_places(error.__traceback__))}"
        LOGGER.error("operation", extra={"fields": {"operation": operation.name, "fault": fault}})
        return Problem(500, "fault", "The gateway failed.")


def _dumped(answer: Any) -> bytes:
    return json.dumps(answer, allow_nan=False).encode()


def _allowed(operation: Operation | None) -> Headers:
    return (("allow", operation.method if operation else "GET"),)


async def _refuse(caller: Caller, problem: Problem, headers: Headers = ()) -> None:
    body = json.dumps({"error": {"code": problem.code, "message": problem.message}}).encode()
    if problem.status == 503:
        headers = (*headers, ("retry-after", "1"))
    if problem.status in (408, 413):
        headers = (*headers, ("connection", "close"))
    await _send(caller, problem.status, body, headers)


async def _send(caller: Caller, status: int, body: bytes, headers: Headers = ()) -> None:
    fixed = (("content-type", "application/json"), ("content-length", str(len(body))), ("cache-control", "no-store"))
    await caller.respond(status, (*fixed, *headers), body)


POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Nothing from elsewhere, nothing inline, in nobody's frame."""
_FILES: Mapping[str, tuple[str, str]] = {
    "/refold/": ("page.html", "text/html; charset=utf-8"),
    "/refold/page.css": ("page.css", "text/css; charset=utf-8"),
    "/refold/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/refold/icon.svg": ("icon.svg", "image/svg+xml"),
}
_FIXED: Headers = (
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cache-control", "no-cache"),
)


def is_page(scope: Mapping[str, Any]) -> bool:
    """Is a file of the page asked for?"""
    return scope["method"] in {"GET", "HEAD"} and (scope["path"] in _FILES or scope["path"] == "/refold")


async def send_page(scope: Mapping[str, Any], caller: Caller) -> None:
    """The file, or the way to the page."""
    if scope["path"] == "/refold":
        await caller.respond(308, (("location", "/refold/"), ("content-length", "0")), b"")
        return
    name, kind = _FILES[scope["path"]]
    body = _read(name)
    await caller.respond(200, (("content-type", kind), ("content-length", str(len(body))), *_FIXED), body)


@cache
def _read(name: str) -> bytes:
    return (files("refold.gateway.api") / "page" / name).read_bytes()
