"""An upstream's answer on its way to the client."""

import asyncio

from refold.gateway.http.caller import Caller
from refold.gateway.http.peek import ResponseStart
from refold.gateway.http.response import Response
from refold.gateway.http.usage_tap import UsageTap


async def copy_body(reply: Response, caller: Caller, opening: ResponseStart | None = None, tap: UsageTap | None = None) -> None:
    """Pass the body on as it arrives; where the upstream breaks off, so does this, and it is noted."""
    try:
        for piece in opening.pieces if opening else ():
            await _piece(piece, caller, tap)
        while not reply.is_exhausted:
            piece = await reply.read()
            if not reply.is_exhausted:
                await _piece(piece, caller, tap)
            else:  # the end goes with it
                await _last(piece, caller, tap)
                return
    except OSError:
        caller.log_entry.upstream_broke_off = True
    else:
        await caller.end()


async def _last(piece: bytes, caller: Caller, tap: UsageTap | None) -> None:
    await caller.end(piece)
    await _listen(tap, piece)


async def _piece(piece: bytes, caller: Caller, tap: UsageTap | None) -> None:
    await caller.write(piece)
    await _listen(tap, piece)


async def _listen(tap: UsageTap | None, piece: bytes) -> None:
    """What unpacks to much is listened to in steps, between which others are served."""
    if tap is not None:
        for _ in tap.feed_in_steps(piece):
            await asyncio.sleep(0)
