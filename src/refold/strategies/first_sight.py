"""Strategies that edit a tool result when it first appears: long results are shortened, and
repeated ones are shown once."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, groupby
from typing import ClassVar

from refold.core.strategy import Edits
from refold.core.tool_groups import (
    find_call,
    map_parts,
    read_by_programs,
    replace_if_smaller,
    slot_at,
)
from refold.core.view import View
from refold.core.view_lines import call_title, path_of
from refold.errors import require_callable_or_none, require_int, require_number
from refold.messages import Content, Media, Message, Part, Text, ToolCall, ToolResult
from refold.scorers.scorer import Scorer, score_alone
from refold.speakers import is_request, steering_texts
from refold.text.clip import Gap
from refold.text.failures import cut_middle, is_failure
from refold.text.outline import KINDS, outline
from refold.text.outline_lines import Outline
from refold.text.plain import terms

# --- head and tail --------------------------------------------------------------------------------

LEAST = 400
"""Minimum limit in characters, which leaves room for head and tail."""


@dataclass(frozen=True)
class ClipResults:
    """Show the head and tail of tool results longer than *limit* characters.

    It is local: each message is edited when it first appears and depends on nothing else, so the
    same bytes are sent ever after and no prompt cache breaks. A mark in the middle gives the length
    of the omitted text and the edit that brings it back. Lines of the middle that report a failure
    (exit codes, errors, the last line of a traceback) are kept, up to an eighth of the limit. Media
    are kept. Several texts of a result are cut as one. A clipped JSON result is no longer JSON.

    *head* is the head's share of the text that is kept. *version* changes when equal settings would
    cut differently. With a *scorer* (docs/strategies.md), which is shown the message alone, the
    limit is *limit* times 1 + its score. Raises ValueError for a limit under 400 and a *head*
    outside 0 to 1.
    """

    limit: int = 4_000
    head: float = 0.5
    version: int = 1
    scorer: Scorer | None = None
    local: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_int(LEAST, limit=self.limit)
        require_number(0, 1, head=self.head)
        require_int(1, version=self.version)
        require_callable_or_none(scorer=self.scorer)

    def __call__(self, view: View, since: int = 0) -> Edits:
        """Yield an edit for each message from position *since* on with a result over the limit."""
        for at, message in view.iter_unedited(since):
            if (
                ToolResult in map(type, message.parts)
                and max(map(_text_length, message.parts)) > self.limit
            ):
                by = repr(self)
                name = view.edit_name(at, at + 1, by)
                clip = partial(
                    clip_part, limit=self._limit(view, message), head=self.head, name=name
                )
                clipped = change_results(view, at, clip)
                yield from replace_if_smaller(view, slot_at(view, at), clipped, by)

    def _limit(self, view: View, message: Message) -> int:
        return (
            self.limit + int(self.limit * score_alone(self.scorer, message, view.profile))
            if self.scorer
            else self.limit
        )


def change_results(view: View, at: int, change: Callable[[Part], Part]) -> Message:
    """Return the message at *at* with its results changed, except results that a program reads."""
    spared = read_by_programs(view.transcript.messages, at)

    def change_unless_spared(part: Part) -> Part:
        return part if isinstance(part, ToolResult) and part.id in spared else change(part)

    return map_parts(view.transcript.messages[at], change_unless_spared)


def clip_part(part: Part, limit: int, head: float, name: str) -> Part:
    """Return a result of over *limit* characters without its middle; other parts unchanged. *head*
    is the head's share, *name* the id of the edit that brings the middle back."""
    if not isinstance(part, ToolResult) or _text_length(part) <= limit:
        return part
    own = steering_texts(part)
    text = part.text[: part.text.rfind(own[0])] if own else part.text
    cut = cut_middle(text, limit - sum(map(len, own)), head, name, limit // 8)
    return replace(part, content=tuple(_splice(part.content, *cut))) if cut else part


def _text_length(part: Part) -> int:
    """Return the characters of a result's text, joined as by `ToolResult.text`; 0 for other
    parts."""
    return (
        sum([len(item.text) + 1 for item in part.content if isinstance(item, Text)]) - 1
        if isinstance(part, ToolResult)
        else 0
    )


def _splice(content: tuple[Content, ...], cut: Gap, mark: str) -> Iterator[Content]:
    """Yield content without the text of *cut*, with the mark where the cut begins."""
    at, marked = 0, False
    for part in content:
        if not isinstance(part, Text):
            yield part
            continue
        first, last = at, at + len(part.text)
        at = last + 1
        before, after = (
            part.text[: max(0, cut.start - first)],
            part.text[max(0, cut.stop - first) :],
        )
        if not marked and last >= cut.start:
            before, marked = before + mark, True
        if text := before + after:
            yield Text(text)


# --- outlines -------------------------------------------------------------------------------------

WITHIN = 200
"""Number of messages before a result in which to look for its call and the latest request."""
READ = 8_000
"""Maximum characters read of a request, call or text to find what was asked for."""
TRIES = 5
"""Maximum attempts to make an outline as short as head and tail."""


@dataclass(frozen=True)
class OutlineResults:
    """Show an outline of tool results longer than *limit* characters, depending on their kind.

    It is local: it depends on the message, its calls and the request before it, so the same bytes
    are sent ever after. The kind is recognised by the shape of the text
    (`refold.text.outline.KINDS`). A log keeps the first of each kind of line and its failures, JSON
    its shape and unusual entries, a list of paths every folder. The first line says so and names
    the edit that brings the rest back. Marks count what is omitted.

    Only *kinds* are outlined. Other results longer than *rest* characters are clipped as by
    `ClipResults`. An outline is never longer than head and tail would be, in characters or tokens.
    *version* changes when equal settings would show something else. Raises ValueError for *limit*
    or *rest* under 400 and unknown kinds.
    """

    limit: int = 8_000
    kinds: tuple[str, ...] = tuple(kind for kind in KINDS if kind != "code")
    rest: int = 50_000
    version: int = 1
    local: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_int(LEAST, limit=self.limit, rest=self.rest)
        require_int(1, version=self.version)
        if unknown := set(self.kinds) - set(KINDS):
            raise ValueError(f"kinds are {', '.join(KINDS)}, not {', '.join(sorted(unknown))}")

    def __call__(self, view: View, since: int = 0) -> Edits:
        """Yield an edit for each message from position *since* on with a result over the limit."""
        for at, message in view.iter_unedited(since):
            if max(map(_text_length, message.parts), default=0) > min(self.limit, self.rest):
                by = repr(self)
                name = view.edit_name(at, at + 1, by)
                shown = change_results(view, at, partial(self._show, view=view, at=at, name=name))
                yield from replace_if_smaller(view, slot_at(view, at), shown, by)

    def _show(self, part: Part, view: View, at: int, name: str) -> Part:
        """Return a long result as an outline, or clipped if it is of another kind."""
        if not isinstance(part, ToolResult) or _text_length(part) <= self.limit:
            return clip_part(part, self.rest, 0.5, name)
        own = steering_texts(part)
        stop = part.text.rfind(own[0]) if own else len(part.text)
        asked = _find_asked(view.transcript.messages, at, part.id)
        outlined = outline(part.text[:stop], asked, self.kinds)
        if not outlined:
            return clip_part(part, self.rest, 0.5, name)
        kind, lines = outlined
        title = f"[outline ({kind}) of {stop:,} characters (edit {name})]\n"
        ending = f"\n{part.text[stop:]}" if own else ""
        plain = clip_part(part, self.limit, 0.5, name)
        return self._fit(view, part, plain, lines, (title, ending))

    def _fit(
        self, view: View, part: ToolResult, plain: Part, lines: Outline, frame: tuple[str, str]
    ) -> Part:
        """Return the result with as many of *lines* as need no more room than *plain*, or
        *plain*."""
        media = tuple(item for item in part.content if not isinstance(item, Text))
        most = _text_length(plain)
        size = most - sum(map(len, frame))
        for _ in range(TRIES):
            text = lines.show(max(0, size)).join(frame)
            shown = replace(part, content=(Text(text), *media))
            ratio = self._tokens(view, plain) / self._tokens(view, shown)
            if ratio >= 1 and len(text) <= most:
                return shown
            size = int(size * min(0.97, ratio))
        return plain

    def _tokens(self, view: View, part: Part) -> int:
        return max(1, view.profile.count(Message("tool", (part,))))


def _find_asked(messages: Sequence[Message], at: int, id: str) -> frozenset[str]:
    """Return the terms of the call *id* that the message at *at* answers, of the text beside it,
    and of the latest request before it."""
    asked = set[str]()
    for message in reversed(messages[max(0, at - WITHIN) : at]):
        calls = [part for part in message.parts if isinstance(part, ToolCall) and part.id == id]
        if calls or is_request(message):
            texts = (message.text, *(call.arguments for call in calls))
            asked.update(term for text in texts for term in terms(text[:READ]))
        if is_request(message):
            break
    return frozenset(asked)


# --- repeats --------------------------------------------------------------------------------------

ResultContent = tuple[Content, ...]
"""The content of a result."""
CallKey = tuple[str, str, str]
"""Key that is equal for equal calls."""


@dataclass(frozen=True)
class DropDuplicates:
    """Show the first of equal results of the same call, and a reference instead of later ones.

    Calls are the same if they have the same tool and arguments, or the same file and other
    arguments (a range that covers all of it). The results must be equal in every character. Results
    under *min_chars* characters and failures are left alone, because a repeated failure is
    information.

    It is local: each message is edited when it first appears. The earlier result is at most
    *within* messages back and visible; if a stored edit hides it, the later one is shown in full
    again. Copies are looked for in stretches of twice *within* messages from the start of the
    transcript, so that the cost of a turn does not grow with the history and no reference points to
    another. *version* changes when equal settings would decide differently. Raises ValueError for
    numbers under 1.
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
    """Return *new* if it may contain repeats, of one another or of the *back* messages before
    *since*, else nothing. Only the openings are compared, which suffices in most turns."""
    openings = {_opening(content) for content in new}
    before = view.base.map_cached(_openings)[since - back : since] if back else ()
    is_new = len(openings) == len(new) and openings.isdisjoint(chain.from_iterable(before))
    return set() if is_new else set(new)


def _openings(message: Message) -> tuple[str, ...]:
    """Return the openings of the results in a message."""
    return tuple([_opening(part.content) for part in message.parts if type(part) is ToolResult])


def _opening(content: ResultContent) -> str:
    """Return the first text of a result; empty if it has none."""
    for item in content:
        if type(item) is Text:
            return item.text
    return ""


def _results(message: Message) -> list[ToolResult]:
    return [part for part in message.parts if isinstance(part, ToolResult) and not part.error]


class Copies:
    """The results of one stretch that are shown in full, by content and call."""

    def __init__(self, messages: Sequence[Message], within: int) -> None:
        self._messages, self._within = messages, within
        self._first: dict[ResultContent, tuple[int, str] | None] = {}
        self._full: dict[tuple[ResultContent, CallKey], tuple[int, ToolCall]] = {}

    def find_earlier(self, at: int, result: ToolResult) -> ToolCall | None:
        """Return the call with an equal result that is shown in full. If there is none, remember
        this result and return None. Calls are compared only if a content repeats."""
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
    """Yield the keys of a call: tool and arguments, tool and file. A call by a program equals no
    other, because the model does not see its result."""
    if call and not call.caller:
        yield ("arguments", call.name, call.arguments)
        if path := path_of(call):
            yield ("file", call.name, path)


def _stub_repeats(message: Message, earlier: dict[str, ToolCall], name: str) -> Message:
    """Return *message* with a reference instead of each result that equals that of an *earlier*
    call."""

    def change(part: Part) -> Part:
        if not isinstance(part, ToolResult) or part.id not in earlier:
            return part
        call = earlier[part.id]
        text = f"[{call_title(call)}: the same result as before (call {call.id}, edit {name})]"
        return replace(part, content=(Text(text),))

    return map_parts(message, change)
