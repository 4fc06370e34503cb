"""The OpenAPI document, made of the table of operations and of its types."""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.json import schema_components

import refold
from refold.gateway.api.answers import Error
from refold.gateway.api.operations import Operation

Json = dict[str, Any]
ABOUT = (
    "What the gateway knows of its conversations, what it did to them, and how to do and undo that "
    "by hand. Every operation needs the admin token; if none is set, only this machine may ask. "
    "Any process that shares the store answers for all of them; 409 says what another one has."
)
STATUSES = {
    400: "The request is not what the document says: no JSON, a field missing, of another type, or "
    "unknown.",
    401: "The admin token is missing or wrong.",
    404: "This gateway knows no such session, preview or edit.",
    405: "The path takes another method.",
    408: "The body did not come.",
    409: "A conflict: the conversation is being worked on, has changed, its history must be sent "
    "along, or another process has what is needed: try again.",
    413: "The body is larger than `limits.body_bytes`.",
    415: "A body is JSON, not compressed.",
    422: "The content is unusable: no conversation of any API, or figures that contradict one "
    "another.",
    503: "The store failed, it took too long, or too much is asked at once: try again.",
}
"""Every status that tells that an operation was not done, and what it means."""


def document(operations: Iterable[Operation]) -> Json:
    """Return OpenAPI 3.1 of *operations*."""
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


def _argument_schemas(operations: Iterable[Operation]) -> Json:
    types = {operation.arguments.__name__: operation.arguments for operation in operations}
    schemas = _schemas(types.values())
    for name, type in types.items():  # noqa: A001 - the field's word
        if type.any_of:
            schemas[name]["anyOf"] = [{"required": [field]} for field in type.any_of]
    return schemas


def _answer_schemas(operations: Iterable[Operation]) -> Json:
    """The schemas of answers. Every field is there, those with a default too."""
    schemas = _schemas([*(operation.answer for operation in operations), Error])
    return {
        name: {**schema, "required": list(schema["properties"])} for name, schema in schemas.items()
    }


def _schemas(types: Iterable[Any]) -> Json:
    return schema_components(types, ref_template="#/components/schemas/{name}")[1]


def _operation(operation: Operation, schemas: Mapping[str, Json]) -> Json:
    described: Json = {"operationId": operation.name, "summary": operation.summary}
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


def _parameters(operation: Operation, schema: Json) -> list[Json]:
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


def _content(schema: str, **more: Any) -> Json:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}, **more}}
