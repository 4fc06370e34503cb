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
        "Estimate the tokens of a text, rather too high than too low.",
        api_types.EstimateTokensArguments,
        api_types.EstimateAnswer,
        partial(run_command, "estimate_tokens"),
        {"text": "你好, world"},
    ),
    Operation(
        "estimate_messages_tokens",
        "POST",
        "Estimate the tokens of messages, with the overhead of each.",
        api_types.EstimateMessagesTokensArguments,
        api_types.EstimateAnswer,
        partial(run_command, "estimate_messages_tokens"),
        {"messages": _CHAT},
    ),
    Operation(
        "check_threshold",
        "POST",
        "Check which threshold messages exceed: none, soft or hard.",
        api_types.CheckThresholdArguments,
        api_types.CheckThresholdAnswer,
        partial(run_command, "check_threshold"),
        {"messages": _CHAT, "config": {"soft_threshold_tokens": 10, "hard_threshold_tokens": 20}},
    ),
    Operation(
        "compact",
        "POST",
        "Compact messages.",
        api_types.CompactArguments,
        api_types.CompactAnswer,
        partial(run_command, "compact"),
        {
            "messages": _CHAT,
            "agentId": "writer",
            "conversationId": "7",
            "config": {"keep_recent_messages": 1},
        },
        "Uses the soft/hard preset, whatever the thresholds are. The edits are kept by agent "
        "and conversation, so that they show again in the same history when it has grown.",
    ),
    _operation(
        "GET",
        queries.sessions,
        "List the conversations of this gateway, the latest first.",
        {"limit": 20},
    ),
    _operation(
        "GET",
        overview.overview,
        "Filter and sort the sessions with answered calls, with totals and charts.",
        {"limit": 20, "sort": "saved"},
        "All figures come from the store. Titles and search in messages need transcripts.",
    ),
    _operation(
        "GET",
        queries.file_rows,
        "List model, tokens and cost of sessions in clients' files.",
        {"sessions": "0" * 32},
        "Files are read for a third of a second; ask again for those not read then.",
    ),
    _operation(
        "GET",
        queries.events,
        "List what is new: calls, compactions, edits accepted or undone.",
        {"since": 0},
        "With `accept: text/event-stream` the same is streamed as server-sent events.",
    ),
    _operation(
        "GET",
        session_view.session,
        "Return one session: its calls, edits and sizes, without texts.",
        {"session": "0" * 32},
    ),
    _operation(
        "GET",
        session_view.messages,
        "List the messages of a recorded session in short.",
        {"session": "0" * 32, "start": 100, "count": 50},
    ),
    _operation(
        "GET",
        session_view.text,
        "Return the text of one recorded message, in parts.",
        {"session": "0" * 32, "message": 7},
    ),
    _operation(
        "GET",
        session_view.search,
        "Search a recorded session, in sent and hidden messages.",
        {"session": "0" * 32, "query": "shall"},
    ),
    _operation(
        "GET",
        queries.history,
        "List the edits that show in a session, and all attempts, oldest first.",
        {"session": "0" * 32},
        "`limit` and `offset` count attempts, from the latest.",
    ),
    _operation(
        "GET",
        session_view.edit_text,
        "Return the full text that an edit shows, or hides, in parts.",
        {"session": "0" * 32, "edit": "a1b2c3d4", "of": "text"},
        "`hidden` needs a preview with its request, or a recorded transcript.",
    ),
    _operation(
        "POST",
        previews.preview,
        "Show what a compaction would do: edits, tokens, cost, and what would be lost.",
        {"request": _REQUEST, "headers": {"authorization": "Bearer the-clients-key"}, "to": 20},
        "Uses the history in `request`, else the session's latest one, and only the messages "
        "between `start` and `stop` if given. Only this operation asks models. Without `request` "
        "the answer quotes no message, unless transcripts are recorded.",
    ),
    _operation(
        "POST",
        previews.preview_parts,
        "Show what some edits of a preview would do, or other summary texts.",
        {"session": "0" * 32, "preview": "0" * 32, "edits": ["a1b2c3d4"]},
        "Nothing is stored, no model is asked. `accept` takes the same `edits` and `amend`.",
    ),
    _operation(
        "POST",
        actions.accept,
        "Apply exactly the edits of a preview, or some of them.",
        {"preview": "0" * 32},
        "They show from the next request on. No model is asked.",
    ),
    _operation(
        "POST",
        actions.revert,
        "Undo edits of a session.",
        {"session": "0" * 32, "edits": ["a1b2c3d4"]},
        "Name edits by id or a unique prefix of it. From the next request on the original "
        "messages are sent again, as far as they fit. `redo` is a preview that undoes this.",
    ),
    _operation(
        "POST",
        actions.restore,
        "Send one hidden message again.",
        {"session": "0" * 32, "message": 7},
        "An edit of that message alone is undone. If a summary of several messages hides it, "
        "its text is added to the summary.",
    ),
    _operation(
        "POST",
        actions.pin,
        "Keep a message, or words in it, through all compactions.",
        {"session": "0" * 32, "message": 7, "words": "Never touch the migrations."},
        "A pinned message stays beside a summary, which quotes pinned words; other edits that "
        "would hide them are not made. Pins hold from the next compaction on.",
    ),
    _operation(
        "POST",
        actions.unpin,
        "Remove a pin.",
        {"session": "0" * 32, "pin": "a1b2c3d4"},
    ),
    _operation(
        "POST",
        queries.recall,
        "Search in what the edits of a conversation hide.",
        {"request": _REQUEST, "query": "shall"},
        "Give the history as `request`, or only `session` if transcripts are recorded.",
    ),
    _operation(
        "POST",
        actions.report_usage,
        "Book a call that did not pass through the gateway.",
        {
            "conversation_id": "7",
            "agent_id": "writer",
            "request": _REQUEST,
            "usage": {"input_tokens": 1_200, "output_tokens": 80},
        },
        "It is listed with the calls that pass through the gateway. With the whole `history` of "
        "a `request` that was compacted, the saving is booked too.",
    ),
)
