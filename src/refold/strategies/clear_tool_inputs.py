"""Shorten the long arguments of old tool calls."""

import json
import re
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import partial

from refold.core.strategy import Edits
from refold.core.tool_groups import (
    clearable_calls,
    find_tool_groups,
    iter_slots,
    map_parts,
    replace_if_smaller,
)
from refold.core.view import View
from refold.errors import as_names, require_callable_or_none, require_int
from refold.messages import Message, Part, ToolCall
from refold.scorers.scorer import Scorer, order_least_first
from refold.text.clip import head

DEFAULT_LONGER_THAN = 200
"""Characters from which on a string argument is long: paths and most commands are shorter."""
OPENING = 80
"""Characters of a long string's beginning that stay, in one line."""
STRING = re.compile(r'("[^"\\]*(?:\\.[^"\\]*)*")(\s*:)?', re.DOTALL)
"""A string of a JSON text; a colon behind it makes it a key."""


@dataclass(frozen=True)
class ClearToolInputs:
    """Shorten long string arguments of old tool calls, such as the content of a file written: its
    beginning and a note of the length stay. The call's id and name, its other
    arguments and their spelling stay, and it remains a valid JSON object.

    A string of more than *longer_than* characters is long. Left alone are the newest *keep* tool
    groups, calls that are open or whose results the model has not seen, calls of tools named in
    *protect*, and calls of fewer than *min_tokens* tokens.
    Arguments that are no JSON become an object of one field, `input`. Oldest first, or with a
    *scorer* least important first (docs/strategies.md). Raises ValueError for negative figures.
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
    """Return arguments with their long strings shortened; every other character stays as it is, so
    that numbers and key order do too."""
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
