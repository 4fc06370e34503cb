"""Declined upgrades: the request and what follows are read as if no upgrade had been offered (RFC
9110, 7.8)."""

import json
import socket
import time

import pytest

from refold.gateway.config import Config
from refold.gateway.settings import Limits, Upstream
from refold.testing.scripted_gateway import serving
from refold.testing.scripted_provider import ScriptedProvider
from tests.support.raw_http import eventually, read_rest, statuses, talk

BODY = json.dumps(
    {"model": "m", "messages": [{"role": "user", "content": "Hello from Java."}]}
).encode()
OFFER = b"Connection: Upgrade, HTTP2-Settings\r\nHost: x\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\n"
"""Headers that Java's `java.net.http.HttpClient` sends with each request of a new connection."""
POST = (
    b"POST /v1/chat/completions?a=%41 HTTP/1.1\r\n"
    + OFFER
    + b"Upgrade: h2c\r\nContent-Type: application/json\r\n"
)
WHOLE = POST + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
CHUNKED = (
    POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
)
NEXT = b"GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


@pytest.fixture
def place():
    with ScriptedProvider() as upstream:
        limits = Limits(head_seconds=60, body_seconds=60, idle_seconds=5, grace_seconds=60)
        with serving(
            Config(upstreams=(Upstream(name="up", url=upstream.url),), salt=b"s", limits=limits)
        ) as gateway:
            yield upstream, gateway


def pieces(raw: bytes, *places: int) -> list[bytes]:
    ends = [*places, len(raw)]
    return [raw[start:end] for start, end in zip([0, *places], ends, strict=True)]


def send_parts(port: int, parts: list[bytes]) -> bytes:
    """Return the response to *parts*, each sent in a packet of its own."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as line:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for part in parts:
            line.sendall(part)
            time.sleep(0.02)
        return read_rest(line)


@pytest.mark.parametrize("raw", [WHOLE, CHUNKED], ids=["length", "chunked"])
@pytest.mark.parametrize(
    "cuts", [(), (20,), (len(POST) + 10,), (WHOLE.index(BODY),), (len(WHOLE) - 5,)]
)
def test_a_body_after_an_http2_upgrade_offer_arrives_whole(
    place, raw: bytes, cuts: tuple[int, ...]
) -> None:
    upstream, gateway = place
    answer = send_parts(gateway.port, [*pieces(raw, *cuts)[:-1], pieces(raw, *cuts)[-1] + NEXT])
    assert statuses(answer) == [200, 200], answer
    first, second = upstream.received
    assert (
        first.body == BODY
        and first.target == "/v1/chat/completions?a=%41"
        and second.target == "/v1/models"
    )
    assert not (first.all("upgrade") or first.all("http2-settings") or first.all("connection"))
    assert first.all("content-type") == ["application/json"]


def test_every_request_of_a_connection_may_offer_an_upgrade(place) -> None:
    upstream, gateway = place
    assert statuses(talk(gateway.port, WHOLE + CHUNKED + WHOLE + NEXT)) == [200] * 4
    assert [asked.body for asked in upstream.received] == [BODY, BODY, BODY, b""]


def test_an_upload_after_an_upgrade_offer_is_passed_on(place) -> None:
    upstream, gateway = place
    raw = b"POST /v1/files HTTP/1.1\r\n" + OFFER + b"Upgrade: h2c\r\nContent-Length: 5\r\n\r\nhello"
    assert statuses(talk(gateway.port, raw + NEXT)) == [200, 200]
    assert upstream.received[0].body == b"hello"


@pytest.mark.parametrize("method", [b"GET", b"POST"])
def test_a_websocket_upgrade_is_refused_and_the_connection_stays_open(place, method: bytes) -> None:
    upstream, gateway = place
    raw = (
        method
        + b" /v1/responses HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    )
    answer = talk(
        gateway.port, raw + b"Sec-WebSocket-Version: 13\r\nContent-Length: 5\r\n\r\nhello" + NEXT
    )
    assert statuses(answer) == [426, 200]
    assert [asked.target for asked in upstream.received] == ["/v1/models"]


def test_an_invalid_head_is_refused_with_an_upgrade_offer_too(place) -> None:
    """Two lengths, a length and chunks, or many headers: refused with an upgrade as without."""
    upstream, gateway = place
    for rest, status in (
        (b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", 400),
        (b"".join(b"X-%d: 1\r\n" % n for n in range(300)) + b"\r\n", 431),
    ):
        assert statuses(talk(gateway.port, POST + rest))[:1] == [status]
    assert statuses(talk(gateway.port, b"CONNECT /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")) == [400]
    assert upstream.received == []


@pytest.mark.parametrize("path", [b"/v1/chat/completions", b"/v1/files"])
def test_a_half_sent_body_does_not_delay_the_shutdown(place, path: bytes) -> None:
    """Even though the body may take `body_seconds` and streams `grace_seconds`."""
    _, gateway = place
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=60) as line:
        line.sendall(b"POST " + path + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        assert eventually(lambda: gateway.gateway.in_progress == 1)
        gateway.stop()
        assert statuses(read_rest(line)) == [503]
    assert eventually(lambda: gateway.gateway.in_progress == 0)


def test_a_request_completed_during_the_shutdown_is_answered(place) -> None:
    upstream, gateway = place
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=60) as line:
        line.sendall(WHOLE[:-5])
        assert eventually(lambda: gateway.gateway.in_progress == 1)
        gateway.stop()
        line.sendall(WHOLE[-5:])
        assert statuses(read_rest(line)) == [200]
    assert upstream.received[0].body == BODY
