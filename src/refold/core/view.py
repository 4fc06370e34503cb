"""A view: what the model sees, a pure function of a transcript and its edits."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from importlib import import_module
from itertools import chain
from typing import Any

from refold.codecs.codec import Payload
from refold.core.edit_stack import EditStack, Piece, VisibleEdit, check_edit, flatten, render
from refold.core.profile import CountedTranscript, Profile, ViewItem
from refold.edits import Attempt, Edit, Losses, edit_id, find_by_ids
from refold.errors import EditError
from refold.messages import Message
from refold.transcript import AppendLog, Transcript


@dataclass(frozen=True, eq=False)
class View:
    """A transcript as its edits show it. It is immutable: a change returns a new view."""

    base: CountedTranscript = field(repr=False)
    edits: tuple[Edit, ...] = ()
    """All edits in the order in which they were made. Later ones may cover earlier ones."""
    source: Payload | None = field(default=None, repr=False)
    """Payload that the messages were read from, if any."""
    visible_edits: tuple[VisibleEdit, ...] = field(default=(), repr=False)
    """Edits that no other edit covers, by position."""
    estimate: int = field(default=0, repr=False)
    """Uncalibrated tokens of the visible messages, without system prompt and tools."""
    attempts: tuple[Attempt, ...] = field(default=(), repr=False)
    """Runs of strategies that led to this view."""
    goal: int | None = field(default=None, repr=False)
    """Tokens that the compaction had to come down to; None if none was due."""

    @classmethod
    def of(
        cls,
        transcript: Transcript | Iterable[Message],
        edits: Iterable[Edit] = (),
        profile: Profile | None = None,
        source: Payload | None = None,
    ) -> "View":
        """Return a view of a transcript. Raises `EditError` if an edit does not belong to it."""
        if not isinstance(transcript, Transcript):
            transcript = Transcript.of(transcript)
        base = CountedTranscript.of(transcript, profile or Profile())
        return cls(base, source=source, estimate=base.total_tokens).apply(*edits)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, View):
            return NotImplemented
        mine, theirs = self.transcript, other.transcript
        is_same_history = mine.tips[-1] == theirs.tips[-1] and len(mine) == len(theirs)
        return is_same_history and self.edits == other.edits

    def __hash__(self) -> int:
        return hash((self.transcript.tips[-1], self.edits))

    def __repr__(self) -> str:
        """Return one line with the view's size and what was done to it."""
        edits = f"{len(self.edits):,} edit{'s' * (len(self.edits) != 1)}"
        sizes = f"{self.tokens:,} of {self.tokens_unedited:,} tokens, {edits}"
        over = "" if self.fits else f", over its goal of {self.goal:,}"
        return f"<View: {len(self.transcript):,} messages, {sizes}{over}>"

    # Their modules are imported when they are called; that of `losses` is on a floor above.

    def report(self) -> str:
        """Return a description of what was done, what it saves and what did not work."""
        return "\n".join(import_module("refold.core.view_lines").report_lines(self))

    def diff(self) -> str:
        """Return a diff from the original to the visible messages, edit by edit, as text."""
        lines = import_module("refold.core.view_lines").diff_lines(self)
        return "\n".join(line.text for line in lines)

    def losses(self) -> Losses:
        """Return what only the original messages say, by kind, message and line."""
        find: Callable[..., Losses] = import_module("refold.compactor.by_hand").find_losses
        return find(self.revert(), self)

    def _repr_html_(self) -> str:
        """Return the messages as HTML for notebooks, shortened, with a fold for each edit."""
        html: str = import_module("refold.core.view_lines").html_of(self)
        return html.encode("utf-8", "replace").decode()  # a kernel sends no half of a character

    def before(self, at: int) -> "View":
        """Return a view of the original messages before position *at*, without edits."""
        messages, tips = self.transcript.messages[:at], self.transcript.tips[: at + 1]
        beginning = Transcript(AppendLog(messages), AppendLog(tips))
        return View.of(beginning, profile=self.profile, source=self.source)

    # --- what it shows ------------------------------------------------------------------------

    @property
    def fits(self) -> bool:
        """Whether the goal was reached. True if no compaction was due."""
        return self.goal is None or self.tokens <= self.goal

    @property
    def transcript(self) -> Transcript:
        """The original messages."""
        return self.base.transcript

    @property
    def profile(self) -> Profile:
        """How messages are counted and where they may be cut."""
        return self.base.profile

    @property
    def tokens(self) -> int:
        """Tokens of the request: system prompt, tools and visible messages."""
        return self.profile.calibrate(self.tokens_uncalibrated)

    @property
    def tokens_unedited(self) -> int:
        """Tokens of the request without any edit."""
        return self.profile.calibrate(self.profile.fixed_tokens + self.base.total_tokens)

    @property
    def tokens_uncalibrated(self) -> int:
        """As `tokens`, but without calibration by reported usage. Such figures are comparable over
        time, and a growing history never counts for less."""
        return self.profile.fixed_tokens + self.estimate

    def count_part(self, tokens: int) -> int:
        """Return how many calibrated tokens a part estimated at *tokens* adds to this view."""
        return self.profile.calibrate(self.tokens_uncalibrated + tokens) - self.tokens

    @cached_property
    def messages(self) -> tuple[Message, ...]:
        """The messages to send."""
        return tuple(flatten(self._pieces(), self.transcript.messages))

    @cached_property
    def payload(self) -> Any:
        """What to send, in the form of the history; unedited entries are the same objects."""
        return list(self.messages) if self.source is None else self.encode(self.source)

    def encode(self, payload: Payload) -> Any:
        """Return *payload*, which holds this transcript's messages, with the messages to send."""
        return payload.encode(self._pieces(), self.transcript.messages, self._make_forget())

    def _make_forget(self) -> Callable[[Any], Any] | None:
        """Return a function that removes an entry's references to hidden messages, or None."""
        messages, references = self.transcript.messages, self.profile.rules.references
        if references is None:
            return None
        lost = set[str]()
        for edit, _ in self.visible_edits:
            find = partial(references.find, messages[edit.start : edit.stop])
            lost.update(self.base.compute_under(edit, "what may be referred to", find))
        lost.difference_update(references.find(flatten(self._pieces(), messages)) if lost else ())
        return partial(references.drop, lost=lost) if lost else None

    @property
    def items(self) -> tuple[ViewItem, ...]:
        """What is shown for each run of the transcript."""
        return tuple(self.iter_items())

    def iter_items(self) -> Iterator[ViewItem]:
        """Yield the items. All of them at once would take a quarter of the transcript's memory."""
        at = 0
        for edit, tokens in self.visible_edits:
            yield from self.base.iter_items(at, edit.start)
            yield ViewItem(edit.start, edit.stop, edit.insert, edit, tokens)
            at = edit.stop
        yield from self.base.iter_items(at, len(self.transcript))

    @cached_property
    def cuts(self) -> frozenset[int]:
        """Positions between which messages may be hidden without separating what belongs together
        or cutting through a visible edit."""
        insides = (range(edit.start + 1, edit.stop) for edit, _ in self.visible_edits)
        return self.base.cuts.difference(chain.from_iterable(insides))

    def iter_unedited(self, since: int) -> Iterator[tuple[int, Message]]:
        """Yield position and message of every message from *since* on that no edit covers."""
        messages, edits, at = self.transcript.messages, self.visible_edits, since
        first = bisect_right(edits, since, key=lambda visible: visible.edit.stop) if edits else 0
        for index in range(first, len(edits)):
            edit = edits[index].edit
            if at < edit.start:
                yield from enumerate(messages[at : edit.start], at)
            at = max(at, edit.stop)
        yield from enumerate(messages[at:], at)

    def _pieces(self) -> Iterator[Piece]:
        return render(self.base, (edit for edit, _ in self.visible_edits))

    # --- other views --------------------------------------------------------------------------

    def apply(self, *edits: Edit) -> "View":
        """Return this view with more edits. Raises `EditError` for an edit that was made for
        another history, separates what belongs together, or cuts through another edit."""
        stack = self.edit_stack()
        for edit in edits:
            stack.add(edit)
        return self.with_stack(stack)

    def apply_valid(self, edits: Iterable[Edit]) -> "View":
        """Return this view with those of *edits* that belong to it. A store also holds edits of
        other writers and branches."""
        if not (edits := tuple(edits)):
            return self
        stack = self.edit_stack()
        for edit in edits:
            with suppress(EditError):
                stack.add(edit)
        return self.with_stack(stack)

    def apply_counted(self, other: "View", edits: Iterable[Edit]) -> "View":
        """Return this view with *edits*. Those visible in *other*, a view of the same transcript,
        are not checked and counted again. Raises `EditError`."""
        tokens = {id(visible.edit): visible.tokens for visible in other.visible_edits}
        stack = self.edit_stack()
        for edit in edits:
            stack.add(edit, tokens.get(id(edit)))
        return self.with_stack(stack)

    def revert(self, *ids: str | Edit) -> "View":
        """Return this view without these edits (objects, ids or unique prefixes of ids), or without
        all if none is given. Its goal is None. Raises `EditError` for an unknown edit."""
        reverted = {edit.id for edit in (self.find_all(ids) if ids else self.edits)}
        estimate = self.base.total_tokens
        bare = View(self.base, source=self.source, estimate=estimate, attempts=self.attempts)
        return bare.apply(*(edit for edit in self.edits if edit.id not in reverted))

    def extend(self, messages: Sequence[Message]) -> "View":
        """Return the view of a longer transcript, without a source. Only new messages cost time."""
        return self.rebase(self.base.extend(messages))

    def rebase(self, base: CountedTranscript, source: Payload | None = None) -> "View":
        """Return the view of these edits on a longer transcript, read from *source*; no goal."""
        estimate = self.estimate + base.total_tokens - self.base.total_tokens
        return View(base, self.edits, source, self.visible_edits, estimate, self.attempts)

    def edit_stack(self) -> EditStack:
        """Return a new stack with this view's edits, for adding edits one by one."""
        return EditStack(self.base, self.edits, self.visible_edits, self.estimate)

    def with_stack(self, stack: EditStack) -> "View":
        """Return this view with the edits of *stack*, which started from `edit_stack()`."""
        if len(stack.edits) == len(self.edits):
            return self
        edits, visible = tuple(stack.edits), tuple(stack.visible_edits)
        return replace(self, edits=edits, visible_edits=visible, estimate=stack.estimate)

    # --- making and finding edits -------------------------------------------------------------

    def fold(self, start: int, stop: int, *insert: Message, by: str = "") -> Edit:
        """Return an edit that shows *insert* instead of `messages[start:stop]`, without applying
        it. Raises `EditError` if a position is not a legal cut or the result would be invalid."""
        edit = Edit(start, stop, insert, self._tip(stop), by)
        check_edit(self.base, edit)
        return edit

    def replace(self, at: int, message: Message, by: str = "") -> Edit:
        """Return an edit that shows *message*, with the same calls and results, at *at*."""
        return Edit(at, at + 1, (message,), self._tip(at + 1), by)

    def edit_name(self, start: int, stop: int, by: str) -> str:
        """Return the first 8 digits of the id that an edit will have, for a stub that names it."""
        return edit_id(start, stop, self._tip(stop), by)[:8]

    def find(self, id: str | Edit) -> Edit:
        """Return the edit with this id or unique prefix of an id. Raises `EditError`."""
        return self.find_all((id,))[0]

    def find_all(self, ids: Iterable[str | Edit]) -> list[Edit]:
        """Return the edits with these ids or unique prefixes of ids, in this order; an `Edit`
        stands for its id. Raises `EditError`."""
        return find_by_ids(self._edits_by_id, ids)

    @cached_property
    def _edits_by_id(self) -> list[Edit]:
        latest = {edit.id: edit for edit in self.edits}
        return [latest[id] for id in sorted(latest)]

    def unfold(self, id: str | Edit) -> list[Any]:
        """Return what an edit hides: wire entries if the view came from a payload, otherwise
        messages. Raises `EditError`."""
        edit = self.find(id)
        if self.source is None:
            return list(self.transcript.messages[edit.start : edit.stop])
        return [self.source.entry(at) for at in range(edit.start, edit.stop)]

    def _tip(self, stop: int) -> str:
        if not 1 <= stop < len(self.transcript.tips):  # no edit ends at 0
            size = len(self.transcript)
            raise EditError(f"position {stop} is not in a transcript of {size} messages")
        return self.transcript.tips[stop]
