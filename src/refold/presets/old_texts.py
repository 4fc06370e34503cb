"""Shorten the assistant's own long texts before the newest tool groups (S1-24, off unless asked for)."""

from dataclasses import dataclass, replace

from refold.core.message_slots import iter_slots, last_fold_end, map_parts, replace_if_smaller
from refold.core.strategy import Edits
from refold.core.tool_groups import group_calls, with_results
from refold.core.view import View
from refold.messages import Part, Text
from refold.text.clip import gap


@dataclass(frozen=True)
class ClipOldTexts:
    """Of the assistant's texts of more than *limit* characters, before the newest *keep* tool groups, show
    both ends. What the user and the system say is never cut, nor is anything recent (C1-3). Raises
    ValueError for a *keep* below 1."""

    keep: int = 4
    limit: int = 4_000

    def __post_init__(self) -> None:
        if self.keep < 1:
            raise ValueError(f"at least one tool group is recent, not {self.keep}")

    def __call__(self, view: View) -> Edits:
        """An edit for each message with a long text."""
        messages, start = view.transcript.messages, last_fold_end(view)
        groups = with_results(group_calls(messages[start:], start))[-self.keep :]
        before = min((pair.call_at for group in groups for pair in group), default=0)
        for stand in iter_slots(view):
            if stand.at < before and stand.message.role == "assistant" and stand.by != repr(self):
                yield from replace_if_smaller(
                    view, stand, map_parts(stand.message, self._clip), repr(self)
                )

    def _clip(self, part: Part) -> Part:
        if not isinstance(part, Text):
            return part
        cut = gap(part.text, self.limit)
        if cut.stop <= cut.start:
            return part
        note = f"\n[truncated: {cut.stop - cut.start} chars]\n"
        return replace(part, text=part.text[: cut.start] + note + part.text[cut.stop :])
