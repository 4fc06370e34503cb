"""`/refold/...` and `/metrics`: health, readiness, metrics, and who may ask for them."""

from collections.abc import Mapping
from hmac import compare_digest
from typing import TYPE_CHECKING, Any

from refold.gateway.api.app import Api, is_page, send_page
from refold.gateway.config.config import is_loopback
from refold.gateway.config.sites import Sites, check_site
from refold.gateway.http.body import Receive
from refold.gateway.http.caller import AccessLogEntry, Caller, Send
from refold.gateway.messages import json_response, provider_error
from refold.gateway.ops.metrics import CONTENT_TYPE

if TYPE_CHECKING:
    from refold.gateway.app import Application, Gateway

_FORWARDED = frozenset(
    {b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip", b"via"}
)
"""Headers that say that somebody else is asking through a proxy on this machine."""


class Admin:
    """Health, readiness and the page, which holds no data, for everybody; everything else for
    administrators."""

    def __init__(self, gateway: "Gateway", inner: "Application | None") -> None:
        self._gateway, self._inner = gateway, inner

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer a path of the gateway's own."""
        caller = Caller(send, AccessLogEntry(), self._gateway.config.limits.silence_seconds)
        path = scope["path"]
        if path == "/refold/health":
            await _send_status(caller, 200, "ok")
        elif path == "/refold/ready":
            answer = (200, "ready") if self._gateway.is_ready else (503, "stopping")
            await _send_status(caller, *answer)
        elif isinstance(self._inner, Api) and is_page(scope):
            await send_page(scope, caller)
        elif not may_administer(scope, self._gateway.config.admin_token):
            self._gateway.pipeline.counters.add("http_refused", reason="admin")
            challenge = (("www-authenticate", "Bearer"),)
            error = provider_error("", 401, "The admin token is needed.", challenge)
            await caller.respond(*error)
        elif path == "/metrics" and scope["method"] in {"GET", "HEAD"}:
            await self._metrics(caller)
        elif self._inner is not None:
            await self._inner(scope, receive, send)
        else:
            await caller.respond(*provider_error("", 404, "There is nothing at this path."))

    async def _metrics(self, caller: Caller) -> None:
        body = self._gateway.render_metrics()
        await caller.respond(
            200, (("content-type", CONTENT_TYPE), ("content-length", str(len(body)))), body
        )


async def _send_status(caller: Caller, status: int, word: str) -> None:
    await caller.respond(*json_response(status, {"status": word}, (("cache-control", "no-store"),)))


def may_administer(scope: Mapping[str, Any], token: str) -> bool:
    """May the caller see and change what the gateway does?

    With a token, a caller who brings it: `authorization: Bearer TOKEN`, the scheme in any case
    (RFC 9110, 11.1), the token compared in constant time. Without, a program on this machine that
    names it as this machine and asks for itself: no page of another site whose name was made to
    lead here, no caller behind a proxy.
    """
    headers = [(bytes(name).lower(), bytes(value)) for name, value in scope["headers"]]
    if token:
        brought = next((value for name, value in headers if name == b"authorization"), b"")
        scheme, _, word = brought.partition(b" ")
        return scheme.lower() == b"bearer" and compare_digest(word.strip(b" "), token.encode())
    client, first = scope.get("client"), dict(reversed(headers))
    return (
        client is not None
        and is_loopback(client[0])
        and first.keys().isdisjoint(_FORWARDED)
        and sum(name == b"host" for name, _ in headers) == 1
        and check_site(first, Sites()) is None
    )
