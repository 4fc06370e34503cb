"""What the operations work with."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from secrets import token_hex
from threading import Lock
from typing import NamedTuple, TypeVar

from refold.gateway.config import Config
from refold.gateway.exchange import Exchange
from refold.gateway.threads import Thread
from refold.gateway.wire import Head
from refold.memory import MemorySink
from refold.presets.soft_hard import SoftHardCompactor
from refold.presets.soft_hard_commands import Dispatcher
from refold.presets.soft_hard_said import Conversations
from refold.preview import Preview

T = TypeVar("T")
KEPT = 16
"""Previews that wait to be accepted; of more the oldest is forgotten. Each holds a conversation."""


class Offer(NamedTuple):
    """A preview that was shown to somebody."""

    thread: Thread
    preview: Preview
    beside: int = 0
    """Estimated tokens of system prompt and tools that the preview's views lack."""
    words: bool = False
    """May what was said be told to who asks?"""


@dataclass(frozen=True)
class Desk:
    """The gateway's core, as the operations see it. Work goes aside from one event loop."""

    exchange: Exchange
    whose: Callable[[Head], str] = field(repr=False)
    """Whose conversation a request with this head is of."""
    commands: Dispatcher
    """The four commands of the soft/hard preset."""
    offers: OrderedDict[str, Offer] = field(default_factory=OrderedDict, repr=False)
    _lock: Lock = field(default_factory=Lock, repr=False)

    @classmethod
    def of(cls, exchange: Exchange, config: Config, memory: Callable[[str], MemorySink] | None = None) -> "Desk":
        """The desk before *exchange*: its store, and its model for summaries. *memory* makes of an agent's id the sink
        for what `compact` hides."""
        model = exchange.ask if exchange.settings.ask is not None else None
        none = Conversations(most=0)  # the gateway keeps no messages
        desk = SoftHardCompactor(store=exchange.store, model=model, memory=memory, conversations=none)
        tenants, upstreams = config.tenants, config.upstreams

        def whose(head: Head) -> str:
            who = tenants.of(head, upstreams)
            return who.claimed or who.own  # who asks has the admin token, and so is believed

        return cls(exchange, whose, Dispatcher(desk))

    async def aside(self, work: Callable[[], T]) -> T:
        """The outcome of *work*, done in a thread. Raises `Late`, and what *work* raises."""
        return await self.exchange.aside(work)

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
