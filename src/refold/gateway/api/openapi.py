"""The OpenAPI document, out of the table of operations."""

from collections.abc import Iterable
from typing import Any

import refold
from refold.gateway.api.context import STATUSES
from refold.gateway.api.operation import Operation
from refold.gateway.api.schemas import ERROR

Json = dict[str, Any]
ABOUT = (
    "What the gateway knows of its conversations, what it did to them, and how to do and undo that by hand. Every "
    "operation wants the admin token; without one set, this machine alone may ask. Any process of `refold serve --workers` answers for all of them."
)


def document(operations: Iterable[Operation]) -> Json:
    """OpenAPI 3.1 of *operations*."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "Refold gateway", "version": refold.__version__, "description": ABOUT},
        "servers": [{"url": "/"}],
        "security": [{"admin": []}],
        "paths": {one.path: {one.method.lower(): _operation(one)} for one in operations},
        "components": {
            "securitySchemes": {"admin": {"type": "http", "scheme": "bearer", "description": "The admin token."}},
            "schemas": {"Error": ERROR},
            "responses": {f"Error{status}": _error(text) for status, text in STATUSES.items()},
        },
    }


def _operation(one: Operation) -> Json:
    described: Json = {"operationId": one.name, "summary": one.summary}
    if one.text:
        described["description"] = one.text
    described |= _body(one) if one.method == "POST" else {"parameters": _parameters(one)}
    refused = {str(status): {"$ref": f"#/components/responses/Error{status}"} for status in STATUSES}
    return {**described, "responses": {"200": {"description": "Done.", "content": _json(one.gives)}, **refused}}


def _body(one: Operation) -> Json:
    content = _json(one.takes)
    content["application/json"]["example"] = dict(one.example)
    return {"requestBody": {"required": True, "content": content}}


def _parameters(one: Operation) -> list[Json]:
    needed = one.takes.get("required", ())
    return [
        {
            "name": name,
            "in": "query",
            "required": name in needed,
            "schema": schema,
            **({"example": one.example[name]} if name in one.example else {}),
        }
        for name, schema in one.takes["properties"].items()
    ]


def _error(text: str) -> Json:
    return {"description": text, "content": _json({"$ref": "#/components/schemas/Error"})}


def _json(schema: Any) -> Json:
    return {"application/json": {"schema": schema}}
