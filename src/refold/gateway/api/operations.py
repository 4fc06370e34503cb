"""The operations of the admin API: one table, of which routes, checks and the document are made."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from msgspec import to_builtins

from refold.errors import StoreError
from refold.gateway.api import (
    actions,
    answers,
    arguments,
    overview,
    page_types,
    pins,
    previews,
    queries,
    session_texts,
    session_view,
    streams,
)
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
        "overview",
        "GET",
        "Sessions that were answered, by any filter and order, with totals and charts.",
        overview.OverviewArguments,
        overview.OverviewAnswer,
        overview.overview,
        {"limit": 20, "sort": "saved"},
        "All of it is of the store. Titles, and searching in messages, need recorded transcripts.",
    ),
    Operation(
        "events",
        "GET",
        "What came since: calls, compactions, edits accepted or taken back.",
        streams.EventsArguments,
        streams.EventsAnswer,
        streams.events,
        {"since": 0},
        "With `accept: text/event-stream` the same as server-sent events, as they come.",
    ),
    Operation(
        "session",
        "GET",
        "One session: its calls, edits and sizes, without its texts.",
        page_types.SessionArguments,
        page_types.SessionAnswer,
        session_view.session,
        {"session": "0" * 32},
    ),
    Operation(
        "messages",
        "GET",
        "Messages of a recorded session in short.",
        page_types.MessagesArguments,
        page_types.MessagesAnswer,
        session_texts.messages,
        {"session": "0" * 32, "start": 100, "count": 50},
    ),
    Operation(
        "text",
        "GET",
        "The words of one recorded message, a part at a time.",
        page_types.TextArguments,
        page_types.TextAnswer,
        session_texts.text,
        {"session": "0" * 32, "message": 7},
    ),
    Operation(
        "search",
        "GET",
        "Search in a recorded session, in what is sent and in what is hidden.",
        page_types.SearchArguments,
        page_types.SearchAnswer,
        session_texts.search,
        {"session": "0" * 32, "query": "shall"},
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
        page_types.PreviewAnswer,
        previews.preview,
        {"request": _REQUEST, "headers": {"authorization": "Bearer the-clients-key"}, "to": 20},
        "Of the history in `request`, else of the session's latest one; of `start` and `stop` only "
        "those messages. Models are asked here and only here. Without `request` the answer quotes no message, unless transcripts are "
        "recorded.",
    ),
    Operation(
        "preview_parts",
        "POST",
        "What some parts of a preview would do, with other words in its summaries.",
        arguments.PreviewPartsArguments,
        page_types.PreviewAnswer,
        previews.preview_parts,
        {"session": "0" * 32, "preview": "0" * 32, "edits": ["a1b2c3d4"]},
        "Nothing is kept, no model is asked. `accept` takes the same `edits` and `amend`.",
    ),
    Operation(
        "accept",
        "POST",
        "Keep exactly the edits of a preview, or those of them that are named.",
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
        "messages are sent again, as far as they fit. `redo` makes it undone.",
    ),
    Operation(
        "restore",
        "POST",
        "Have one hidden message sent again.",
        arguments.RestoreArguments,
        page_types.RestoreAnswer,
        actions.restore,
        {"session": "0" * 32, "message": 7},
        "An edit of that message alone is taken back. Behind a summary of several its words are "
        "added to what is sent.",
    ),
    Operation(
        "pin",
        "POST",
        "Keep a message, or words in it, in sight whatever is compacted.",
        pins.PinArguments,
        pins.PinAnswer,
        pins.pin,
        {"session": "0" * 32, "message": 7, "words": "Never touch the migrations."},
        "A summary has a pinned message beside it and quotes pinned words; what else would hide "
        "them is left undone. It holds from the next compaction on.",
    ),
    Operation(
        "unpin",
        "POST",
        "Take a pin back.",
        pins.UnpinArguments,
        pins.PinAnswer,
        pins.unpin,
        {"session": "0" * 32, "pin": "a1b2c3d4"},
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
