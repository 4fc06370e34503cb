"""The operations. Document, routes and checks are made of this table, so they cannot differ."""

from refold.gateway.api import (
    actions as changing,
)
from refold.gateway.api import (
    queries as looking,
)
from refold.gateway.api import (
    schemas as shapes,
)
from refold.gateway.api import (
    soft_hard as commands,
)
from refold.gateway.api.operation import Operation
from refold.gateway.api.schemas import COUNT, EITHER, WHERE, each, record, said

_CHAT = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hello! What shall we do?"}]
_BODY = {"model": "gpt-5.2", "messages": _CHAT}
_OFFSET = {**COUNT, "maximum": 1_000_000, "default": 0}
_LIMIT = {**COUNT, "minimum": 1, "maximum": 1_000, "default": 100}

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "estimate_tokens",
        "POST",
        "Tokens of a text, rather over than under (S2-33).",
        record({"text": shapes.TEXT}, "text"),
        shapes.RESULT,
        commands.estimate_tokens,
        {"text": "你好, world"},
    ),
    Operation(
        "estimate_messages_tokens",
        "POST",
        "Tokens of messages with what each costs besides its text (S2-34).",
        record({"messages": shapes.MESSAGES}, "messages"),
        shapes.RESULT,
        commands.estimate_messages_tokens,
        {"messages": _CHAT},
    ),
    Operation(
        "check_threshold",
        "POST",
        "What is due for messages: nothing, soft or hard (S2-35).",
        record({"messages": shapes.MESSAGES, "config": shapes.CONFIG}, "messages"),
        shapes.CHECK,
        commands.check_threshold,
        {"messages": _CHAT, "config": {"soft_threshold_tokens": 10, "hard_threshold_tokens": 20}},
    ),
    Operation(
        "compact",
        "POST",
        "Messages, compacted (S2-36).",
        shapes.TO_COMPACT,
        shapes.COMPACTED,
        commands.compact,
        {"messages": _CHAT, "agentId": "writer", "conversationId": "7", "config": {"keep_recent_messages": 1}},
        "By the soft/hard preset, whatever the thresholds say. What is decided is kept by agent and conversation, so "
        "that the same history, grown, is shown alike.",
    ),
    Operation(
        "sessions",
        "GET",
        "The conversations that this gateway has seen, the latest first.",
        record(
            {
                "limit": _LIMIT,
                "offset": _OFFSET,
                "scope": said(
                    "All that are booked or remembered, or only those of which the latest request is remembered.",
                    {"type": "string", "enum": ["all", "remembered"], "default": "all"},
                ),
            }
        ),
        shapes.SESSIONS,
        looking.sessions,
        {"limit": 20},
    ),
    Operation(
        "totals",
        "GET",
        "What is booked of all calls: the last line of `refold report`.",
        record({"since": said("From this hour on, in seconds since 1970.", {**COUNT, "maximum": 2**40, "default": 0})}),
        shapes.TOTALS,
        looking.totals,
        {"since": 0},
        "Tokens as billed, money in US dollars.",
    ),
    Operation(
        "history",
        "GET",
        "The edits that show in a session, and the ledger of all attempts, oldest first.",
        record({"session": shapes.SESSION_ID, "limit": _LIMIT, "offset": _OFFSET}, "session"),
        shapes.HISTORY,
        looking.history,
        {"session": "0" * 32},
        "`limit` and `offset` are those of the attempts, counted from the latest.",
    ),
    Operation(
        "words",
        "GET",
        "What an edit shows, or what it hides, in full, a part at a time.",
        record(
            {
                "session": shapes.SESSION_ID,
                "preview": {**shapes.NAME, "description": "The preview that the edit is of, if it is of one."},
                "edit": shapes.EDIT_ID,
                "of": {"type": "string", "enum": ["text", "said"], "default": "text"},
                "offset": said("Characters before the part.", {**COUNT, "maximum": 2**40, "default": 0}),
                "limit": {**COUNT, "minimum": 1, "maximum": 1_000_000, "default": 20_000},
            },
            "session",
            "edit",
        ),
        shapes.WORDS,
        looking.words,
        {"session": "0" * 32, "edit": "a1b2c3d4", "of": "text"},
        "`said` where the request was sent along to the preview, or the transcript is recorded.",
    ),
    Operation(
        "preview",
        "POST",
        "What a compaction would do: its edits, tokens, cost, and what would vanish.",
        record(
            {
                **WHERE,
                "to": said("Tokens to come down to; else as the gateway would, and by 5 % at least.", COUNT),
                "actor": shapes.ACTOR,
            },
            **EITHER,
        ),
        shapes.PREVIEW,
        changing.preview,
        {"request": _BODY, "headers": {"authorization": "Bearer the-clients-key"}, "to": 20},
        "Of the history in `request`, else of the session's latest one. Models are asked here and only here. Without "
        "`request` nothing that was said is in the answer, unless transcripts are recorded.",
    ),
    Operation(
        "accept",
        "POST",
        "Keep exactly the edits of a preview.",
        record(
            {
                "preview": {**shapes.NAME, "description": "As `preview` told it."},
                "amend": said(
                    "Other texts for summaries, by edit.",
                    {"type": "object", "additionalProperties": {"type": "string", "maxLength": 200_000}},
                ),
                "actor": shapes.ACTOR,
            },
            "preview",
        ),
        shapes.ACCEPTED,
        changing.accept,
        {"preview": "0" * 32},
        "From the next request on they show. No model is asked.",
    ),
    Operation(
        "revert",
        "POST",
        "Take edits of a session back.",
        record(
            {**WHERE, "edits": each(shapes.EDIT_ID, minItems=1, maxItems=1_000), "actor": shapes.ACTOR},
            "edits",
            **EITHER,
        ),
        shapes.REVERTED,
        changing.revert,
        {"session": "0" * 32, "edits": ["a1b2c3d4"]},
        "Edits by id, or by a unique beginning of it. From the next request on, what was said is sent again, as far as it fits.",
    ),
    Operation(
        "recall",
        "POST",
        "Search in what the edits of a conversation hide.",
        record(
            {
                **WHERE,
                "query": {"type": "string", "minLength": 1, "maxLength": 2_000},
                "limit": {**COUNT, "minimum": 1, "maximum": 100, "default": 10},
            },
            "query",
            **EITHER,
        ),
        shapes.HITS,
        looking.recall,
        {"request": _BODY, "query": "shall"},
        "The history is sent along as `request`; where transcripts are recorded, `session` is enough.",
    ),
)
