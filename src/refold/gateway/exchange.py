"""One request's way through the gateway, without HTTP: decode, identify, load, compact, save, encode."""

from typing import Any

from refold.gateway.counters import Counters
from refold.gateway.settings import Settings
from refold.gateway.traffic import Incoming, Outgoing, Refusal
from refold.store import Store

__all__ = ["Counters", "Exchange", "Incoming", "Outgoing", "Refusal", "Settings"]


class Exchange:
    """Prepares requests for their upstreams and learns from the answers. One event loop, one process."""

    def __init__(self, settings: Settings, store: Store, counters: Counters | None = None) -> None:
        self.settings, self.store = settings, store
        self.counters = counters or Counters()

    async def prepare(self, incoming: Incoming) -> Outgoing:
        """What to send for *incoming*. Never raises: what cannot be read or decided goes through unchanged."""
        return Outgoing(incoming.body)

    async def harder(self, incoming: Incoming, outgoing: Outgoing, error: bytes) -> Outgoing | None:
        """After the upstream's context error (its body): a smaller request to send once more, or None."""
        return None

    def finished(self, incoming: Incoming, outgoing: Outgoing, usage: Any) -> None:
        """Tell what the upstream reported for *outgoing*: its usage object as parsed, or None."""

    async def aclose(self) -> None:
        """Stop background work."""
