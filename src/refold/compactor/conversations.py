"""The conversations that a compactor knows, and which of them a history continues."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import islice
from threading import Lock
from typing import Any, NamedTuple, TypeVar

from refold.budget.triggers import LastAttempt
from refold.codecs.codec import Codec, Payload, split_payload
from refold.codecs.detect import fields_of, recognize, still_fits
from refold.codecs.json_text import JsonList, PrefixCache, Span
from refold.core.profile import Profile
from refold.core.view import View
from refold.edits import Edit
from refold.errors import FormatError
from refold.transcript import AppendLog

K = TypeVar("K")
V = TypeVar("V")

MAX_CONVERSATIONS = 8
"""How many conversations are known again, so that a resent history costs only what is new."""
MAX_RESPELLINGS = 12
"""How many known entries may be spelled otherwise than before: clients move `cache_control` every
turn."""
ENTRY_BYTES = 500
"""Bytes of memory that an entry of a history takes at least, however short it is."""
UNREAD = -1
"""A version that no store is at."""
_MUTABLE = frozenset({dict, list, Span})


class RequestHeader(NamedTuple):
    """Copies of what surrounds a conversation: system prompt, tools and the rest of the body."""

    field: str
    body: Any
    head: list[Any]

    @classmethod
    def of(cls, payload: Payload) -> "RequestHeader":
        """Copy the header of an opened payload."""
        head = payload.raw_entries[: payload.head]
        return cls(payload.field, copy_json(payload.body), copy_json(list(head)))

    def matches(self, payload: Payload, head: int) -> bool:
        """Does *payload*, whose first *head* entries are the system prompt's, have this header?

        An old head that is only the beginning of the new one is another: what came to it would be
        neither counted nor kept.
        """
        return (
            self.field == payload.field
            and self.body == payload.body
            and len(self.head) == head
            and self.head == list(payload.raw_entries[:head])
        )


class ConversationState(NamedTuple):
    """One conversation as far as it was decoded, and how it was shown last."""

    codec: Codec
    stored: View
    """The view with the stored edits alone."""
    view: View
    """The view with those of local strategies too: what was answered last."""
    entries: AppendLog[Any]
    """Copies of the entries that were decoded, or their fingerprints: a list that its owner changed
    in place no longer begins with them."""
    header: RequestHeader
    is_format_certain: bool
    """Do its first entries tell the format, so that it is not recognised anew when it has grown?"""
    version: int = UNREAD
    """The store's version when its edits were loaded."""
    loaded_at: float = 0.0
    """When all of them were loaded, in seconds since 1970."""
    replacements: int | None = None
    """As `refold.stores.store.replacement_count` at that time; None if none were loaded yet."""
    mark: LastAttempt = LastAttempt()
    """When it was compacted last, or seen first."""
    used_at: float | None = None
    """When it was compacted or shown last, in seconds since 1970; None if never here."""
    cap: int | None = None
    """Tokens that its model lets a request have, if it had a wider window before."""
    widest: int = 0
    """Tokens of the widest window it had, if its model was ever changed."""
    waiting: tuple[Edit, ...] = ()
    """Stored edits that do not show, since they would hide what the model has not answered
    (`refold.compactor.late_edits`)."""
    settled: tuple[Edit, ...] = ()
    """Stored edits that were there when it was seen first, or when a model that binds thinking was
    changed for another: they leave none behind that such a model refuses."""
    size: int = 0
    """Bytes or characters of the JSON text that it came in last; 0 if it came parsed."""

    def is_continued_by(self, payload: Payload) -> bool:
        """Does *payload* hold this conversation, grown or not, in the same header?

        One that has no entry yet tells nothing: every other begins with it.
        """
        head = len(self.header.head)
        return (
            bool(self.entries)
            and self.header.matches(payload, head)
            and self.entries.is_prefix_of(fingerprints(payload.raw_entries, head))
            and self.has_format_of(payload)
        )

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
        messages, decode = self.stored.transcript.messages, self.codec.decode
        if len(changed) > MAX_RESPELLINGS or any(
            decode(payload.entry(at), messages[:at]) != messages[at] for at in changed
        ):
            return None
        respelled = list(self.entries)
        for at in changed:
            respelled[at] = copy_json(entries[at])
        return self._replace(entries=AppendLog(respelled))

    def with_profile(self, profile: Profile) -> "ConversationState":
        """Return the same conversation, counted and cut by another profile."""
        base, stored, view = self.stored.base.with_profile(profile), self.stored, self.view
        stored, view = stored.rebase(base, stored.source), view.rebase(base, view.source)
        return self._replace(stored=stored, view=view)


class ConversationCache:
    """The latest conversations of one compactor, in payloads of *format* (None: of any). Calls may
    come from several threads."""

    def __init__(self, format: str | Codec | None) -> None:
        self._format, self._fields = format, fields_of(format)
        self._prefixes = PrefixCache(MAX_CONVERSATIONS)
        self._states: tuple[ConversationState, ...] = ()
        self._lock = Lock()

    def open(self, history: Any) -> tuple[Payload, ConversationState | None]:
        """Open *history* and return what it continues, as `match`. A list is copied, since its
        owner goes on with it. Raises `FormatError`."""
        source = list(history) if type(history) is list else history
        payload = split_payload(source, self._fields, self._prefixes.lookup)
        for state in self._longest_first():
            if state.is_continued_by(payload):
                return payload.read_by(state.codec, len(state.header.head)), state
        payload = recognize(payload, self._format)
        return payload, self.match(payload)

    def match(self, payload: Payload) -> ConversationState | None:
        """Return the longest known conversation that *payload* begins with, whatever surrounds it:
        spelled alike, else otherwise."""
        states = [
            state
            for state in self._longest_first()
            if state.codec is payload.codec and 0 < len(state.entries) <= len(payload)
        ]
        entries = fingerprints(payload.raw_entries, payload.head) if states else ()
        for state in states:
            if state.entries.is_prefix_of(entries):
                return state
        for state in states:
            if respelled := state.respell(payload, entries):
                self._replace(state, respelled)
                return respelled
        return None

    def remember(self, state: ConversationState, cached: ConversationState | None) -> None:
        """Keep *state*, as the latest, in place of *cached*, which it continues. Its payload, which
        may be large, is not kept."""
        stored, view = state.stored.rebase(state.stored.base), state.view.rebase(state.view.base)
        state = state._replace(stored=stored, view=view)
        with self._lock:
            rest = tuple(each for each in self._states if each is not cached)
            self._states = (state, *rest)[:MAX_CONVERSATIONS]

    @property
    def size(self) -> int:
        """Bytes of the JSON texts that these conversations came in last, or what their entries take
        if that is more."""
        return sum([max(state.size, ENTRY_BYTES * len(state.entries)) for state in self._states])

    def continuations_of(self, edits: Sequence[Edit]) -> list[ConversationState]:
        """Return the conversations that hold the histories which *edits* were made for."""
        return [state for state in self._states if all(map(state.stored.transcript.matches, edits))]

    def clear(self) -> None:
        """Forget all conversations: what was shown of them no longer holds."""
        self._states = ()

    def _replace(self, state: ConversationState, new: ConversationState) -> None:
        with self._lock:
            self._states = tuple(new if each is state else each for each in self._states)

    def _longest_first(self) -> list[ConversationState]:
        return sorted(self._states, key=lambda state: -len(state.entries))


def fingerprints(entries: Sequence[Any], start: int) -> Sequence[Any]:
    """Return the entries from the position *start* on, those of a JSON text as their
    fingerprints."""
    return entries.fingerprints(start) if isinstance(entries, JsonList) else entries[start:]


def copy_json(value: Any) -> Any:
    """Copy JSON-like data, strings shared; a span as its fingerprint, so as not to keep its text.

    Raises `FormatError` for data that holds itself, or is nested as deeply as Python can call
    functions.
    """
    try:
        return _copy(value)
    except RecursionError as error:
        raise FormatError(
            "an entry or a field holds itself, or is nested too deeply to read"
        ) from error


def _copy(value: Any) -> Any:
    if type(value) is dict:
        return {k: _copy(v) if type(v) in _MUTABLE else v for k, v in value.items()}
    if type(value) is list:
        return [_copy(item) if type(item) in _MUTABLE else item for item in value]
    return value.fingerprint if type(value) is Span else value


def put_latest(table: OrderedDict[K, V], key: K, value: V, most: float) -> None:
    """Put a value into *table* as its latest; of more than *most* the oldest go."""
    table[key] = value
    table.move_to_end(key)
    while len(table) > most:
        table.popitem(last=False)


# --- a conversation that is given only what is new ----------------------------------------------


class Session:
    """One growing conversation: each step costs what was added. `Compactor.session` makes it.

    Append what belongs to one step in one call (the model's message with its calls, and their
    results), so that nothing is compacted between them. Entries are kept as they are given and must
    not be changed afterwards.
    """

    def __init__(
        self,
        step: Callable[[ConversationState | None, Sequence[Any]], ConversationState],
        report: Callable[[View, Any], None],
        history: Sequence[Any] = (),
    ) -> None:
        """*step* takes the state of a conversation and all of its entries and returns the next
        state."""
        if isinstance(history, str | bytes):
            raise FormatError(
                "a session starts from a list of messages or a body; "
                "give its text to the compactor itself"
            )
        self._step, self._report, self._wires = step, report, list(history)
        self._state = step(None, self._wires)

    @property
    def view(self) -> View:
        """The view of all of it."""
        return self._state.view

    def append(self, *entries: Any) -> View:
        """Add entries (messages in wire form), compact if that is due, and return the view of all
        of it.

        Raises as calling the compactor does; then nothing was added.
        """
        before = len(self._wires)
        self._wires += entries
        try:
            self._state = self._step(self._state, self._wires)
        except BaseException:
            del self._wires[before:]
            raise
        return self.view

    def report(self, usage: Any) -> None:
        """Learn from what the provider reported for the request that the latest view made."""
        self._report(self.view, usage)
