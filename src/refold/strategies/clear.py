"""Strategies that clear old content: tool results, call arguments, thinking."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, NamedTuple

from refold.core.strategy import Edits
from refold.core.tool_groups import (
    MessageSlot,
    ToolGroup,
    clearable_calls,
    find_refetched,
    find_tool_groups,
    iter_slots,
    latest_turn_start,
    map_parts,
    replace_if_smaller,
    tool_results,
    with_results,
)
from refold.core.view import View
from refold.core.view_lines import call_title
from refold.edits import Edit
from refold.errors import as_names, require_callable_or_none, require_int
from refold.messages import (
    Content,
    Media,
    Message,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from refold.rules.request import is_signed, loads_of
from refold.scorers.scorer import Scorer, order_least_first
from refold.speakers import steering_texts
from refold.text.clip import head
from refold.text.failures import WIDTH, failure_lines, is_failure

# --- results --------------------------------------------------------------------------------------

ERROR_CHARS = 320
"""Maximum characters of error lines kept of a failed result."""


class ClearedResult(NamedTuple):
    """A result to be cleared, as a custom stub function gets it."""

    call: ToolCall
    original: ToolResult
    """The unedited result."""
    edit: str
    """Short id of the edit that brings it back."""
    failure: tuple[str, ...]
    """Exit code and error lines of a failed result, which should be kept."""


Stub = Callable[[ClearedResult], str]
"""A function that returns the text shown instead of a result; empty to leave the result alone. Its
repr is part of the strategy's repr."""


@dataclass(frozen=True)
class ClearToolResults:
    """Replace old tool results by stubs.

    A stub names the call, the size of the result and the edit that brings it back. A failed result
    keeps its exit code and error lines, and text that a person wrote at the end of a result is kept
    too.

    Results are left alone if they were fetched again after an edit had hidden them, belong to the
    newest *keep* tool groups (one step of the model with all its calls) or the newest groups with
    up to *keep_tokens* tokens of output, were not read by the model yet, come from tools named in
    *protect*, refer to tools, have fewer than *min_tokens* tokens before any edit, or would not get
    smaller. Nothing is done unless at least *at_least* tokens can be reclaimed. Messages before a
    summary and cleared results are not touched. *media* says whether images and documents in a
    result are dropped with its text.

    The oldest results go first, or with a *scorer* the least important (docs/strategies.md), but
    those that a local edit shows in fewer than *min_tokens* tokens, such as references to an older
    one, go before all. *stub* returns a custom text. Raises ValueError for negative numbers.
    """

    keep: int = 3
    keep_tokens: int = 0
    at_least: int = 0
    min_tokens: int = 100
    protect: Collection[str] = ()
    media: Literal["drop", "keep"] = "drop"
    scorer: Scorer | None = None
    stub: Stub | None = None

    def __post_init__(self) -> None:
        require_int(0, keep=self.keep, keep_tokens=self.keep_tokens)
        require_int(0, at_least=self.at_least, min_tokens=self.min_tokens)
        require_callable_or_none(scorer=self.scorer, stub=self.stub)
        if self.media not in ("drop", "keep"):
            raise ValueError(f"media must be 'drop' or 'keep', not {self.media!r}")
        # Sorted, so that the repr is always the same.
        object.__setattr__(self, "protect", as_names("protect", self.protect))

    def __call__(self, view: View) -> Edits:
        """Yield an edit for each message with results to clear, or no edit at all."""
        plan: Iterable[tuple[int, Edit]] = self._plan(view)
        if self.at_least > 1:  # else each is made only when it is wanted
            plan = list(plan)
            if sum(gain for gain, _ in plan) < self.at_least:
                return
        yield from (edit for _, edit in plan)

    def _plan(self, view: View) -> Iterator[tuple[int, Edit]]:
        """Yield each edit with the tokens that it reclaims."""
        groups, by, own = find_tool_groups(view), repr(self), type(self).__name__ + "("
        results = {pair.result_at for group in groups for pair in group}
        slots = {s.at: s for s in iter_slots(view) if s.at in results and not s.by.startswith(own)}
        calls = self._clearable(view, groups, slots)
        order = order_least_first(self.scorer, view, calls)
        for at in sorted(order, key=lambda at: slots[at].tokens >= self.min_tokens):
            name = view.edit_name(at, at + 1, by)
            clear = partial(self._clear, view, slots[at], calls[at], name)
            cleared = map_parts(slots[at].message, clear)
            gain = slots[at].tokens - view.profile.count(cleared)
            if cleared.parts and gain > 0:
                yield gain, view.replace(at, cleared, by)

    def _clearable(
        self, view: View, groups: list[ToolGroup], slots: dict[int, MessageSlot]
    ) -> dict[int, dict[str, ToolCall]]:
        """Return the calls whose results may be cleared, by position of the result and call id."""
        calls: dict[int, dict[str, ToolCall]] = {}
        messages, keep = view.transcript.messages, self._newest_to_keep(view, groups, slots)
        refetched = find_refetched(view)
        for pair in clearable_calls(messages, groups, keep, self.protect):
            if pair.result_at in slots and pair.result_at not in refetched:
                calls.setdefault(pair.result_at, {})[pair.call.id] = pair.call
        return calls

    def _newest_to_keep(
        self, view: View, groups: list[ToolGroup], slots: dict[int, MessageSlot]
    ) -> int:
        """Return the number of newest groups to keep: *keep*, or if more, as many as hold at most
        *keep_tokens* tokens of results that are neither protected nor cleared."""
        count, tokens = 0, 0
        for group in reversed(with_results(groups)) if self.keep_tokens else ():
            for pair in group:
                if pair.result_at in slots and pair.call.name not in self.protect:
                    slot = slots[pair.result_at]
                    tokens += sum(
                        _tokens(view, slot, result)
                        for result in tool_results(slot.message)
                        if result.id == pair.call.id
                    )
            if tokens > self.keep_tokens:
                break
            count += 1
        return max(self.keep, count)

    def _clear(
        self, view: View, slot: MessageSlot, calls: dict[str, ToolCall], name: str, shown: Part
    ) -> Part:
        """Return the stub for a result of one of *calls*. Other parts, and results whose stub would
        not be smaller, are returned unchanged.

        A local edit may show a long result in fewer tokens than a stub, but only while the result
        that it refers to is visible (`DropDuplicates`). It gets a shorter stub, because clearing
        the other result would bring it back in full.
        """
        if not isinstance(shown, ToolResult) or shown.id not in calls or loads_of(shown):
            return shown
        originals = {
            result.id: result for result in tool_results(view.transcript.messages[slot.at])
        }
        original, call = originals.get(shown.id, shown), calls[shown.id]
        before = _tokens(view, slot, shown)
        if before < self.min_tokens and (
            not slot.by or _count(view, slot, original) < self.min_tokens
        ):
            return shown
        stub = self._stub(shown, original, call, name)
        if slot.by and not self.stub and _count(view, slot, stub) >= before:
            stub = _with_steering(
                replace(shown, content=(Text(f"[{call_title(call)}: cleared (edit {name})]"),)),
                original,
            )
        alone = len(slot.message.parts) == 1  # then the message is counted, and says the same
        return stub if alone or _count(view, slot, stub) < before else shown

    def _stub(
        self, shown: ToolResult, original: ToolResult, call: ToolCall, name: str
    ) -> ToolResult:
        stays = Media if self.media == "keep" else ()
        media = tuple(part for part in shown.content if isinstance(part, stays))
        gone = [part for part in original.content if not isinstance(part, stays)]
        failure = tuple(_failure(shown))
        if self.stub is None:
            title = f"[{call_title(call)}: result of {_size(gone)} cleared (edit {name})]"
            text = "\n".join((title, *failure))
        else:
            text = self.stub(ClearedResult(call, original, name, failure))
        stub = ToolResult(shown.id, (Text(text), *media), shown.error, shown.name)
        return _with_steering(stub, original) if text else shown


def _with_steering(stub: ToolResult, original: ToolResult) -> ToolResult:
    """Return a stub with the text that a person wrote at the end of the result."""
    blocks = steering_texts(original)
    return replace(stub, content=(*stub.content, Text("\n\n".join(blocks)))) if blocks else stub


def _tokens(view: View, slot: MessageSlot, result: ToolResult) -> int:
    """Return the tokens of one result. If it is alone in its message, they are known already."""
    return slot.tokens if slot.message.parts == (result,) else _count(view, slot, result)


def _count(view: View, slot: MessageSlot, result: ToolResult) -> int:
    return view.profile.count(Message(slot.message.role, (result,)))


def _size(content: Iterable[Content]) -> str:
    """Return the size of a result as text: `1,234 characters, 1 image`."""
    chars = sum(len(part.text) for part in content if isinstance(part, Text))
    kinds = [part.kind for part in content if not isinstance(part, Text)]
    counted = (f"{n} {kind}" + "s" * (n > 1) for kind, n in Counter(kinds).items()) if kinds else ()
    return ", ".join((*([f"{chars:,} characters"] if chars else []), *counted)) or "nothing"


def _failure(result: ToolResult) -> list[str]:
    """Return the exit code and error lines of a failed result."""
    text = result.text
    if result.error or is_failure(text):
        return failure_lines(text, ERROR_CHARS) or [head(text.strip(), WIDTH)]
    return []


# --- arguments ------------------------------------------------------------------------------------

DEFAULT_LONGER_THAN = 200
"""Characters above which a string argument is long. Paths and most commands are shorter."""
OPENING = 80
"""Characters kept from the beginning of a long string, on one line."""
STRING = re.compile(r'(?<!\\)("[^"\\]*(?:\\.[^"\\]*)*")(\s*:)?', re.DOTALL)
"""A string in JSON text. A colon behind it makes it a key."""


@dataclass(frozen=True)
class ClearToolInputs:
    """Shorten long string arguments of old tool calls, such as the content of a written file.

    The beginning of the string is kept, with a note of its length. Id and name of the call, other
    arguments and their spelling do not change, and the arguments remain a valid JSON object.
    Strings of more than *longer_than* characters are long. The newest *keep* tool groups are left
    alone, and so are open calls, calls whose results the model has not read, calls of tools named
    in *protect*, and calls of fewer than *min_tokens* tokens. Arguments that are no JSON object
    become one with the field `input`.

    The oldest calls go first, or with a *scorer* the least important (docs/strategies.md). Raises
    ValueError for negative numbers.
    """

    keep: int = 3
    min_tokens: int = 200
    protect: Collection[str] = ()
    scorer: Scorer | None = None
    longer_than: int = DEFAULT_LONGER_THAN

    def __post_init__(self) -> None:
        require_int(0, keep=self.keep, min_tokens=self.min_tokens, longer_than=self.longer_than)
        require_callable_or_none(scorer=self.scorer)
        # Sorted, so that the repr is always the same.
        object.__setattr__(self, "protect", as_names("protect", self.protect))

    def __call__(self, view: View) -> Edits:
        """Yield an edit for each message with calls to shorten."""
        old, by = self._clearable_calls(view), repr(self)
        slots = {slot.at: slot for slot in iter_slots(view) if slot.at in old}
        for at in order_least_first(self.scorer, view, slots):
            change = partial(
                self._shorten_call, view=view, ids=old[at], name=view.edit_name(at, at + 1, by)
            )
            yield from replace_if_smaller(view, slots[at], map_parts(slots[at].message, change), by)

    def _clearable_calls(self, view: View) -> dict[int, set[str]]:
        """Return the ids of the calls that may be shortened, by position."""
        ids = defaultdict[int, set[str]](set)
        messages, groups = view.transcript.messages, find_tool_groups(view)
        for pair in clearable_calls(messages, groups, self.keep, self.protect):
            ids[pair.call_at].add(pair.call.id)
        return ids

    def _shorten_call(self, part: Part, view: View, ids: set[str], name: str) -> Part:
        if (
            not isinstance(part, ToolCall)
            or part.id not in ids
            or len(part.arguments) < self.longer_than
        ):
            return part
        if view.profile.count(Message("assistant", (part,))) < self.min_tokens:
            return part
        return replace(part, arguments=_shorten_arguments(part.arguments, name, self.longer_than))


def _shorten_arguments(arguments: str, name: str, limit: int) -> str:
    """Return the arguments with long strings shortened. All other characters stay, so that numbers
    and the order of keys do not change."""
    if not _is_object(arguments):
        return json.dumps({"input": _length_note(arguments, name)}, ensure_ascii=False)
    return STRING.sub(lambda match: _shorten_string(match, name, limit), arguments)


def _shorten_string(match: re.Match[str], name: str, limit: int) -> str:
    literal, colon = match.groups()
    if colon or len(literal) <= limit:
        return match[0]
    value = json.loads(literal, strict=False)
    return (
        literal
        if len(value) <= limit
        else json.dumps(_length_note(value, name), ensure_ascii=False)
    )


def _length_note(value: str, name: str) -> str:
    opening = " ".join(head(value, OPENING).split())
    return f"{opening} [… {len(value):,} characters in all (edit {name})]".lstrip()


def _is_object(arguments: str) -> bool:
    try:
        return isinstance(json.loads(arguments, strict=False), dict)
    except RecursionError:
        return arguments.lstrip().startswith("{")  # too deep to parse, not wrong
    except ValueError:
        return False


# --- thinking -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ClearThinking:
    """Remove the thinking of all but the newest *keep* steps of the model that have some.

    A step is everything that the model says between two inputs. Unless the rules leave thinking
    free and none is signed, it is removed from the oldest step on without a gap, as providers that
    sign thinking require (AN-10), and never from the latest turn, everything since the last user
    request (AN-6). Nothing is done if the rules fix thinking in its place (OA-4, GE-3, DS-1), nor
    to unsigned thinking if no model is named. A message with nothing but thinking is hidden if the
    rules allow a cut on both sides. Raises ValueError for a negative *keep*.
    """

    keep: int = 1

    def __post_init__(self) -> None:
        require_int(0, keep=self.keep)

    def __call__(self, view: View) -> Edits:
        """Yield an edit for each message whose thinking is removed."""
        kind = view.profile.rules.thinking
        if kind == "fixed":
            return
        holds = is_signed if kind == "unsure" else _has_thinking
        thinking = [slot for slot in iter_slots(view) if holds(slot.message)]
        free = kind == "free" and not any(is_signed(slot.message) for slot in thinking)
        stop = self._first_kept(view, thinking, free=free)
        for slot in thinking:
            if slot.at >= stop:
                return
            edit = next(iter(_without_thinking(view, slot, repr(self))), None)
            if edit:
                yield edit
            elif not free:
                return

    def _first_kept(self, view: View, thinking: list[MessageSlot], *, free: bool) -> int:
        """Return the first position whose thinking is kept; the number of messages if none is."""
        messages = view.transcript.messages
        steps: list[int] = []
        for before, slot in zip([None, *thinking], thinking, strict=False):
            between = range(before.at + 1, slot.at) if before else ()
            if before is None or any(messages[at].role != "assistant" for at in between):
                steps.append(slot.at)
        stop = (
            steps[-self.keep] if 0 < self.keep <= len(steps) else 0 if self.keep else len(messages)
        )
        return stop if free else min(stop, latest_turn_start(messages))


def _without_thinking(view: View, slot: MessageSlot, by: str) -> Iterator[Edit]:
    """Yield the edit that shows a message without its thinking, if such an edit is legal."""
    parts = tuple(p for p in slot.message.parts if not isinstance(p, Thinking) and p != Text(""))
    if parts:
        yield from replace_if_smaller(view, slot, replace(slot.message, parts=parts), by)
    elif slot.at > 0 and {slot.at, slot.at + 1} <= view.cuts:
        yield view.fold(slot.at, slot.at + 1, by=by)


def _has_thinking(message: Message) -> bool:
    return Thinking in map(type, message.parts)
