"""Tool groups: calls that were made together, with all their results."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from refold.messages import Message, ToolCall
from refold.rules.pairing import client_ids, pair_calls


class PairedCall(NamedTuple):
    """A tool call, and where it and its result stand."""

    call: ToolCall
    call_at: int
    """Position of the message that makes the call."""
    result_at: int | None
    """Position of the message with its result; None while the call is open."""


ToolGroup = tuple[PairedCall, ...]
"""The calls of one step of the model, in order (conformance case 7).

They are those of one assistant message, or of neighbouring ones if the wire form gives each call
an entry of its own (OpenAI Responses).
"""


def group_calls(messages: Sequence[Message], start: int = 0) -> list[ToolGroup]:
    """Return the tool groups of *messages*, oldest first; *start* is the first one's position.

    Calls and results are matched by `refold.rules.pairing`. Results without a call are in no group,
    nor are server-side calls, whose results come in the same message and are never edited.
    """
    pairs = pair_calls(messages, client_ids).pairs
    results = {(call.at, call.part): start + result.at for call, result in pairs}
    groups: list[list[PairedCall]] = []
    is_new_step = True
    for at, message in enumerate(messages):
        is_new_step = is_new_step or message.role != "assistant"
        for n, part in enumerate(message.parts):
            if isinstance(part, ToolCall):
                if is_new_step:
                    groups.append([])
                    is_new_step = False
                groups[-1].append(PairedCall(part, start + at, results.get((at, n))))
    return list(map(tuple, groups))


def first_unseen(messages: Sequence[Message], end: int | None = None) -> int:
    """Return the first position of `messages[:end]` that the model has not seen.

    That is what follows its latest message.
    """
    positions = range(len(messages) if end is None else end)
    return next((at + 1 for at in reversed(positions) if messages[at].role == "assistant"), 0)


def latest_turn_start(messages: Sequence[Message]) -> int:
    """Return the position after the last message of the user's that holds no result, where a
    provider sees a new turn; 0 without one."""
    positions = reversed(range(len(messages)))
    return next((at + 1 for at in positions if messages[at].is_request), 0)


def with_results(groups: Iterable[ToolGroup]) -> list[ToolGroup]:
    """Return the groups with at least one result."""
    return [group for group in groups if any(pair.result_at is not None for pair in group)]


def clearable_calls(
    messages: Sequence[Message], groups: Iterable[ToolGroup], keep: int, protect: Collection[str]
) -> Iterator[PairedCall]:
    """Yield the calls whose results may be cleared: those of all but the newest *keep* groups.

    Left out are groups with a call that is open or a result that the model has not read yet, and
    the tools named in *protect*.
    """
    candidates, seen = with_results(groups), first_unseen(messages)
    for group in candidates[: max(0, len(candidates) - keep)]:
        if all(pair.result_at is not None and pair.result_at < seen for pair in group):
            yield from (pair for pair in group if pair.call.name not in protect)


def find_call(messages: Sequence[Message], at: int, id: str, within: int) -> ToolCall | None:
    """Return the call that the result *id* at position *at* answers.

    It is the latest of that id among the *within* messages before it; None if there is none.
    """
    for before in range(at - 1, max(-1, at - 1 - within), -1):
        for part in reversed(messages[before].parts):
            if isinstance(part, ToolCall) and part.id == id:
                return part
    return None
