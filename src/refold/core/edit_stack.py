"""Edits on a transcript, put on one by one: which of them show, and how many tokens are shown."""

from bisect import bisect_left
from typing import NamedTuple

from refold.core.profile import CountedTranscript
from refold.core.render import has_same_shape
from refold.edits import Edit
from refold.errors import EditError
from refold.messages import Text

_EMPTY = Text("")


class VisibleEdit(NamedTuple):
    """An edit that shows, and the tokens of what it shows."""

    edit: Edit
    tokens: int


class EditStack:
    """What a view is made of while edits are put on it, in the time of what is put on."""

    def __init__(
        self, base: CountedTranscript, edits: tuple[Edit, ...], top: tuple[VisibleEdit, ...], estimate: int
    ) -> None:
        self.base, self.edits, self.visible_edits, self.estimate = base, list(edits), list(top), estimate
        self._starts = [placed.edit.start for placed in top]

    @property
    def tokens(self) -> int:
        """Tokens of the request, as `View.tokens`."""
        profile = self.base.profile
        return profile.calibrate(profile.fixed_tokens + self.estimate)

    @property
    def tokens_uncalibrated(self) -> int:
        """As `View.counted`."""
        return self.base.profile.fixed_tokens + self.estimate

    def add(self, edit: Edit, tokens: int | None = None, *, smaller: bool = False) -> None:
        """Put *edit* on; *tokens* are those of what it shows, where it was put on this base before.

        Raises `EditError`, and then nothing is changed; with *smaller* also for an edit that makes nothing smaller.
        """
        if tokens is None:
            check_edit(self.base, edit)
        first, last = bisect_left(self._starts, edit.start), bisect_left(self._starts, edit.stop)
        if first and self.visible_edits[first - 1].edit.stop > edit.start:
            first -= 1
        over = self.visible_edits[first:last]
        if len(over) == 1 and _inside(edit, over[0].edit):
            self._refuse_crossing(edit)
            _refuse_growth(edit, 0, smaller)
            self.edits.append(edit)
            return
        before = self.base.tokens(edit.start, edit.stop)
        for placed in over:
            if not _covers(edit, placed.edit):
                raise EditError(f"edit {edit.id} ({edit.start}:{edit.stop}) cuts through another edit")
            before += placed.tokens - self.base.tokens(placed.edit.start, placed.edit.stop)
        after = sum(map(self.base.profile.count, edit.insert)) if tokens is None else tokens
        _refuse_growth(edit, after - before, smaller)
        self.edits.append(edit)
        self.visible_edits[first:last], self._starts[first:last] = [VisibleEdit(edit, after)], [edit.start]
        self.estimate += after - before

    def _refuse_crossing(self, edit: Edit) -> None:
        for other in self.edits:
            if edit.start < other.start < edit.stop < other.stop or other.start < edit.start < other.stop < edit.stop:
                raise EditError(f"edit {edit.id} ({edit.start}:{edit.stop}) cuts through edit {other.id}")


def check_edit(base: CountedTranscript, edit: Edit) -> None:
    """Raise `EditError` unless the edit is true of this history and keeps it valid."""
    if not base.transcript.matches(edit):
        raise EditError(f"edit {edit.id} ({edit.start}:{edit.stop}) was made for another history")
    if any(not message.parts or _EMPTY in message.parts for message in edit.insert):
        raise EditError(f"edit {edit.id} shows an empty message")
    said = base.transcript.messages[edit.start : edit.stop]
    if len(said) == len(edit.insert) and all(map(has_same_shape, said, edit.insert)):
        return
    if not {edit.start, edit.stop} <= base.cuts:
        raise EditError(f"edit {edit.id} ({edit.start}:{edit.stop}) parts what belongs together")
    _check_insert(base, edit)


def _check_insert(base: CountedTranscript, edit: Edit) -> None:
    rules, insert = base.profile.rules, edit.insert
    if rules.alternate and edit.start == 0 and (not insert or insert[0].role != "user"):
        raise EditError(f"edit {edit.id} hides the beginning and must show a user message instead")
    if any(m.calls or m.results for m in insert) and (
        not {0, len(insert)} <= rules.cuts(insert) or rules.check(insert)
    ):
        raise EditError(f"edit {edit.id} shows calls and results that do not pair")


def _refuse_growth(edit: Edit, growth: int, smaller: bool) -> None:
    if smaller and growth >= 0:
        raise EditError(f"edit {edit.id} ({edit.start}:{edit.stop}) makes nothing smaller")


def _covers(outer: Edit, inner: Edit) -> bool:
    return outer.start <= inner.start and inner.stop <= outer.stop


def _inside(inner: Edit, outer: Edit) -> bool:
    """Strictly inside: on one span the later edit shows."""
    return _covers(outer, inner) and (outer.start, outer.stop) != (inner.start, inner.stop)
