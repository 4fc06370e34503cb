"""The conversations that a gateway knows, least recently used ones dropped first."""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import Lock
from time import monotonic
from typing import NamedTuple

from refold.codecs.codec import Payload
from refold.compactor.compactor import Compactor
from refold.compactor.pins import Pins
from refold.core.profile import CountedTranscript
from refold.core.view import View
from refold.edits import Edit
from refold.gateway.conversations.workers import Job, Prefetch
from refold.messages import Message
from refold.stores.store import LedgerRow, MemoryStore
from refold.transcript import answer_hash, count_common_messages

MAX_KNOWN_HISTORIES = 8
"""Maximum number of histories remembered of one conversation."""
POLL_SECONDS = 0.1
"""Interval of checks whether a lock is still worth waiting for."""


class ConversationBusy(TimeoutError):  # noqa: N818 - it says what it is
    """Another request of the conversation is being worked on."""


def compute_ratio(view: View) -> float:
    """Return the factor from estimated to expected tokens of the request that *view* makes."""
    return view.tokens / max(1, view.tokens_uncalibrated)


def count_unedited(view: View) -> int:
    """Return the expected tokens of the whole request without its edits, by the factor of the
    edited one, so that the parts of a request add up."""
    return round(compute_ratio(view) * (view.profile.fixed_tokens + view.base.total_tokens))


class LatestRequest(NamedTuple):
    """A conversation's latest request, without its payload."""

    model: str
    upstream: str
    sent_at: float
    """Seconds since 1970."""
    view: View
    unseen_tokens: int = 0
    """Estimated tokens of system prompt and tools that *view* lacks."""
    edited_at: float = 0.0
    """Time of the last change to its edits by hand, in seconds since 1970."""
    ratio: float = 1.0
    """Factor from estimated to expected tokens when it was sent."""


@dataclass(eq=False)
class History:
    """What identifies a conversation: its first entry, its answers, the tips of its histories."""

    first_entry: bytes = b""
    """Hash of the first entry; empty if the client names the conversation."""
    tips: tuple[tuple[int, str], ...] = ()
    """Length and tip of the latest histories, the newest first."""
    latest: CountedTranscript | None = None
    opened: Payload | None = None
    """The first request, until a turn has succeeded."""

    @property
    def messages(self) -> Sequence[Message]:
        """Messages of the latest history."""
        return self.latest.transcript.messages if self.latest is not None else ()

    @property
    def answer_hashes(self) -> Iterable[bytes | None]:
        """`answer_hash` of each message of the latest history."""
        if self.latest is not None:
            return self.latest.map_cached(answer_hash)
        return map(answer_hash, self.opened.decode()) if self.opened is not None else ()

    def is_continued_by(self, view: View) -> bool:
        """Return whether one of the known histories is a prefix of that of *view*."""
        tips = view.transcript.tips
        return any(0 < length < len(tips) and tips[length] == tip for length, tip in self.tips)

    def find_shared_length(self, view: View) -> int | None:
        """Return the number of messages that *view* and the latest history have in common at the
        start; None without a latest history."""
        if self.latest is None:
            return None
        return count_common_messages(view.transcript.tips, self.latest.transcript.tips)

    def remember(self, view: View) -> None:
        """Store the history of *view* as the latest."""
        newest = len(view.transcript), view.transcript.tips[-1]
        self.tips = (newest, *(tip for tip in self.tips if tip != newest))[:MAX_KNOWN_HISTORIES]
        self.latest, self.opened = view.base, None


@dataclass(eq=False)
class SentEdits:
    """The edits that a conversation's requests were shown with, and their state in the store."""

    lock: Lock = field(default_factory=Lock)
    """Guards all fields. It is held for longer only while the store fails."""
    store: MemoryStore = field(default_factory=MemoryStore)
    """Every edit that was shown, for use if the store fails."""
    ids: set[str] = field(default_factory=set)
    unsaved: list[Edit] = field(default_factory=list)
    """Edits that the store could not take yet."""
    unsaved_rows: list[LedgerRow] = field(default_factory=list)
    """Ledger rows about these edits."""
    is_lost: bool = False
    """Whether the store has lost this conversation's edits."""
    is_interrupted: bool = False
    """Whether a turn failed and may have saved edits."""
    results_loaded_at: float = 0.0
    """Time of the last load of decisions about single results, in seconds since 1970. Loading marks
    them as used in the store."""

    @property
    def is_unsaved(self) -> bool:
        """Whether anything must still be written to the store."""
        return bool(self.unsaved or self.unsaved_rows or self.is_lost)

    def select_new(self, view: View) -> list[Edit]:
        """Return the edits of *view* that no request has been shown with yet."""
        return [edit for edit in view.edits if edit.id not in self.ids]

    def add(self, edits: Sequence[Edit]) -> None:
        """Record that a request is shown with *edits*."""
        self.store.save(edits)
        self.ids.update(edit.id for edit in edits)

    def remove(self, ids: set[str]) -> None:
        """Stop showing these edits, even if the store fails."""
        self.store.remove(ids)
        self.unsaved = [edit for edit in self.unsaved if edit.id not in ids]
        self.ids -= ids


@dataclass(eq=False)
class CacheUse:
    """A conversation's use of its provider's cache, and how long that keeps it."""

    answered_at: float | None = None
    """Time of the upstream's last answer, in seconds since 1970."""
    pauses: deque[float] = field(default_factory=lambda: deque(maxlen=200))
    """Seconds between an answer and the next request, newest last."""
    keeps_hour: bool = False
    """Whether it is cached for an hour."""


class Refusal(NamedTuple):
    """A request that was too long for its model."""

    model: str
    tokens: int
    """Estimated tokens of the smallest one."""


@dataclass(eq=False)
class Conversation:
    """One conversation: its identity, its compactor, and the lock held by the request that works on
    it."""

    name: str
    """A hash that reveals nothing that was sent."""
    family: str
    """Hash of what it shares with others of its caller: the salt and the client's key."""
    tenant: str
    compactor: Compactor
    target_tokens: int = 0
    """Target of its strategies."""
    pins: Pins | None = field(default=None, repr=False)
    lock: Lock = field(default_factory=Lock, repr=False)
    history: History = field(default_factory=History, repr=False)
    shown: SentEdits = field(default_factory=SentEdits, repr=False)
    prefetch: Prefetch = field(default_factory=Prefetch, repr=False)
    cache: CacheUse = field(default_factory=CacheUse, repr=False)
    latest: LatestRequest | None = field(default=None, repr=False)
    size_bytes: int = 0
    """Its share of `Settings.known_bytes`."""
    baseline_tokens: int | None = None
    """Tokens of the request after the last compaction, or when one was last considered."""
    engine_generations: range = range(1)
    """Numbers of the stretches between compactions that its engine holds, the latest last."""
    refusal: Refusal | None = None
    """Smallest request that was too long for a model whose provider named no limit."""
    stuck_job: Job | None = field(default=None, repr=False)
    """A job that was abandoned while it waited for the store. It still holds `lock`."""

    @property
    def api(self) -> str:
        """Wire format of its requests."""
        format = self.compactor.settings.format
        return format.NAME if format is not None and not isinstance(format, str) else format or ""

    @property
    def is_stuck(self) -> bool:
        """Whether an abandoned job still waits for the store."""
        return self.stuck_job is not None and not self.stuck_job.has_ended

    @contextmanager
    def hold(self, seconds: float, *, memory: bool = False) -> Iterator[None]:
        """Lock the conversation, or with *memory* only its `shown` edits, waiting at most
        *seconds*.

        Raises `ConversationBusy`, at once if the holder is an abandoned job that waits for the
        store.
        """
        lock, until = self.shown.lock if memory else self.lock, monotonic() + seconds
        while not lock.acquire(timeout=max(0.0, min(POLL_SECONDS, until - monotonic()))):
            if monotonic() >= until or (self.is_stuck and not memory):
                raise ConversationBusy
        try:
            yield
        finally:
            lock.release()

    def without_history(self) -> "Conversation":
        """Return a copy to keep when the conversation is forgotten: unsaved edits and the locks.
        Its history is kept only if it must be written again."""
        store = MemoryStore()
        return Conversation(
            self.name,
            self.family,
            self.tenant,
            self.compactor.with_settings(store=store),  # a new compactor without histories
            pins=self.pins,
            lock=self.lock,
            shown=replace(self.shown, store=store, ids=set()),
            latest=self.latest if self.shown.is_lost else None,
            stuck_job=self.stuck_job,
        )


class AnswerContext(NamedTuple):
    """What an `Outgoing` carries for the handling of its answer."""

    conversation: Conversation
    view: View


class Conversations:
    """Conversations by name, at most *most* of them and *known_bytes* together. The least recently
    used are forgotten first."""

    def __init__(self, most: int, known_bytes: int) -> None:
        self._most, self._known_bytes, self._lock = most, known_bytes, Lock()
        self._by_name = OrderedDict[str, Conversation]()
        self._forgotten = list[Conversation]()
        """Forgotten conversations with unsaved edits."""

    def __len__(self) -> int:
        return len(self._by_name)

    def __iter__(self) -> Iterator[Conversation]:
        with self._lock:
            return iter(list(self._by_name.values()))

    def get(self, name: str) -> Conversation | None:
        """Return the conversation with this name; None if it is not known."""
        return self._by_name.get(name)

    def of_family(self, name: str) -> list[Conversation]:
        """Return the conversations of this family, the last used first."""
        return [each for each in reversed(list(self)) if each.family == name]

    def get_or_create(
        self, name: str, size_bytes: int, create: Callable[[], Conversation]
    ) -> Conversation:
        """Return the conversation with this name, created if unknown, and update its size:
        *size_bytes* of the latest request, or those of all histories in its compactor if they are
        more."""
        with self._lock:
            conversation = self._by_name.get(name) or create()
            conversation.size_bytes = max(size_bytes, conversation.compactor.cached_bytes)
            self._by_name[name] = conversation
            self._by_name.move_to_end(name)
            excess = sum(each.size_bytes for each in self._by_name.values()) - self._known_bytes
            while len(self._by_name) > 1 and (excess > 0 or len(self._by_name) > self._most):
                oldest = self._by_name.popitem(last=False)[1]
                excess -= oldest.size_bytes
                if oldest.shown.is_unsaved:
                    self._forgotten.append(oldest.without_history())
            return conversation

    def list_unsaved(self) -> list[Conversation]:
        """Return the conversations with unsaved edits, including forgotten ones."""
        with self._lock:
            every = (*self._forgotten, *self._by_name.values())
            return [conversation for conversation in every if conversation.shown.is_unsaved]

    def drop_saved(self) -> None:
        """Drop forgotten conversations whose edits have been saved."""
        with self._lock:
            self._forgotten = [each for each in self._forgotten if each.shown.is_unsaved]
