"""Show a tool result once when the same call gave it again."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby
from typing import ClassVar

from refold.core.strategy import Edits
from refold.core.tool_groups import find_call, map_parts, replace_if_smaller, slot_at
from refold.core.view import View
from refold.errors import require_int
from refold.messages import Content, Media, Message, Part, Text, ToolCall, ToolResult
from refold.text.failures import is_failure
from refold.text.plain import call_title, path_of

ResultContent = tuple[Content, ...]
"""What a result says."""
CallKey = tuple[str, str, str]
"""What makes two calls the same."""


@dataclass(frozen=True)
class DropDuplicates:
    """Of equal results of one call show the first; a later one says that it is the same.

    The same call is the same tool with the same arguments, or with the same file and other
    arguments (a range that covers all of it). The results are equal in every character. Results
    under *min_chars* characters and failures are left alone: that something fails again is news.

    Local: it decides at first sight. The earlier result is at most *within* messages back and still
    shown; when a stored edit hides it, the later one is shown in full again. Copies are looked for
    within stretches of twice *within* messages, counted from the start of the transcript, so that
    the cost of a turn does not grow with the history and no stub refers to another stub.

    *version* changes when the same settings would decide otherwise. Raises ValueError for figures
    under 1.
    """

    min_chars: int = 200
    within: int = 200
    version: int = 1
    local: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_int(1, min_chars=self.min_chars, within=self.within, version=self.version)

    def __call__(self, view: View, since: int = 0) -> Edits:
        """Yield an edit for each message from position *since* on that repeats a result."""
        stretch = 2 * self.within
        new = [
            part.content
            for _, message in view.iter_unedited(since)
            for part in self._repeatable(message)
        ]
        if not new:
            return
        repeated = _find_repeated(new, view, since, since % stretch)
        wanted = {content for content in repeated if not is_failure(ToolResult("", content).text)}
        if not wanted:
            return
        by = repr(self)
        for _, run in groupby(
            view.iter_unedited(since - since % stretch), key=lambda entry: entry[0] // stretch
        ):
            copies = Copies(view.transcript.messages, self.within)
            for at, message in run:
                repeats = [part for part in _results(message) if part.content in wanted]
                earlier = {
                    part.id: call
                    for part in repeats
                    if (call := copies.find_earlier(at, part)) and at >= since
                }
                if earlier:
                    stubbed = _stub_repeats(message, earlier, view.edit_name(at, at + 1, by))
                    yield from replace_if_smaller(view, slot_at(view, at), stubbed, by)

    def _repeatable(self, message: Message) -> list[ToolResult]:
        return [
            part
            for part in _results(message)
            if sum(len(item.text) for item in part.content if isinstance(item, Text))
            >= self.min_chars
            and all(item.ref for item in part.content if isinstance(item, Media))
        ]


def _find_repeated(
    new: list[ResultContent], view: View, since: int, back: int
) -> set[ResultContent]:
    """Return *new*, if any of it may come again: among itself, or in the *back* messages before
    *since*. A quick look at how each begins, which in most turns is all that is needed."""
    openings = {_opening(content) for content in new}
    before = view.base.map_cached(_openings)[since - back : since] if back else ()
    is_new = len(openings) == len(new) and openings.isdisjoint(chain.from_iterable(before))
    return set() if is_new else set(new)


def _openings(message: Message) -> tuple[str, ...]:
    """Return how the results in a message begin."""
    return tuple([_opening(part.content) for part in message.parts if type(part) is ToolResult])


def _opening(content: ResultContent) -> str:
    """Return the first text of a result."""
    for item in content:
        if type(item) is Text:
            return item.text
    return ""


def _results(message: Message) -> list[ToolResult]:
    return [part for part in message.parts if isinstance(part, ToolResult) and not part.error]


class Copies:
    """The results of one stretch that are shown in full, by what they say and by call."""

    def __init__(self, messages: Sequence[Message], within: int) -> None:
        self._messages, self._within = messages, within
        self._first: dict[ResultContent, tuple[int, str] | None] = {}
        self._full: dict[tuple[ResultContent, CallKey], tuple[int, ToolCall]] = {}

    def find_earlier(self, at: int, result: ToolResult) -> ToolCall | None:
        """Return the call whose result is equal and still shown in full; without one, this result
        is taken down as shown. Calls are looked at only when a content comes again."""
        content = result.content
        if content not in self._first:
            self._first[content] = at, result.id
            return None
        if first := self._first[content]:
            self._add(content, *first)
            self._first[content] = None
        call = find_call(self._messages, at, result.id, self._within)
        copies = [self._full[content, key] for key in _keys(call) if (content, key) in self._full]
        near = [earlier for place, earlier in copies if at - place <= self._within]
        if not near:
            self._add(content, at, result.id)
        return near[0] if near else None

    def _add(self, content: ResultContent, at: int, id: str) -> None:
        call = find_call(self._messages, at, id, self._within)
        if call:
            self._full.update(((content, key), (at, call)) for key in _keys(call))


def _keys(call: ToolCall | None) -> Iterator[CallKey]:
    """Yield what makes two calls the same: tool and arguments, or tool and file."""
    if call:
        yield ("arguments", call.name, call.arguments)
        if path := path_of(call):
            yield ("file", call.name, path)


def _stub_repeats(message: Message, earlier: dict[str, ToolCall], name: str) -> Message:
    """Return *message* with a line in place of each result of which an *earlier* call has the
    same."""

    def change(part: Part) -> Part:
        if not isinstance(part, ToolResult) or part.id not in earlier:
            return part
        call = earlier[part.id]
        text = f"[{call_title(call)}: the same result as before (call {call.id}, edit {name})]"
        return replace(part, content=(Text(text),))

    return map_parts(message, change)
