"""The gateway's answers below `/refold/`. The operations, their OpenAPI document and the event
stream are for administrators, whom the gateway checks. The files of the page hold no data and are
for everybody."""

import asyncio
import json
import logging
import re
import typing
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache, partial
from hashlib import sha256
from importlib.resources import files
from time import monotonic
from typing import Any, Literal, NoReturn, TypeVar
from urllib.parse import parse_qsl

from msgspec import ValidationError, convert, to_builtins
from msgspec.json import schema_components

import refold
from refold.errors import StoreError
from refold.gateway.api.api_types import Arguments, Error
from refold.gateway.api.context import ApiContext, Problem, as_problem
from refold.gateway.api.operations import OPERATIONS, Operation
from refold.gateway.api.queries import EventsArguments, events
from refold.gateway.exchange import Headers
from refold.gateway.http.request import ClientDisconnected, Receive, read_body
from refold.gateway.http.response import (
    ON_DISCONNECT,
    ON_STOP,
    ResponseWriter,
    Send,
    cancel_on_disconnect,
)
from refold.gateway.logs import AccessLogEntry, describe_fault, error_fields, log
from refold.gateway.settings import Limits
from refold.text.json_values import JsonObject, Record

A = TypeVar("A", bound=Arguments)

# --- requests -------------------------------------------------------------------------------------

ROOT = "/refold/api"
DOCUMENT = f"{ROOT}/openapi.json"
EVENTS = f"{ROOT}/events"
MAX_CONCURRENT = 8
"""Operations in progress in one process. Further callers are told to try again."""
MAX_STREAMS = 32
"""Open event streams of one process, one for each page."""
EVENTS_SECONDS = 1.0
"""Seconds between two reads of the store."""
BEHIND_SECONDS = 10.0
"""Seconds that are read again each time: calls are booked a little after they were made."""
STREAM_SECONDS = 600.0
"""Seconds after which a stream ends and the page opens another."""


class Api:
    """The operations, and the OpenAPI document that describes them."""

    def __init__(self, context: ApiContext, limits: Limits) -> None:
        self._context, self._limits = context, limits
        self._under_way = self._open_streams = 0
        self._routes = {operation.path: operation for operation in OPERATIONS}
        self._document = json.dumps(document(OPERATIONS)).encode()

    async def __call__(self, scope: Record, receive: Receive, send: Send) -> None:
        """Answer one request."""
        path = scope["path"]
        headers = {bytes(name).lower(): bytes(value) for name, value in scope["headers"]}
        on_disconnect = (scope.get("extensions") or {}).get(ON_DISCONNECT)
        writer = ResponseWriter(send, AccessLogEntry(), self._limits.silence_seconds, on_disconnect)
        wants_stream = b"text/event-stream" in headers.get(b"accept", b"")
        try:
            if (path, scope["method"]) == (EVENTS, "GET") and wants_stream:
                await self._send_events(scope, receive, writer)
            else:
                body = await self._answer(path, scope, headers, receive)
                await _send_json(writer, 200, body)
        except ClientDisconnected:
            pass
        except Problem as problem:
            operation = self._routes.get(path)
            await _send_problem(writer, problem, operation.method if operation else "GET")

    async def _answer(
        self,
        path: str,
        scope: Record,
        headers: Mapping[bytes, bytes],
        receive: Receive,
    ) -> bytes:
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
            raise Problem(503, "busy", "Too many operations are in progress: try again.")
        self._under_way += 1
        try:
            arguments = (
                read_query(scope.get("query_string", b""), operation.arguments)
                if operation.method == "GET"
                else await self._read_body(operation, headers, receive)
            )
            return await self._context.run_in_thread(
                lambda: _as_json(operation.run(self._context, arguments))
            )
        except ClientDisconnected:
            raise
        except Exception as error:
            raise _explain(operation, error) from error
        finally:
            self._under_way -= 1

    async def _read_body(
        self, operation: Operation, headers: Mapping[bytes, bytes], receive: Receive
    ) -> Arguments:
        _check_content_type(headers)
        declared = headers.get(b"content-length", b"")
        length = int(declared) if declared.isdigit() else None
        body = await read_body(receive, self._limits.body_bytes, self._limits, length)
        return await self._context.run_in_thread(partial(read_arguments, body, operation.arguments))

    # --- server-sent events -----------------------------------------------------------------------

    async def _send_events(self, scope: Record, receive: Receive, writer: ResponseWriter) -> None:
        """Send events until the client leaves or the gateway stops. Raises `Problem` 503,
        `ClientDisconnected`."""
        if self._open_streams >= MAX_STREAMS:
            raise Problem(503, "busy", "Too many pages are open.")
        self._open_streams += 1
        ended, extensions = asyncio.Event(), scope.get("extensions") or {}
        if ON_STOP in extensions:
            extensions[ON_STOP](ended.set)
        try:
            with cancel_on_disconnect(receive, writer, asyncio.current_task()):
                await writer.start(
                    200, [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]
                )
                await self._write_events(writer, ended)
                await writer.end()
        finally:
            self._open_streams -= 1

    async def _write_events(self, writer: ResponseWriter, ended: asyncio.Event) -> None:
        """Poll the store, since any process may have written to it."""
        since = self._context.pipeline.settings.clock()
        seen, until = set[tuple[str, float, str]](), monotonic() + STREAM_SECONDS
        while not ended.is_set() and monotonic() < until:
            arguments = EventsArguments(max(0.0, since - BEHIND_SECONDS))
            try:
                answer = await self._context.run_in_thread(
                    partial(events, self._context, arguments)
                )
            except Exception as error:
                if as_problem(error) is None:
                    raise
            else:
                changes = {(item.session, item.at, item.kind): item for item in answer.changes}
                fresh = [item for key, item in changes.items() if key not in seen]
                seen, since = set(changes), answer.now
                lines = b"data: " + _as_json(fresh) if fresh else b":"
                await writer.write(lines + b"\n\n")
            with suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), EVENTS_SECONDS)


def _check_content_type(headers: Mapping[bytes, bytes]) -> None:
    """Raise `Problem` 415 unless a body is plain JSON, so that no form of another site's page can
    call an operation."""
    kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if (
        kind != b"application/json"
        or headers.get(b"content-encoding", b"identity").lower() != b"identity"
    ):
        raise Problem(415, "unsupported", "A body is application/json, not compressed.")


def _explain(operation: Operation, error: Exception) -> Problem:
    """Return the answer for an exception of *operation*. Log the reason of a failed store, and type
    and places of an unexpected error, whose message may quote content."""
    problem = as_problem(error)
    if isinstance(error, StoreError):
        log("operation", operation=operation.name, **error_fields(error))
    if problem is None:
        log("operation", logging.ERROR, operation=operation.name, fault=describe_fault(error))
    return problem or Problem(500, "fault", "The gateway failed.")


def _as_json(answer: Any) -> bytes:
    return json.dumps(to_builtins(answer), allow_nan=False).encode()


async def _send_problem(writer: ResponseWriter, problem: Problem, allowed_method: str) -> None:
    body = json.dumps({"error": {"code": problem.code, "message": problem.message}}).encode()
    headers: Mapping[int, Headers] = {
        405: (("allow", allowed_method),),
        409: (("connection", "close"),) if problem.code.endswith("_elsewhere") else (),
        408: (("connection", "close"),),
        413: (("connection", "close"),),
        503: (("retry-after", "1"),),
    }
    await _send_json(writer, problem.status, body, headers.get(problem.status, ()))


async def _send_json(
    writer: ResponseWriter, status: int, body: bytes, headers: Headers = ()
) -> None:
    fixed = (
        ("content-type", "application/json"),
        ("content-length", str(len(body))),
        ("cache-control", "no-store"),
    )
    await writer.respond(status, (*fixed, *headers), body)


# --- arguments of a request -------------------------------------------------------------------


def read_query(query: bytes, type: type[A]) -> A:
    """Return the arguments of a GET. Raises `Problem` 400."""
    try:
        pairs = parse_qsl(
            query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=50
        )
    except ValueError as error:
        raise _bad_request("the query cannot be read") from error
    if len({name for name, _ in pairs}) < len(pairs):
        raise _bad_request("a parameter is given twice")
    return check(dict(pairs), type, strict=False)


def read_arguments(body: bytes, type: type[A]) -> A:
    """Return the arguments of a POST. Raises `Problem` 400."""
    try:
        # Not msgspec's own parser: transcripts hold lone surrogates, which it refuses.
        arguments = json.loads(body, parse_constant=_refuse_constant)
    except ValueError as error:
        raise _bad_request("the body is not JSON") from error
    except RecursionError as error:
        raise _bad_request("the body is nested too deeply") from error
    return check(arguments, type)


def check(arguments: Any, type: type[A], *, strict: bool = True) -> A:
    """Return *arguments* as *type*. If not *strict*, numbers may be text. Raises `Problem` 400."""
    try:
        return convert(_with_whole_numbers(arguments), type, strict=strict)
    except ValidationError as error:
        message, _, place = str(error).partition(" - at `$.")
        if "unknown field" in message and not place:
            message += f"; there are {', '.join(type.__struct_encode_fields__)}"
        if message.startswith("Invalid enum"):
            choices = _list_choices(typing.get_type_hints(type).get(re.split(r"\W", place)[0]))
            message += f"; there are {', '.join(filter(None, choices))}"
        message = f"{place.removesuffix('`')}: {message}" if place else message
        raise _bad_request(message) from error
    except UnicodeEncodeError as error:  # msgspec looks into a text where another type belongs
        raise _bad_request("half a surrogate pair where no text belongs") from error
    except RecursionError as error:
        raise _bad_request("the body is nested too deeply") from error


def _list_choices(hint: Any) -> list[str]:
    if typing.get_origin(hint) is Literal:
        return list(typing.get_args(hint))
    return [choice for part in typing.get_args(hint) for choice in _list_choices(part)]


def _with_whole_numbers(arguments: Any) -> Any:
    """Return *arguments* and their `config` with 7.0 as 7, which JSON Schema treats as equal."""
    if not isinstance(arguments, dict):
        return arguments
    whole = {
        name: int(value)
        for name, value in arguments.items()
        if isinstance(value, float) and value.is_integer()
    }
    config = {"config": _with_whole_numbers(arguments["config"])} if "config" in arguments else {}
    return arguments | whole | config


def _bad_request(message: str) -> Problem:
    return Problem(400, "bad_request", message[:500])


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


# --- the OpenAPI document -------------------------------------------------------------------------

ABOUT = (
    "What the gateway knows of its conversations, what it did to them, and how to do and undo that "
    "by hand. Every operation needs the admin token; if none is set, only this machine may ask. "
    "Any process that shares the store answers for all of them; 409 says what another one has."
)
STATUSES = {
    400: "The request is not what the document says: no JSON, a field missing, of another type, or "
    "unknown.",
    401: "The admin token is missing or wrong.",
    403: "No admin token is set and the caller is not on this machine, or the host that it names or "
    "the site that it comes from is not allowed.",
    404: "This gateway knows no such session, preview or edit.",
    405: "The path takes another method.",
    408: "The body did not arrive in time.",
    409: "A conflict: the conversation is being worked on, has changed, its history must be sent "
    "along, or another process has what is needed: try again.",
    413: "The body is larger than `limits.body_bytes`.",
    415: "A body is JSON, not compressed.",
    422: "The content is unusable: no conversation of any API, or figures that contradict one "
    "another.",
    503: "The store failed, it took too long, or too many operations are in progress: try again.",
}
"""Error statuses and their meanings."""


def document(operations: Iterable[Operation]) -> JsonObject:
    """Return the OpenAPI 3.1 document of *operations*."""
    operations = tuple(operations)
    schemas = _argument_schemas(operations) | _answer_schemas(operations)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Refold gateway", "version": refold.__version__, "description": ABOUT},
        "servers": [{"url": "/"}],
        "security": [{"admin": []}],
        "paths": {
            operation.path: {operation.method.lower(): _operation(operation, schemas)}
            for operation in operations
        },
        "components": {
            "securitySchemes": {
                "admin": {"type": "http", "scheme": "bearer", "description": "The admin token."}
            },
            "schemas": schemas,
            "responses": {
                f"Error{status}": {"description": text, "content": _content("Error")}
                for status, text in STATUSES.items()
            },
        },
    }


def _argument_schemas(operations: Iterable[Operation]) -> JsonObject:
    types = {operation.arguments.__name__: operation.arguments for operation in operations}
    schemas = _schemas(types.values())
    for name, type in types.items():  # noqa: A001 - the field's word
        if type.any_of:
            schemas[name]["anyOf"] = [{"required": [field]} for field in type.any_of]
    return schemas


def _answer_schemas(operations: Iterable[Operation]) -> JsonObject:
    """Return the schemas of answers, with all fields required: those with a default are sent
    too."""
    schemas = _schemas([*(operation.answer for operation in operations), Error])
    return {
        name: {**schema, "required": list(schema["properties"])} for name, schema in schemas.items()
    }


def _schemas(types: Iterable[Any]) -> JsonObject:
    return schema_components(types, ref_template="#/components/schemas/{name}")[1]


def _operation(operation: Operation, schemas: Mapping[str, JsonObject]) -> JsonObject:
    described: JsonObject = {"operationId": operation.name, "summary": operation.summary}
    if operation.description:
        described["description"] = operation.description
    if operation.method == "POST":
        content = _content(operation.arguments.__name__, example=operation.example)
        described["requestBody"] = {"required": True, "content": content}
    else:
        described["parameters"] = _parameters(operation, schemas[operation.arguments.__name__])
    errors = {str(status): {"$ref": f"#/components/responses/Error{status}"} for status in STATUSES}
    done = {"description": "Done.", "content": _content(operation.answer.__name__)}
    return {**described, "responses": {"200": done, **errors}}


def _parameters(operation: Operation, schema: JsonObject) -> list[JsonObject]:
    return [
        {
            "name": name,
            "in": "query",
            "required": name in schema["required"],
            "schema": field,
            **({"example": operation.example[name]} if name in operation.example else {}),
        }
        for name, field in schema["properties"].items()
    ]


def _content(schema: str, **more: Any) -> JsonObject:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}, **more}}


# --- the files of the page ------------------------------------------------------------------------

_KINDS: Mapping[str, str] = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_FILES = files("refold.gateway.api") / "page"
_PAGE: Mapping[str, str] = {
    f"/refold/{'' if file.name == 'index.html' else file.name}": file.name
    for file in _FILES.iterdir()
}
"""Names of the page's files, by path."""
_CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Nothing from other sites, nothing inline, no framing."""
_PAGE_HEADERS: Headers = (
    ("content-security-policy", _CONTENT_SECURITY_POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cache-control", "no-cache"),
)


def is_page(scope: Record) -> bool:
    """Return whether a file of the page, or the path that redirects to it, is requested."""
    is_path = scope["path"] in _PAGE or scope["path"] == "/refold"
    return is_path and scope["method"] in {"GET", "HEAD"}


async def send_page(scope: Record, writer: ResponseWriter) -> None:
    """Send the file, a 304 to a browser that has it, or the redirect to the page."""
    if scope["path"] == "/refold":
        await writer.respond(308, (("location", "/refold/"), ("content-length", "0")), b"")
        return
    name = _PAGE[scope["path"]]
    body, tag = _read_file(name)
    if (b"if-none-match", tag.encode()) in scope["headers"]:  # the browser has it, compiled
        await writer.respond(304, (("etag", tag), *_PAGE_HEADERS), b"")
        return
    kind, length = _KINDS[name.rpartition(".")[2]], str(len(body))
    headers = (("content-type", kind), ("content-length", length), ("etag", tag))
    await writer.respond(200, (*headers, *_PAGE_HEADERS), body)


@cache
def _read_file(name: str) -> tuple[bytes, str]:
    """Return a file of the web page and its ETag."""
    body = (_FILES / name).read_bytes()
    return body, f'"{sha256(body).hexdigest()[:16]}"'
