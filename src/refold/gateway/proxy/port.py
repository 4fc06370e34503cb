"""What the HTTP side asks of the gateway's core; `Pipeline` is it."""

from typing import Any, Protocol

from refold.gateway.messages import Incoming, Outgoing
from refold.gateway.ops.metrics import Counters


class Core(Protocol):
    """Prepares requests and learns from answers, without HTTP."""

    @property
    def counters(self) -> Counters:
        """Where everything is counted."""

    async def prepare(self, incoming: Incoming) -> Outgoing:
        """What to send. Never raises."""

    async def prepare_tentatively(self, incoming: Incoming) -> Outgoing:
        """What to send for a caller who may not be who they say; nothing of it is kept. Never raises."""

    async def commit(self, outgoing: Outgoing) -> None:
        """The caller of what was `tried` is believed. Never raises."""

    async def prepare_count(self, incoming: Incoming) -> Outgoing:
        """What is to be counted in place of a conversation whose tokens are asked for. Never raises."""

    async def shrink(self, incoming: Incoming, outgoing: Outgoing, error: bytes) -> Outgoing | None:
        """Something smaller after a context error, or None."""

    async def drop_thinking(self, incoming: Incoming, outgoing: Outgoing, error: bytes) -> Outgoing | None:
        """The same without signed thinking that its upstream refuses, or None."""

    def record_answer(self, incoming: Incoming, outgoing: Outgoing, usage: Any, status: int = 200) -> None:
        """The upstream has answered, with this status."""

    async def aclose(self) -> None:
        """The gateway stops."""
