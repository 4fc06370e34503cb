"""The arguments of an operation, out of a request's query or body, checked against its schema."""

import json
from collections.abc import Mapping
from typing import Any, NoReturn
from urllib.parse import parse_qsl

from refold.gateway.api.context import Problem
from refold.gateway.api.json_schema import mistake, plain
from refold.gateway.api.operation import Operation


def from_query(operation: Operation, query: bytes) -> dict[str, Any]:
    """The arguments of a GET. Raises `Problem` 400."""
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=50)
    except ValueError as error:
        raise _bad("the query cannot be read") from error
    if len({name for name, _ in pairs}) < len(pairs):
        raise _bad("a parameter is given twice")
    known = operation.takes["properties"]
    return checked(operation, {name: _typed(known.get(name, {}), value) for name, value in pairs})


def from_body(operation: Operation, body: bytes) -> dict[str, Any]:
    """The arguments of a POST. Raises `Problem` 400."""
    try:
        arguments = json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise _bad("the body is not JSON") from error
    return checked(operation, arguments)


def checked(operation: Operation, arguments: Any) -> dict[str, Any]:
    """*arguments*, as the operation's schema has them. Raises `Problem` 400."""
    try:
        wrong = mistake(operation.takes, arguments)
    except RecursionError as error:
        raise _bad("the body is too deep") from error
    if wrong:
        raise _bad(wrong)
    found: dict[str, Any] = plain(operation.takes, arguments)
    return found


def check_type(headers: Mapping[bytes, bytes]) -> None:
    """Raises `Problem` 415 for a body that is not plain JSON. So no form of another site's page can ask for anything."""
    kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if kind != b"application/json" or headers.get(b"content-encoding", b"identity").lower() != b"identity":
        raise Problem(415, "unsupported", "A body is application/json, not compressed.")


def _typed(schema: Mapping[str, Any], text: str) -> Any:
    """A parameter as its schema means it; what does not fit stays text."""
    if schema.get("type") == "integer" and text.isascii() and text.removeprefix("-").isdigit() and len(text) < 20:
        return int(text)
    return text


def _bad(why: str) -> Problem:
    return Problem(400, "bad_request", why[:500])


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
