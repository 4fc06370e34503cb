"""Malicious clients, on raw sockets against the server that `refold serve` runs."""

import asyncio
import json
import select
import socket
from base64 import b64encode
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any, cast

import pytest
import uvicorn
from uvicorn.server import ServerState

from refold.gateway.app import Gateway, LoadPeaks, release_memory
from refold.gateway.config import Config
from refold.gateway.http.request import ClientDisconnected
from refold.gateway.http.response import ResponseWriter
from refold.gateway.http.server_protocol import WRITE_BUFFER_BYTES, create_protocol
from refold.gateway.logs import AccessLogEntry
from refold.gateway.pipeline.pipeline import Pipeline
from refold.gateway.settings import Limits, Upstream
from refold.testing.scripted_gateway import ScriptedPipeline, serving
from refold.testing.scripted_provider import Received, Reply, ScriptedProvider
from tests.support.raw_http import eventually, pour, read_rest, statuses, talk

LIMITS = Limits(
    head_seconds=60,
    body_seconds=60,
    head_bytes=8_192,
    headers=50,
    idle_seconds=1,
    body_bytes=100_000,
)
HASTY = replace(LIMITS, head_seconds=0.4, body_seconds=0.4)
"""Limits for tests of slow clients only, so that a busy machine breaks no other test."""
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture
def place():
    with ScriptedProvider() as upstream:
        config = Config(
            upstreams=(Upstream(name="up", url=upstream.url),), salt=b"s", limits=LIMITS
        )
        with serving(config) as gateway:
            yield upstream, gateway


@pytest.fixture
def hasty():
    with ScriptedProvider() as upstream:
        config = Config(upstreams=(Upstream(name="up", url=upstream.url),), salt=b"s", limits=HASTY)
        with serving(config) as gateway:
            yield upstream, gateway


def targets(upstream: ScriptedProvider) -> list[str]:
    return [asked.target for asked in upstream.received]


AMBIGUOUS = {
    "length and chunks": b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks and length": b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "two lengths": b"Content-Length: 5\r\nContent-Length: 0\r\n\r\nhello",
    "two equal lengths": b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    "a list of lengths": b"Content-Length: 5, 5\r\n\r\nhello",
    "a signed length": b"Content-Length: +5\r\n\r\nhello",
    "a negative length": b"Content-Length: -1\r\n\r\n",
    "a hexadecimal length": b"Content-Length: 0x5\r\n\r\nhello",
    "a length beyond numbers": b"Content-Length: 99999999999999999999999\r\n\r\n",
    "an unknown coding": b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "chunked, identity": b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "chunked twice": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a coding with a tab": b"Transfer-Encoding:\tgzip, chunked\r\n\r\n0\r\n\r\n",
    "a space before the colon": b"Content-Length : 5\r\n\r\nhello",
    "a folded header": b"Content-Length: 0\r\n 5\r\n\r\nhello",
    "a chunk size that is none": b"Transfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n",
    "a negative chunk": b"Transfer-Encoding: chunked\r\n\r\n-1\r\nhello\r\n0\r\n\r\n",
    "an endless chunk size": b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffffff\r\nhello\r\n0\r\n\r\n",
    "a chunk that is too short": b"Transfer-Encoding: chunked\r\n\r\n3\r\nhello\r\n0\r\n\r\n",
    "a bare line feed in a header": b"X: 1\nContent-Length: 5\r\n\r\nhello",
    "a nul in a header": b"X: a\x00b\r\nContent-Length: 0\r\n\r\n",
    "no host": b"",
}


@pytest.mark.parametrize("name", AMBIGUOUS)
@pytest.mark.parametrize("path", [b"/v1/messages", b"/v1/models"])
def test_no_request_is_smuggled(place, name: str, path: bytes) -> None:
    """However a parser may read these, nothing after them reaches the upstream."""
    upstream, gateway = place
    host = b"" if name == "no host" else b"Host: x\r\n"
    raw = b"POST " + path + b" HTTP/1.1\r\n" + host + (AMBIGUOUS[name] or b"\r\n") + SMUGGLED
    answer = talk(gateway.port, raw, wait=60)
    assert "/smuggled" not in targets(upstream)
    assert statuses(answer) and all(400 <= status < 600 for status in statuses(answer)), answer


@pytest.mark.parametrize("path", [b"/v1/messages", b"/v1/models"])
def test_a_chunked_body_in_http_1_0_is_refused(place, path: bytes) -> None:
    """RFC 9112, 6.1: a server in front of this one may have framed such a body differently."""
    upstream, gateway = place
    head = (
        b"POST "
        + path
        + b" HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    answer = talk(gateway.port, head + b"0\r\n\r\n" + SMUGGLED)
    assert statuses(answer) == [400] and b"connection: close" in answer and upstream.received == []


def test_a_request_with_two_hosts_is_refused(place) -> None:
    upstream, gateway = place
    raw = b"GET /v1/models HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"
    assert statuses(talk(gateway.port, raw)) == [400] and upstream.received == []


TARGETS = {
    "absolute": b"GET http://other.example/v1/models HTTP/1.1",
    "absolute to us": b"GET http://127.0.0.1/v1/models HTTP/1.1",
    "authority": b"CONNECT other.example:443 HTTP/1.1",
    "at sign": b"GET @other.example/ HTTP/1.1",
    "asterisk": b"OPTIONS * HTTP/1.1",
    "dots": b"GET /local/../admin HTTP/1.1",
    "encoded dots": b"GET /local/%2e%2E/admin HTTP/1.1",
    "encoded slash and dots": b"GET /local/..%2fadmin HTTP/1.1",
    "backslashes": b"GET /local/..\\admin HTTP/1.1",
    "fragment": b"GET /v1/models#x HTTP/1.1",
    "space": b"GET /v1/mo dels HTTP/1.1",
    "line break": b"GET /v1/models%0d%0aX:1\r\nY HTTP/1.1",
    "nothing": b"GET  HTTP/1.1",
    "bytes that are no ASCII": b"GET /v1/\xff HTTP/1.1",
    "a query that is no ASCII": b"GET /v1/models?a=\xe4\xbd\xa0 HTTP/1.1",
}


@pytest.mark.parametrize("name", TARGETS)
def test_absolute_and_malformed_request_targets_are_refused(place, name: str) -> None:
    upstream, gateway = place
    answer = talk(
        gateway.port, TARGETS[name] + b"\r\nHost: x\r\nConnection: close\r\n\r\n", wait=60
    )
    assert upstream.received == []
    assert statuses(answer) == [400], answer


def test_the_host_header_does_not_change_the_upstream(place) -> None:
    """The gateway is no open relay."""
    upstream, gateway = place
    raw = b"GET //other.example/v1/models HTTP/1.1\r\nHost: other\r\nConnection: close\r\n\r\n"
    assert statuses(talk(gateway.port, raw)) == [200]
    assert targets(upstream)[0].endswith("/other.example/v1/models")
    assert upstream.received[0].all("host") == [upstream.url.removeprefix("http://")]


def test_large_heads_are_refused(place) -> None:
    upstream, gateway = place
    many = b"".join(b"X-%d: 1\r\n" % n for n in range(60))
    for head in (many, b"X: " + b"a" * 9_000 + b"\r\n"):
        answer = talk(gateway.port, b"GET /v1/models HTTP/1.1\r\nHost: x\r\n" + head + b"\r\n")
        assert statuses(answer) == [431]
    assert gateway.gateway.pipeline.counters.get("http_refused", reason="http_431") == 2
    assert statuses(
        talk(gateway.port, b"GET /" + b"a" * 9_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n")
    ) in ([431], [400])
    assert upstream.received == []


@pytest.mark.parametrize("start", [b"GET /", b"GET / HTTP/1.1\r\nX: ", b"GET / HTTP/1.1\r\nX"])
def test_an_endless_request_head_is_cut_off(place, start: bytes) -> None:
    _, gateway = place
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=60) as line:
        line.sendall(start)
        assert pour(line, b"a" * 8_192, 2_000)


@pytest.mark.parametrize("path", [b"/v1/messages", b"/v1/files"])
def test_endless_chunk_extensions_and_trailers_are_cut_off(place, path: bytes) -> None:
    _, gateway = place
    for start in (b"1;x=", b"0\r\nX: "):
        with socket.create_connection(("127.0.0.1", gateway.port), timeout=60) as line:
            line.sendall(
                b"POST "
                + path
                + b" HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                + start
            )
            assert pour(line, b"a" * 8_192, 4_000)


BESIDE = {
    "extensions": (b"1;" + b"e" * 4_000 + b"\r\nx\r\n", 100),
    "extensions of large chunks": (b"1000;" + b"e" * 4_000 + b"\r\n" + b"x" * 4_096 + b"\r\n", 100),
    "leading zeros": (b"0" * 4_000 + b"1\r\nx\r\n", 100),
    "chunks of a byte": (b"1\r\nx\r\n" * 1_000, 300),
    "trailers": (b"0\r\n" + b"x: " + b"t" * 4_000 + b"\r\n", 1),
}


@pytest.mark.parametrize("name", BESIDE)
def test_c18_chunk_overhead_and_trailers_of_a_request_share_one_limit(name: str) -> None:
    """An endless request of many chunks, each with an extension below the limit, used to be read
    forever."""
    piece, times = BESIDE[name]
    head = b"POST /v1/files HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    trailers = b"x: " + b"t" * 4_000 + b"\r\n"
    with ScriptedProvider() as upstream:
        limits = replace(LIMITS, upload_bytes=10_000_000)
        config = Config(
            upstreams=(Upstream(name="up", url=upstream.url),), salt=b"s", limits=limits
        )
        with serving(config) as gateway:
            pieces = [trailers] * 100 if name == "trailers" else [piece] * times
            answer = talk(gateway.port, head, piece, *pieces, b"0\r\n\r\n", wait=60)
            assert statuses(answer) in ([431], []), (
                "closed, though its answer may be lost on the way"
            )
            assert eventually(lambda: gateway.gateway.in_progress == 0)


def test_c18_a_large_body_in_many_valid_chunks_is_accepted() -> None:
    """Chunk sizes and line ends are no attack, however many there are: 200,000 bytes beside 400,000
    of body."""
    head = (
        b"POST /v1/files HTTP/1.1\r\nHost: x\r\nConnection: close\r\nExpect: 100-continue\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n"
    )
    with ScriptedProvider() as upstream:
        limits = replace(LIMITS, upload_bytes=10_000_000)
        config = Config(
            upstreams=(Upstream(name="up", url=upstream.url),), salt=b"s", limits=limits
        )
        with (
            serving(config) as gateway,
            socket.create_connection(("127.0.0.1", gateway.port), timeout=60) as line,
        ):
            line.sendall(head)
            assert line.recv(25, socket.MSG_WAITALL) == b"HTTP/1.1 100 Continue\r\n\r\n"
            line.sendall(
                b"a\r\n0123456789\r\n" * 40_000 + b"0\r\n\r\n"
            )  # no overhead with the head
            assert statuses(read_rest(line)) == [200]
        assert upstream.received[0].body == b"0123456789" * 40_000


async def echo(_scope: object, receive: Any, send: Any) -> None:
    """Answer with the received body."""
    body, has_more = b"", True
    while has_more:
        message = await receive()
        body, has_more = body + message.get("body", b""), message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})


def answer_to_pieces(raw: bytes, size: int, limits: Limits) -> bytes:
    """Pass *raw* to the server's protocol in pieces of *size* bytes and return the answer."""

    async def run() -> bytes:
        loop = asyncio.get_running_loop()
        config = uvicorn.Config(echo, http=create_protocol(limits, print), log_config=None)
        config.load()
        state = ServerState()
        make_protocol = partial(config.http_protocol_class, config, state, {})
        client, side = socket.socketpair()
        with client:
            client.setblocking(False)
            transport, protocol = await loop.connect_accepted_socket(make_protocol, side)
            for at in range(0, len(raw), size):
                protocol.data_received(raw[at : at + size])
            await asyncio.gather(*state.tasks)
            transport.close()
            answer = bytearray()
            while piece := await loop.sock_recv(client, 65_536):
                answer += piece
            return bytes(answer)

    return asyncio.run(asyncio.wait_for(run(), 60))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
def test_c18_law_packet_boundaries_in_a_chunked_body_make_no_difference(size: int) -> None:
    """The overhead of a split chunk used to be forgiven for its last piece alone, and a slow
    client's valid body was refused. Pieces of 1 to 3 bytes split each chunk's size, extension and
    line end."""
    limits = replace(LIMITS, head_bytes=200)
    head = b"POST /v1/files HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    honest = b"13\r\n0123456789abcdefghi\r\n" * 150 + b"0\r\n\r\n"
    answer = answer_to_pieces(head + honest, size, limits)
    assert statuses(answer) == [200] and answer.count(b"0123456789abcdefghi") == 150
    padded = b"13;pad=12345678\r\n0123456789abcdefghi\r\n" * 150 + b"0\r\n\r\n"
    assert statuses(answer_to_pieces(head + padded, size, limits)) == [431]


def test_c18_chunk_overhead_of_one_body_does_not_count_for_the_next_head(place) -> None:
    """12,000 bytes of overhead in a body, then a head of 6,000 bytes in two pieces: each is
    accepted."""
    _, gateway = place
    body = (b"1;" + b"e" * 4_000 + b"\r\nx\r\n") * 3 + b"0\r\n\r\n"
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=60) as line:
        line.sendall(
            b"POST /v1/files HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        assert line.recv(25, socket.MSG_WAITALL) == b"HTTP/1.1 100 Continue\r\n\r\n"
        line.sendall(body)
        answer = b""
        while b"\r\n\r\n" not in answer or not answer.endswith((b"}", b"\n")):
            answer += line.recv(65_536)
        line.sendall(
            b"GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX: " + b"a" * 6_000
        )
        later = talk(
            gateway.port, b"GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        )
        assert statuses(later) == [200], "by now the gateway has read the first piece"
        line.sendall(b"\r\n\r\n")
        assert statuses(answer + read_rest(line)) == [200, 200]


def test_c17_http_versions_other_than_1_0_and_1_1_are_refused(place) -> None:
    """`GET /path` alone (HTTP/0.9) and a request line with HTTP/2.0 used to be forwarded as
    HTTP/1.1."""
    upstream, gateway = place
    for line in (b"GET /v1/models", b"GET /v1/models HTTP/0.9", b"GET /v1/models HTTP/2.0"):
        answer = talk(gateway.port, line + b"\r\nHost: x\r\n\r\n", wait=60)
        assert statuses(answer) == [505] and b"connection: close" in answer, line
    for line in (b"GET /v1/models HTTP/1.2", b"GET /v1/models HTTP/3.0", b"GET /v1/models HTTP/11"):
        assert statuses(talk(gateway.port, line + b"\r\nHost: x\r\n\r\n", wait=60)) == [400], line
    assert upstream.received == []


def test_trailers_do_not_become_headers(place) -> None:
    upstream, gateway = place
    raw = (
        b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTrailer: x-api-key\r\n"
        b"Connection: close\r\n\r\n2\r\n{}\r\n0\r\nx-api-key: stolen\r\n\r\n"
    )
    assert statuses(talk(gateway.port, raw)) == [200]
    assert upstream.received[0].body == b"{}" and upstream.received[0].all("x-api-key") == []


def test_a_client_that_sends_nothing_is_disconnected(hasty) -> None:
    _, gateway = hasty
    assert statuses(talk(gateway.port, wait=60)) == [408]


def test_a_client_that_sends_a_letter_at_a_time_is_disconnected(hasty) -> None:
    _, gateway = hasty
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=60) as line:
        line.sendall(b"GET /v1/models HTTP/1.1\r\nHost: ")
        assert pour(line, b"x", 1_000, 0.01)


@pytest.mark.parametrize("path", [b"/v1/messages", b"/v1/files"])
def test_a_body_that_does_not_arrive_times_out_with_408(hasty, path: bytes) -> None:
    _, gateway = hasty
    raw = b"POST " + path + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{"
    assert statuses(talk(gateway.port, raw, wait=60)) == [408]


@pytest.mark.parametrize("path", [b"/v1/messages", b"/v1/messages/batches"])
@pytest.mark.parametrize("start", [b"{", b"{" * 90_000])
def test_a_body_that_arrives_too_slowly_is_refused_with_408(
    hasty, path: bytes, start: bytes
) -> None:
    """One byte every few seconds used to be enough to hold one of `requests` for days. A fast
    beginning earns no more than `body_seconds`."""
    _, gateway = hasty
    head = b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: 99000\r\n\r\n" % path
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=60) as line:
        line.sendall(head + start)
        for _ in range(100):
            if select.select([line], [], [], 0.1)[0]:
                break
            line.sendall(b"x")
        answer = read_rest(line)
    assert statuses(answer) == [408]
    error = json.loads(answer.partition(b"\r\n\r\n")[2])
    assert error["type"] == "error" and "500 bytes a second" in error["error"]["message"]
    assert eventually(lambda: gateway.gateway.in_progress == 0)
    assert gateway.gateway.pipeline.counters.get("http_refused", reason="http_408") == 1


@pytest.mark.parametrize("path", [b"/v1/messages", b"/v1/files"])
def test_a_large_body_over_a_slow_connection_is_accepted(path: bytes) -> None:
    """It takes longer than a body may be silent, but keeps a sufficient rate."""
    piece = b" " * 2_000
    head = b"POST %b HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n{"
    with ScriptedProvider() as upstream:
        limits = replace(LIMITS, body_seconds=2)
        up = Upstream(name="up", url=upstream.url)
        with (
            serving(Config(upstreams=(up,), salt=b"s", limits=limits)) as gateway,
            socket.create_connection(("127.0.0.1", gateway.port), timeout=60) as line,
        ):
            line.sendall(head % (path, 25 * len(piece) + 2))
            assert not pour(line, piece, 25, 0.1)
            line.sendall(b"}")
            assert statuses(read_rest(line)) == [200]
    assert len(upstream.received[0].body) == 50_002


def test_a_client_with_a_too_large_body_can_read_the_413_response(place) -> None:
    """Clients send the whole body before they read the response. Closing earlier reset the
    connection, and agents reported "connection error" and retried."""
    upstream, gateway = place
    size = 30_000_000
    with socket.create_connection(("127.0.0.1", gateway.port)) as line:
        line.sendall(b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(30):
            line.sendall(b"x" * (size // 30))
        assert statuses(read_rest(line)) == [413], "and it is closed then"
    assert not upstream.received


def test_a_client_that_does_not_read_its_response_is_disconnected() -> None:
    """This holds wherever in the response it stops: the size decides which write blocks first."""

    def answer(asked: Received) -> Reply:
        size = int(asked.target.rpartition("=")[2])
        return Reply(body=(b"x" * size, b"end"), pause=0.2, type="text/plain")

    limits = replace(LIMITS, silence_seconds=0.5)
    with ScriptedProvider(answer) as upstream, ExitStack() as lines:
        config = Config(
            upstreams=(Upstream(name="up", url=upstream.url),), salt=b"s", limits=limits
        )
        gateway = lines.enter_context(serving(config))
        sizes = range(1_000_000, 5_000_000, 131_072)
        for size in sizes:
            line = lines.enter_context(socket.socket())
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            line.connect(("127.0.0.1", gateway.port))
            line.sendall(b"GET /v1/files?size=%d HTTP/1.1\r\nHost: x\r\n\r\n" % size)
        assert eventually(lambda: len(upstream.received) == len(sizes))
        assert eventually(lambda: gateway.gateway.in_progress == 0)
        assert eventually(lambda: not gateway.server.server_state.connections), (
            "those are closed, read or not"
        )


def test_c21_a_slow_reader_costs_little_memory() -> None:
    """Counted in bytes buffered on both sides of the gateway, which used to be up to 800,000 per
    client."""
    with ExitStack() as stack:
        long = Reply(body=(b"x" * 65_536,) * 500, type="text/plain")
        upstream = stack.enter_context(ScriptedProvider([long]))
        config = Config(upstreams=(Upstream(name="up", url=upstream.url),), salt=b"s")
        gateway = stack.enter_context(serving(config))
        for path in ("v1/files", "v1/chat/completions") * 5:
            line = stack.enter_context(socket.socket())
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            line.connect(("127.0.0.1", gateway.port))
            line.sendall(
                b"POST /%b HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}" % path.encode()
            )
        connections = gateway.server.server_state.connections
        assert eventually(lambda: len(upstream.received) == 10)
        assert eventually(
            lambda: sum(connection.flow.write_paused for connection in connections) == 10
        )
        unsent = [connection.transport.get_write_buffer_size() for connection in connections]
        held = gateway.gateway.buffered_bytes
        assert 0 < max(unsent) <= 100_000 and held <= 10 * 65_536
        assert {
            connection.transport.get_write_buffer_limits()[1] for connection in connections
        } == {WRITE_BUFFER_BYTES}
        assert gateway.gateway._peaks._height == 10, "how many are under way is noted"


def test_c21_memory_is_released_after_a_load_peak() -> None:
    async def run() -> None:
        released, done = list[int](), asyncio.Event()
        loop = asyncio.get_running_loop()

        def release() -> None:
            released.append(1)
            loop.call_soon_threadsafe(done.set)

        rushes = LoadPeaks(release, pause=0, every=1e9)
        for under_way in (*range(64), *range(63, 16, -1)):
            rushes.update(under_way)
        assert not done.is_set(), "63 at once are none"
        for under_way in (64, 30, 16, 3, 64, 1, 0):
            rushes.update(under_way)
        await asyncio.wait_for(done.wait(), 60)
        await loop.shutdown_default_executor()  # all other jobs have ended
        assert released == [1], "and not again for a while"

    asyncio.run(run())
    release_memory()


@pytest.mark.parametrize("step", ["start", "write", "end", "respond"])
def test_every_step_of_a_response_times_out_if_the_client_does_not_read(step: str) -> None:
    async def never(_: object) -> None:
        await asyncio.Event().wait()

    async def run() -> None:
        writer = ResponseWriter(never, AccessLogEntry(), 0.01)
        given = {"start": (200, ()), "write": (b"x",), "end": (b"x",), "respond": (400, (), b"x")}
        with pytest.raises(ClientDisconnected):
            await getattr(writer, step)(*given[step])

    asyncio.run(asyncio.wait_for(run(), 60))


def test_an_unused_connection_is_closed(place) -> None:
    _, gateway = place
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=60) as line:
        line.sendall(b"GET /refold/health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert statuses(read_rest(line)) == [200]


def test_pipelined_requests_are_answered_in_order(place) -> None:
    upstream, gateway = place
    raw = b"".join(b"GET /v1/models/%d HTTP/1.1\r\nHost: x\r\n\r\n" % n for n in range(5))
    assert statuses(talk(gateway.port, raw, wait=60)) == [200] * 5
    assert targets(upstream) == [f"/v1/models/{n}" for n in range(5)]


def test_invalid_bytes_after_a_request_do_not_get_into_its_response() -> None:
    slow = Reply(body=(b"data: 1\n\n", b"data: 2\n\n"), pause=0.3, type="text/event-stream")
    with ScriptedProvider([slow]) as upstream:
        config = Config(
            upstreams=(Upstream(name="up", url=upstream.url),), salt=b"s", limits=LIMITS
        )
        with serving(config) as gateway:
            answer = talk(
                gateway.port, b"GET /v1/stream HTTP/1.1\r\nHost: x\r\n\r\n", b"\x00rubbish\r\n\r\n"
            )
    assert b"400 Bad Request" not in answer.partition(b"\r\n\r\n")[2]


def test_bytes_that_are_not_http_are_refused(place) -> None:
    upstream, gateway = place
    for raw in (
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"hello\r\n\r\n",
        b"\r\n" * 9_000,
    ):
        assert set(statuses(talk(gateway.port, raw))) <= {400, 408, 431}
    assert upstream.received == []


def test_an_upgrade_request_cannot_smuggle_another_request(place) -> None:
    """The bytes that follow are read as a normal request, never as another protocol."""
    upstream, gateway = place
    offer = b"Host: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\r\n"
    raw = b"GET /v1/models HTTP/1.1\r\n" + offer + b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + SMUGGLED
    talk(gateway.port, raw, wait=3)
    assert targets(upstream) in ([], ["/v1/models"])
    assert not [request for request in upstream.received if request.all("upgrade")]


def test_invalid_headers_of_an_upstream_do_not_reach_the_client(place) -> None:
    bad = Reply(body=(b"{}",), headers=(("x-evil", "a\x7fb"),))
    with ScriptedProvider([bad, "Done."]) as upstream:
        config = Config(upstreams=(Upstream(name="up", url=upstream.url),), salt=b"s")
        pipeline = ScriptedPipeline()
        with serving(config, pipeline) as gateway:
            first = talk(
                gateway.port, b"GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
            )
            assert b"\x7f" not in first
            second = talk(
                gateway.port, b"GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
            )
            assert statuses(second) == [200]
            assert eventually(lambda: gateway.gateway.in_progress == 0)


ADMIN = ("/metrics", "/refold/anything")


def get(port: int, path: str, *headers: str) -> list[int]:
    lines = "".join(f"{header}\r\n" for header in headers)
    return statuses(talk(port, f"GET {path} HTTP/1.1\r\n{lines}Connection: close\r\n\r\n".encode()))


@pytest.mark.parametrize("path", ADMIN)
def test_without_an_admin_token_admin_paths_answer_only_local_requests(place, path: str) -> None:
    _, gateway = place
    allowed = [200] if path == "/metrics" else [404]
    assert get(gateway.port, path, f"Host: 127.0.0.1:{gateway.port}") == allowed
    assert get(gateway.port, path, "Host: localhost") == allowed
    assert get(gateway.port, path, "Host: [::1]:1") == allowed
    assert get(gateway.port, path, "Host: evil.example") == [403], (
        "a name that was made to lead here"
    )
    assert get(gateway.port, path, "Host: localhost", "Origin: https://evil.example") == [403]
    assert get(gateway.port, path, "Host: localhost", "Origin: null") == [403]
    assert get(gateway.port, path, "Host: localhost", "X-Forwarded-For: 127.0.0.1") == [403]
    assert get(gateway.port, path, "Host: localhost", "Forwarded: for=1.2.3.4") == [403]


@pytest.mark.parametrize("path", ADMIN)
def test_with_an_admin_token_admin_paths_require_it(path: str) -> None:
    token = "correct horse battery"
    with ScriptedProvider() as upstream:
        config = Config(
            upstreams=(Upstream(name="up", url=upstream.url),), salt=b"s", admin_token=token
        )
        with serving(config) as gateway:
            assert get(
                gateway.port, path, "Host: any.example", f"Authorization: Bearer {token}"
            ) != [401]
            for wrong in (
                "",
                "Bearer",
                f"Bearer {token}x",
                f"Bearer {token[:-1]}",
                f"Basic {token}",
            ):
                assert get(gateway.port, path, "Host: localhost", f"Authorization: {wrong}") == [
                    401
                ]
            assert get(gateway.port, "/refold/health", "Host: x") == [200]
            assert get(gateway.port, "/refold/ready", "Host: x") == [200]
            assert get(gateway.port, "/refoldx", "Host: x") == [200]
        assert targets(upstream) == ["/refoldx"], (
            "only the gateway's own paths are kept from the upstream"
        )


OUR_TOKEN = "correct horse battery"


@pytest.mark.parametrize(
    ("path", "header"),
    [
        ("/refold;v=1/api/overview", f"Authorization: Bearer {OUR_TOKEN}"),
        ("/anthropic/refold/api/overview", f"authorization: bearer   {OUR_TOKEN} "),
        ("/v1/models", f"Authorization: {OUR_TOKEN}"),
        ("/v1/models", f"X-Api-Key: {OUR_TOKEN}"),
        ("/v1/models?token=correct%20horse%20battery", "X-Api-Key: its-own"),
        ("/v1/models", f"Cookie: a=b; token={OUR_TOKEN}; c=d"),
        ("/v1/models", "Cookie: token=correct%20horse%20battery"),
        ("/v1/models", f"Proxy-Auth: basic {b64encode(f'me:{OUR_TOKEN}'.encode()).decode()}"),
        ("/v1/models", f"X-Auth: Basic {b64encode(f'{OUR_TOKEN}:'.encode()).decode()}"),
    ],
)
def test_the_admin_token_is_never_sent_to_an_upstream(path: str, header: str) -> None:
    with ScriptedProvider() as upstream:
        config = Config(
            upstreams=(Upstream(name="up", url=upstream.url),), salt=b"s", admin_token=OUR_TOKEN
        )
        with serving(config) as gateway:
            assert get(gateway.port, path, "Host: x", "Authorization: its-own", header) == [404]
            for like in (f"X-Api-Key: {OUR_TOKEN}2", "Authorization: Basic eDo", "Cookie: =;;"):
                assert get(gateway.port, "/v1/models", "Host: x", like) == [200]
        assert targets(upstream) == ["/v1/models"] * 3


def test_variants_of_admin_paths_are_not_sent_upstream_with_any_token(place) -> None:
    upstream, gateway = place
    for path in ("/REFOLD/api/overview", "//refold/api/overview", "/Metrics", "/%2Frefold/api"):
        assert get(gateway.port, path, "Host: localhost", "Authorization: Bearer old") == [404]
    assert targets(upstream) == []


@pytest.mark.parametrize("path", ["/%6detrics", "/%72efold/health", "/refold%2fhealth"])
def test_percent_encoded_admin_paths_are_answered_with_404(place, path: str) -> None:
    """A proxy that blocks /refold/ and /metrics used to let /%6detrics through."""
    upstream, gateway = place
    assert get(gateway.port, path, "Host: localhost") == [404]
    assert get(gateway.port, "/metrics?x=%6d", "Host: localhost") == [200]
    assert targets(upstream) == []


def test_a_gateway_mounted_below_a_path_answers_its_own_paths() -> None:
    config = Config(upstreams=(Upstream(name="up", url="http://127.0.0.1:9"),), salt=b"s")
    sent = list[dict[str, Any]]()

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/llm/refold/health", "root_path": "/llm"}
    gateway = Gateway(config, cast("Pipeline", ScriptedPipeline()))
    asyncio.run(gateway({**scope, "headers": []}, None, send))  # type: ignore[arg-type]
    assert sent[0]["status"] == 200
