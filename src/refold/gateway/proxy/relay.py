"""One request's way through: in from the client, through the pipeline, out to its upstream, and back."""

import asyncio
from dataclasses import dataclass, field, replace

from refold.gateway.config.config import Config
from refold.gateway.http.body import Receive, read_body
from refold.gateway.http.caller import Caller, cancel_on_disconnect, clock
from refold.gateway.http.client import HTTPClient, UpstreamRequest
from refold.gateway.http.copy import copy_body
from refold.gateway.http.encodings import DecodingThreads
from refold.gateway.http.keys import redact_keys
from refold.gateway.http.peek import ResponseStart, peek
from refold.gateway.http.request import (
    RequestHead,
    candidate_apis,
    client_headers,
    decode_header,
    decode_headers,
    generation_api,
    upstream_headers,
)
from refold.gateway.http.request_model import parse_object, request_model
from refold.gateway.http.response import Response
from refold.gateway.http.tracing import Headers, Tracing
from refold.gateway.http.usage_tap import UsageTap
from refold.gateway.messages import HTTPException, Incoming, Outgoing
from refold.gateway.ops.metrics import Timings
from refold.gateway.policy.upstream_errors import context_error, is_context_error, is_thinking_refused, read_figures
from refold.gateway.proxy.passthrough import Passing
from refold.gateway.proxy.port import Core
from refold.gateway.tenants import Tenant, has_key
from refold.gateway.upstreams import Upstream, choose_upstream, match_prefix
from refold.tokens.usage import read_usage

_SHORT = 65_536
"""Bytes of a request that are read again for its model's name alone, where that is wanted for a trace."""
_MENDED = {"context": 1, "binding": 2}
"""How often a request is sent again after which refusal."""
_NATIVE = {
    "anthropic": (b"prompt is too long", b"exceed context limit"),
    "gemini": (b"exceeds the maximum number of tokens",),
}
_NATIVE_OPENAI = (b"context_length_exceeded",)
"""By what clients recognise a context error of their provider; other servers' words are put into these."""


@dataclass(slots=True)
class Call:
    """A request for an answer on its way."""

    head: RequestHead
    upstream: Upstream
    path: str
    """Without the upstream's prefix."""
    incoming: Incoming
    raw: bytes
    """The body as it came, compressed where it was."""
    outgoing: Outgoing
    who: Tenant
    is_tried: bool = False
    """Is the caller only said to be who they are? Then nothing is kept, and no answer passed on, before the upstream has
    taken their token (C7)."""
    tap: UsageTap | None = None
    trace: Headers = ()
    """Headers that name our span; empty where nothing is traced."""
    mended: list[str] = field(default_factory=list)
    """After which refusals it was changed and sent again: `_MENDED`."""

    def order(self) -> UpstreamRequest:
        """What goes to the upstream: the very bytes that came, unless the pipeline changed them."""
        as_it_came = self.outgoing.body is self.incoming.body
        ours = [(name.encode(), value.encode()) for name, value in (*self.outgoing.headers, *self.trace)]
        drop = {name for name, _ in ours} | ({b"tracestate"} if self.trace else set())
        if not as_it_came:
            drop |= {b"content-encoding", b"content-md5"}
        headers = [*upstream_headers(self.head.headers, drop=drop), *ours]
        target = f"{self.path}?{self.head.query}" if self.head.query else self.path
        return UpstreamRequest(self.upstream, "POST", target, headers, self.raw if as_it_came else self.outgoing.body)


class Relay:
    """Answers clients out of upstreams. One event loop, one process."""

    def __init__(self, config: Config, pipeline: Core, client: HTTPClient, timings: Timings, traces: Tracing) -> None:
        self._config, self._pipeline, self._client, self._timings = config, pipeline, client, timings
        self._unpacking, self._tenants = DecodingThreads(), config.tenants
        self._traces, self._passing = traces, Passing(config, client, pipeline, self._unpacking, self._tenants)
        self._by_model = any(one.models for one in config.upstreams)

    async def answer(self, head: RequestHead, receive: Receive, caller: Caller) -> None:
        """Answer a request. Raises `Refused` for what the gateway is to answer itself, `Gone`."""
        candidates, path = match_prefix(self._config.upstreams, head.path)
        api = generation_api(head.method, path)
        caller.log_entry.api = api
        if head.get(b"upgrade").lower() == b"websocket":
            raise HTTPException(426, "Use HTTP: this gateway takes no WebSocket.", headers=(("upgrade", "HTTP/1.1"),))
        if not api:
            await self._passing.answer(head, candidates, path, receive, caller)
            return
        limits = self._config.limits
        raw = await read_body(receive, limits.body_bytes, limits.body_seconds, head.length)
        stop = cancel_on_disconnect(receive, caller, asyncio.current_task())
        try:
            if not self._traces.is_enabled:
                await self._generate(head, candidates, path, api, raw, caller, trace=())
                return
            with self._traces.trace_request(head, api, caller.log_entry) as trace:
                await self._generate(head, candidates, path, api, raw, caller, trace=trace)
        finally:
            stop()

    async def _generate(
        self,
        head: RequestHead,
        candidates: tuple[Upstream, ...],
        path: str,
        api: str,
        raw: bytes,
        caller: Caller,
        *,
        trace: Headers,
    ) -> None:
        """Answer a request for an answer of a model."""
        started = clock()
        plain = await self._unpacking.decode(raw, decode_header(head.get(b"content-encoding")), self._config.limits.body_bytes)
        named = request_model(path, parse_object(plain) if self._by_model else {})
        upstream = choose_upstream(candidates, candidate_apis(head, path), named, keyed=has_key(head, self._tenants.key_headers))
        caller.log_entry.upstream, caller.log_entry.received_bytes = upstream.name, len(raw)
        call = await self._prepared(head, upstream, path, api, raw, plain)
        body = parse_object(plain) if trace and len(plain or b"") <= _SHORT else {}
        model = call.outgoing.model or named or request_model(path, body)
        call.trace, caller.log_entry.model = trace, model[:200]
        self._note(call, caller, started)
        if call.outgoing.response is not None:
            refusal = call.outgoing.response
            await caller.respond(refusal.status, refusal.headers, refusal.body)
            return
        try:
            await self._exchanged(call, caller, started)
        finally:
            self._finish(call, caller)

    async def _prepared(
        self, head: RequestHead, upstream: Upstream, path: str, api: str, raw: bytes, plain: bytes | None
    ) -> Call:
        target = redact_keys(f"{path}?{head.query}" if head.query else path)
        body = raw if plain is None else plain
        who = self._tenants.identify(head, (upstream,))
        incoming = Incoming(api, upstream.name, target, decode_headers(head.headers), body, who.claimed or who.credential)
        if plain is None:
            self._pipeline.counters.add("http_unread", body="request", upstream=upstream.name)
            return Call(head, upstream, path, incoming, raw, Outgoing(body, outcome="opaque", reason="encoding"), who)
        is_tried = bool(who.claimed) and not self._tenants.is_accepted(who)
        outgoing = await (self._pipeline.prepare_tentatively if is_tried else self._pipeline.prepare)(incoming)
        return Call(head, upstream, path, incoming, raw, outgoing, who, is_tried)

    def _note(self, call: Call, caller: Caller, started: float) -> None:
        note, outgoing = caller.log_entry, call.outgoing
        note.outcome, note.reason, note.edits = outgoing.outcome, outgoing.reason, len(outgoing.edits)
        note.tokens_before, note.tokens_after = outgoing.tokens_before, outgoing.tokens_after
        note.prepare_ms = (clock() - started) * 1000
        self._timings.observe("prepare_seconds", note.prepare_ms / 1000, api=call.incoming.api)

    async def _exchanged(self, call: Call, caller: Caller, started: float) -> None:
        """Send the request, once more where it was refused and can be mended, and pass the answer on."""
        reply = await self._client.send(call.order())
        try:
            if call.is_tried and not await self._believed(call, reply):
                reply.close()
                reply = await self._client.send(call.order())
            opening = await self._opening(reply, call)
            while await self._mended(call, reply, opening):
                reply.close()
                self._note(call, caller, started)
                reply = await self._client.send(call.order())
                opening = await self._opening(reply, call)
            caller.log_entry.first_byte_ms = (clock() - started) * 1000
            self._timings.observe("first_byte_seconds", clock() - started, upstream=call.upstream.name)
            if self._needs_words(call, reply, opening):
                await caller.respond(*self._in_the_callers_words(call, opening))
            else:
                await self._stream(call, reply, opening, caller)
        finally:
            reply.release()

    async def _believed(self, call: Call, reply: Response) -> bool:
        """Has the upstream taken the token, so that the caller is who they say? Otherwise the request is that of the token
        alone, and to be sent as such: nobody is answered out of what was decided for another."""
        call.is_tried = False
        if 200 <= reply.status < 300:
            self._tenants.accept(call.who)
            await self._pipeline.commit(call.outgoing)
            return True
        call.incoming = replace(call.incoming, credential=call.who.credential)
        call.outgoing = await self._pipeline.prepare(call.incoming)
        return False

    async def _mended(self, call: Call, reply: Response, opening: ResponseStart) -> bool:
        """Make the request smaller after a context error, or take out thinking that was refused, where that can be done."""
        error = opening.error or b""
        too_long = self._is_too_long(call, reply, opening)
        kind = "context" if too_long else "binding" if is_thinking_refused(call.incoming.api, reply.status, error) else ""
        if call.mended.count(kind) >= _MENDED.get(kind, 0):
            return False
        call.mended.append(kind)
        mend = self._pipeline.shrink if too_long else self._pipeline.drop_thinking
        again = await mend(call.incoming, call.outgoing, error)
        call.outgoing = again or call.outgoing
        return again is not None

    async def _opening(self, reply: Response, call: Call) -> ResponseStart:
        try:
            opening = await peek(reply, self._config.hold_seconds)
        except TimeoutError as error:
            raise HTTPException(504, f"The upstream {call.upstream.name} did not answer in time.") from error
        except OSError as error:
            raise HTTPException(502, f"The upstream {call.upstream.name} broke off its answer.") from error
        if opening.is_unreadable:
            self._pipeline.counters.add("http_unread", body="answer", upstream=call.upstream.name)
        return opening

    def _is_too_long(self, call: Call, reply: Response, opening: ResponseStart) -> bool:
        if opening.error is None:
            return False
        return is_context_error(call.incoming.api, 400 if opening.is_stream_event else reply.status, opening.error)

    def _needs_words(self, call: Call, reply: Response, opening: ResponseStart) -> bool:
        """Is the answer a context error in words that a client of this API would not recognise? One that begins a stream has
        not been passed on yet, so that a status can still tell it."""
        if not self._is_too_long(call, reply, opening):
            return False
        words = (opening.error or b"").lower()
        return not any(known in words for known in _NATIVE.get(call.incoming.api, _NATIVE_OPENAI))

    def _in_the_callers_words(self, call: Call, opening: ResponseStart) -> tuple[int, tuple[tuple[str, str], ...], bytes]:
        said = read_figures(opening.error or b"")
        status, headers, body = context_error(call.incoming.api, said.tokens or call.outgoing.tokens_after, said.limit)
        own = [(name.decode(), value.decode()) for name, value in self._told(call)]
        return status, (*headers, ("content-length", str(len(body))), *own), body

    async def _stream(self, call: Call, reply: Response, opening: ResponseStart, caller: Caller) -> None:
        call.tap = UsageTap(reply.header(b"content-type"), reply.header(b"content-encoding"))
        await caller.start(reply.status, [*client_headers(reply.headers), *self._told(call)])
        await copy_body(reply, caller, opening, call.tap)

    def _told(self, call: Call) -> list[tuple[bytes, bytes]]:
        """Headers that say what was done."""
        done = call.outgoing
        if not self._config.answer_headers or not (done.edits or done.tokens_before):
            return []
        told = (("edits", len(done.edits)), ("tokens-before", done.tokens_before), ("tokens-after", done.tokens_after))
        return [(f"refold-{name}".encode(), str(value).encode()) for name, value in told]

    def _finish(self, call: Call, caller: Caller) -> None:
        """Usage to the pipeline, the log and the counters; after the client has its answer."""
        usage = call.tap.usage() if call.tap else None
        self._pipeline.record_answer(call.incoming, call.outgoing, usage, caller.log_entry.status)
        found = read_usage(usage)
        if found is None:
            if call.tap is not None and caller.log_entry.status < 300:
                self._count("http_usage_unread", call)
            return
        used = {"input": found.input, "output": found.output, "cached": found.cached, "written": found.written}
        caller.log_entry.usage = used
        for kind, tokens in used.items():
            if tokens:
                self._count("http_tokens", call, tokens, kind=kind)

    def _count(self, name: str, call: Call, amount: int = 1, **labels: str) -> None:
        self._pipeline.counters.add(name, amount, api=call.incoming.api, upstream=call.upstream.name, **labels)
