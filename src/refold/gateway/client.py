"""The connection to upstreams: requests go out as they are told, answers come in as they were sent."""

from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import aiohttp
from yarl import URL

from refold.gateway.answers import Refused
from refold.gateway.intake import Gone
from refold.gateway.limits import Limits
from refold.gateway.upstreams import Upstream

_OWN_WORDS = frozenset({"Accept", "Accept-Encoding", "Content-Type", "User-Agent"})
"""Headers that aiohttp would add of its own accord."""


class Order(NamedTuple):
    """A request to an upstream."""

    upstream: Upstream
    method: str
    target: str
    """Path and query, exactly as they go out."""
    headers: list[tuple[str, str]]
    body: bytes | AsyncIterator[bytes] | None


class Client:
    """Connections that are kept and used again. No cookies, no redirects, no proxies but configured ones."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._session: aiohttp.ClientSession | None = None

    @property
    def is_open(self) -> bool:
        """Can it send requests?"""
        return self._session is not None and not self._session.closed

    def open(self) -> aiohttp.ClientSession:
        """The session, made on first use, inside the event loop that uses it."""
        if self._session is None:
            limits = self._limits
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=60),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                skip_auto_headers=_OWN_WORDS,
                timeout=aiohttp.ClientTimeout(
                    total=None, sock_connect=limits.connect_seconds, sock_read=limits.silence_seconds
                ),
                max_line_size=limits.head_bytes,
                max_field_size=limits.head_bytes,
            )
        return self._session

    async def send(self, order: Order) -> aiohttp.ClientResponse:
        """The upstream's answer as soon as its headers are there. Raises `Refused` (502, 504), `Gone`."""
        base = order.upstream.url.rstrip("/")
        options: dict[str, Any] = {"proxy": order.upstream.proxy} if order.upstream.proxy else {}
        try:
            return await self.open().request(
                order.method,
                URL(base + order.target, encoded=True),
                headers=order.headers,
                data=order.body,
                allow_redirects=False,
                **options,
            )
        except TimeoutError as error:
            raise Refused(504, f"The upstream {order.upstream.name} did not answer in time.") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise _unreachable(order.upstream, error) from error

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()


def _unreachable(upstream: Upstream, error: Exception) -> Exception:
    """502 without the error's own text: that may hold the address with a key in it."""
    if isinstance(error.__cause__, Refused | Gone):  # the client's body ended badly while it was passed on
        return error.__cause__
    return Refused(502, f"The upstream {upstream.name} cannot be reached ({type(error).__name__}).")
