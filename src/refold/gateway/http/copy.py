"""An upstream's answer on its way to the client."""

import asyncio

from refold.gateway.http.caller import Caller
from refold.gateway.http.peek import Opening
from refold.gateway.http.response import Reply
from refold.gateway.http.usage_tap import Tap


async def copy(reply: Reply, caller: Caller, opening: Opening | None = None, tap: Tap | None = None) -> None:
    """Pass the body on as it arrives; where the upstream breaks off, so does this, and it is noted."""
    try:
        for piece in opening.pieces if opening else ():
            await _piece(piece, caller, tap)
        while not reply.is_read:
            piece = await reply.piece()
            if not reply.is_read:
                await _piece(piece, caller, tap)
            else:  # the end goes with it
                await _last(piece, caller, tap)
                return
    except OSError:
        caller.note.cut = True
    else:
        await caller.end()


async def _last(piece: bytes, caller: Caller, tap: Tap | None) -> None:
    await caller.end(piece)
    await _listen(tap, piece)


async def _piece(piece: bytes, caller: Caller, tap: Tap | None) -> None:
    await caller.piece(piece)
    await _listen(tap, piece)


async def _listen(tap: Tap | None, piece: bytes) -> None:
    """What unpacks to much is listened to in steps, between which others are served."""
    if tap is not None:
        for _ in tap.steps(piece):
            await asyncio.sleep(0)
