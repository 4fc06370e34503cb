"""What a compactor knows of one conversation."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NamedTuple

from refold.budget.triggers import LastAttempt
from refold.codecs.codec import Codec
from refold.codecs.detect import still_fits
from refold.codecs.json_spans import JsonList, Span
from refold.codecs.payload import Payload
from refold.core.profile import Profile
from refold.core.view import View
from refold.edits import Edit
from refold.errors import FormatError
from refold.transcript import AppendLog

MAX_RESPELLINGS = 12
"""How many known entries may be spelled otherwise than before: clients move `cache_control` every turn."""
UNMARKED = LastAttempt()
UNREAD = -1
"""A version that no store is at."""


class RequestHeader(NamedTuple):
    """Copies of everything around a conversation: system prompt, tools and the rest of the body."""

    field: str
    body: Any
    head: list[Any]

    @classmethod
    def of(cls, payload: Payload) -> "RequestHeader":
        """Copy the header of an opened payload."""
        head = [copy_json(entry) for entry in payload.raw_entries[: payload.head]]
        return cls(payload.field, copy_json(payload.body), head)

    def matches(self, payload: Payload, head: int) -> bool:
        """Does *payload*, whose first *head* entries are the system prompt's, have this header? An old head that is
        only the beginning of the new one is another: what came to it would be neither counted nor kept (C2)."""
        return (
            self.field == payload.field
            and self.body == payload.body
            and len(self.head) == head
            and self.head == list(payload.raw_entries[:head])
        )


@dataclass(frozen=True)
class ConversationState:
    """One conversation as far as it was decoded, and how it was shown last."""

    codec: Codec
    stored: View
    """The view with the stored edits alone."""
    view: View
    """The view with those of local strategies too: what was answered last."""
    entries: AppendLog[Any]
    """Copies of the entries that were decoded, or their fingerprints: a list that its owner changed in
    place is another."""
    header: RequestHeader
    """What is around the conversation, from which `fixed` was counted."""
    is_format_certain: bool
    """Do its first entries tell the format, so that it is not recognised anew when it has grown?"""
    version: int
    """The store's version when its edits were loaded."""
    replacements: int | None = None
    """As `refold.stores.store.replacement_count` at that time; None if none were loaded yet."""
    mark: LastAttempt = UNMARKED
    """When it was compacted last, or seen first."""
    cap: int | None = None
    """Tokens that its model lets a request have, if it had a wider window before."""
    widest: int = 0
    """Tokens of the widest window it had, if its model was ever changed."""
    waiting: tuple[Edit, ...] = ()
    """Stored edits that do not show, since they would hide what the model has not answered (`refold.compactor.unanswered`)."""

    def is_continued_by(self, payload: Payload) -> bool:
        """Does *payload* hold this conversation, grown or not, in the same frame? One that has no entry yet tells
        nothing: every other begins with it (C2)."""
        head = len(self.header.head)
        return (
            bool(self.entries)
            and self.header.matches(payload, head)
            and self.entries.is_prefix_of(fingerprints(payload.raw_entries, head))
        )

    def ends_in(self, payload: Payload) -> bool:
        """Does the last entry stand at its place in *payload*, in whatever spelling?"""
        at = len(self.entries) - 1
        return self.codec is payload.codec and 0 <= at < len(payload) and self._is_same(payload, at)

    def has_format_of(self, payload: Payload) -> bool:
        """Is *payload*, which continues this, surely of its format? Only what is new is read."""
        start = len(self.header.head) + len(self.entries)
        return self.is_format_certain or still_fits(self.codec, payload, start)

    def respell(self, payload: Payload, entries: Sequence[Any]) -> "ConversationState | None":
        """Return this with its entries as *payload*, whose fingerprints are *entries*, spells them;
        None if it says anything else."""
        pairs = enumerate(zip(self.entries, entries, strict=False))
        differing = (at for at, (old, new) in pairs if old != new)
        changed = list(islice(differing, MAX_RESPELLINGS + 1))
        if len(changed) > MAX_RESPELLINGS:
            return None
        if not all(self._is_same(payload, at) for at in changed):
            return None
        respelled = list(self.entries)
        for at in changed:
            respelled[at] = copy_json(entries[at])
        return replace(self, entries=AppendLog(respelled))

    def _is_same(self, payload: Payload, at: int) -> bool:
        """Does the entry at *at* of *payload* say what this conversation says there?"""
        messages = self.stored.transcript.messages
        return payload.codec.decode(payload.entry(at), messages[:at]) == messages[at]

    def without_source(self) -> "ConversationState":
        """Drop the payload it came from, for as long as it is only remembered."""
        return replace(
            self, stored=replace(self.stored, source=None), view=replace(self.view, source=None)
        )

    def with_profile(self, profile: Profile) -> "ConversationState":
        """Return the same conversation, counted and cut by another profile."""
        base = self.stored.base.with_profile(profile)
        stored, view = self.stored, self.view
        return replace(
            self, stored=stored.rebase(base, stored.source), view=view.rebase(base, view.source)
        )


def fingerprints(entries: Sequence[Any], start: int) -> Sequence[Any]:
    """Return the entries from the position *start* on, those of a JSON text as their fingerprints."""
    return entries.fingerprints(start) if isinstance(entries, JsonList) else entries[start:]


def copy_json(value: Any) -> Any:
    """A copy of JSON-like data, strings shared. Of a span its fingerprint, so as not to keep the text it is in.

    Raises `FormatError` for data that holds itself, or is nested as deeply as Python can call functions (C15).
    """
    try:
        return _copy(value)
    except RecursionError as error:
        raise FormatError(
            "an entry or a field holds itself, or is nested too deeply to read"
        ) from error


def _copy(value: Any) -> Any:
    if type(value) is dict:
        return {key: _copy(item) for key, item in value.items()}
    if type(value) is list:
        return [_copy(item) for item in value]
    return value.fingerprint if type(value) is Span else value
