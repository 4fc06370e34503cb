"""One request's way: in from the client, through the pipeline, out to its upstream, and back."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from time import perf_counter

from refold.gateway.config import Config
from refold.gateway.http.caller import Caller, Tracing, cancel_on_disconnect
from refold.gateway.http.client import HTTPClient
from refold.gateway.http.connection import Response
from refold.gateway.http.decoding import DecodingThreads
from refold.gateway.http.request import (
    Receive,
    candidate_apis,
    client_headers,
    generation_api,
    iter_body,
    parse_object,
    read_body,
    request_model,
)
from refold.gateway.http.response import ResponseStart, UsageTap, copy_body, peek
from refold.gateway.messages import (
    Headers,
    HTTPException,
    Outgoing,
    RequestHead,
    decode_header,
    encode_headers,
    is_auxiliary,
    is_token_count,
)
from refold.gateway.pipeline.engines import SessionEnds
from refold.gateway.pipeline.pipeline import Pipeline
from refold.gateway.tenants import has_key
from refold.gateway.upstream_call import Call, change_refused, translate_context_error
from refold.gateway.upstreams import Upstream, choose_upstream, match_prefix
from refold.tokens.usage import read_usage

_MAX_TRACED_BYTES = 65_536
"""Of a request that is parsed for its model's name alone, which a trace wants."""
_LOGGED_TOKENS = ("input", "output", "cached", "written")


class Relay:
    """Answers clients out of upstreams. One event loop, one process."""

    def __init__(
        self,
        config: Config,
        pipeline: Pipeline,
        client: HTTPClient,
        tracing: Tracing,
        session_ends: SessionEnds,
    ) -> None:
        self._config, self._limits, self._tenants = config, config.limits, config.tenants
        self._pipeline, self._client, self._tracing = pipeline, client, tracing
        self._session_ends = session_ends
        self._decoding = DecodingThreads()
        self._routes_by_model = any(upstream.models for upstream in config.upstreams)

    async def answer(self, head: RequestHead, receive: Receive, caller: Caller) -> None:
        """Answer a request. Raises `HTTPException` for what the gateway answers itself,
        `ClientDisconnected`."""
        candidates, path = match_prefix(self._config.upstreams, head.path)
        head = head if path == head.path else replace(head, path=path)
        api = caller.log_entry.api = generation_api(head.method, path)
        if head.get(b"upgrade").lower() == b"websocket":
            raise refuse_websocket()
        if not api and not self._needs_body(head, candidates):
            await self._answer_unread(head, candidates, receive, caller)
            return
        limits = self._limits
        raw = await read_body(receive, limits.body_bytes, limits.body_seconds, head.length)
        with (
            cancel_on_disconnect(receive, caller, asyncio.current_task()),
            self._tracing.trace_request(head, api, caller.log_entry) as trace_headers,
        ):
            await self._answer_read(head, api, candidates, raw, caller, trace_headers)

    def _needs_body(self, head: RequestHead, candidates: Sequence[Upstream]) -> bool:
        """Is the body of a request that wants no answer of a model read?

        For the model that it names, if that decides: beside the paths that count tokens and the
        like, in JSON; and to be counted as it is shown. Not if it is too large.
        """
        if head.method != "POST" or not head.has_body or request_model(head.path, {}):
            return False
        is_small = head.length is not None and head.length <= self._limits.body_bytes
        if not any(upstream.models for upstream in candidates):
            return is_token_count(head.path) and (is_small or head.length is None)
        is_json = b"json" in head.get(b"content-type").lower()
        return is_auxiliary(head.path) or (is_small and is_json)

    async def _answer_unread(
        self, head: RequestHead, candidates: Sequence[Upstream], receive: Receive, caller: Caller
    ) -> None:
        """Pass a request on; its body while it arrives. The client is watched once the body has
        come."""
        upstream = self._choose(head, candidates, request_model(head.path, {}), caller)
        answering = asyncio.current_task()
        with ExitStack() as stack:

            def watch() -> None:
                stack.enter_context(cancel_on_disconnect(receive, caller, answering))

            if not head.has_body:
                watch()
            body = self._upload(head, receive, caller, watch) if head.has_body else None
            await self._exchange(Call(head, "", caller, upstream, body, perf_counter()))

    async def _upload(
        self, head: RequestHead, receive: Receive, caller: Caller, on_end: Callable[[], None]
    ) -> AsyncIterator[bytes]:
        """Yield the body as it arrives. Raises as `iter_body` does."""
        limits = self._limits
        async for piece in iter_body(
            receive, limits.upload_bytes, limits.body_seconds, head.length
        ):
            caller.log_entry.received_bytes += len(piece)
            yield piece
        on_end()

    async def _answer_read(
        self,
        head: RequestHead,
        api: str,
        candidates: Sequence[Upstream],
        raw: bytes,
        caller: Caller,
        trace_headers: Headers,
    ) -> None:
        """Answer a request whose body has come."""
        started, entry = perf_counter(), caller.log_entry
        entry.received_bytes = len(raw)
        plain: bytes | None = raw
        if encoding := decode_header(head.get(b"content-encoding")):
            plain = await self._decoding.decode(raw, encoding, self._limits.body_bytes)
        model = request_model(head.path, parse_object(plain)) if self._routes_by_model else ""
        upstream = self._choose(head, candidates, model, caller)
        call = Call(head, api, caller, upstream, raw, started, trace_headers)
        if not api:
            if is_token_count(head.path) and plain is not None:
                await self._prepare_count(call, plain)
            await self._exchange(call)
            return
        outgoing = await self._prepare(call, raw, plain)
        is_parsed = trace_headers and len(plain or b"") <= _MAX_TRACED_BYTES
        body = parse_object(plain) if is_parsed else {}
        entry.model = (outgoing.model or model or request_model(head.path, body))[:200]
        if outgoing.response is not None:
            self._log_outgoing(call)
            await caller.respond(*outgoing.response)
            return
        try:
            await self._exchange(call)
        finally:
            self._record(call)

    def _choose(
        self, head: RequestHead, candidates: Sequence[Upstream], model: str, caller: Caller
    ) -> Upstream:
        if len(candidates) == 1 and not candidates[0].models:  # nothing else could be meant
            upstream = candidates[0]
        else:
            is_keyed = has_key(head, self._tenants.key_headers)
            upstream = choose_upstream(candidates, candidate_apis(head), model, keyed=is_keyed)
        caller.log_entry.upstream = upstream.name
        return upstream

    # --- what is sent -----------------------------------------------------------------------------

    async def _prepare(self, call: Call, raw: bytes, plain: bytes | None) -> Outgoing:
        """Have the pipeline say what is sent of a request for an answer; as it came if its body
        cannot be decoded."""
        tenant = call.tenant = self._tenants.identify(call.head, (call.upstream,))
        body, credential = raw if plain is None else plain, tenant.claimed or tenant.credential
        incoming = call.incoming = call.make_incoming(call.api, body, credential)
        if plain is None:
            self._pipeline.counters.add("http_unread", body="request", upstream=call.upstream.name)
            outgoing = Outgoing(incoming.body, outcome="opaque", reason="encoding")
        else:
            call.is_tentative = bool(tenant.claimed) and not self._tenants.is_accepted(tenant)
            pipeline = self._pipeline
            prepare = pipeline.prepare_tentatively if call.is_tentative else pipeline.prepare
            outgoing = await prepare(incoming)
        call.outgoing = outgoing
        return outgoing

    async def _prepare_count(self, call: Call, plain: bytes) -> None:
        """Have the pipeline say which conversation is counted in place of the one that came."""
        tenant = self._tenants.identify(call.head, (call.upstream,))
        credential = tenant.claimed if self._tenants.is_accepted(tenant) else tenant.credential
        call.incoming = call.make_incoming("anthropic", plain, credential)
        call.outgoing = await self._pipeline.prepare_count(call.incoming)

    async def _exchange(self, call: Call) -> None:
        """Send the request, again if it was refused and can be changed, and pass the response
        on."""
        response = await self._send(call)
        try:
            start = await self._peek(call, response)
            while (call.is_tentative or start.error is not None) and await change_refused(
                self._pipeline, self._tenants, call, response.status, start
            ):
                response.release()
                response = await self._send(call)
                start = await self._peek(call, response)
            if call.api:
                waited = perf_counter() - call.started
                call.caller.log_entry.first_byte_ms = waited * 1000
                self._pipeline.counters.observe(
                    "first_byte_seconds", waited, upstream=call.upstream.name
                )
            await self._respond(call, response, start)
        finally:
            response.release()

    async def _send(self, call: Call) -> Response:
        self._log_outgoing(call)
        return await self._client.send(call.request())

    async def _peek(self, call: Call, response: Response) -> ResponseStart:
        """Look at how the response of a prepared request begins."""
        if call.outgoing is None:
            return ResponseStart()
        name = call.upstream.name
        try:
            start = await peek(response, self._config.hold_seconds)
        except TimeoutError as error:
            raise HTTPException(504, f"The upstream {name} did not answer in time.") from error
        except OSError as error:
            raise HTTPException(502, f"The upstream {name} broke off its answer.") from error
        if start.is_unreadable:
            self._pipeline.counters.add("http_unread", body="answer", upstream=name)
        return start

    # --- what is answered -------------------------------------------------------------------------

    async def _respond(self, call: Call, response: Response, start: ResponseStart) -> None:
        """Pass the response on, a context error in words that the client knows."""
        edit_headers = call.edit_headers() if self._config.answer_headers else ()
        if call.api and start.error is not None:
            sent = call.outgoing.tokens_after if call.outgoing else 0
            status = start.error_status(response.status)
            if error := translate_context_error(call.api, status, start.error, sent):
                await call.caller.respond(error.status, (*error.headers, *edit_headers), error.body)
                return
        if call.api:
            encoding = response.header(b"content-encoding")
            call.tap = UsageTap(response.header(b"content-type"), encoding)
        headers = [*client_headers(response.headers), *encode_headers(edit_headers)]
        await call.caller.start(response.status, headers)
        await copy_body(response, call.caller, start, call.tap)

    def _log_outgoing(self, call: Call) -> None:
        entry, outgoing = call.caller.log_entry, call.outgoing
        if outgoing is None:
            return
        entry.outcome, entry.reason = outgoing.outcome, outgoing.reason
        entry.edits = len(outgoing.edits)
        entry.tokens_before, entry.tokens_after = outgoing.tokens_before, outgoing.tokens_after
        if call.api:
            seconds = perf_counter() - call.started
            entry.prepare_ms = seconds * 1000
            self._pipeline.counters.observe("prepare_seconds", seconds, api=call.api)

    def _record(self, call: Call) -> None:
        """Report usage to the pipeline, the log and the counters, after the client has its
        answer."""
        if call.incoming is None or call.outgoing is None:
            return
        entry, usage = call.caller.log_entry, call.tap.usage() if call.tap else None
        self._pipeline.record_answer(call.incoming, call.outgoing, usage, entry.status)
        if call.outgoing.session is not None and entry.status < 300:
            self._session_ends.note(call.outgoing.session, call.upstream, call.outgoing.model)
        tokens = read_usage(usage)
        count = partial(self._pipeline.counters.add, api=call.api, upstream=call.upstream.name)
        if tokens is None:
            if call.tap is not None and entry.status < 300:
                count("http_usage_missing")
            return
        entry.usage = {kind: getattr(tokens, kind) for kind in _LOGGED_TOKENS}
        for kind, amount in entry.usage.items():
            if amount:
                count("http_tokens", amount, kind=kind)


def refuse_websocket() -> HTTPException:
    """Return the answer to clients that try WebSocket first: they go on with HTTP."""
    headers = (("upgrade", "HTTP/1.1"),)
    return HTTPException(426, "Use HTTP: this gateway takes no WebSocket.", headers=headers)
