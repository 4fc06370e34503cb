"""What the model sees: a pure function of a transcript and its edits."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from itertools import chain, pairwise
from typing import Any, NamedTuple

from refold.codecs.codec import Wire
from refold.codecs.payload import Payload
from refold.core.edit_stack import EditStack, VisibleEdit, check_edit
from refold.core.profile import CountedTranscript, Profile
from refold.core.render import RenderedMessage, Segment, join_messages, render
from refold.edits import Attempt, Edit, edit_id
from refold.errors import EditError
from refold.messages import Message
from refold.transcript import Transcript


class ViewItem(NamedTuple):
    """A run of the transcript and what is shown for it; untouched messages come one by one."""

    start: int
    stop: int
    messages: tuple[Message, ...]
    edit: Edit | None
    tokens: int
    """Tokens of what is shown, as estimated."""


@dataclass(frozen=True, eq=False)
class View:
    """A transcript as its edits show it. Immutable: every method returns another view."""

    base: CountedTranscript = field(repr=False)
    edits: tuple[Edit, ...] = ()
    """All edits, hidden ones included, in the order in which they were made."""
    source: Payload | None = field(default=None, repr=False)
    """Where the messages came from, if they came from a payload."""
    visible_edits: tuple[VisibleEdit, ...] = field(default=(), repr=False)
    """The edits that show, by position."""
    estimate: int = field(default=0, repr=False)
    """Tokens of the messages shown, not calibrated, without system prompt and tools."""
    attempts: tuple[Attempt, ...] = field(default=(), repr=False)
    """How the strategies' runs ended that led here from the view before; empty if none ran."""

    @classmethod
    def of(
        cls,
        transcript: Transcript | Iterable[Message],
        edits: Iterable[Edit] = (),
        profile: Profile | None = None,
        source: Payload | None = None,
    ) -> "View":
        """Look at a transcript. Raises `EditError` when an edit does not belong to it."""
        if not isinstance(transcript, Transcript):
            transcript = Transcript.of(transcript)
        base = CountedTranscript.of(transcript, profile or Profile())
        return cls(base, source=source, estimate=base.token_sums[-1]).apply(*edits)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, View):
            return NotImplemented
        mine, theirs = self.transcript, other.transcript
        return mine.tips[-1] == theirs.tips[-1] and len(mine) == len(theirs) and self.edits == other.edits

    def __hash__(self) -> int:
        return hash((self.transcript.tips[-1], self.edits))

    # --- what it shows ------------------------------------------------------------------------

    @property
    def transcript(self) -> Transcript:
        """What was said."""
        return self.base.transcript

    @property
    def profile(self) -> Profile:
        """How it is counted and cut."""
        return self.base.profile

    @property
    def tokens(self) -> int:
        """Tokens of the request this view makes: system prompt, tools and what is shown."""
        return self.profile.calibrate(self.profile.fixed_tokens + self.estimate)

    @property
    def tokens_unedited(self) -> int:
        """Tokens that the request would have without any edit."""
        return self.profile.calibrate(self.profile.fixed_tokens + self.base.token_sums[-1])

    @property
    def tokens_uncalibrated(self) -> int:
        """As `tokens`, but by our own counter alone, whatever was learned from usage: figures of different times can be
        compared, and a history that grows never counts for less."""
        return self.profile.fixed_tokens + self.estimate

    @cached_property
    def messages(self) -> tuple[Message, ...]:
        """What to send."""
        said = self.transcript.messages
        pieces = (said[p] if isinstance(p, slice) else (join_messages(p),) for p in self._pieces())
        return tuple(chain.from_iterable(pieces))

    @cached_property
    def payload(self) -> Any:
        """What to send, in the form in which the history came; untouched entries are the same objects."""
        if self.source is None:
            return list(self.messages)
        return self.source.join(p if isinstance(p, slice) else self._wire(p) for p in self._pieces())

    @property
    def items(self) -> tuple[ViewItem, ...]:
        """What each run of the transcript is shown as."""
        return tuple(self.iter_items())

    def iter_items(self) -> Iterator[ViewItem]:
        """The items one at a time: all of them together take a quarter of the room of what was said."""
        at = 0
        for edit, tokens in self.visible_edits:
            yield from self._said(at, edit.start)
            yield ViewItem(edit.start, edit.stop, edit.insert, edit, tokens)
            at = edit.stop
        yield from self._said(at, len(self.transcript))

    @cached_property
    def cuts(self) -> frozenset[int]:
        """Positions between which messages may be hidden: nothing that belongs together is parted,
        and no edit that shows is cut through."""
        inside = chain.from_iterable(range(edit.start + 1, edit.stop) for edit, _ in self.visible_edits)
        return self.base.cuts.difference(inside)

    def _said(self, start: int, stop: int) -> Iterator[ViewItem]:
        """Untouched messages as items."""
        sums = pairwise(self.base.token_sums[start : stop + 1])
        for at, (message, (before, after)) in enumerate(
            zip(self.transcript.messages[start:stop], sums, strict=True), start
        ):
            yield ViewItem(at, at + 1, (message,), None, after - before)

    def _pieces(self) -> Iterator[Segment]:
        edits = (edit for edit, _ in self.visible_edits)
        return render(self.transcript.messages, edits, alternate=self.profile.rules.alternate)

    def _wire(self, shown: list[RenderedMessage]) -> Wire:
        envelope = self.source
        assert envelope is not None  # noqa: S101 - `payload` asked
        return reduce(envelope.codec.merge, (self._one(envelope, one) for one in shown))

    def _one(self, envelope: Payload, shown: RenderedMessage) -> Wire:
        if shown.origin is None:
            return envelope.codec.encode(shown.message)
        item = envelope.entry(shown.origin)
        if shown.message == self.transcript.messages[shown.origin]:
            return item
        return envelope.codec.patch(item, shown.message)

    # --- other views --------------------------------------------------------------------------

    def apply(self, *edits: Edit) -> "View":
        """This view with more edits. Raises `EditError` for an edit that was made for another
        history, parts what belongs together, or cuts through another edit."""
        stack = self.edit_stack()
        for edit in edits:
            stack.add(edit)
        return self.with_stack(stack)

    def apply_valid(self, edits: Iterable[Edit]) -> "View":
        """This view with those of *edits* that belong to it: the rest is passed over, not refused.
        For edits out of a store, where other writers and other branches put theirs too."""
        if not (edits := tuple(edits)):
            return self
        stack = self.edit_stack()
        for edit in edits:
            with suppress(EditError):
                stack.add(edit)
        return self.with_stack(stack)

    def apply_counted(self, other: "View", edits: Iterable[Edit]) -> "View":
        """This view with *edits* that *other*, a view of the same transcript, has too: what shows there is
        not looked at and counted again. Raises `EditError`."""
        known = {id(placed.edit): placed.tokens for placed in other.visible_edits}
        stack = self.edit_stack()
        for edit in edits:
            stack.add(edit, known.get(id(edit)))
        return self.with_stack(stack)

    def revert(self, *ids: str) -> "View":
        """This view without the edits of these ids (or unique beginnings of ids); without any, if
        none is given. Raises `EditError` for an id that is none of its edits."""
        gone = {edit.id for edit in (self.find_all(ids) if ids else self.edits)}
        bare = replace(self, edits=(), visible_edits=(), estimate=self.base.token_sums[-1])
        return bare.apply(*(edit for edit in self.edits if edit.id not in gone))

    def extend(self, messages: Sequence[Message], source: Payload | None = None) -> "View":
        """The view of a longer transcript, in the time of what is added; the same edits show."""
        return self.rebase(self.base.extend(messages), source)

    def rebase(self, base: CountedTranscript, source: Payload | None) -> "View":
        """This view's edits on the base of a transcript that continues this one."""
        added = base.token_sums[-1] - self.base.token_sums[-1]
        return View(base, self.edits, source, self.visible_edits, self.estimate + added, self.attempts)

    def edit_stack(self) -> EditStack:
        """This view's edits to put more on, one by one, in the time of what is put on."""
        return EditStack(self.base, self.edits, self.visible_edits, self.estimate)

    def with_stack(self, stack: EditStack) -> "View":
        """This view with the edits of *stack*, which began as its own."""
        if len(stack.edits) == len(self.edits):
            return self
        return replace(
            self, edits=tuple(stack.edits), visible_edits=tuple(stack.visible_edits), estimate=stack.estimate
        )

    # --- making and finding edits -------------------------------------------------------------

    def fold(self, start: int, stop: int, *insert: Message, by: str = "") -> Edit:
        """An edit that hides `messages[start:stop]`, two legal cuts. Raises `EditError` otherwise."""
        edit = Edit(start, stop, insert, self._tip(stop), by)
        check_edit(self.base, edit)
        return edit

    def replace(self, at: int, message: Message, by: str = "") -> Edit:
        """An edit that shows the message at *at* with other contents; its calls and results stay."""
        return Edit(at, at + 1, (message,), self._tip(at + 1), by)

    def edit_name(self, start: int, stop: int, by: str) -> str:
        """The short name an edit will have, for a stub that says how to bring back what it hides."""
        return edit_id(start, stop, self._tip(stop), by)[:8]

    def find(self, id: str) -> Edit:
        """The edit with this id or unique beginning of an id. Raises `EditError`."""
        return self.find_all((id,))[0]

    def find_all(self, ids: Iterable[str]) -> list[Edit]:
        """The edits with these ids or unique beginnings of ids, in this order. Raises `EditError`."""
        edits = {edit.id: edit for edit in self.edits}
        names, found = sorted(edits), list[Edit]()
        for id in ids:
            at = bisect_left(names, id)
            alike = [name for name in names[at : at + 2] if id and name.startswith(id)]
            if len(alike) != 1:
                raise EditError(f"{'no edit' if not alike else 'more than one edit'} of this view starts with {id!r}")
            found.append(edits[alike[0]])
        return found

    def unfold(self, id: str) -> list[Any]:
        """What an edit hides, exactly as it was said: wire entries if the view came from a payload."""
        edit = self.find(id)
        if self.source is None:
            return list(self.transcript.messages[edit.start : edit.stop])
        return [self.source.entry(at) for at in range(edit.start, edit.stop)]

    def _tip(self, stop: int) -> str:
        if not 1 <= stop < len(self.transcript.tips):  # no edit ends at 0
            raise EditError(f"position {stop} is not in a transcript of {len(self.transcript)} messages")
        return self.transcript.tips[stop]
