"""What the operations work with."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from secrets import token_hex
from threading import Lock
from typing import NamedTuple, TypeVar

from refold.compactor.preview import Preview
from refold.errors import EditError, FormatError, RefoldError, StoreError
from refold.gateway.config.config import Config
from refold.gateway.conversations.conversations import Conversation, ConversationBusy
from refold.gateway.conversations.workers import DeadlineExceeded
from refold.gateway.http.request import RequestHead
from refold.gateway.pipeline.pipeline import Pipeline
from refold.memory import MemorySink
from refold.presets.soft_hard import SoftHardCompactor
from refold.presets.soft_hard_commands import Dispatcher
from refold.presets.soft_hard_said import Conversations

T = TypeVar("T")
KEPT = 16
"""Previews that wait to be accepted; of more the oldest is forgotten. Each holds a conversation."""


class Offer(NamedTuple):
    """A preview that was shown to somebody."""

    thread: Conversation
    preview: Preview
    beside: int = 0
    """Estimated tokens of system prompt and tools that the preview's views lack."""
    words: bool = False
    """May what was said be told to who asks?"""


@dataclass(frozen=True)
class Desk:
    """The gateway's core, as the operations see it. Work goes aside from one event loop."""

    pipeline: Pipeline
    whose: Callable[[RequestHead], str] = field(repr=False)
    """Whose conversation a request with this head is of."""
    commands: Dispatcher
    """The four commands of the soft/hard preset."""
    offers: OrderedDict[str, Offer] = field(default_factory=OrderedDict, repr=False)
    _lock: Lock = field(default_factory=Lock, repr=False)

    @classmethod
    def of(cls, pipeline: Pipeline, config: Config, memory: Callable[[str], MemorySink] | None = None) -> "Desk":
        """The desk before *pipeline*: its store, and its model for summaries. *memory* makes of an agent's id the sink
        for what `compact` hides."""
        model = pipeline.ask if pipeline.settings.ask is not None else None
        none = Conversations(most=0)  # the gateway keeps no messages
        desk = SoftHardCompactor(store=pipeline.store, model=model, memory=memory, conversations=none)
        tenants, upstreams = config.tenants, config.upstreams

        def whose(head: RequestHead) -> str:
            who = tenants.identify(head, upstreams)
            return who.claimed or who.credential  # who asks has the admin token, and so is believed

        return cls(pipeline, whose, Dispatcher(desk))

    async def aside(self, work: Callable[[], T]) -> T:
        """The outcome of *work*, done in a thread. Raises `Late`, and what *work* raises."""
        return await self.pipeline.run_in_background(work)

    def offer(self, offer: Offer) -> str:
        """Keep a preview until it is accepted: its name."""
        name = token_hex(16)
        self.put_back(name, offer)
        return name

    def take(self, name: str) -> Offer | None:
        """The preview of this name, which nobody else gets then."""
        with self._lock:
            return self.offers.pop(name, None)

    def put_back(self, name: str, offer: Offer) -> None:
        """It waits again, as the latest."""
        with self._lock:
            self.offers[name] = offer
            while len(self.offers) > KEPT:
                self.offers.popitem(last=False)


class Problem(Exception):  # noqa: N818 - it is an answer, not an error
    """An answer other than 200: a status, a word for programs and a sentence for people."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


STATUSES = {
    400: "The request is not what the document says: no JSON, a field missing, of another type, or unknown.",
    401: "The admin token is missing or wrong.",
    404: "This gateway knows no such session, preview or edit.",
    405: "The path takes another method.",
    408: "The body did not come.",
    409: "It contradicts what is there: the conversation is being worked on, has changed, or its history must be given.",
    413: "The body is larger than `limits.body_bytes`.",
    415: "A body is JSON, not compressed.",
    422: "The request is in order, but what it holds is not: no conversation of any API, figures that contradict one another.",
    503: "The store failed, it took too long, or too much is asked at once: try again.",
}
"""Every status that says that an operation was not done, and what it means."""


def problem_of(error: Exception) -> Problem | None:
    """The answer to what an operation raised; None for what nobody foresaw."""
    match error:
        case Problem():
            return error
        case EditError():
            return Problem(409, "conflict", str(error))
        case FormatError():
            return Problem(422, "unreadable", str(error))
        case StoreError():
            return Problem(503, "store_failed", "The store failed.")
        case DeadlineExceeded():
            return Problem(503, "late", "It took too long.")
        case ConversationBusy():
            return Problem(409, "busy", "A request of this conversation is being worked on: try again.")
        case RefoldError():
            return Problem(422, "refused", str(error))
        case _:
            return None
