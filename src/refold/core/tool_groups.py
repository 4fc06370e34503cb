"""Tool groups (calls made together, with their results), messages that a strategy may replace one
by one, and results that were fetched again."""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cache
from itertools import chain, pairwise
from typing import NamedTuple

from refold.core.profile import CountedTranscript
from refold.core.view import View
from refold.edits import Edit
from refold.messages import Message, Part, Text, ToolCall, ToolResult
from refold.rules.pairing import client_ids, pair_calls


class PairedCall(NamedTuple):
    """A tool call with the positions of its call and its result."""

    call: ToolCall
    call_at: int
    """Position of the message with the call."""
    result_at: int | None
    """Position of the message with the result; None while the call is open."""


ToolGroup = tuple[PairedCall, ...]
"""The calls of one step of the model, in order: those of one assistant message, or of neighbouring
ones if the wire form gives each call an entry (OpenAI Responses)."""


def group_calls(messages: Sequence[Message], start: int = 0) -> list[ToolGroup]:
    """Return the tool groups of *messages*, oldest first. *start* is the position of the first
    message. Calls and results are matched by `refold.rules.pairing`. Results without a call are
    ignored, and so are server-side calls, whose results are in the same message and are never
    edited."""
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


def match_calls(messages: Sequence[Message]) -> list[dict[str, ToolCall]]:
    """Return a dict for each message: the calls that its results answer, by id. Some servers reuse
    ids in each turn, so one dict for all messages would not do."""
    calls, pairing = [dict[str, ToolCall]() for _ in messages], pair_calls(messages, client_ids)
    for spot, result in chain(pairing.pairs, pairing.again):
        call = messages[spot.at].parts[spot.part]
        if isinstance(call, ToolCall):
            calls[result.at].setdefault(result.id, call)
    return calls


def tool_results(message: Message) -> list[ToolResult]:
    """Return the tool results in a message, in order."""
    return [part for part in message.parts if isinstance(part, ToolResult)]


def find_answers(messages: Sequence[Message], start: int = 0) -> list[int]:
    """Return the positions from *start* on where answers of the model begin. Consecutive messages
    of the model are one answer."""
    return [
        at
        for at in range(start, len(messages))
        if messages[at].role == "assistant" and (not at or messages[at - 1].role != "assistant")
    ]


def first_unseen(messages: Sequence[Message], end: int | None = None) -> int:
    """Return the position after the model's latest message in `messages[:end]`, where what it has
    not read begins; 0 if it has said nothing."""
    positions = range(len(messages) if end is None else end)
    return next((at + 1 for at in reversed(positions) if messages[at].role == "assistant"), 0)


def latest_turn_start(messages: Sequence[Message], end: int | None = None, start: int = 0) -> int:
    """Return the position after the last user message without results in `messages[start:end]`,
    where providers begin a new turn; 0 if there is none."""
    positions = reversed(range(start, len(messages) if end is None else end))
    return next((at + 1 for at in positions if messages[at].is_request), 0)


def with_results(groups: Iterable[ToolGroup]) -> list[ToolGroup]:
    """Return the groups with at least one result."""
    return [group for group in groups if any(pair.result_at is not None for pair in group)]


def clearable_calls(
    messages: Sequence[Message], groups: Iterable[ToolGroup], keep: int, protect: Collection[str]
) -> Iterator[PairedCall]:
    """Yield the calls whose results may be cleared: those of all but the newest *keep* groups.
    Excluded are groups with an open call or a result that the model has not read, tools named in
    *protect*, and results read by programs (`read_by_programs`)."""
    candidates, seen = with_results(groups), first_unseen(messages)
    for group in candidates[: max(0, len(candidates) - keep)]:
        if all(pair.result_at is not None and pair.result_at < seen for pair in group):
            yield from (
                pair for pair in group if not (pair.call.name in protect or pair.call.caller)
            )


def find_call(messages: Sequence[Message], at: int, id: str, within: int) -> ToolCall | None:
    """Return the call that the result *id* at position *at* answers: the latest with that id in the
    *within* messages before it. Return None if there is none."""
    for before in range(at - 1, max(-1, at - 1 - within), -1):
        for part in reversed(messages[before].parts):
            if isinstance(part, ToolCall) and part.id == id:
                return part
    return None


SEARCHED_MESSAGES = 200
"""Number of messages before a result in which to look for the program that made the call."""


def read_by_programs(messages: Sequence[Message], at: int) -> frozenset[str]:
    """Return the ids of the results at *at* that are read by a program in a provider's sandbox,
    which made the calls. A change to them would change what the program computes, and no model
    reads them."""
    calls = (
        find_call(messages, at, result.id, SEARCHED_MESSAGES)
        for result in tool_results(messages[at])
    )
    return frozenset(call.id for call in calls if call and call.caller)


# --- messages that may be replaced one by one ---------------------------------------------------


EMPTY_TEXT = Text("")


class MessageSlot(NamedTuple):
    """A message of the transcript that the view still shows as one message."""

    at: int
    message: Message
    """The message itself, or the one that an edit shows instead."""
    tokens: int
    by: str
    """The `by` of that edit; empty for an unedited message."""


def iter_slots(view: View) -> Iterator[MessageSlot]:
    """Yield the slots after the last fold, so that summaries are left alone. A message that an edit
    removed, or shows as several, has none."""
    start = last_fold_end(view)
    visible = {v.edit.start: v for v in view.visible_edits if v.edit.start >= start}
    sums = pairwise(view.base.token_sums[start:])
    messages = zip(view.transcript.messages[start:], sums, strict=True)
    for at, (message, (before, after)) in enumerate(messages, start):
        if at not in visible:
            yield MessageSlot(at, message, after - before, "")
            continue
        edit, tokens = visible[at]
        if len(edit.insert) == 1:
            yield MessageSlot(at, edit.insert[0], tokens, edit.by)


def slot_at(view: View, at: int) -> MessageSlot:
    """Return the slot of a message that no edit covers."""
    return MessageSlot(at, view.transcript.messages[at], view.base.tokens(at, at + 1), "")


def last_fold_end(view: View) -> int:
    """Return the `stop` of the last visible edit of several messages, such as a summary; 0 if there
    is none."""
    edits = (visible.edit for visible in reversed(view.visible_edits))
    return next((edit.stop for edit in edits if edit.stop - edit.start > 1), 0)


def find_tool_groups(view: View) -> list[ToolGroup]:
    """Return the tool groups after the last fold, oldest first."""
    start = last_fold_end(view)
    return group_calls(view.transcript.messages[start:], start)


def map_parts(message: Message, change: Callable[[Part], Part]) -> Message:
    """Return the message with each part changed. Texts that became empty are dropped, because no
    edit may show them."""
    parts = map(change, message.parts)
    return Message(message.role, tuple([part for part in parts if part != EMPTY_TEXT]))


def replace_if_smaller(view: View, slot: MessageSlot, message: Message, by: str) -> Iterable[Edit]:
    """Yield an edit that shows *message* in *slot*, if it has fewer tokens and is not empty."""
    if message.parts and view.profile.count(message) < slot.tokens:
        yield view.replace(slot.at, message, by)


# --- results that were fetched again after an edit hid them -------------------------------------


MAX_SHARE = 3
"""Refetched results take at most one part in this many of the view's tokens."""
MAX_AGE = 2
"""A refetched result is kept until this many times the view's tokens have followed it."""
SHARE_OF_EQUAL_LINES = 0.9
"""Share of equal characters, line by line, that makes a result a repeat of another."""


def find_refetched(view: View, max_tokens: int | None = None) -> set[int]:
    """Return the positions of visible results that repeat a hidden result of the same call.

    They need not be equal, because clients add counts and times to tool output. Only the newest are
    returned, up to *max_tokens* together (default: a third of the view), and none with more than
    twice the view's tokens after it. If a call returns something different each time, such as a
    test run, nothing was fetched again."""
    tokens_left = view.estimate // MAX_SHARE if max_tokens is None else max_tokens
    if not view.visible_edits:
        return set()
    is_hidden = _make_hidden_test(view)
    repeats = {
        _newest_repeat(results, is_hidden)
        for results in view.base.compute_once(_find_repeated_calls)
        if not all(is_hidden(at) for at, _ in results)
    }
    positions, end = set[int](), len(view.transcript.messages)
    for at in sorted(repeats - {-1}, reverse=True):
        tokens_left -= view.profile.count(view.transcript.messages[at])
        if tokens_left < 0 or view.base.tokens(at + 1, end) > MAX_AGE * view.estimate:
            break
        positions.add(at)
    return positions


PlacedResult = tuple[int, ToolResult]
"""A result with the position of its message."""


def _find_repeated_calls(base: CountedTranscript) -> list[list[PlacedResult]]:
    """Return the results of each call that was made more than once, in order."""
    calls = dict[str, ToolCall]()
    by_call = dict[tuple[str, str], list[PlacedResult]]()
    for at, message in enumerate(base.transcript.messages):
        for part in message.parts:
            if isinstance(part, ToolCall):
                calls[part.id] = part
            elif isinstance(part, ToolResult) and (call := calls.get(part.id)):
                by_call.setdefault((call.name, call.arguments), []).append((at, part))
    return [results for results in by_call.values() if len(results) > 1]


def _newest_repeat(results: Sequence[PlacedResult], is_hidden: Callable[[int], bool]) -> int:
    """Return the position of the newest of one call's *results* that repeats a hidden one, or
    -1."""
    hidden_lines, newest = set[str](), -1
    for at, result in results:
        lines = _lines(result)
        if is_hidden(at):
            hidden_lines.update(lines)
            continue
        repeated = sum(len(line) for line in lines if line in hidden_lines)
        if repeated >= max(1.0, SHARE_OF_EQUAL_LINES * sum(map(len, lines))):
            newest = at
    return newest


def _make_hidden_test(view: View) -> Callable[[int], bool]:
    """Return a predicate of positions: whether a visible edit changes or omits a result there."""
    messages, edits = view.transcript.messages, [edit for edit, _ in view.visible_edits]
    stops = [edit.stop for edit in edits]

    @cache
    def list_shown(index: int) -> tuple[set[str], set[ToolResult]]:
        results = set(chain.from_iterable(map(tool_results, edits[index].insert)))
        return {result.id for result in results}, results

    def is_hidden(at: int) -> bool:
        index = bisect_right(stops, at)
        if index == len(edits) or edits[index].start > at:
            return False
        (ids, shown), results = list_shown(index), tool_results(messages[at])
        is_like = ids.issuperset([result.id for result in results])  # so that few are hashed
        return not (is_like and shown.issuperset(results))

    return is_hidden


def _lines(result: ToolResult) -> list[str]:
    """Return the lines of a result, also of one in JSON. The fields of a record become one line, so
    that a count or time among them makes little difference."""
    texts = (part.text if isinstance(part, Text) else repr(part) for part in result.content)
    lines = "\n".join(texts).replace("\\n", "\n").split("\n")
    return lines if len(lines) > 1 else lines[0].split(",")
