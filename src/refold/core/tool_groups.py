"""Tool groups: calls that were made together, with all their results."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from refold.messages import Message, ToolCall, ToolResult


class PairedCall(NamedTuple):
    """A tool call, and where it was made and answered."""

    call: ToolCall
    call_at: int
    """Position of the message that makes the call."""
    result_at: int | None
    """Position of the message with its result; None while the call is open."""


ToolGroup = tuple[PairedCall, ...]
"""The calls of one step of the model, in order: of one assistant message, or of neighbouring ones
where the wire form gives each call an entry of its own (OpenAI Responses). Conformance case 7."""


def group_calls(messages: Iterable[Message], start: int = 0) -> list[ToolGroup]:
    """The tool groups of *messages*, oldest first; *start* is the position of the first message.

    A result belongs to the latest open call of its id. Results without a call are in no group, nor
    are server-side calls, whose results come in the same message and are never edited.
    """
    found: list[list[PairedCall]] = []
    open_calls: dict[str, tuple[int, int]] = {}
    apart = True
    for at, message in enumerate(messages, start):
        if message.role != "assistant":
            apart = True
        for part in message.parts:
            if isinstance(part, ToolCall):
                if apart:
                    found.append([])
                    apart = False
                open_calls[part.id] = (len(found) - 1, len(found[-1]))
                found[-1].append(PairedCall(part, at, None))
            elif isinstance(part, ToolResult) and part.id in open_calls:
                group, index = open_calls.pop(part.id)
                call, made, _ = found[group][index]
                found[group][index] = PairedCall(call, made, at)
    return [tuple(group) for group in found]


def first_unseen(messages: Sequence[Message], end: int | None = None) -> int:
    """The first position of `messages[:end]` that the model has not seen: what follows its latest message."""
    before = range(len(messages) if end is None else end)
    return next((at + 1 for at in reversed(before) if messages[at].role == "assistant"), 0)


def latest_turn_start(messages: Sequence[Message]) -> int:
    """The position after the last user request, where the model's latest turn begins; 0 without one."""
    return next((at + 1 for at in reversed(range(len(messages))) if messages[at].is_request), 0)


def with_results(found: Iterable[ToolGroup]) -> list[ToolGroup]:
    """The groups with at least one result."""
    return [group for group in found if any(pair.result_at is not None for pair in group)]


def clearable_groups(found: Iterable[ToolGroup], keep: int, seen: int) -> list[ToolGroup]:
    """Of the groups with a result those that may be cleared: all but the newest *keep*, and none with
    a call that is open or a result at position *seen* or later, which the model has not read yet."""
    whole = with_results(found)
    old = whole[: max(0, len(whole) - keep)]
    return [g for g in old if all(pair.result_at is not None and pair.result_at < seen for pair in g)]


def find_call(messages: Sequence[Message], at: int, id: str, within: int) -> ToolCall | None:
    """The call that the result *id* at position *at* answers: the latest of that id among the
    *within* messages before it, None if there is none."""
    for before in range(at - 1, max(-1, at - 1 - within), -1):
        for part in reversed(messages[before].parts):
            if isinstance(part, ToolCall) and part.id == id:
                return part
    return None
