"""Edits added to a transcript one by one: which of them show, and how many tokens show."""

from bisect import bisect_left
from typing import NamedTuple

from refold.core.profile import CountedTranscript
from refold.core.render import has_same_shape
from refold.edits import Edit
from refold.errors import EditError
from refold.messages import Text

_EMPTY = Text("")


class VisibleEdit(NamedTuple):
    """An edit that no other covers, and the tokens of what it shows."""

    edit: Edit
    tokens: int


class EditStack:
    """What a view is made of while edits are added, in the time of what is added."""

    def __init__(
        self,
        base: CountedTranscript,
        edits: tuple[Edit, ...],
        visible_edits: tuple[VisibleEdit, ...],
        estimate: int,
    ) -> None:
        self.base, self.estimate = base, estimate
        self.edits, self.visible_edits = list(edits), list(visible_edits)
        self._starts = [visible.edit.start for visible in visible_edits]

    @property
    def tokens(self) -> int:
        """Tokens of the request, as `View.tokens`."""
        return self.base.profile.calibrate(self.tokens_uncalibrated)

    @property
    def tokens_uncalibrated(self) -> int:
        """As `View.tokens_uncalibrated`."""
        return self.base.profile.fixed_tokens + self.estimate

    def add(self, edit: Edit, tokens: int | None = None, *, smaller: bool = False) -> None:
        """Add *edit*. Raises `EditError`, and then nothing is changed.

        *tokens* are those of what it shows, if it was checked on this base before. With *smaller*
        an edit that makes nothing smaller is refused too.
        """
        if tokens is None:
            check_edit(self.base, edit)
        first = bisect_left(self._starts, edit.start)
        last = bisect_left(self._starts, edit.stop)
        if first and self.visible_edits[first - 1].edit.stop > edit.start:
            first -= 1
        covered = self.visible_edits[first:last]
        if len(covered) == 1 and _is_inside(edit, covered[0].edit):
            self._refuse_crossing(edit)
            _refuse_growth(edit, 0, smaller)
            self.edits.append(edit)
            return
        before = self.base.tokens(edit.start, edit.stop)
        for hidden, hidden_tokens in covered:
            if not _covers(edit, hidden):
                raise EditError(f"{_describe(edit)} cuts through another edit")
            before += hidden_tokens - self.base.tokens(hidden.start, hidden.stop)
        after = sum(map(self.base.profile.count, edit.insert)) if tokens is None else tokens
        _refuse_growth(edit, after - before, smaller)
        self.edits.append(edit)
        self.visible_edits[first:last] = [VisibleEdit(edit, after)]
        self._starts[first:last] = [edit.start]
        self.estimate += after - before

    def _refuse_crossing(self, edit: Edit) -> None:
        for below in self.edits:
            if (
                edit.start < below.start < edit.stop < below.stop
                or below.start < edit.start < below.stop < edit.stop
            ):
                raise EditError(f"{_describe(edit)} cuts through edit {below.id}")


def check_edit(base: CountedTranscript, edit: Edit) -> None:
    """Raise `EditError` unless the edit is true of this history and keeps it valid."""
    if not base.transcript.matches(edit):
        raise EditError(f"{_describe(edit)} was made for another history")
    if any(not message.parts or _EMPTY in message.parts for message in edit.insert):
        raise EditError(f"edit {edit.id} shows an empty message")
    span = base.transcript.messages[edit.start : edit.stop]
    if len(span) == len(edit.insert) and all(map(has_same_shape, span, edit.insert)):
        return
    if not {edit.start, edit.stop} <= base.cuts:
        raise EditError(f"{_describe(edit)} parts what belongs together")
    _check_insert(base, edit)


def _check_insert(base: CountedTranscript, edit: Edit) -> None:
    rules, insert = base.profile.rules, edit.insert
    if rules.alternate and edit.start == 0 and (not insert or insert[0].role != "user"):
        raise EditError(f"edit {edit.id} hides the beginning and must show a user message instead")
    if any(message.calls or message.results for message in insert) and (
        not {0, len(insert)} <= rules.cuts(insert) or rules.check(insert)
    ):
        raise EditError(f"edit {edit.id} shows calls and results that do not pair")


def _refuse_growth(edit: Edit, growth: int, smaller: bool) -> None:
    if smaller and growth >= 0:
        raise EditError(f"{_describe(edit)} makes nothing smaller")


def _describe(edit: Edit) -> str:
    return f"edit {edit.id} ({edit.start}:{edit.stop})"


def _covers(outer: Edit, inner: Edit) -> bool:
    return outer.start <= inner.start and inner.stop <= outer.stop


def _is_inside(inner: Edit, outer: Edit) -> bool:
    """Is *inner* strictly inside? On one span the later edit shows."""
    same = (outer.start, outer.stop) == (inner.start, inner.stop)
    return _covers(outer, inner) and not same
