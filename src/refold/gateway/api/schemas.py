"""The schemas of what the operations take and give."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, get_args

from refold.edits import Outcome
from refold.gateway.api.json_schema import Schema
from refold.gateway.ledger.entry import Sums
from refold.gateway.ledger.report import Line, row
from refold.gateway.messages import APIS
from refold.presets.soft_hard_config import PRODUCTION
from refold.stores.store import Action, Grade

Json = dict[str, Any]


def record(fields: Mapping[str, Schema], *needed: str, **more: Any) -> Json:
    """An object with these fields and no others."""
    made: Json = {"type": "object", "properties": dict(fields), "additionalProperties": False}
    return made | ({"required": list(needed)} if needed else {}) | more


def whole(fields: Mapping[str, Schema]) -> Json:
    """An object with all of these fields."""
    return record(fields, *fields)


def each(items: Schema, **more: Any) -> Json:
    """A list."""
    return {"type": "array", "items": items, **more}


def said(description: str, schema: Schema) -> Json:
    """The schema with a word on what it is."""
    return {**schema, "description": description}


TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "number"}
COUNT: Schema = {"type": "integer", "minimum": 0}
TOKENS = said("Tokens, by Refold's count.", COUNT)
DOLLARS: Schema = {"type": ["number", "null"]}
ANY_OBJECT: Schema = {"type": "object"}
NAME: Schema = {"type": "string", "pattern": "^[0-9a-f]{32}$"}
EDIT_ID: Schema = {"type": "string", "pattern": "^[0-9a-f]{4,16}$"}
ACTOR = said("Who wants it, for the ledger.", {"type": "string", "minLength": 1, "maxLength": 100, "default": "api"})

# --- the soft/hard preset ---------------------------------------------------------------------

MESSAGES = said("Messages of Chat Completions (S2-22).", each(ANY_OBJECT))
FIGURES: Json = {
    name: {"type": "boolean"} if isinstance(value, bool) else COUNT for name, value in asdict(PRODUCTION).items()
}
CONFIG = said("Settings in place of the preset's own (S2-39).", record(FIGURES, type=["object", "null"], default=None))
RESULT: Schema = whole({"result": TOKENS})
CHECK: Schema = whole(
    {
        "result": whole(
            {
                "should_compact": {"type": "boolean"},
                "current_tokens": TOKENS,
                "threshold": COUNT,
                "urgency": {"type": "string", "enum": ["none", "soft", "hard"]},
            }
        )
    }
)
COMPACTED: Schema = whole(
    {
        "result": whole(
            {
                "compacted_messages": each({}),
                "summary": TEXT,
                "original_count": COUNT,
                "retained_count": COUNT,
                "flushed_memories": COUNT,
                "tokens_before_compaction": TOKENS,
                "tokens_after_compaction": TOKENS,
                "memory_failure": TEXT,
            }
        )
    }
)
_ID: Schema = {"type": ["string", "null"]}
TO_COMPACT: Schema = record(
    {
        "messages": MESSAGES,
        "agent_id": TEXT,
        "agentId": TEXT,
        "conversation_id": _ID,
        "conversationId": _ID,
        "config": CONFIG,
    },
    "messages",
    anyOf=[{"required": ["agent_id"]}, {"required": ["agentId"]}],
)

# --- conversations ----------------------------------------------------------------------------

SESSION_ID = said("A session's id, as `sessions` tells it.", NAME)
REQUEST = said("A whole request body of any of the four APIs, as a client would send it.", ANY_OBJECT)
WHERE: Json = {
    "session": SESSION_ID,
    "request": REQUEST,
    "headers": said(
        "The client's headers, its key included: they say which conversation it is. They are not kept.",
        {"type": "object", "additionalProperties": {"type": "string", "maxLength": 8192}},
    ),
    "api": said("The format of `request`, where its shape should not decide.", {"type": "string", "enum": list(APIS)}),
    "model": said("The model, where `request` does not name it.", {"type": "string", "maxLength": 200}),
}
"""Which conversation is meant, and its history."""
EITHER: Json = {"anyOf": [{"required": ["session"]}, {"required": ["request"]}]}


def or_null(schema: Schema) -> Json:
    """The schema, or null where that is not known."""
    return {**schema, "type": [schema["type"], "null"]}


SESSION: Schema = whole(
    {
        "id": SESSION_ID,
        "remembered": said(
            "Is its latest request remembered? If not, as after a restart, only what is booked is told.",
            {"type": "boolean"},
        ),
        "api": or_null(TEXT),
        "model": said("Of the latest request; empty where nobody knows.", TEXT),
        "upstream": or_null(TEXT),
        "messages": or_null(COUNT),
        "tokens_before": said("Tokens of the latest request as it came, by Refold's count.", or_null(COUNT)),
        "tokens_after": said(
            "Tokens of the latest request with the edits that show now, by Refold's count.", or_null(COUNT)
        ),
        "edits": said("How many edits show.", or_null(COUNT)),
        "requests": said(
            "Booked: how many requests were answered. Null while the books cannot be read.", or_null(COUNT)
        ),
        "saved_tokens": said(
            "Booked: tokens that those were smaller by, as billed; estimated where no usage was reported.",
            {"type": ["integer", "null"]},
        ),
        "saved_dollars": said(
            "Booked: saved net, after what caching, summaries and refetches cost, in US dollars. Negative where it cost more, null where no price is known.",
            DOLLARS,
        ),
        "last_seen": said("Seconds since 1970; of one that is only booked, the hour.", NUMBER),
    }
)
EDIT: Schema = whole(
    {
        "id": EDIT_ID,
        "by": said("The strategy that made it.", TEXT),
        "start": said("Position of the first message that it stands for.", COUNT),
        "stop": said("Position behind the last.", COUNT),
        "tokens_before": TOKENS,
        "tokens_after": TOKENS,
        "grade": {"type": "string", "enum": list(get_args(Grade))},
        "text": said("The words that stand there instead, or how they begin; not what was said.", TEXT),
        "text_more": said("Characters behind those, for `words`.", COUNT),
        "said": said(
            "What was said, or how it begins, where `request` was sent along or the transcript is recorded; else null.",
            {"type": ["string", "null"]},
        ),
        "said_more": said("Characters behind those, for `words`.", COUNT),
        "when": said("Seconds since 1970; null for local edits.", {"type": ["number", "null"]}),
        "actor": TEXT,
        "cost": said("US dollars that making it cost.", NUMBER),
    }
)
ROW: Schema = whole(
    {
        "when": NUMBER,
        "outcome": {"type": "string", "enum": list(get_args(Outcome))},
        "edit": {"type": ["string", "null"]},
        "before": COUNT,
        "after": COUNT,
        "calls": COUNT,
        "cost": NUMBER,
        "grade": {"type": "string", "enum": list(get_args(Grade))},
        "action": {"type": "string", "enum": list(get_args(Action))},
        **dict.fromkeys(("by", "reason", "model", "prompt", "actor", "trigger", "run", "tip"), TEXT),
    }
)
ATTEMPT: Schema = whole(
    {
        "by": TEXT,
        "outcome": TEXT,
        "reason": TEXT,
        "before": COUNT,
        "after": COUNT,
        "edits": COUNT,
        "calls": COUNT,
        "cost": NUMBER,
        "model": TEXT,
    }
)
SESSIONS: Schema = whole({"sessions": each(SESSION), "total": COUNT})
HISTORY: Schema = whole(
    {
        "session": SESSION,
        "edits": each(EDIT),
        "attempts": each(ROW),
        "attempts_total": said("How many attempts there are; `offset` and `limit` reach all.", COUNT),
    }
)
WORDS: Schema = whole(
    {
        "session": SESSION_ID,
        "edit": EDIT_ID,
        "of": TEXT,
        "text": TEXT,
        "total": said("Characters in all.", COUNT),
        "next": said("The `offset` of what follows; null at the end.", or_null(COUNT)),
    }
)
_TOTALS = row(Line("total", Sums(), Sums(), 0))
TOTALS: Schema = whole(
    {"since": said("Seconds since 1970.", COUNT)}
    | {name: NUMBER if isinstance(value, float) else {"type": "integer"} for name, value in _TOTALS.items()}
    | {
        "name": TEXT,
        "cache_hit_rate": DOLLARS,
        "unreported": whole(dict.fromkeys(_TOTALS["unreported"], COUNT)),
    }
)
_GONE = whole({"count": COUNT, "names": each(TEXT)})
PREVIEW: Schema = whole(
    {
        "preview": said("For `accept`; null where there is nothing to accept.", {**NAME, "type": ["string", "null"]}),
        "session": SESSION_ID,
        "tokens_before": TOKENS,
        "tokens_after": TOKENS,
        "saved": said("Tokens, by Refold's count, that each further request would be smaller by.", {"type": "integer"}),
        "calls": said("Model calls that the preview took.", COUNT),
        "cost": said("US dollars that those cost.", NUMBER),
        "edits": each(EDIT),
        "summaries": said("Texts for `amend`, by edit.", {"type": "object", "additionalProperties": TEXT}),
        "attempts": each(ATTEMPT),
        "vanished": said(
            "What would stand nowhere any more; names only where `request` was sent along or the transcript is recorded.",
            whole(dict.fromkeys(("requests", "constraints", "paths", "identifiers"), _GONE)),
        ),
        "request": said(
            "The request as it would be sent, where it was sent along; else null.", {"type": ["object", "null"]}
        ),
    }
)
ACCEPTED: Schema = whole({"session": SESSION_ID, "edits": each(EDIT_ID), "tokens_after": TOKENS})
REVERTED: Schema = whole(
    {
        "session": SESSION_ID,
        "reverted": each(EDIT_ID),
        "tokens_before": TOKENS,
        "tokens_after": said("Tokens without the edits, by Refold's count.", COUNT),
        "fits": said(
            "Is that below the hard level, so that it is sent? If not, the next request is compacted again.",
            {"type": "boolean"},
        ),
    }
)
HIT: Schema = whole({"edit": EDIT_ID, "position": COUNT, "role": TEXT, "snippet": TEXT, "score": NUMBER})
HITS: Schema = whole(
    {"session": SESSION_ID, "hits": each(HIT), "more": said("Does more match than `limit` hits?", {"type": "boolean"})}
)

ERROR: Schema = record(
    {
        "error": record(
            {"code": {"type": ["string", "null"]}, "message": TEXT}, "code", "message", additionalProperties={}
        )
    },
    "error",
)
