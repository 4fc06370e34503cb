"""Functions of one record, and of a batch of records in columns, for table engines."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from refold.budget.budget import Budget
from refold.codecs.json_text import dump
from refold.codecs.repair import check as find_violations
from refold.codecs.repair import repair as repair_payload
from refold.core.strategy import Strategy
from refold.core.view_lines import break_down
from refold.corpus.inputs import as_values, read_record
from refold.corpus.segments import build_compactor, edit_rows, read_strategies, unroll
from refold.errors import FormatError, require_int
from refold.session_files.source import record_id
from refold.text.json_values import JsonObject

PARTS = ("system", "tools", "text", "thinking", "call", "result")
"""Kinds of parts for which `stats` counts tokens."""


def compact(
    record: Any,
    *,
    to: int = 32_000,
    strategies: Iterable[Strategy | str] | None = None,
    format: str = "",
    model: str = "",
    vocabulary: str = "",
) -> JsonObject:
    """Return a record's conversation, compacted to at most *to* tokens if the strategies can do so.

    The other settings are those of `unroll`. The row has `session`, `format`, `body`, `messages`,
    `edits`, `tokens` and `tokens_before`. Raises `FormatError` unless the record holds exactly one
    conversation, ValueError for invalid settings.
    """
    require_int(1, to=to)
    conversation = read_record(record, format)
    named = read_strategies(strategies, to)
    view = build_compactor(conversation, named, Budget(to, to), model, vocabulary)(
        conversation.payload
    )
    messages = view.payload[conversation.field]
    head = len(conversation.messages) - len(view.transcript)
    sizes = {"tokens": view.tokens, "tokens_before": view.tokens_unedited}
    return conversation.row(messages, edits=edit_rows(view, head), **sizes)


def stats(record: Any, *, format: str = "", model: str = "", vocabulary: str = "") -> JsonObject:
    """Return the size of a record's conversation: `messages`, `answers` (assistant messages), tool
    `calls`, `tokens`, tokens by kind of part (`tokens_system`, `tokens_tools` for definitions,
    `tokens_text`, `tokens_thinking`, `tokens_call`, `tokens_result`, `tokens_rest`) and of the
    largest message (`tokens_largest`). Raises the errors of `compact`."""
    conversation = read_record(record, format)
    compactor = build_compactor(conversation, (), Budget(1, 1), model, vocabulary)
    view = compactor.show(conversation.payload)
    shares, messages = break_down(view), view.transcript.messages
    sizes = {kind: shares.kinds.get(kind, 0) for kind in PARTS}
    return {
        "session": conversation.session,
        "format": conversation.format,
        "messages": len(conversation.messages),
        "answers": sum(message.role == "assistant" for message in messages),
        "calls": sum(len(message.calls) for message in messages),
        "tokens": view.tokens,
        **{f"tokens_{kind}": tokens for kind, tokens in sizes.items()},
        "tokens_rest": view.tokens - sum(sizes.values()),
        "tokens_largest": max(shares.messages, default=0),
    }


def check(record: Any, *, format: str = "") -> JsonObject:
    """Return the `violations` of provider rules in a record's conversation, each with `rule`, `at`
    and `text`, and whether it is `valid`. Raises the errors of `compact`."""
    conversation = read_record(record, format)
    violations = find_violations(conversation.payload, conversation.format)
    head = {"session": conversation.session, "format": conversation.format}
    return {**head, "valid": not violations, "violations": _rule_rows(violations)}


def repair(record: Any, *, format: str = "") -> JsonObject:
    """Return a record's conversation with rule violations repaired, without inventing content:
    `messages`, the `repairs`, and the `remaining` violations. Raises the errors of `compact`."""
    conversation = read_record(record, format)
    mended = repair_payload(conversation.payload, conversation.format)
    notes = {"repairs": _rule_rows(mended.repairs), "remaining": _rule_rows(mended.remaining)}
    return conversation.row(mended.payload[conversation.field], **notes)


def _rule_rows(faults: Iterable[Any]) -> list[JsonObject]:
    return [{"rule": fault.rule, "at": fault.at, "text": fault.text} for fault in faults]


# --- a batch: a column of values for each field ------------------------------------------------

Batch = dict[str, list[Any]]
Column = str
"""Type of a column: `text`, `int`, `bool`, or `json` (a list or object; JSON text in a table)."""
_HEAD: Mapping[str, Column] = {"session": "text", "format": "text"}
_REQUEST: Mapping[str, Column] = {**_HEAD, "body": "json", "messages": "json"}
_COUNTS = ("messages", "answers", "calls", "tokens")
_SIZES = (*_COUNTS, *(f"tokens_{kind}" for kind in PARTS), "tokens_rest", "tokens_largest")
SCHEMAS: Mapping[str, Mapping[str, Column]] = {
    "unroll": {
        "session": "text",
        "segment": "int",
        "parent": "int",
        "format": "text",
        "body": "json",
        "messages": "json",
        "train_from": "int",
        "edits": "json",
        "tokens": "int",
    },
    "compact": {**_REQUEST, "edits": "json", "tokens": "int", "tokens_before": "int"},
    "stats": {**_HEAD, **dict.fromkeys(_SIZES, "int")},
    "check": {**_HEAD, "valid": "bool", "violations": "json"},
    "repair": {**_REQUEST, "repairs": "json", "remaining": "json"},
}
"""Columns of each function's rows, in order. A batch has one more, `error`."""
_EMPTY: Mapping[Column, Any] = {"text": "", "int": 0, "bool": False, "json": []}


def unroll_batch(batch: Mapping[str, Any], *, as_json: bool = True, **settings: Any) -> Batch:
    """Return the segments of a batch's records, in order, as `unroll` does with *settings*.

    *batch* has a column of values for each field of the records: lists, arrays of NumPy, Arrow or
    pandas, or a data frame. The result has the columns of `SCHEMAS["unroll"]` and `error`. An
    unreadable record makes one row that is empty except for its id and the reason. Nested fields
    are JSON text, which every engine can hold, or values if *as_json* is False.
    """
    return _map_batch(unroll, batch, as_json, settings)


def compact_batch(batch: Mapping[str, Any], *, as_json: bool = True, **settings: Any) -> Batch:
    """Return a row for each record, as `compact` does with *settings*; see `unroll_batch`."""
    return _map_batch(compact, batch, as_json, settings)


def stats_batch(batch: Mapping[str, Any], *, as_json: bool = True, **settings: Any) -> Batch:
    """Return a row for each record, as `stats` does with *settings*; see `unroll_batch`."""
    return _map_batch(stats, batch, as_json, settings)


def check_batch(batch: Mapping[str, Any], *, as_json: bool = True, **settings: Any) -> Batch:
    """Return a row for each record, as `check` does with *settings*; see `unroll_batch`."""
    return _map_batch(check, batch, as_json, settings)


def repair_batch(batch: Mapping[str, Any], *, as_json: bool = True, **settings: Any) -> Batch:
    """Return a row for each record, as `repair` does with *settings*; see `unroll_batch`."""
    return _map_batch(repair, batch, as_json, settings)


def _map_batch(
    function: Callable[..., JsonObject | list[JsonObject]],
    batch: Mapping[str, Any],
    as_json: bool,
    settings: Mapping[str, Any],
) -> Batch:
    schema = SCHEMAS[function.__name__]
    columns: Batch = {**{column: [] for column in schema}, "error": []}
    for record in _records(batch):
        try:
            answer, error = function(record, **settings), ""
            rows = answer if isinstance(answer, list) else [answer]
        except FormatError as problem:
            blank = {column: _EMPTY[kind] for column, kind in schema.items()}
            rows, error = [{**blank, "session": record_id(record)}], str(problem)
        for row in rows:
            for column, kind in schema.items():
                value = row[column]
                columns[column].append(dump(value) if kind == "json" and as_json else value)
            columns["error"].append(error)
    return columns


def _records(batch: Mapping[str, Any]) -> Iterator[JsonObject]:
    columns = [as_values(batch[name]) for name in batch]
    for values in zip(*columns, strict=True):
        yield {name: value for name, value in zip(batch, values, strict=True) if value is not None}
