"""The cache of conversations that a compactor knows, and sessions."""

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
"""Number of cached conversations. Sent again, each costs only its new messages."""
MAX_RESERIALIZED_ENTRIES = 12
"""Number of known entries that may be serialised differently than before. Clients move
`cache_control` every turn."""
ENTRY_BYTES = 500
"""Assumed minimum size of a history entry in memory, in bytes."""
UNREAD = -1
"""A version that no store has."""
_MUTABLE = frozenset({dict, list, Span})


class RequestHeader(NamedTuple):
    """Copies of a request's fields outside the conversation: system prompt, tools and so on."""

    field: str
    body: Any
    head: list[Any]

    @classmethod
    def of(cls, payload: Payload) -> "RequestHeader":
        """Copy the header of an opened payload."""
        head = payload.raw_entries[: payload.head]
        return cls(payload.field, copy_json(payload.body), copy_json(list(head)))

    def matches(self, payload: Payload, head: int) -> bool:
        """Return whether *payload* has this header. Its first *head* entries are its system prompt.

        A header with fewer system entries does not match: the new ones would be neither counted nor
        kept.
        """
        return (
            self.field == payload.field
            and self.body == payload.body
            and len(self.head) == head
            and self.head == list(payload.raw_entries[:head])
        )


class ConversationState(NamedTuple):
    """A decoded conversation and its latest view."""

    codec: Codec
    stored: View
    """The view with stored edits only."""
    view: View
    """The view with stored and local edits, as last returned."""
    entries: AppendLog[Any]
    """Copies of the decoded entries, or their fingerprints. They detect a list that its owner
    changed in place."""
    header: RequestHeader
    is_format_certain: bool
    """Whether its first entries determine the format, so that it need not be detected again."""
    version: int = UNREAD
    """The store's version when the edits were loaded."""
    loaded_at: float = 0.0
    """Time of the last full load of its edits, in seconds since 1970."""
    replacements: int | None = None
    """`refold.stores.store.replacement_count` at that time. None before the first load."""
    mark: LastAttempt = LastAttempt()
    """When it was last compacted, or first seen."""
    used_at: float | None = None
    """Time of its last turn, in seconds since 1970. None before the first."""
    cap: int | None = None
    """Maximum tokens of a request to its model, if an earlier model had a wider window."""
    widest: int = 0
    """Tokens of the widest window it had, if its model was ever changed."""
    waiting: tuple[Edit, ...] = ()
    """Stored edits that are not shown yet because they would hide what the model has not answered
    (`refold.compactor.late_edits`)."""
    settled: tuple[Edit, ...] = ()
    """Stored edits that existed when it was first seen, or when its model stopped being one that
    binds thinking. They leave no thinking behind that such a model refuses."""
    size: int = 0
    """Bytes or characters of its latest JSON text. 0 if it came parsed."""

    def is_continued_by(self, payload: Payload) -> bool:
        """Return whether *payload* holds this conversation, grown or not, with the same header.

        A conversation without entries never matches, since it is a prefix of every other.
        """
        head = len(self.header.head)
        return (
            bool(self.entries)
            and self.header.matches(payload, head)
            and self.entries.is_prefix_of(fingerprints(payload.raw_entries, head))
            and self.has_format_of(payload)
        )

    def has_format_of(self, payload: Payload) -> bool:
        """Return whether *payload*, which continues this, has its format. Reads only new
        entries."""
        start = len(self.header.head) + len(self.entries)
        return self.is_format_certain or still_fits(self.codec, payload, start)

    def respell(self, payload: Payload, entries: Sequence[Any]) -> "ConversationState | None":
        """Return this state with its entries as *payload* serialises them. *entries* are its
        fingerprints. None if the content, or more than `MAX_RESERIALIZED_ENTRIES` entries,
        differ."""
        pairs = enumerate(zip(self.entries, entries, strict=False))
        differing = (at for at, (old, new) in pairs if old != new)
        changed = list(islice(differing, MAX_RESERIALIZED_ENTRIES + 1))
        messages, decode = self.stored.transcript.messages, self.codec.decode
        if len(changed) > MAX_RESERIALIZED_ENTRIES or any(
            decode(payload.entry(at), messages[:at]) != messages[at] for at in changed
        ):
            return None
        respelled = list(self.entries)
        for at in changed:
            respelled[at] = copy_json(entries[at])
        return self._replace(entries=AppendLog(respelled))

    def with_profile(self, profile: Profile) -> "ConversationState":
        """Return the same conversation with another profile."""
        base, stored, view = self.stored.base.with_profile(profile), self.stored, self.view
        stored, view = stored.rebase(base, stored.source), view.rebase(base, view.source)
        return self._replace(stored=stored, view=view)


class ConversationCache:
    """The latest conversations of one compactor, in payloads of *format* (None: any).
    Thread-safe."""

    def __init__(self, format: str | Codec | None) -> None:
        self._format, self._fields = format, fields_of(format)
        self._prefixes = PrefixCache(MAX_CONVERSATIONS)
        self._states: tuple[ConversationState, ...] = ()
        self._lock = Lock()

    def open(self, history: Any) -> tuple[Payload, ConversationState | None]:
        """Open *history* and return it with the conversation that it continues, as `match`. A list
        is copied because its owner may change it. Raises `FormatError`."""
        source = list(history) if type(history) is list else history
        payload = split_payload(source, self._fields, self._prefixes.lookup)
        for state in self._longest_first():
            if state.is_continued_by(payload):
                return payload.read_by(state.codec, len(state.header.head)), state
        payload = recognize(payload, self._format)
        return payload, self.match(payload)

    def match(self, payload: Payload) -> ConversationState | None:
        """Return the longest known conversation that is a prefix of *payload*, whatever its header:
        first by identical entries, then by equal content. None if there is none."""
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
        """Store *state* as the latest conversation in place of *cached*, which it continues. Its
        payload, which may be large, is dropped."""
        stored, view = state.stored.rebase(state.stored.base), state.view.rebase(state.view.base)
        state = state._replace(stored=stored, view=view)
        with self._lock:
            rest = tuple(each for each in self._states if each is not cached)
            self._states = (state, *rest)[:MAX_CONVERSATIONS]

    @property
    def size(self) -> int:
        """Bytes of the latest JSON texts of these conversations, or of their entries if that is
        more."""
        return sum([max(state.size, ENTRY_BYTES * len(state.entries)) for state in self._states])

    def continuations_of(self, edits: Sequence[Edit]) -> list[ConversationState]:
        """Return the conversations that contain the histories of all *edits*."""
        return [state for state in self._states if all(map(state.stored.transcript.matches, edits))]

    def clear(self) -> None:
        """Forget all conversations, because their views may no longer be valid."""
        self._states = ()

    def _replace(self, state: ConversationState, new: ConversationState) -> None:
        with self._lock:
            self._states = tuple(new if each is state else each for each in self._states)

    def _longest_first(self) -> list[ConversationState]:
        return sorted(self._states, key=lambda state: -len(state.entries))


def fingerprints(entries: Sequence[Any], start: int) -> Sequence[Any]:
    """Return what identifies the entries from *start* on: fingerprints for a JSON text, else the
    entries themselves."""
    return entries.fingerprints(start) if isinstance(entries, JsonList) else entries[start:]


def copy_json(value: Any) -> Any:
    """Copy JSON-like data, sharing strings. A span is copied as its fingerprint to free its text.

    Raises `FormatError` for data that contains itself or is nested too deeply for recursion.
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


def put_lru(table: OrderedDict[K, V], key: K, value: V, most: float) -> None:
    """Put a value into *table* as its latest and drop the oldest beyond *most*."""
    table[key] = value
    table.move_to_end(key)
    while len(table) > most:
        table.popitem(last=False)


# --- a conversation that is given only what is new ----------------------------------------------


class Session:
    """A growing conversation. Each step costs only what was added. Made by `Compactor.session`.

    Append all messages of a step in one call (the assistant message with its tool calls, and their
    results), so that nothing is compacted between them. Entries are kept by reference and must not
    be changed afterwards.
    """

    def __init__(
        self,
        step: Callable[[ConversationState | None, Sequence[Any]], ConversationState],
        report: Callable[[View, Any], None],
        history: Sequence[Any] = (),
    ) -> None:
        """*step* takes a state and all entries of the conversation and returns the next state."""
        if isinstance(history, str | bytes):
            raise FormatError(
                "a session starts from a list of messages or a body; "
                "give its text to the compactor itself"
            )
        self._step, self._report, self._wires = step, report, list(history)
        self._state = step(None, self._wires)

    @property
    def view(self) -> View:
        """The view of the whole conversation."""
        return self._state.view

    def append(self, *entries: Any) -> View:
        """Add entries (messages in wire form), compact if due, and return the view of the whole
        conversation.

        Raises as a call of the compactor does. Then nothing was added.
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
        """Learn from the usage that the provider reported for the latest view, see
        `Compactor.report`."""
        self._report(self.view, usage)
