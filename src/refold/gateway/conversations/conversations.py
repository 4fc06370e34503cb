"""The conversations that a gateway knows, the latest used ones."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from threading import Lock
from time import monotonic
from typing import NamedTuple

from refold.compactor.compactor import Compactor
from refold.compactor.preview import Preview
from refold.core.view import View
from refold.edits import Edit
from refold.gateway.conversations.workers import Job
from refold.messages import Message
from refold.stores.memory import MemoryStore
from refold.stores.store import Row
from refold.transcript import digest

KNOWN_FORKS = 8
"""Ends of histories that are known of one conversation: its forks."""
POLL_SECONDS = 0.1
"""Seconds after which is looked whether it is worth to wait on."""
DISTINCT_LENGTH = 40
"""Characters from which on an answer is taken to be given once."""


def answer_hash(message: Message) -> bytes | None:
    """A hash of what no other model would have answered, as a rule: calls, or so many words. None for anything else."""
    said = message.role == "assistant" and (message.calls or len(message.text) >= DISTINCT_LENGTH)
    return digest(message) if said else None


class LatestRequest(NamedTuple):
    """A conversation's latest request, without what it came in."""

    model: str
    upstream: str
    when: float
    """Seconds since 1970."""
    before: int
    """Estimated tokens as it came."""
    view: View


@dataclass(eq=False)
class Conversation:
    """One conversation. Who holds `lock` may change it."""

    name: str
    """A hash; nothing that was sent can be read from it."""
    family: str
    """A hash of what it shares with others of its caller: the salt and the key that the client sends."""
    tenant: str
    compactor: Compactor
    lock: Lock = field(default_factory=Lock, repr=False)
    memory: Lock = field(default_factory=Lock, repr=False)
    """Who holds it may change what is kept in memory for when the store fails; held for longer only without the store."""
    spare: MemoryStore = field(default_factory=MemoryStore, repr=False)
    """Every edit that was shown, for when the store fails."""
    noted: set[str] = field(default_factory=set, repr=False)
    """Ids of the edits in `spare`."""
    unsaved: list[Edit] = field(default_factory=list, repr=False)
    """Edits that were shown and are not in the store yet, since it failed."""
    unbooked: list[Row] = field(default_factory=list, repr=False)
    """Rows about them, for the ledger."""
    is_lost: bool = False
    """Has the store lost what it had of this?"""
    stuck: Job | None = field(default=None, repr=False)
    """What was given up while it waited for the store."""
    torn: bool = False
    """Did a turn fail, of which it is not known what it saved?"""
    opening: bytes = b""
    """A hash of what it began with; empty where its client names it."""
    heard: Iterable[bytes | None] = ()
    """What its model answered in the latest history: `answer_hash` of each message."""
    ends: tuple[tuple[int, str], ...] = ()
    """Length and tip of the latest histories."""
    recent: Sequence[Message] = ()
    """The latest history."""
    target: int = 0
    """Tokens that its strategies come down to."""
    base: int | None = None
    """Tokens of the request after the last compaction, or the last time that one was thought of."""
    used: float | None = None
    """When the upstream answered last, in seconds since 1970."""
    prepared: Preview | None = None
    """A compaction that was made ahead and waits to be used."""
    preparing: bool = False
    wish: Callable[[], Preview | None] | None = None
    """Makes a compaction ahead, when the request is under way."""
    latest: LatestRequest | None = None
    calls: int = 0
    """Requests that were sent."""
    spared: int = 0
    """Estimated tokens that those were smaller by, all together."""
    size: int = 0
    """Bytes that it counts for: those of its latest request, or more where that has very many short entries."""
    refused: tuple[str, int] | None = None
    """A model, and the tokens of the smallest request that was too long for it, where its provider named no limit."""

    @property
    def api(self) -> str:
        """The wire format of its requests."""
        format = self.compactor.format
        return format.NAME if format is not None and not isinstance(format, str) else format or ""

    @property
    def is_stuck(self) -> bool:
        """Does somebody wait for the store still, who was given up?"""
        return self.stuck is not None and not self.stuck.ended

    @property
    def is_unsaved(self) -> bool:
        """Is there anything that the store has to take yet?"""
        return bool(self.unsaved or self.unbooked or self.is_lost)

    def count(self, spared: int) -> None:
        """One more request was sent, smaller by so many tokens."""
        self.calls += 1
        self.spared += max(0, spared)

    def emptied(self) -> "Conversation":
        """What is left of it when it is forgotten: what the store has to take, and the locks."""
        left = Conversation(
            self.name, self.family, self.tenant, self.compactor, self.lock, self.memory
        )
        left.unsaved, left.unbooked, left.stuck = self.unsaved, self.unbooked, self.stuck
        left.latest, left.is_lost = self.latest, self.is_lost
        return left

    def continues(self, view: View) -> bool:
        """Does *view* continue a history that was seen in this conversation?"""
        tips = view.transcript.tips
        return any(0 < length < len(tips) and tips[length] == tip for length, tip in self.ends)

    def remember(self, view: View) -> None:
        """Take *view* as the latest history."""
        transcript = view.transcript
        end = len(transcript), transcript.tips[-1]
        self.ends = (end, *(other for other in self.ends if other != end))[:KNOWN_FORKS]
        self.recent, self.heard = transcript.messages, view.ground.column(answer_hash)


class Conversations:
    """Conversations by name. Of more than *most*, or of *room* bytes, those that were not used for longest are forgotten."""

    def __init__(self, most: int, room: int) -> None:
        self._most, self._room, self._known, self._lock = (
            most,
            room,
            OrderedDict[str, Conversation](),
            Lock(),
        )
        self._waiting = list[Conversation]()
        """Forgotten ones that have something for the store still."""

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[Conversation]:
        with self._lock:
            return iter(list(self._known.values()))

    def family(self, name: str) -> list[Conversation]:
        """The conversations of this family, the latest used first."""
        return [thread for thread in reversed(list(self)) if thread.family == name]

    def find(self, name: str, size: int, make: Callable[[], Conversation]) -> Conversation:
        """The conversation of this name, whose latest request has *size* bytes; made where it is not known."""
        with self._lock:
            thread = self._known.get(name) or make()
            thread.size = size
            self._known[name] = thread
            self._known.move_to_end(name)
            over = sum(one.size for one in self._known.values()) - self._room
            while len(self._known) > 1 and (over > 0 or len(self._known) > self._most):
                gone = self._known.popitem(last=False)[1]
                over -= gone.size
                if gone.is_unsaved:
                    self._waiting.append(gone.emptied())
            return thread

    def unsaved(self) -> list[Conversation]:
        """Those that have something for the store, which it could not take; forgotten ones too."""
        with self._lock:
            return [one for one in (*self._waiting, *self._known.values()) if one.is_unsaved]

    def forget_saved(self) -> None:
        """Forget those that were only waited for by the store."""
        with self._lock:
            self._waiting = [one for one in self._waiting if one.is_unsaved]


class ConversationBusy(TimeoutError):  # noqa: N818 - it says what it is
    """Another request of the same conversation is being worked on."""


class Held:
    """A conversation's lock, or that of what is kept of it in *memory*, waited for so many seconds. Raises `ConversationBusy`, also
    where who holds it waits for the store and was given up."""

    def __init__(self, thread: Conversation, seconds: float, *, memory: bool = False) -> None:
        self._thread, self._seconds, self._memory = thread, seconds, memory
        self._lock = thread.memory if memory else thread.lock

    def __enter__(self) -> None:
        until = monotonic() + self._seconds
        while not self._lock.acquire(timeout=max(0.0, min(POLL_SECONDS, until - monotonic()))):
            if monotonic() >= until or (self._thread.is_stuck and not self._memory):
                raise ConversationBusy

    def __exit__(self, *_: object) -> None:
        self._lock.release()
