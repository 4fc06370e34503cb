"""One request on its way to an upstream, what is sent of it, and how its response is copied
back."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from refold.gateway.http.caller import Caller
from refold.gateway.http.client import UpstreamRequest
from refold.gateway.http.connection import Response
from refold.gateway.http.keys import redact_keys
from refold.gateway.http.peek import ResponseStart
from refold.gateway.http.request import (
    RequestHead,
    decode_headers,
    encode_headers,
    upstream_headers,
)
from refold.gateway.http.usage_tap import UsageTap
from refold.gateway.messages import Headers, Incoming, Outgoing
from refold.gateway.tenants import Tenant
from refold.gateway.upstreams import Upstream

_BODY_HEADERS = {b"content-encoding", b"content-md5"}
"""Headers that are true only of the body as it came."""


@dataclass(slots=True)
class Call:
    """A request on its way."""

    head: RequestHead
    """Its path is without the upstream's prefix."""
    api: str
    """The API of a request for an answer of a model; empty for every other request."""
    caller: Caller
    upstream: Upstream
    raw: bytes | AsyncIterator[bytes] | None
    """The body as it came, compressed if it was; an iterator if it is passed on while it
    arrives."""
    started: float
    """When its body had come, in seconds."""
    trace_headers: Headers = ()
    """Headers that name our span; empty if nothing is traced."""
    incoming: Incoming | None = None
    outgoing: Outgoing | None = None
    """Both None for a request that passes through unread."""
    tenant: Tenant | None = None
    is_tentative: bool = False
    """Is the tenant only claimed? Then nothing is kept, and no answer passed on, before the
    upstream has taken the token (C7)."""
    tap: UsageTap | None = None
    retries: list[str] = field(default_factory=list)
    """After which refusals it was changed and sent again."""

    def make_incoming(self, api: str, body: bytes, credential: str) -> Incoming:
        """Return the request, with its *body* decoded, as the pipeline takes it."""
        headers, target = decode_headers(self.head.headers), redact_keys(self.head.target)
        return Incoming(api, self.upstream.name, target, headers, body, credential)

    def request(self) -> UpstreamRequest:
        """Return what goes to the upstream: the very bytes that came, unless the pipeline changed
        them."""
        body, ours = self.raw, encode_headers(self.trace_headers)
        drop = {b"tracestate"} if self.trace_headers else set[bytes]()
        if self.incoming is not None and self.outgoing is not None:
            ours += encode_headers(self.outgoing.headers)
            if self.outgoing.body is not self.incoming.body:
                body = self.outgoing.body
                drop |= _BODY_HEADERS
        elif body is not None and not isinstance(body, bytes) and self.head.length is not None:
            ours.append((b"content-length", b"%d" % self.head.length))
        drop.update([name for name, _ in ours])
        headers = [*upstream_headers(self.head.headers, drop=drop), *ours]
        return UpstreamRequest(self.upstream, self.head.method, self.head.target, headers, body)

    def edit_headers(self) -> Headers:
        """Return the headers that tell the client what was edited; none if nothing was counted."""
        outgoing = self.outgoing
        if not self.api or outgoing is None or not (outgoing.edits or outgoing.tokens_before):
            return ()
        return (
            ("refold-edits", str(len(outgoing.edits))),
            ("refold-tokens-before", str(outgoing.tokens_before)),
            ("refold-tokens-after", str(outgoing.tokens_after)),
        )


async def copy_body(
    response: Response,
    caller: Caller,
    start: ResponseStart | None = None,
    tap: UsageTap | None = None,
) -> None:
    """Copy a body to the client as it arrives. If the upstream breaks off, so does this, and it is
    logged."""
    try:
        for piece in start.pieces if start else ():
            await caller.write(piece)
            await _feed(tap, piece)
        while not response.is_exhausted:
            piece = await response.read()
            if not response.is_exhausted:
                await caller.write(piece)
                await _feed(tap, piece)
            else:  # the end goes with the last piece
                await caller.end(piece)
                await _feed(tap, piece)
                return
    except OSError:
        caller.log_entry.upstream_broke_off = True
    else:
        await caller.end()


async def _feed(tap: UsageTap | None, piece: bytes) -> None:
    """Feed the tap in steps, between which others are served: a small piece may unpack to a large
    one."""
    if tap is not None:
        for _ in tap.feed(piece):
            await asyncio.sleep(0)
