"""The table of the admin API's operations, from which routes, checks and the OpenAPI document are
made."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, get_type_hints

from msgspec import to_builtins

from refold.errors import StoreError
from refold.gateway.api import (
    actions,
    api_types,
    overview,
    previews,
    queries,
    session_view,
)
from refold.gateway.api.api_types import Arguments
from refold.gateway.api.context import ApiContext, Problem
from refold.text.json_values import JsonObject

_CHAT = [
    {"role": "user", "content": "Hello."},
    {"role": "assistant", "content": "Hello! What shall we do?"},
]
_REQUEST = {"model": "gpt-5.2", "messages": _CHAT}


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation below `/refold/api/`."""

    name: str
    """The last part of its path, and its `operationId`."""
    method: Literal["GET", "POST"]
    summary: str
    arguments: type[Arguments]
    """Type of a GET's query or a POST's body."""
    answer: Any
    """Type of the body of a 200."""
    run: Callable[[ApiContext, Any], Any]
    """Function that returns the answer, called in a thread. It raises what `as_problem` knows."""
    example: JsonObject = field(default_factory=dict)
    """Valid arguments, for readers."""
    description: str = ""
    """Facts for readers besides the summary."""

    @property
    def path(self) -> str:
        """Path of the operation."""
        return f"/refold/api/{self.name}"


def run_command(name: str, context: ApiContext, arguments: Arguments) -> Any:
    """Run a soft/hard command. Raises `Problem` 422, `StoreError`."""
    request = {"command": f"compactor_{name}", "arguments": to_builtins(arguments)}
    response = context.commands.call(request)
    if error := response.get("error"):
        if error["code"] == "store_failed":
            raise StoreError(error["message"])  # `as_problem` leaves out its address
        raise Problem(422, error["code"], error["message"])
    return response


def _operation(
    method: Literal["GET", "POST"],
    run: Callable[[ApiContext, Any], Any],
    summary: str,
    example: JsonObject,
    description: str = "",
) -> Operation:
    """Return the operation that is named as *run* and typed by its annotations."""
    types = get_type_hints(run)
    arguments, answer = types["arguments"], types["return"]
    return Operation(run.__name__, method, summary, arguments, answer, run, example, description)


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "estimate_tokens",
        "POST",
        "Tokens of a text, rather over than under.",
        api_types.EstimateTokensArguments,
        api_types.EstimateAnswer,
        partial(run_command, "estimate_tokens"),
        {"text": "你好, world"},
    ),
    Operation(
        "estimate_messages_tokens",
        "POST",
        "Tokens of messages with what each costs besides its text.",
        api_types.EstimateMessagesTokensArguments,
        api_types.EstimateAnswer,
        partial(run_command, "estimate_messages_tokens"),
        {"messages": _CHAT},
    ),
    Operation(
        "check_threshold",
        "POST",
        "What is due for messages: nothing, soft or hard.",
        api_types.CheckThresholdArguments,
        api_types.CheckThresholdAnswer,
        partial(run_command, "check_threshold"),
        {"messages": _CHAT, "config": {"soft_threshold_tokens": 10, "hard_threshold_tokens": 20}},
    ),
    Operation(
        "compact",
        "POST",
        "Messages, compacted.",
        api_types.CompactArguments,
        api_types.CompactAnswer,
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
    _operation(
        "GET",
        queries.sessions,
        "The conversations that this gateway has seen, the latest first.",
        {"limit": 20},
    ),
    _operation(
        "GET",
        overview.overview,
        "Sessions that were answered, by any filter and order, with totals and charts.",
        {"limit": 20, "sort": "saved"},
        "All of it is of the store. Titles, and searching in messages, need recorded transcripts.",
    ),
    _operation(
        "GET",
        queries.file_rows,
        "What sessions in clients' files say: model, tokens, money.",
        {"sessions": "0" * 32},
        "Files are read for a third of a second; what was not read then is asked for again.",
    ),
    _operation(
        "GET",
        queries.events,
        "What came since: calls, compactions, edits accepted or taken back.",
        {"since": 0},
        "With `accept: text/event-stream` the same as server-sent events, as they come.",
    ),
    _operation(
        "GET",
        session_view.session,
        "One session: its calls, edits and sizes, without its texts.",
        {"session": "0" * 32},
    ),
    _operation(
        "GET",
        session_view.messages,
        "Messages of a recorded session in short.",
        {"session": "0" * 32, "start": 100, "count": 50},
    ),
    _operation(
        "GET",
        session_view.text,
        "The words of one recorded message, a part at a time.",
        {"session": "0" * 32, "message": 7},
    ),
    _operation(
        "GET",
        session_view.search,
        "Search in a recorded session, in what is sent and in what is hidden.",
        {"session": "0" * 32, "query": "shall"},
    ),
    _operation(
        "GET",
        queries.history,
        "The edits that show in a session, and all attempts, oldest first.",
        {"session": "0" * 32},
        "`limit` and `offset` are those of the attempts, counted from the latest.",
    ),
    _operation(
        "GET",
        session_view.edit_text,
        "What an edit shows, or what it hides, in full, a part at a time.",
        {"session": "0" * 32, "edit": "a1b2c3d4", "of": "text"},
        "`hidden` if the request was sent along to the preview, or the transcript is recorded.",
    ),
    _operation(
        "POST",
        previews.preview,
        "What a compaction would do: its edits, tokens, cost, and what would be lost.",
        {"request": _REQUEST, "headers": {"authorization": "Bearer the-clients-key"}, "to": 20},
        "Of the history in `request`, else of the session's latest one; of `start` and `stop` only "
        "those messages. Models are asked here and only here. Without `request` the answer quotes no message, unless transcripts are "
        "recorded.",
    ),
    _operation(
        "POST",
        previews.preview_parts,
        "What some parts of a preview would do, with other words in its summaries.",
        {"session": "0" * 32, "preview": "0" * 32, "edits": ["a1b2c3d4"]},
        "Nothing is kept, no model is asked. `accept` takes the same `edits` and `amend`.",
    ),
    _operation(
        "POST",
        actions.accept,
        "Keep exactly the edits of a preview, or those of them that are named.",
        {"preview": "0" * 32},
        "They show from the next request on. No model is asked.",
    ),
    _operation(
        "POST",
        actions.revert,
        "Take edits of a session back.",
        {"session": "0" * 32, "edits": ["a1b2c3d4"]},
        "Edits by id, or by a unique beginning of it. From the next request on the original "
        "messages are sent again, as far as they fit. `redo` makes it undone.",
    ),
    _operation(
        "POST",
        actions.restore,
        "Have one hidden message sent again.",
        {"session": "0" * 32, "message": 7},
        "An edit of that message alone is taken back. Behind a summary of several its words are "
        "added to what is sent.",
    ),
    _operation(
        "POST",
        actions.pin,
        "Keep a message, or words in it, in sight whatever is compacted.",
        {"session": "0" * 32, "message": 7, "words": "Never touch the migrations."},
        "A summary has a pinned message beside it and quotes pinned words; what else would hide "
        "them is left undone. It holds from the next compaction on.",
    ),
    _operation(
        "POST",
        actions.unpin,
        "Take a pin back.",
        {"session": "0" * 32, "pin": "a1b2c3d4"},
    ),
    _operation(
        "POST",
        queries.recall,
        "Search in what the edits of a conversation hide.",
        {"request": _REQUEST, "query": "shall"},
        "The history is sent along as `request`; if transcripts are recorded, `session` is enough.",
    ),
    _operation(
        "POST",
        actions.report_usage,
        "Book a call that a program made itself.",
        {
            "conversation_id": "7",
            "agent_id": "writer",
            "request": _REQUEST,
            "usage": {"input_tokens": 1_200, "output_tokens": 80},
        },
        "It appears where calls that pass through the gateway do. With the whole `history` beside a "
        "`request` that was compacted, what that saved is booked too.",
    ),
)
