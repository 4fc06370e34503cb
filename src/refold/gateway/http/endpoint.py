"""Where an upstream is: its address, and how to get a connection to it."""

import asyncio
import ssl
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from socket import AI_ADDRCONFIG, SOCK_STREAM
from urllib.parse import SplitResult, unquote, urlsplit

from aiohappyeyeballs import start_connection

from refold.gateway.http.connection import Connection
from refold.gateway.http.response import BrokenError, Response
from refold.gateway.upstreams import Upstream

HAPPY_EYEBALLS_DELAY = 0.25
"""Seconds after which the next address of a name is tried beside the one that does not answer (RFC 8305)."""
_DEFAULT_PORTS = {"http": 80, "https": 443}

ConnectionFactory = Callable[[], Connection]


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """The server of an upstream, and the connections to it that are not used."""

    host: str
    port: int
    tls: bool
    authority: str
    """Host and port as a request names them."""
    base: str
    """What stands before the path of every request."""
    proxy: SplitResult | None
    idle: list[Connection] = field(default_factory=list, repr=False, compare=False)

    async def connect(self, make: ConnectionFactory) -> Connection:
        """A new connection. Raises OSError, `BrokenError` where the proxy refuses."""
        if self.proxy is None:
            return await _open_connection(self.host, self.port, make, tls=self.tls)
        connection = await _open_connection(self.proxy.hostname or "", self.proxy.port or 80, make)
        return await self._open_tunnel(connection, make) if self.tls else connection

    def encode_request_line(self, method: str, target: str) -> bytes:
        """The request's first line, and the host behind it."""
        place = f"http://{self.authority}" if self.proxy and not self.tls else ""
        return f"{method} {place}{self.base}{target} HTTP/1.1\r\nhost: {self.authority}".encode()

    @property
    def proxy_headers(self) -> list[tuple[bytes, bytes]]:
        """What the proxy asks for, where its address names a user."""
        if self.proxy is None or self.proxy.username is None:
            return []
        words = f"{unquote(self.proxy.username)}:{unquote(self.proxy.password or '')}"
        return [(b"proxy-authorization", b"Basic " + b64encode(words.encode()))]

    async def _open_tunnel(self, connection: Connection, make: ConnectionFactory) -> Connection:
        name = f"{self.host}:{self.port}" if ":" not in self.host else f"[{self.host}]:{self.port}"
        lines = [
            f"CONNECT {name} HTTP/1.1\r\nhost: {name}".encode(),
            *(b"%b: %b" % header for header in self.proxy_headers),
        ]
        try:
            reply = connection.send(b"\r\n".join([*lines, b"", b""]), bodiless=True)
            await reply.wait_for_head()
            _require_success(reply)
            inner = make()
            loop = asyncio.get_running_loop()
            transport = await loop.start_tls(
                connection.transport, inner, _tls_context(), server_hostname=self.host
            )
        except BaseException:
            connection.close()
            raise
        connection.detach()
        inner.connection_made(transport)
        return inner


def parse_endpoint(upstream: Upstream) -> Endpoint:
    """The server at an upstream's address."""
    parts = urlsplit(upstream.url)
    host = (
        (parts.hostname or "").encode("ascii" if ":" in (parts.hostname or "") else "idna").decode()
    )
    usual = _DEFAULT_PORTS[parts.scheme]
    shown = f"[{host}]" if ":" in host else host
    port = parts.port or usual
    return Endpoint(
        host=host,
        port=port,
        tls=parts.scheme == "https",
        authority=(shown if port == usual else f"{shown}:{port}"),
        base=parts.path.rstrip("/"),
        proxy=urlsplit(upstream.proxy) if upstream.proxy else None,
    )


def _require_success(reply: Response) -> None:
    if reply.status != 200:
        raise BrokenError(f"the proxy answers {reply.status}")


async def _open_connection(
    host: str, port: int, make: ConnectionFactory, *, tls: bool = False
) -> Connection:
    loop = asyncio.get_running_loop()
    places = await loop.getaddrinfo(host, port, type=SOCK_STREAM, flags=AI_ADDRCONFIG)
    line = await start_connection(places, happy_eyeballs_delay=HAPPY_EYEBALLS_DELAY, loop=loop)
    try:
        _, connection = await loop.create_connection(
            make,
            sock=line,
            ssl=_tls_context() if tls else None,
            server_hostname=host if tls else None,
        )
    except BaseException:
        line.close()
        raise
    return connection


@cache
def _tls_context() -> ssl.SSLContext:
    """As this machine trusts. Read when it is first needed."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context
