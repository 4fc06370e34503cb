"""An upstream's answer on its way to the client."""

import aiohttp

from refold.gateway.caller import Caller
from refold.gateway.opening import Opening
from refold.gateway.taps import Tap


async def copy(
    reply: aiohttp.ClientResponse, caller: Caller, opening: Opening | None = None, tap: Tap | None = None
) -> None:
    """Pass the body on as it arrives; where the upstream breaks off, so does this, and it is noted."""
    try:
        for piece in opening.pieces if opening else ():
            await _piece(piece, caller, tap)
        if reply.content.is_eof() and reply.content.exception() is None:  # all of it is here: the end goes with it
            await _last(reply.content.read_nowait(), caller, tap)
            return
        async for piece in reply.content.iter_any():
            await _piece(piece, caller, tap)
    except (aiohttp.ClientError, TimeoutError, OSError):
        caller.note.cut = True
    else:
        await caller.end()


async def _last(piece: bytes, caller: Caller, tap: Tap | None) -> None:
    await caller.end(piece)
    if tap is not None:
        tap.feed(piece)


async def _piece(piece: bytes, caller: Caller, tap: Tap | None) -> None:
    await caller.piece(piece)
    if tap is not None:
        tap.feed(piece)


def let_go(reply: aiohttp.ClientResponse) -> None:
    """Keep the connection where the answer was read to its end; else close it, which tells the upstream to stop."""
    if reply.content.at_eof():
        reply.release()
    else:
        reply.close()
