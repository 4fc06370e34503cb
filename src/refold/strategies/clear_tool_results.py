"""Show a one-line stub instead of an old tool result."""

from collections import Counter
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
    map_parts,
    tool_results,
    with_results,
)
from refold.core.view import View
from refold.edits import Edit
from refold.errors import as_names, require_callable_or_none, require_int
from refold.messages import Content, Media, Message, Part, Text, ToolCall, ToolResult
from refold.scorers.scorer import Scorer, order_least_first
from refold.speakers import steering_texts
from refold.text.clip import head
from refold.text.failures import WIDTH, failure_lines, is_failure
from refold.text.plain import call_title

ERROR_CHARS = 320
"""Characters of error lines that stay of a failure."""


class ClearedResult(NamedTuple):
    """A result that is cleared, for a stub in other words than ours."""

    call: ToolCall
    original: ToolResult
    """The result as the tool gave it."""
    edit: str
    """Short name of the edit that brings it back."""
    failure: tuple[str, ...]
    """Of a failure, exit code and error lines, which are to stay."""


Stub = Callable[[ClearedResult], str]
"""The text to show instead of a result; empty to leave it as it is. Its repr is part of the
strategy's."""


@dataclass(frozen=True)
class ClearToolResults:
    """Instead of old tool results show a stub: which call it was, how much it said, and the edit
    that brings it back. Of a failure, exit code and error lines stay; so does what a person said at
    the end of a result while the agent worked.

    Left alone are results that were fetched again after an edit had hidden them, the results of the
    newest *keep* tool groups (one step of the model with all its calls), the newest groups up to
    *keep_tokens* tokens of output, results the model has not seen yet, those of the
    tools named in *protect* wherever they are, those under *min_tokens* tokens, and any whose stub
    would not be smaller. Unless at least *at_least* tokens can be reclaimed, nothing is done.
    What is before a summary, or is cleared already, stays so. *media* says whether
    images and documents in a result go with its text.

    Oldest first, or with a *scorer* least important first (docs/strategies.md); but what refers to
    an older result before that. With *stub* the text of each stub is yours. Raises ValueError for
    negative figures.
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
        """Yield an edit for each message with results to clear, or none at all."""
        plan: Iterable[tuple[int, Edit]] = self._plan(view)
        if self.at_least > 1:  # else each is made only when it is wanted
            plan = list(plan)
            if sum(gain for gain, _ in plan) < self.at_least:
                return
        yield from (edit for _, edit in plan)

    def _plan(self, view: View) -> Iterator[tuple[int, Edit]]:
        """Yield each edit with the tokens it reclaims."""
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
        """Return how many of the newest groups stay: *keep*, or as many as hold *keep_tokens*
        tokens of results that are neither protected nor cleared."""
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
        """Return the stub for a result of one of *calls*; any other part, and a result of which no
        stub is smaller, as it is shown.

        A local edit may show a long result in fewer tokens than a stub has, but only while what it
        refers to is shown (`DropDuplicates`): it gets a briefer stub, or clearing the one would
        bring back the other.
        """
        if not isinstance(shown, ToolResult) or shown.id not in calls:
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
    """Return a stub with what a person said at the end of the result that it replaces."""
    blocks = steering_texts(original)
    return replace(stub, content=(*stub.content, Text("\n\n".join(blocks)))) if blocks else stub


def _tokens(view: View, slot: MessageSlot, result: ToolResult) -> int:
    """Return the tokens of one result; those of its message, where it is alone there, are known
    already."""
    return slot.tokens if slot.message.parts == (result,) else _count(view, slot, result)


def _count(view: View, slot: MessageSlot, result: ToolResult) -> int:
    return view.profile.count(Message(slot.message.role, (result,)))


def _size(content: Iterable[Content]) -> str:
    """Return how much a result said: `1,234 characters, 1 image`."""
    chars = sum(len(part.text) for part in content if isinstance(part, Text))
    kinds = [part.kind for part in content if not isinstance(part, Text)]
    counted = (f"{n} {kind}" + "s" * (n > 1) for kind, n in Counter(kinds).items()) if kinds else ()
    return ", ".join((*([f"{chars:,} characters"] if chars else []), *counted)) or "nothing"


def _failure(result: ToolResult) -> list[str]:
    """Return what stays of a failure: exit code and error lines."""
    text = result.text
    if result.error or is_failure(text):
        return failure_lines(text, ERROR_CHARS) or [head(text.strip(), WIDTH)]
    return []
