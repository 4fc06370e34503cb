"""A conversation whose tokens are asked for: counted as it would be sent."""

from refold.gateway.binding import is_unbound
from refold.gateway.caller import Caller
from refold.gateway.client import Client, Order
from refold.gateway.copying import copy
from refold.gateway.core import Core
from refold.gateway.opening import read_opening
from refold.gateway.traffic import Incoming, Outgoing
from refold.gateway.upstreams import Upstream
from refold.gateway.wire import Head, back, onward

_CODED = (b"content-encoding", b"content-md5")
"""Headers that are true of a body as it came alone."""
MENDED = 2
"""How often it is sent again without thinking that is refused (AN-12)."""


class Counting:
    """Answers what asks for the tokens of a conversation."""

    def __init__(self, client: Client, exchange: Core) -> None:
        self._client, self._exchange = client, exchange

    async def answer(self, head: Head, upstream: Upstream, incoming: Incoming, raw: bytes, caller: Caller) -> None:
        """Have counted what would be sent of *incoming*, whose body came as *raw*."""
        out = await self._exchange.counted(incoming)
        for left in range(MENDED, -1, -1):
            reply = await self._client.send(_order(head, upstream, incoming, out, raw))
            try:
                opening = await read_opening(reply, 0)
                again = None
                if left and opening.error and is_unbound(incoming.api, reply.status, opening.error):
                    again = await self._exchange.unbound(incoming, out, opening.error)
                if again is None:
                    _note(out, caller)
                    await caller.begin(reply.status, back(reply.headers))
                    await copy(reply, caller, opening)
                    return
            finally:
                reply.release()
            out = again


def _order(head: Head, upstream: Upstream, incoming: Incoming, out: Outgoing, raw: bytes) -> Order:
    """The very bytes that came, unless something else is shown."""
    as_it_came = out.body is incoming.body
    ours = [(name.encode(), value.encode()) for name, value in out.headers]
    drop = {name for name, _ in ours}.union(() if as_it_came else _CODED)
    headers = [*onward(head.headers, drop=drop), *ours]
    target = f"{incoming.path}?{head.query}" if head.query else incoming.path
    return Order(upstream, head.method, target, headers, raw if as_it_came else out.body)


def _note(out: Outgoing, caller: Caller) -> None:
    note = caller.note
    note.outcome, note.reason, note.edits = out.outcome, out.reason, len(out.edits)
    note.before, note.after = out.before, out.after
