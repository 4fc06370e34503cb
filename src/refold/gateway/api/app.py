"""`/refold/api` as an ASGI application, for callers whom the gateway's admin check lets through,
and the page."""

import json
from collections.abc import Awaitable, Callable, Mapping
from functools import cache, partial
from importlib.resources import files
from typing import Any

from msgspec import to_builtins

from refold.gateway.api.arguments import (
    Arguments,
    check_content_type,
    read_arguments,
    read_query,
)
from refold.gateway.api.context import ApiContext, Problem, as_problem
from refold.gateway.api.operations import OPERATIONS, Operation, document
from refold.gateway.http.caller import AccessLogEntry, Caller, Send
from refold.gateway.http.request import ClientDisconnected, Receive, read_body
from refold.gateway.logs import LOGGER, traceback_places
from refold.gateway.messages import Headers
from refold.gateway.settings import Limits

ROOT = "/refold/api"
DOCUMENT = f"{ROOT}/openapi.json"
MAX_CONCURRENT = 8
"""Operations under way in one process; more are told to try again."""


class Api:
    """The operations of the table, and the document that describes them.

    *inner*, if given, answers every other path.
    """

    def __init__(
        self,
        context: ApiContext,
        limits: Limits,
        inner: Callable[[Mapping[str, Any], Receive, Send], Awaitable[None]] | None = None,
    ) -> None:
        self._context, self._limits, self._inner = context, limits, inner
        self._under_way = 0
        self._routes = {operation.path: operation for operation in OPERATIONS}
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
            operation = self._routes.get(path)
            await _send_problem(caller, problem, operation.method if operation else "GET")
        else:
            await _send(caller, 200, body)

    async def _answer(self, path: str, scope: Mapping[str, Any], receive: Receive) -> bytes:
        """Return the body of a 200. Raises `Problem`, `ClientDisconnected`."""
        operation = self._routes.get(path)
        if operation is None and path != DOCUMENT:
            raise Problem(
                404,
                "no_operation",
                f"There is nothing at this path; {DOCUMENT} lists what there is.",
            )
        if scope["method"] != (operation.method if operation else "GET"):
            raise Problem(405, "method", "This path takes another method.")
        if operation is None:
            return self._document
        if self._under_way >= MAX_CONCURRENT:
            raise Problem(503, "busy", "Too much is asked at once.")
        self._under_way += 1
        try:
            arguments = await self._read_arguments(operation, scope, receive)
            return await self._context.run_in_thread(
                lambda: _as_json(operation.run(self._context, arguments))
            )
        except ClientDisconnected:
            raise
        except Exception as error:
            raise as_problem(error) or _log_fault(operation, error) from error
        finally:
            self._under_way -= 1

    async def _read_arguments(
        self, operation: Operation, scope: Mapping[str, Any], receive: Receive
    ) -> Arguments:
        if operation.method == "GET":
            return read_query(scope.get("query_string", b""), operation.arguments)
        headers = {bytes(name).lower(): bytes(value) for name, value in scope["headers"]}
        check_content_type(headers)
        declared = headers.get(b"content-length", b"")
        length = int(declared) if declared.isdigit() else None
        body = await read_body(receive, self._limits.body_bytes, self._limits.body_seconds, length)
        return await self._context.run_in_thread(partial(read_arguments, body, operation.arguments))


def _as_json(answer: Any) -> bytes:
    return json.dumps(to_builtins(answer), allow_nan=False).encode()


def _log_fault(operation: Operation, error: Exception) -> Problem:
    """Log the kind and the places of an error that nobody foresaw, not its words, which may quote
    content."""
    fault = f"{type(error).__name__} at {' '.join(traceback_places(error.__traceback__))}"
    LOGGER.error("operation", extra={"fields": {"operation": operation.name, "fault": fault}})
    return Problem(500, "fault", "The gateway failed.")


async def _send_problem(caller: Caller, problem: Problem, allowed_method: str) -> None:
    body = json.dumps({"error": {"code": problem.code, "message": problem.message}}).encode()
    headers: Mapping[int, Headers] = {
        405: (("allow", allowed_method),),
        409: (("connection", "close"),) if problem.code.endswith("_elsewhere") else (),
        408: (("connection", "close"),),
        413: (("connection", "close"),),
        503: (("retry-after", "1"),),
    }
    await _send(caller, problem.status, body, headers.get(problem.status, ()))


async def _send(caller: Caller, status: int, body: bytes, headers: Headers = ()) -> None:
    fixed = (
        ("content-type", "application/json"),
        ("content-length", str(len(body))),
        ("cache-control", "no-store"),
    )
    await caller.respond(status, (*fixed, *headers), body)


# --- the page ---------------------------------------------------------------------------------

_PAGE: Mapping[str, tuple[str, str]] = {
    "/refold/": ("page.html", "text/html; charset=utf-8"),
    "/refold/page.css": ("page.css", "text/css; charset=utf-8"),
    "/refold/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/refold/icon.svg": ("icon.svg", "image/svg+xml"),
}
_CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Nothing from elsewhere, nothing inline, in nobody's frame."""
_PAGE_HEADERS: Headers = (
    ("content-security-policy", _CONTENT_SECURITY_POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cache-control", "no-cache"),
)


def is_page(scope: Mapping[str, Any]) -> bool:
    """Is a file of the page asked for?"""
    return scope["method"] in {"GET", "HEAD"} and (
        scope["path"] in _PAGE or scope["path"] == "/refold"
    )


async def send_page(scope: Mapping[str, Any], caller: Caller) -> None:
    """Send the file, or the redirect to the page."""
    if scope["path"] == "/refold":
        await caller.respond(308, (("location", "/refold/"), ("content-length", "0")), b"")
        return
    name, kind = _PAGE[scope["path"]]
    body = _read_file(name)
    await caller.respond(
        200, (("content-type", kind), ("content-length", str(len(body))), *_PAGE_HEADERS), body
    )


@cache
def _read_file(name: str) -> bytes:
    return (files("refold.gateway.api") / "page" / name).read_bytes()
