"""Requests that are not for an answer of a model: passed through unread, but for the model that some of them name, and
conversations whose tokens are to be counted."""

import asyncio
from collections.abc import AsyncIterator

from refold.gateway.config.config import Config
from refold.gateway.http.body import Receive, iter_body, read_body
from refold.gateway.http.caller import Caller, cancel_on_disconnect
from refold.gateway.http.client import HTTPClient, UpstreamRequest
from refold.gateway.http.copy import copy_body
from refold.gateway.http.encodings import DecodingThreads
from refold.gateway.http.peek import peek
from refold.gateway.http.request import (
    RequestHead,
    candidate_apis,
    client_headers,
    decode_header,
    decode_headers,
    upstream_headers,
)
from refold.gateway.http.request_model import parse_object, request_model
from refold.gateway.http.response import Response
from refold.gateway.messages import Incoming, Outgoing, is_auxiliary, is_token_count
from refold.gateway.policy.upstream_errors import is_thinking_refused
from refold.gateway.proxy.port import Core
from refold.gateway.tenants import TenantResolver, has_key
from refold.gateway.upstreams import Upstream, choose_upstream

_CODED = (b"content-encoding", b"content-md5")
"""Headers that are true of a body as it came alone."""
MENDED = 2
"""How often it is sent again without thinking that is refused (AN-12)."""


class Counting:
    """Answers what asks for the tokens of a conversation."""

    def __init__(self, client: HTTPClient, pipeline: Core) -> None:
        self._client, self._pipeline = client, pipeline

    async def answer(self, head: RequestHead, upstream: Upstream, incoming: Incoming, raw: bytes, caller: Caller) -> None:
        """Have counted what would be sent of *incoming*, whose body came as *raw*."""
        out = await self._pipeline.prepare_count(incoming)
        for left in range(MENDED, -1, -1):
            reply = await self._client.send(_order(head, upstream, incoming, out, raw))
            try:
                opening = await peek(reply, 0)
                again = None
                if left and opening.error and is_thinking_refused(incoming.api, reply.status, opening.error):
                    again = await self._pipeline.drop_thinking(incoming, out, opening.error)
                if again is None:
                    _note(out, caller)
                    await caller.start(reply.status, client_headers(reply.headers))
                    await copy_body(reply, caller, opening)
                    return
            finally:
                reply.release()
            out = again


def _order(head: RequestHead, upstream: Upstream, incoming: Incoming, out: Outgoing, raw: bytes) -> UpstreamRequest:
    """The very bytes that came, unless something else is shown."""
    as_it_came = out.body is incoming.body
    ours = [(name.encode(), value.encode()) for name, value in out.headers]
    drop = {name for name, _ in ours}.union(() if as_it_came else _CODED)
    headers = [*upstream_headers(head.headers, drop=drop), *ours]
    target = f"{incoming.path}?{head.query}" if head.query else incoming.path
    return UpstreamRequest(upstream, head.method, target, headers, raw if as_it_came else out.body)


def _note(out: Outgoing, caller: Caller) -> None:
    note = caller.log_entry
    note.outcome, note.reason, note.edits = out.outcome, out.reason, len(out.edits)
    note.tokens_before, note.tokens_after = out.tokens_before, out.tokens_after


class Passing:
    """Passes requests on as they are."""

    def __init__(self, config: Config, client: HTTPClient, pipeline: Core, unpacking: DecodingThreads, tenants: TenantResolver) -> None:
        self._config, self._client, self._counting = config, client, Counting(client, pipeline)
        self._unpacking, self._tenants = unpacking, tenants

    async def answer(
        self, head: RequestHead, candidates: tuple[Upstream, ...], path: str, receive: Receive, caller: Caller
    ) -> None:
        """Answer a request out of one of the *candidates*. Raises `Refused` and `Gone`."""
        model = request_model(path, {})
        if not model and self._is_read(head, candidates, path):
            await self._read(head, candidates, path, receive, caller)
        else:
            upstream = choose_upstream(candidates, candidate_apis(head, path), model, keyed=has_key(head, self._tenants.key_headers))
            await self._streamed(head, upstream, path, receive, caller)

    def _is_read(self, head: RequestHead, candidates: tuple[Upstream, ...], path: str) -> bool:
        """Is the body read? Only for its model, where that decides and where there may be one: beside the paths that count
        tokens and the like, in JSON; and to be counted as it is shown. Not where it is too large for that."""
        if head.method != "POST" or not head.has_body:
            return False
        small = head.length is not None and head.length <= self._config.limits.body_bytes
        if not any(one.models for one in candidates):
            return is_token_count(path) and (small or head.length is None)
        return is_auxiliary(path) or (small and b"json" in head.get(b"content-type").lower())

    async def _read(
        self, head: RequestHead, candidates: tuple[Upstream, ...], path: str, receive: Receive, caller: Caller
    ) -> None:
        """Choose by the model that the body names; the body goes on as it came, but for a conversation to be counted."""
        limits = self._config.limits
        raw = await read_body(receive, limits.body_bytes, limits.body_seconds, head.length)
        plain = await self._unpacking.decode(raw, decode_header(head.get(b"content-encoding")), limits.body_bytes)
        upstream = choose_upstream(
            candidates,
            candidate_apis(head, path),
            request_model(path, parse_object(plain)),
            keyed=has_key(head, self._tenants.key_headers),
        )
        caller.log_entry.received_bytes, caller.log_entry.upstream = len(raw), upstream.name
        stop = cancel_on_disconnect(receive, caller, asyncio.current_task())
        try:
            if is_token_count(path) and plain is not None:
                who = self._tenants.identify(head, (upstream,))
                key = who.claimed if self._tenants.is_accepted(who) else who.credential
                incoming = Incoming("anthropic", upstream.name, path, decode_headers(head.headers), plain, key)
                await self._counting.answer(head, upstream, incoming, raw, caller)
            else:
                await self._sent(head, upstream, path, raw, caller)
        finally:
            stop()

    async def _streamed(self, head: RequestHead, upstream: Upstream, path: str, receive: Receive, caller: Caller) -> None:
        """The body goes on as it arrives."""
        upload = _Upload(self._config, head, receive, caller)
        try:
            await self._sent(head, upstream, path, upload.pieces() if head.has_body else None, caller)
        finally:
            upload.stop()

    async def _sent(
        self, head: RequestHead, upstream: Upstream, path: str, body: bytes | AsyncIterator[bytes] | None, caller: Caller
    ) -> None:
        """Send it, and pass the answer back."""
        caller.log_entry.upstream = upstream.name
        target = f"{path}?{head.query}" if head.query else path
        headers = upstream_headers(head.headers)
        if body is not None and not isinstance(body, bytes) and head.length is not None:
            headers.append((b"content-length", b"%d" % head.length))
        reply = await self._client.send(UpstreamRequest(upstream, head.method, target, headers, body))
        await _passed_back(reply, caller)


async def _passed_back(reply: Response, caller: Caller) -> None:
    try:
        await caller.start(reply.status, client_headers(reply.headers))
        await copy_body(reply, caller)
    finally:
        reply.release()


class _Upload:
    """A body that is passed on while it arrives; once it has, the client is watched."""

    def __init__(self, config: Config, head: RequestHead, receive: Receive, caller: Caller) -> None:
        self._config, self._head, self._receive, self._caller = config, head, receive, caller
        self._answering = asyncio.current_task()
        self._unwatch = None if head.has_body else cancel_on_disconnect(receive, caller, self._answering)

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body. Raises as `body_pieces` does."""
        limits = self._config.limits
        async for piece in iter_body(self._receive, limits.upload_bytes, limits.body_seconds, self._head.length):
            self._caller.log_entry.received_bytes += len(piece)
            yield piece
        self._unwatch = cancel_on_disconnect(self._receive, self._caller, self._answering)

    def stop(self) -> None:
        """The request is answered."""
        if self._unwatch is not None:
            self._unwatch()
