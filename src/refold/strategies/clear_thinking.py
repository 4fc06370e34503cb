"""Leave out the thinking of past steps."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from refold.core.strategy import Edits
from refold.core.tool_groups import MessageSlot, iter_slots, latest_turn_start, replace_if_smaller
from refold.core.view import View
from refold.edits import Edit
from refold.errors import require_int
from refold.messages import Message, Text, Thinking
from refold.rules.request import is_signed


@dataclass(frozen=True)
class ClearThinking:
    """Leave out the thinking of all but the newest *keep* steps of the model that have some. A step
    is what the model says between two things said to it.

    Always oldest first and without a gap, as providers that sign thinking require (AN-10); their
    latest turn, everything since the last user request, keeps its thinking (AN-6). Where the rules
    say that thinking is fixed (OA-4, GE-3, DS-1), nothing is done; where no model is named, nothing
    to what is not signed. A message of thinking alone is hidden, where the rules allow a cut on
    both sides of it. Raises ValueError for a negative *keep*.
    """

    keep: int = 1

    def __post_init__(self) -> None:
        require_int(0, keep=self.keep)

    def __call__(self, view: View) -> Edits:
        """Yield an edit for each message whose thinking goes."""
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
        """Return the first position whose thinking stays."""
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
    """Yield the edit that shows a message without its thinking, if there is a legal one."""
    parts = tuple(p for p in slot.message.parts if not isinstance(p, Thinking) and p != Text(""))
    if parts:
        yield from replace_if_smaller(view, slot, replace(slot.message, parts=parts), by)
    elif slot.at > 0 and {slot.at, slot.at + 1} <= view.cuts:
        yield view.fold(slot.at, slot.at + 1, by=by)


def _has_thinking(message: Message) -> bool:
    return Thinking in map(type, message.parts)
