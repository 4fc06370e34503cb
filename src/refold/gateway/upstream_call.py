"""A call to an upstream: what is sent, and what is done when it is refused. Then the request is
changed and sent again, or the error passed on in words that the client knows."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace

from refold.gateway.http.caller import Caller
from refold.gateway.http.request import UpstreamRequest, upstream_headers
from refold.gateway.http.response import ResponseStart, UsageTap
from refold.gateway.messages import (
    GatewayResponse,
    Headers,
    Incoming,
    Outgoing,
    RequestHead,
    decode_headers,
    encode_headers,
    provider_error,
)
from refold.gateway.pipeline.pipeline import Pipeline
from refold.gateway.pipeline.upstream_errors import (
    is_context_error,
    is_thinking_refused,
    read_figures,
)
from refold.gateway.tenants import Tenant, TenantResolver, redact_keys
from refold.gateway.upstreams import Upstream

_BODY_HEADERS = {b"content-encoding", b"content-md5"}
"""Headers that are true only of the body as it came."""
MAX_RETRIES = {"context": 1, "binding": 2}
"""How often a request is changed and sent again, by what its upstream refused: its length, its
signed thinking (AN-12)."""
_NATIVE_WORDS = {
    "anthropic": (b"prompt is too long", b"exceed context limit"),
    "gemini": (b"exceeds the maximum number of tokens",),
}
_NATIVE_OPENAI_WORDS = (b"context_length_exceeded",)
"""By what clients recognise a context error of their provider; errors of other servers are
translated into these."""


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
    upstream has taken the token."""
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


async def change_refused(
    pipeline: Pipeline, tenants: TenantResolver, call: Call, status: int, start: ResponseStart
) -> bool:
    """Shrink a request that was too long, drop thinking that was refused, prepare anew what was
    prepared for another tenant; return False if nothing can be changed."""
    if call.is_tentative and not await _confirm_tenant(pipeline, tenants, call, status):
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
    """Return whether the upstream has taken the token, so that the caller is who they claim to be.

    If not, prepare the request as one of the token alone: nobody is answered out of what was
    decided for another. Of a token that is refused nothing is kept.
    """
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
    if it is none or has them already."""
    if not is_context_error(api, status, error):
        return None
    native = _NATIVE_WORDS.get(api, _NATIVE_OPENAI_WORDS)
    if any(words in error.lower() for words in native):
        return None
    figures = read_figures(error)
    return context_error(api, figures.tokens or sent, figures.limit)


def context_error(api: str, tokens: int = 0, limit: int = 0) -> GatewayResponse:
    """Return the answer with which the provider itself would say that *tokens* exceed *limit*.

    So clients recognise it and recover as they do. It holds no figures if the limit is not known.
    """
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
