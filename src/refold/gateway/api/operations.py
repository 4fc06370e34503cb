"""The operations of the admin API: one table, of which routes and checks are made, and the OpenAPI
document."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from msgspec import to_builtins
from msgspec.json import schema_components

import refold
from refold.errors import StoreError
from refold.gateway.api import actions, answers, arguments, queries
from refold.gateway.api.answers import Error
from refold.gateway.api.arguments import Arguments
from refold.gateway.api.context import ApiContext, Problem

_CHAT = [
    {"role": "user", "content": "Hello."},
    {"role": "assistant", "content": "Hello! What shall we do?"},
]
_REQUEST = {"model": "gpt-5.2", "messages": _CHAT}


@dataclass(frozen=True, slots=True)
class Operation:
    """A name below `/refold/api/`."""

    name: str
    """The last part of its path, and its `operationId`."""
    method: Literal["GET", "POST"]
    summary: str
    arguments: type[Arguments]
    """The query of a GET, the body of a POST."""
    answer: Any
    """The type of the body of a 200."""
    run: Callable[[ApiContext, Any], Any]
    """Return the answer to arguments, in a thread. Raises what `as_problem` knows."""
    example: dict[str, Any] = field(default_factory=dict)
    """Arguments that can be sent, for readers."""
    description: str = ""
    """What readers should know besides the summary."""

    @property
    def path(self) -> str:
        """Where it is."""
        return f"/refold/api/{self.name}"


def run_command(name: str, context: ApiContext, arguments: Arguments) -> Any:
    """Run a soft/hard command (S2-33 to S2-37). Raises `Problem` 422, `StoreError`."""
    request = {"command": f"compactor_{name}", "arguments": to_builtins(arguments)}
    response = context.commands.call(request)
    if error := response.get("error"):
        if error["code"] == "store_failed":
            raise StoreError(error["message"])  # `as_problem` has words without its address
        raise Problem(422, error["code"], error["message"])
    return response


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "estimate_tokens",
        "POST",
        "Tokens of a text, rather over than under (S2-33).",
        arguments.EstimateTokensArguments,
        answers.EstimateAnswer,
        partial(run_command, "estimate_tokens"),
        {"text": "你好, world"},
    ),
    Operation(
        "estimate_messages_tokens",
        "POST",
        "Tokens of messages with what each costs besides its text (S2-34).",
        arguments.EstimateMessagesTokensArguments,
        answers.EstimateAnswer,
        partial(run_command, "estimate_messages_tokens"),
        {"messages": _CHAT},
    ),
    Operation(
        "check_threshold",
        "POST",
        "What is due for messages: nothing, soft or hard (S2-35).",
        arguments.CheckThresholdArguments,
        answers.CheckThresholdAnswer,
        partial(run_command, "check_threshold"),
        {"messages": _CHAT, "config": {"soft_threshold_tokens": 10, "hard_threshold_tokens": 20}},
    ),
    Operation(
        "compact",
        "POST",
        "Messages, compacted (S2-36).",
        arguments.CompactArguments,
        answers.CompactAnswer,
        partial(run_command, "compact"),
        {
            "messages": _CHAT,
            "agentId": "writer",
            "conversationId": "7",
            "config": {"keep_recent_messages": 1},
        },
        "By the soft/hard preset, whatever the thresholds are. The edits are kept by agent "
        "and conversation, so that "
        "the same history, grown, is shown alike.",
    ),
    Operation(
        "sessions",
        "GET",
        "The conversations that this gateway has seen, the latest first.",
        arguments.SessionsArguments,
        answers.SessionsAnswer,
        queries.sessions,
        {"limit": 20},
    ),
    Operation(
        "totals",
        "GET",
        "What is booked of all calls: the last line of `refold report`.",
        arguments.TotalsArguments,
        answers.TotalsAnswer,
        queries.totals,
        {"since": 0},
        "Tokens as billed, money in US dollars.",
    ),
    Operation(
        "history",
        "GET",
        "The edits that show in a session, and the ledger of all attempts, oldest first.",
        arguments.HistoryArguments,
        answers.HistoryAnswer,
        queries.history,
        {"session": "0" * 32},
        "`limit` and `offset` are those of the attempts, counted from the latest.",
    ),
    Operation(
        "edit_text",
        "GET",
        "What an edit shows, or what it hides, in full, a part at a time.",
        arguments.EditTextArguments,
        answers.EditTextAnswer,
        queries.edit_text,
        {"session": "0" * 32, "edit": "a1b2c3d4", "of": "text"},
        "`hidden` if the request was sent along to the preview, or the transcript is recorded.",
    ),
    Operation(
        "preview",
        "POST",
        "What a compaction would do: its edits, tokens, cost, and what would be lost.",
        arguments.PreviewArguments,
        answers.PreviewAnswer,
        actions.preview,
        {"request": _REQUEST, "headers": {"authorization": "Bearer the-clients-key"}, "to": 20},
        "Of the history in `request`, else of the session's latest one. Models are asked here and "
        "only here. Without `request` the answer quotes no message, unless transcripts are "
        "recorded.",
    ),
    Operation(
        "accept",
        "POST",
        "Keep exactly the edits of a preview.",
        arguments.AcceptArguments,
        answers.AcceptAnswer,
        actions.accept,
        {"preview": "0" * 32},
        "They show from the next request on. No model is asked.",
    ),
    Operation(
        "revert",
        "POST",
        "Take edits of a session back.",
        arguments.RevertArguments,
        answers.RevertAnswer,
        actions.revert,
        {"session": "0" * 32, "edits": ["a1b2c3d4"]},
        "Edits by id, or by a unique beginning of it. From the next request on the original "
        "messages are sent again, as far as they fit.",
    ),
    Operation(
        "recall",
        "POST",
        "Search in what the edits of a conversation hide.",
        arguments.RecallArguments,
        answers.RecallAnswer,
        queries.recall,
        {"request": _REQUEST, "query": "shall"},
        "The history is sent along as `request`; if transcripts are recorded, `session` is enough.",
    ),
)


# --- the document, made of the table and of its types ----------------------------------------

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
