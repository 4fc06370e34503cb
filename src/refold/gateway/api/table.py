"""The operations. Document, routes and checks are made of this table, so they cannot differ."""

from refold.gateway.api import changing, commands, looking, shapes
from refold.gateway.api.operation import Operation
from refold.gateway.api.shapes import COUNT, EITHER, WHERE, each, record, said

_CHAT = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hello! What shall we do?"}]
_BODY = {"model": "gpt-5.2", "messages": _CHAT}
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
        "The conversations that this gateway knows, the latest first.",
        record({"limit": _LIMIT, "offset": {**COUNT, "maximum": 1_000_000, "default": 0}}),
        shapes.SESSIONS,
        looking.sessions,
        {"limit": 20},
    ),
    Operation(
        "history",
        "GET",
        "The edits that show in a session, and the ledger of all attempts, oldest first.",
        record({"session": shapes.SESSION_ID, "limit": _LIMIT}, "session"),
        shapes.HISTORY,
        looking.history,
        {"session": "0" * 32},
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
