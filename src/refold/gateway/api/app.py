"""`/refold/api` as an ASGI application, for callers whom the gateway's admin check lets through."""

import json
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from refold.gateway.api.arguments import (
    Arguments,
    check_content_type,
    read_arguments,
    read_query,
)
from refold.gateway.api.context import ApiContext, Problem, as_problem
from refold.gateway.api.document import document
from refold.gateway.api.operations import OPERATIONS, Operation
from refold.gateway.api.streams import EventStreams, as_json, send_json, send_problem, takes_stream
from refold.gateway.http.caller import ON_DISCONNECT, AccessLogEntry, Caller, Send
from refold.gateway.http.request import ClientDisconnected, Receive, read_body
from refold.gateway.logs import LOGGER, traceback_places
from refold.gateway.settings import Limits

ROOT = "/refold/api"
DOCUMENT = f"{ROOT}/openapi.json"
EVENTS = f"{ROOT}/events"
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
        self._under_way, self._streams = 0, EventStreams(context)
        self._routes = {operation.path: operation for operation in OPERATIONS}
        self._document = json.dumps(document(OPERATIONS)).encode()

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        path = scope["path"]
        if self._inner is not None and path != ROOT and not path.startswith(f"{ROOT}/"):
            await self._inner(scope, receive, send)
            return
        leaving = (scope.get("extensions") or {}).get(ON_DISCONNECT)
        caller = Caller(send, AccessLogEntry(), self._limits.silence_seconds, leaving)
        if path == EVENTS and scope["method"] == "GET" and takes_stream(scope):
            await self._streams.send(scope, receive, caller)
            return
        try:
            body = await self._answer(path, scope, receive)
        except ClientDisconnected:
            return
        except Problem as problem:
            operation = self._routes.get(path)
            await send_problem(caller, problem, operation.method if operation else "GET")
        else:
            await send_json(caller, 200, body)

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
                lambda: as_json(operation.run(self._context, arguments))
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


def _log_fault(operation: Operation, error: Exception) -> Problem:
    """Log the kind and the places of an error that nobody foresaw, not its words, which may quote
    content."""
    fault = f"{type(error).__name__} at {' '.join(traceback_places(error.__traceback__))}"
    LOGGER.error("operation", extra={"fields": {"operation": operation.name, "fault": fault}})
    return Problem(500, "fault", "The gateway failed.")
