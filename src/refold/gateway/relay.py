"""The path of one request: from the client through the pipeline to its upstream, and back."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter

from refold.gateway.config import Config
from refold.gateway.exchange import (
    GatewayResponse,
    Headers,
    HTTPException,
    Incoming,
    Outgoing,
    RequestHead,
    decode_header,
    decode_headers,
    encode_headers,
    is_auxiliary,
    is_token_count,
    provider_error,
)
from refold.gateway.http.client import HTTPClient, Response
from refold.gateway.http.decoding import DecodingThreads
from refold.gateway.http.request import (
    Receive,
    UpstreamRequest,
    candidate_apis,
    client_headers,
    generation_api,
    iter_body,
    read_model_field,
    request_model,
    upstream_headers,
)
from refold.gateway.http.response import (
    ResponseStart,
    ResponseWriter,
    Tracing,
    UsageTap,
    cancel_on_disconnect,
    copy_body,
    peek,
)
from refold.gateway.pipeline.engines import SessionEnds
from refold.gateway.pipeline.pipeline import Pipeline
from refold.gateway.pipeline.upstream_errors import (
    is_context_error,
    is_thinking_refused,
    read_figures,
)
from refold.gateway.settings import Upstream, choose_upstream, identify_providers, match_prefix
from refold.gateway.tenants import Tenant, TenantResolver, list_keys, redact_keys
from refold.tokens.usage import read_usage

# --- calls to upstreams ---------------------------------------------------------------------------
# What is sent, and what happens if it is refused: the request is changed and sent again, or the
# error is passed on in words that the client knows.

_DIGESTS = {b"content-md5", b"content-digest", b"repr-digest", b"digest"}
_BODY_HEADERS = {b"content-encoding", *_DIGESTS}
"""Headers that describe the body as it came."""
MAX_RETRIES = {"context": 1, "binding": 2}
"""Maximum retries with a changed request, by what its upstream refused: its length, its signed
thinking (AN-12)."""
_NATIVE_WORDS = {
    "anthropic": (b"prompt is too long", b"exceed context limit"),
    "gemini": (b"exceeds the maximum number of tokens",),
}
_NATIVE_OPENAI_WORDS = (b"context_length_exceeded",)
"""Phrases by which clients recognise their provider's context errors. Other servers' errors are
translated into these."""


@dataclass(slots=True)
class Call:
    """A request in progress."""

    head: RequestHead
    """The path lacks the upstream's prefix."""
    api: str
    """API of a request for a model's answer; empty for other requests."""
    writer: ResponseWriter
    upstream: Upstream
    raw: bytes | AsyncIterator[bytes] | None
    """Body as it came, compressed or not; an iterator if it is passed on while it arrives."""
    started: float
    """`perf_counter` when its body was complete, or when its upload began."""
    trace_headers: Headers = ()
    """Headers that name our span; empty without tracing."""
    incoming: Incoming | None = None
    outgoing: Outgoing | None = None
    """Both are None for a request that passes through unread."""
    tenant: Tenant | None = None
    is_tentative: bool = False
    """Whether the tenant is only claimed. Nothing is kept, and no answer passed on, before the
    upstream has accepted the token."""
    tap: UsageTap | None = None
    retries: list[str] = field(default_factory=list)
    """Refusals after which it was changed and sent again."""

    def make_incoming(self, api: str, body: bytes, credential: str) -> Incoming:
        """Return the request, with its decoded *body*, for the pipeline."""
        headers, target = decode_headers(self.head.headers), redact_keys(self.head.target)
        return Incoming(api, self.upstream.name, target, headers, body, credential)

    def request(self) -> UpstreamRequest:
        """Return the upstream's request: byte for byte what came, unless the pipeline changed
        it."""
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
        """Return the headers that tell the client what was edited; empty if nothing was counted."""
        outgoing = self.outgoing
        if not self.api or outgoing is None or not (outgoing.edits or outgoing.tokens_before):
            return ()
        return (
            ("refold-edits", str(len(outgoing.edits))),
            ("refold-tokens-before", str(outgoing.tokens_before)),
            ("refold-tokens-after", str(outgoing.tokens_after)),
        )


async def change_refused(
    pipeline: Pipeline, tenants: TenantResolver, call: Call, status: int, start: ResponseStart
) -> bool:
    """Shorten a request that was too long, drop refused thinking, or prepare again what was
    prepared for another tenant. Return whether that changed it, so that it is to be sent again."""
    if call.is_tentative:
        sent = call.request()
        if not await _confirm_tenant(pipeline, tenants, call, status) and call.request() != sent:
            return True
    if start.error is None or call.incoming is None or call.outgoing is None:
        return False
    if call.api and is_context_error(call.api, start.error_status(status), start.error):
        refused, change = "context", pipeline.shrink
    elif is_thinking_refused(call.incoming.api, status, start.error):
        refused, change = "binding", pipeline.drop_thinking
    else:
        return False
    if call.retries.count(refused) >= MAX_RETRIES[refused]:
        return False
    call.retries.append(refused)
    outgoing = await change(call.incoming, call.outgoing, start.error)
    call.outgoing = outgoing or call.outgoing
    return outgoing is not None


async def _confirm_tenant(
    pipeline: Pipeline, tenants: TenantResolver, call: Call, status: int
) -> bool:
    """Return whether the upstream has accepted the token, so that the caller is who they claim to
    be, and save what was decided for them.

    If not, prepare the request for the token alone: no answer may use what was decided for another
    tenant. Nothing is kept for a refused token."""
    call.is_tentative = False
    if call.incoming is None or call.outgoing is None or call.tenant is None:
        return True
    if 200 <= status < 300:
        tenants.accept(call.tenant)
        await pipeline.commit(call.outgoing)
        return True
    call.incoming = replace(call.incoming, credential=call.tenant.credential)
    is_refused = status in (401, 403)
    prepare = pipeline.prepare_tentatively if is_refused else pipeline.prepare
    call.outgoing = await prepare(call.incoming)
    return False


def translate_context_error(
    api: str, status: int, error: bytes, sent: int
) -> GatewayResponse | None:
    """Return a context error to a request of *sent* tokens in the words of the API's provider; None
    for other errors and those that have these words."""
    if not is_context_error(api, status, error):
        return None
    native = _NATIVE_WORDS.get(api, _NATIVE_OPENAI_WORDS)
    if any(words in error.lower() for words in native):
        return None
    figures = read_figures(error)
    return context_error(api, figures.tokens or sent, figures.limit)


def context_error(api: str, tokens: int = 0, limit: int = 0) -> GatewayResponse:
    """Return the provider's own error for *tokens* above *limit*, so that clients recover as usual.

    It holds no figures if the limit is not known."""
    tokens, param = max(tokens, limit + 1), "input" if api == "openai_responses" else "messages"
    match api:
        case "anthropic":
            figures = f": {tokens} tokens > {limit} maximum" if limit else ""
            message = f"prompt is too long{figures}"
        case "gemini":
            count, most = (f" ({tokens})", f" ({limit})") if limit else ("", "")
            message = (
                f"The input token count{count} exceeds the maximum number of tokens allowed{most}."
            )
        case "openai_chat" if limit:
            message = (
                f"This model's maximum context length is {limit} tokens. However, your messages "
                f"resulted in {tokens} tokens. Please reduce the length of the messages."
            )
        case _:
            message = (
                "Your input exceeds the context window of this model. "
                "Please adjust your input and try again."
            )
    return provider_error(api, 400, message, param=param, code="context_length_exceeded")


# --- the relay ------------------------------------------------------------------------------------


_MAX_TRACED_BYTES = 65_536
"""Maximum size of a request that is parsed only for the model name in its trace."""
_LOGGED_TOKENS = ("input", "output", "cached", "written")


class Relay:
    """Answers clients from upstreams, in one event loop of one process."""

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

    async def answer(self, head: RequestHead, receive: Receive, writer: ResponseWriter) -> None:
        """Answer a request. Raises `HTTPException` for the gateway's own answers, and
        `ClientDisconnected`."""
        candidates, path = match_prefix(self._config.upstreams, head.path)
        head = head if path == head.path else replace(head, path=path)
        api = writer.log_entry.api = generation_api(head.method, path)
        if head.get(b"upgrade").lower() == b"websocket":
            raise refuse_websocket()
        limits, begun = self._limits, list[bytes]()
        is_whole = bool(api) or self._needs_body(head, candidates)
        unread = 0 if api else limits.upload_bytes
        pieces = iter_body(receive, max(unread, limits.body_bytes * is_whole), limits, head.length)
        if is_whole:
            begun, is_whole = await _read_begin(pieces, limits.body_bytes)
        if not is_whole:
            await self._answer_unread(head, candidates, _resume(begun, pieces), receive, writer)
            return
        raw, begun = b"".join(begun), []  # a single piece is not copied, and none held twice
        with (
            cancel_on_disconnect(receive, writer, asyncio.current_task()),
            self._tracing.trace_request(head, api, writer.log_entry) as trace_headers,
        ):
            await self._answer_read(head, api, candidates, raw, writer, trace_headers)

    def _needs_body(self, head: RequestHead, candidates: Sequence[Upstream]) -> bool:
        """Return whether to read the body of a request that is not for a model's answer.

        It is read for the model's name if that decides (in JSON of a declared size up to
        `body_bytes`, on auxiliary paths also of an undeclared one, which passes unread if it turns
        out to be larger), and to count the edited conversation."""
        if head.method != "POST" or not head.has_body or request_model(head.path, {}):
            return False
        is_small = head.length is not None and head.length <= self._limits.body_bytes
        if not any(upstream.models for upstream in candidates):
            return is_token_count(head.path) and (is_small or head.length is None)
        is_json = b"json" in head.get(b"content-type").lower()
        is_read = is_auxiliary(head.path) and (is_small or head.length is None)
        return is_read or (is_small and is_json)

    async def _answer_unread(
        self,
        head: RequestHead,
        candidates: Sequence[Upstream],
        pieces: AsyncIterator[bytes],
        receive: Receive,
        writer: ResponseWriter,
    ) -> None:
        """Pass a request on while its body arrives. The client is watched once the body is
        complete."""
        upstream = self._choose(head, candidates, request_model(head.path, {}), writer)
        answering = asyncio.current_task()
        with ExitStack() as stack:

            def watch() -> None:
                stack.enter_context(cancel_on_disconnect(receive, writer, answering))

            if not head.has_body:
                watch()
            body = self._upload(pieces, writer, watch) if head.has_body else None
            await self._exchange(Call(head, "", writer, upstream, body, perf_counter()))

    async def _upload(
        self,
        pieces: AsyncIterator[bytes],
        writer: ResponseWriter,
        on_end: Callable[[], None],
    ) -> AsyncIterator[bytes]:
        """Yield the body as it arrives, then call *on_end*. Raises as `iter_body` does."""
        async for piece in pieces:
            writer.log_entry.received_bytes += len(piece)
            yield piece
        on_end()

    async def _answer_read(
        self,
        head: RequestHead,
        api: str,
        candidates: Sequence[Upstream],
        raw: bytes,
        writer: ResponseWriter,
        trace_headers: Headers,
    ) -> None:
        started, entry = perf_counter(), writer.log_entry
        entry.received_bytes = len(raw)
        plain: bytes | None = raw
        if encoding := decode_header(head.get(b"content-encoding")):
            plain = await self._decoding.decode(raw, encoding, self._limits.body_bytes)
        model = request_model(head.path, read_model_field(plain)) if self._routes_by_model else ""
        upstream = self._choose(head, candidates, model, writer)
        call = Call(head, api, writer, upstream, raw, started, trace_headers)
        if not api:
            if is_token_count(head.path) and plain is not None:
                await self._prepare_count(call, plain)
            await self._exchange(call)
            return
        outgoing = await self._prepare(call, raw, plain)
        is_parsed = trace_headers and len(plain or b"") <= _MAX_TRACED_BYTES
        body = read_model_field(plain) if is_parsed else {}
        entry.model = (outgoing.model or model or request_model(head.path, body))[:200]
        if outgoing.response is not None:
            self._log_outgoing(call)
            await writer.respond(*outgoing.response)
            return
        try:
            await self._exchange(call)
        finally:
            self._record(call)

    def _choose(
        self, head: RequestHead, candidates: Sequence[Upstream], model: str, writer: ResponseWriter
    ) -> Upstream:
        if len(candidates) == 1 and not candidates[0].models:  # the only candidate
            upstream = candidates[0]
        else:
            keys = list_keys(head, self._tenants.key_headers)
            upstream = choose_upstream(
                candidates,
                candidate_apis(head),
                model,
                keyed=bool(keys),
                owners=identify_providers(keys, head.path),
            )
        writer.log_entry.upstream = upstream.name
        return upstream

    # --- requests ---------------------------------------------------------------------------------

    async def _prepare(self, call: Call, raw: bytes, plain: bytes | None) -> Outgoing:
        """Have the pipeline decide what to send of a request for an answer. An undecodable body
        stays as it came."""
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
        """Have the pipeline edit the conversation whose tokens are counted."""
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
                call.writer.log_entry.first_byte_ms = waited * 1000
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
        """Return the beginning of the response to a prepared request; an empty one for others,
        which are not inspected. Raises `HTTPException` (502, 504)."""
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

    # --- answers ----------------------------------------------------------------------------------

    async def _respond(self, call: Call, response: Response, start: ResponseStart) -> None:
        """Pass the response on, a context error in words that the client knows."""
        edit_headers = call.edit_headers() if self._config.answer_headers else ()
        if call.api and start.error is not None:
            sent = call.outgoing.tokens_after if call.outgoing else 0
            status = start.error_status(response.status)
            if error := translate_context_error(call.api, status, start.error, sent):
                await call.writer.respond(error.status, (*error.headers, *edit_headers), error.body)
                return
        if call.api:
            encoding = response.header(b"content-encoding")
            call.tap = UsageTap(response.header(b"content-type"), encoding)
        headers = [*client_headers(response.headers), *encode_headers(edit_headers)]
        await call.writer.start(response.status, headers)
        await copy_body(response, call.writer, start, call.tap)

    def _log_outgoing(self, call: Call) -> None:
        entry, outgoing = call.writer.log_entry, call.outgoing
        if outgoing is None:
            return
        entry.outcome, entry.reason = outgoing.outcome, outgoing.reason
        entry.edits = len(outgoing.edits)
        entry.session = outgoing.ticket.conversation.name if outgoing.ticket is not None else ""
        entry.tokens_before, entry.tokens_after = outgoing.tokens_before, outgoing.tokens_after
        if call.api:
            seconds = perf_counter() - call.started
            entry.prepare_ms = seconds * 1000
            self._pipeline.counters.observe("prepare_seconds", seconds, api=call.api)

    def _record(self, call: Call) -> None:
        """Report an answer's status and usage to pipeline, log and counters, once it is sent."""
        if call.incoming is None or call.outgoing is None:
            return
        entry, usage = call.writer.log_entry, call.tap.usage() if call.tap else None
        self._pipeline.record_answer(call.incoming, call.outgoing, usage, entry.status)
        if call.outgoing.session is not None and 200 <= entry.status < 300:  # 0 without an answer
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


async def _read_begin(pieces: AsyncIterator[bytes], most: int) -> tuple[list[bytes], bool]:
    """Return the first *pieces*, and whether they are all: of *most* bytes together."""
    begun = list[bytes]()
    async for piece in pieces:
        begun.append(piece)
        if (most := most - len(piece)) < 0:
            return begun, False
    return begun, True


async def _resume(begun: list[bytes], pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    begun.reverse()
    while begun:  # what is passed on is not held
        yield begun.pop()
    async for piece in pieces:
        yield piece


def refuse_websocket() -> HTTPException:
    """Return the error for clients that try WebSocket first, after which they use HTTP."""
    headers = (("upgrade", "HTTP/1.1"),)
    return HTTPException(426, "Use HTTP: this gateway takes no WebSocket.", headers=headers)
