"""One request's way: in from the client, through the pipeline, out to its upstream, and back."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from functools import partial
from time import perf_counter

from refold.gateway.config.config import Config
from refold.gateway.http.body import Receive, iter_body, read_body
from refold.gateway.http.caller import Caller, cancel_on_disconnect
from refold.gateway.http.client import HTTPClient
from refold.gateway.http.connection import Response
from refold.gateway.http.encodings import DecodingThreads
from refold.gateway.http.keys import redact_keys
from refold.gateway.http.peek import ResponseStart, peek
from refold.gateway.http.request import (
    RequestHead,
    candidate_apis,
    client_headers,
    decode_header,
    decode_headers,
    encode_headers,
    generation_api,
)
from refold.gateway.http.request_model import parse_object, request_model
from refold.gateway.http.tracing import Tracing
from refold.gateway.http.usage_tap import UsageTap
from refold.gateway.messages import (
    Headers,
    HTTPException,
    Incoming,
    Outgoing,
    is_auxiliary,
    is_token_count,
)
from refold.gateway.ops.metrics import Timings
from refold.gateway.pipeline.pipeline import Pipeline
from refold.gateway.policy.upstream_errors import is_thinking_refused
from refold.gateway.proxy.call import Call, copy_body
from refold.gateway.tenants import has_key
from refold.gateway.upstreams import Upstream, choose_upstream, match_prefix
from refold.tokens.usage import read_usage

_MAX_TRACED_BYTES = 65_536
"""Of a request that is parsed for its model's name alone, which a trace wants."""
_MAX_RETRIES = {"context": 1, "binding": 2}
"""How often a request is changed and sent again, by what its upstream refused: its length, its signed thinking (AN-12)."""


class Relay:
    """Answers clients out of upstreams. One event loop, one process."""

    def __init__(
        self,
        config: Config,
        pipeline: Pipeline,
        client: HTTPClient,
        timings: Timings,
        tracing: Tracing,
    ) -> None:
        self._config, self._limits, self._tenants = config, config.limits, config.tenants
        self._pipeline, self._client, self._timings, self._tracing = (
            pipeline,
            client,
            timings,
            tracing,
        )
        self._decoding = DecodingThreads()
        self._routes_by_model = any(upstream.models for upstream in config.upstreams)

    async def answer(self, head: RequestHead, receive: Receive, caller: Caller) -> None:
        """Answer a request. Raises `HTTPException` for what the gateway answers itself, `ClientDisconnected`."""
        candidates, path = match_prefix(self._config.upstreams, head.path)
        head = head if path == head.path else replace(head, path=path)
        api = caller.log_entry.api = generation_api(head.method, path)
        if head.get(b"upgrade").lower() == b"websocket":
            upgrade = (("upgrade", "HTTP/1.1"),)
            raise HTTPException(426, "Use HTTP: this gateway takes no WebSocket.", headers=upgrade)
        if not api and not self._needs_body(head, candidates):
            await self._answer_unread(head, candidates, receive, caller)
            return
        raw = await read_body(
            receive, self._limits.body_bytes, self._limits.body_seconds, head.length
        )
        stop_watching = cancel_on_disconnect(receive, caller, asyncio.current_task())
        is_traced = api and self._tracing.is_enabled
        span = (
            self._tracing.trace_request(head, api, caller.log_entry)
            if is_traced
            else nullcontext(())
        )
        try:
            with span as trace_headers:
                await self._answer_read(head, api, candidates, raw, caller, trace_headers)
        finally:
            stop_watching()

    def _needs_body(self, head: RequestHead, candidates: Sequence[Upstream]) -> bool:
        """Is the body of a request that wants no answer of a model read? For the model that it names, if that decides:
        beside the paths that count tokens and the like, in JSON; and to be counted as it is shown. Not if it is too large."""
        if head.method != "POST" or not head.has_body or request_model(head.path, {}):
            return False
        is_small = head.length is not None and head.length <= self._limits.body_bytes
        if not any(upstream.models for upstream in candidates):
            return is_token_count(head.path) and (is_small or head.length is None)
        return is_auxiliary(head.path) or (
            is_small and b"json" in head.get(b"content-type").lower()
        )

    async def _answer_unread(
        self, head: RequestHead, candidates: Sequence[Upstream], receive: Receive, caller: Caller
    ) -> None:
        """Pass a request on; its body while it arrives. The client is watched once the body has come."""
        upstream = self._choose(head, candidates, request_model(head.path, {}), caller)
        answering = asyncio.current_task()
        with ExitStack() as stack:

            def watch() -> None:
                stack.callback(cancel_on_disconnect(receive, caller, answering))

            if not head.has_body:
                watch()
            body = self._upload(head, receive, caller, watch) if head.has_body else None
            await self._exchange(Call(head, "", upstream, body), caller, perf_counter())

    async def _upload(
        self, head: RequestHead, receive: Receive, caller: Caller, on_end: Callable[[], None]
    ) -> AsyncIterator[bytes]:
        """Yield the body as it arrives. Raises as `iter_body` does."""
        async for piece in iter_body(
            receive, self._limits.upload_bytes, self._limits.body_seconds, head.length
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
        started = perf_counter()
        encoding = decode_header(head.get(b"content-encoding"))
        plain = await self._decoding.decode(raw, encoding, self._limits.body_bytes)
        model = request_model(head.path, parse_object(plain) if self._routes_by_model else {})
        caller.log_entry.received_bytes = len(raw)
        call = Call(
            head,
            api,
            self._choose(head, candidates, model, caller),
            raw,
            trace_headers=trace_headers,
        )
        if not api:
            if is_token_count(head.path) and plain is not None:
                await self._prepare_count(call, plain)
            await self._exchange(call, caller, started)
            return
        outgoing = await self._prepare(call, raw, plain)
        body = (
            parse_object(plain) if trace_headers and len(plain or b"") <= _MAX_TRACED_BYTES else {}
        )
        caller.log_entry.model = (outgoing.model or model or request_model(head.path, body))[:200]
        if outgoing.response is not None:
            self._log_outgoing(call, caller, started)
            await caller.respond(
                outgoing.response.status, outgoing.response.headers, outgoing.response.body
            )
            return
        try:
            await self._exchange(call, caller, started)
        finally:
            self._record(call, caller)

    def _choose(
        self, head: RequestHead, candidates: Sequence[Upstream], model: str, caller: Caller
    ) -> Upstream:
        keyed = has_key(head, self._tenants.key_headers)
        upstream = choose_upstream(candidates, candidate_apis(head), model, keyed=keyed)
        caller.log_entry.upstream = upstream.name
        return upstream

    async def _prepare(self, call: Call, raw: bytes, plain: bytes | None) -> Outgoing:
        """Have the pipeline say what is sent of a request for an answer; as it came if its body cannot be decoded."""
        tenant = call.tenant = self._tenants.identify(call.head, (call.upstream,))
        body, credential = raw if plain is None else plain, tenant.claimed or tenant.credential
        incoming = call.incoming = self._incoming(call, call.api, body, credential)
        if plain is None:
            self._pipeline.counters.add("http_unread", body="request", upstream=call.upstream.name)
            outgoing = Outgoing(incoming.body, outcome="opaque", reason="encoding")
        else:
            call.is_tentative = bool(tenant.claimed) and not self._tenants.is_accepted(tenant)
            prepare = (
                self._pipeline.prepare_tentatively if call.is_tentative else self._pipeline.prepare
            )
            outgoing = await prepare(incoming)
        call.outgoing = outgoing
        return outgoing

    async def _prepare_count(self, call: Call, plain: bytes) -> None:
        """Have the pipeline say which conversation is counted in place of the one that came."""
        tenant = self._tenants.identify(call.head, (call.upstream,))
        credential = tenant.claimed if self._tenants.is_accepted(tenant) else tenant.credential
        call.incoming = self._incoming(call, "anthropic", plain, credential)
        call.outgoing = await self._pipeline.prepare_count(call.incoming)

    def _incoming(self, call: Call, api: str, body: bytes, credential: str) -> Incoming:
        headers, target = decode_headers(call.head.headers), redact_keys(call.head.target)
        return Incoming(api, call.upstream.name, target, headers, body, credential)

    async def _exchange(self, call: Call, caller: Caller, started: float) -> None:
        """Send the request, again if it was refused and can be changed, and pass the response on."""
        self._log_outgoing(call, caller, started)
        response = await self._client.send(call.request())
        try:
            if call.is_tentative and not await self._confirm_tenant(call, response.status):
                response.release()
                response = await self._client.send(call.request())
            start = await self._peek(call, response)
            while await self._change_refused(call, response.status, start):
                response.release()
                self._log_outgoing(call, caller, started)
                response = await self._client.send(call.request())
                start = await self._peek(call, response)
            if call.api:
                waited = perf_counter() - started
                caller.log_entry.first_byte_ms = waited * 1000
                self._timings.observe("first_byte_seconds", waited, upstream=call.upstream.name)
            await self._respond(call, response, start, caller)
        finally:
            response.release()

    def _log_outgoing(self, call: Call, caller: Caller, started: float) -> None:
        entry, outgoing = caller.log_entry, call.outgoing
        if outgoing is None:
            return
        entry.outcome, entry.reason, entry.edits = (
            outgoing.outcome,
            outgoing.reason,
            len(outgoing.edits),
        )
        entry.tokens_before, entry.tokens_after = outgoing.tokens_before, outgoing.tokens_after
        if call.api:
            seconds = perf_counter() - started
            entry.prepare_ms = seconds * 1000
            self._timings.observe("prepare_seconds", seconds, api=call.api)

    async def _confirm_tenant(self, call: Call, status: int) -> bool:
        """Has the upstream taken the token, so that the caller is who they claim to be? Otherwise prepare the request as
        one of the token alone: nobody is answered out of what was decided for another."""
        call.is_tentative = False
        if call.incoming is None or call.outgoing is None or call.tenant is None:
            return True
        if 200 <= status < 300:
            self._tenants.accept(call.tenant)
            await self._pipeline.commit(call.outgoing)
            return True
        call.incoming = replace(call.incoming, credential=call.tenant.credential)
        call.outgoing = await self._pipeline.prepare(call.incoming)
        return False

    async def _peek(self, call: Call, response: Response) -> ResponseStart:
        """Look at how the response of a prepared request begins."""
        if call.outgoing is None:
            return ResponseStart()
        try:
            start = await peek(response, self._config.hold_seconds)
        except TimeoutError as error:
            raise HTTPException(
                504, f"The upstream {call.upstream.name} did not answer in time."
            ) from error
        except OSError as error:
            raise HTTPException(
                502, f"The upstream {call.upstream.name} broke off its answer."
            ) from error
        if start.is_unreadable:
            self._pipeline.counters.add("http_unread", body="answer", upstream=call.upstream.name)
        return start

    async def _change_refused(self, call: Call, status: int, start: ResponseStart) -> bool:
        """Shrink a request that was too long, or drop thinking that was refused; False if nothing can be changed."""
        if start.error is None or call.incoming is None or call.outgoing is None:
            return False
        if call.is_too_long(status, start):
            refused, change = "context", self._pipeline.shrink
        elif is_thinking_refused(call.incoming.api, status, start.error):
            refused, change = "binding", self._pipeline.drop_thinking
        else:
            return False
        if call.retries.count(refused) >= _MAX_RETRIES[refused]:
            return False
        call.retries.append(refused)
        outgoing = await change(call.incoming, call.outgoing, start.error)
        call.outgoing = outgoing or call.outgoing
        return outgoing is not None

    async def _respond(
        self, call: Call, response: Response, start: ResponseStart, caller: Caller
    ) -> None:
        """Pass the response on, a context error in words that the client knows."""
        edit_headers = call.edit_headers() if self._config.answer_headers else ()
        if (translated := call.translate_error(response.status, start)) is not None:
            status, headers, body = translated
            await caller.respond(status, (*headers, *edit_headers), body)
            return
        if call.api:
            call.tap = UsageTap(
                response.header(b"content-type"), response.header(b"content-encoding")
            )
        await caller.start(
            response.status, [*client_headers(response.headers), *encode_headers(edit_headers)]
        )
        await copy_body(response, caller, start, call.tap)

    def _record(self, call: Call, caller: Caller) -> None:
        """Report usage to the pipeline, the log and the counters, after the client has its answer."""
        if call.incoming is None or call.outgoing is None:
            return
        entry, usage = caller.log_entry, call.tap.usage() if call.tap else None
        self._pipeline.record_answer(call.incoming, call.outgoing, usage, entry.status)
        tokens = read_usage(usage)
        count = partial(self._pipeline.counters.add, api=call.api, upstream=call.upstream.name)
        if tokens is None:
            if call.tap is not None and entry.status < 300:
                count("http_usage_missing")
            return
        entry.usage = {
            "input": tokens.input,
            "output": tokens.output,
            "cached": tokens.cached,
            "written": tokens.written,
        }
        for kind, amount in entry.usage.items():
            if amount:
                count("http_tokens", amount, kind=kind)
