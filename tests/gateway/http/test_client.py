"""The client to upstreams, on raw sockets: response framing and connection reuse."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from refold.gateway.exchange import HTTPException
from refold.gateway.http import client as clients
from refold.gateway.http.client import BUFFER_BYTES, READ_BYTES, BrokenError, HTTPClient, Response
from refold.gateway.http.request import UpstreamRequest
from refold.gateway.settings import Limits, Upstream
from tests.support.certificates import write_certificate

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class Server:
    """Answers each request with the next of *answers*, and closes the connection after one that is
    followed by None."""

    def __init__(self, *answers: bytes | None) -> None:
        self.answers, self.heads, self.bodies, self.connections, self.closed = (
            list(answers),
            [],
            [],
            0,
            0,
        )

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections, self.writer = self.connections + 1, writer
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                self.heads.append(head)
                fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
                self.bodies.append(await reader.readexactly(int(fields.get(b"content-length", 0))))
                if fields.get(b"transfer-encoding") == b"chunked":
                    self.bodies[-1] = await reader.readuntil(b"0\r\n\r\n")
                writer.write(self.answers.pop(0) or b"")
                await writer.drain()
                if self.answers and self.answers[0] is None:
                    self.answers.pop(0)
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.closed += 1
            writer.close()


class Loop(asyncio.SelectorEventLoop):
    """An event loop whose clock can be advanced: silences of hours pass at once, and none passes on
    its own."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead


def put_forward(seconds: float) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, Loop)
    loop.ahead += seconds


def run(
    server: Server,
    work: Callable[[Callable[..., Awaitable[Response]], HTTPClient], Awaitable[object]],
    **limits: float,
) -> None:
    async def go() -> None:
        listening = await asyncio.start_server(server, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        client = HTTPClient(Limits(**limits))

        async def send(
            method: str = "POST",
            body: object = b"{}",
            headers=(),
            proxy: str = "",
            base: str = "",
            target: str = "/x?y=1",
        ) -> Response:
            up = Upstream(
                name="up",
                url=url + base if not proxy else "http://elsewhere.invalid/v",
                proxy=proxy and url,
            )
            return await client.send(UpstreamRequest(up, method, target, list(headers), body))

        try:
            await work(send, client)
        finally:
            client.close()
            listening.close()

    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(go())


async def whole(reply: Response) -> bytes:
    pieces = []
    while piece := await reply.read():
        pieces.append(piece)
    reply.release()
    return b"".join(pieces)


@pytest.mark.parametrize(
    ("answer", "method", "body", "connections"),
    [
        (OK, "POST", b"ok", 1),
        (
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\no\r\n1;x=y\r\nk\r\n0\r\nt: 1\r\n\r\n",
            "POST",
            b"ok",
            1,
        ),
        (
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + OK,
            "POST",
            b"ok",
            1,
        ),
        (b"HTTP/1.1 204 No Content\r\n\r\n", "POST", b"", 1),
        (b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok", "POST", b"ok", 2),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok", "POST", b"ok", 2),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n", "HEAD", b"", 2),
    ],
)
def test_responses_are_read_with_each_kind_of_http_framing(
    answer: bytes, method: str, body: bytes, connections: int
) -> None:
    server = Server(answer, OK)

    async def work(send, client) -> None:
        first = await send(method, None if method == "HEAD" else b"{}")
        assert await whole(first) == body
        assert [name for name, _ in first.headers if name in (b"t", b"link")] == []
        assert await whole(await send()) == b"ok"
        assert server.connections == connections

    run(server, work)


def test_a_response_without_a_length_ends_when_the_connection_closes() -> None:
    async def work(send, client) -> None:
        reply = await send()
        assert await whole(reply) == b"ok" and reply.is_exhausted

    run(Server(b"HTTP/1.1 200 OK\r\n\r\nok", None), work)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\nzz\r\n",
    ],
)
def test_an_answer_that_breaks_off_is_reported(answer: bytes) -> None:
    async def work(send, client) -> None:
        reply = await send()
        assert await reply.read() == b"ok"
        with pytest.raises(BrokenError):
            await reply.read()
        reply.release()

    run(Server(answer, None), work)


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
        b"HTTP/1.1 999 Request Denied\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 3_000 + b"\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 300_000,
        b"",
    ],
)
def test_an_invalid_response_is_refused_with_502(answer: bytes) -> None:
    async def work(send, client) -> None:
        with pytest.raises(HTTPException) as refused:
            await send()
        assert refused.value.status == 502

    run(Server(answer, None), work, head_bytes=2_000)


EVIL = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil"


@pytest.mark.parametrize("later", [False, True])
def test_unasked_bytes_never_answer_the_next_request(later: bool) -> None:
    """Response splitting: extra bytes right after a response, or on an idle connection."""
    server = Server(OK, OK) if later else Server(OK + EVIL, OK)

    async def work(send, client) -> None:
        assert await whole(await send()) == b"ok"
        if later:
            server.writer.write(EVIL)
        while not server.closed:  # noqa: ASYNC110 - unexpected bytes close it
            await asyncio.sleep(0.01)
        assert await whole(await send()) == b"ok"
        assert server.connections == 2

    run(server, work)


def test_headers_are_sent_and_received_byte_for_byte() -> None:
    """In order, with repeats, in any bytes that a header may have. Latin-1 is not converted to
    UTF-8."""
    sent = [(b"x-b", b"caf\xe9"), (b"x-a", "café".encode()), (b"x-b", b"\xff\xfe 2")]
    lines = b"".join(b"%b: %b\r\n" % header for header in sent)
    server = Server(b"HTTP/1.1 200 OK\r\n" + lines + b"content-length: 2\r\n\r\nok")

    async def work(send, client) -> None:
        response = await send(headers=sent)
        assert response.headers == [*sent, (b"content-length", b"2")]
        assert server.heads[0].endswith(b"\r\n" + lines + b"content-length: 2\r\n\r\n")
        assert await whole(response) == b"ok"

    run(server, work)


@pytest.mark.parametrize(("method", "body", "again"), [("GET", None, True), ("POST", b"{}", False)])
def test_only_idempotent_requests_are_retried_after_a_closed_connection(
    method: str, body: bytes | None, again: bool
) -> None:
    """RFC 9110, 9.2.2: the upstream closes a kept connection instead of answering."""
    server = Server(OK, b"", None, OK)

    async def work(send, client) -> None:
        await whole(await send())
        if again:
            assert await whole(await send(method, body)) == b"ok"
        else:
            with pytest.raises(HTTPException):
                await send(method, body)

    run(server, work)


def test_a_response_that_stops_midway_times_out() -> None:
    async def work(send, client) -> None:
        reply = await send()
        assert await reply.read() == b"o"
        waiting = asyncio.ensure_future(reply.read())
        await asyncio.sleep(0)
        put_forward(899)
        await asyncio.sleep(0)
        assert not waiting.done()
        put_forward(2)
        with pytest.raises(TimeoutError):
            await waiting

    run(Server(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\no"), work, silence_seconds=900)


def test_the_silence_timeout_starts_anew_for_each_request() -> None:
    async def work(send, client) -> None:
        for _ in range(4):
            assert await whole(await send()) == b"ok"
            put_forward(10)
            await asyncio.sleep(0)
        assert server.connections == 1

    server = Server(OK, OK, OK, OK)
    run(server, work, silence_seconds=15)


def test_a_body_iterator_is_streamed_and_its_exceptions_are_raised() -> None:
    server = Server(OK)

    async def pieces(fault: Exception | None = None) -> AsyncIterator[bytes]:
        yield b"one"
        await asyncio.sleep(0)
        if fault is not None:
            raise fault
        yield b"two"

    async def work(send, client) -> None:
        assert await whole(await send(body=pieces())) == b"ok"
        assert server.bodies == [b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"]
        with pytest.raises(LookupError):
            await send(body=pieces(LookupError()))

    run(server, work)


def test_a_large_response_is_buffered_only_up_to_the_limit() -> None:
    size = 8_000_000

    async def work(send, client) -> None:
        reply = await send()
        while reply.buffered_bytes <= BUFFER_BYTES:  # noqa: ASYNC110 - the loop fills the buffer
            await asyncio.sleep(0.01)
        for _ in range(20):
            await asyncio.sleep(0.01)
            assert reply.buffered_bytes <= BUFFER_BYTES + READ_BYTES
        assert len(await whole(reply)) == size

    run(Server(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size + b"x" * size), work)


def test_an_answer_that_is_not_read_closes_its_connection() -> None:
    """None of its bytes count as buffered for a client."""
    server = Server(OK, OK)

    async def work(send, client) -> None:
        (reply := await send()).release()
        assert reply.buffered_bytes and not client.buffered_bytes
        await whole(await send())
        assert server.connections == 2

    run(server, work)


@pytest.mark.parametrize(
    ("base", "target", "asked"),
    [
        ("/v1", "/v1/models", "/v1/models"),
        ("/api/v1/", "/v1/models?a=b", "/api/v1/models?a=b"),
        ("/v1beta", "/v1beta/models/m:countTokens", "/v1beta/models/m:countTokens"),
        ("/v1", "/models", "/v1/models"),
        ("/v1", "/v1beta/models", "/v1/v1beta/models"),
        ("/voice", "/voices/v1", "/voice/voices/v1"),
        ("/a/voice", "/voice/v1", "/a/voice/voice/v1"),
        ("/openai", "/openai/v1/models", "/openai/v1/models"),
        ("/api/v1", "/api/v1/models", "/api/v1/models"),
        ("", "/v1/v1/models", "/v1/v1/models"),
    ],
)
def test_a_path_prefix_in_both_base_url_and_request_is_sent_once(
    base: str, target: str, asked: str
) -> None:
    """Base URLs with and without a version, such as `http://127.0.0.1:8000/v1`, are both common.
    With the prefix on both sides the path used to be `/v1/v1/models`, an unexplained 404. Groq's
    own SDK adds `/openai`, as its preset does."""
    server = Server(OK)

    async def work(send, client) -> None:
        assert await whole(await send(base=base, target=target)) == b"ok"
        assert server.heads[0].startswith(b"POST %s HTTP/1.1\r\n" % asked.encode())

    run(server, work)


def test_an_upstream_that_closes_the_connection_is_reported_as_such() -> None:
    async def work(send, client) -> None:
        with pytest.raises(HTTPException) as refusal:
            await send()
        assert refusal.value.message.endswith("cannot be reached (the connection was closed).")

    run(Server(b"", None), work)


def test_a_proxied_request_has_an_absolute_url_and_the_host_of_its_server() -> None:
    server = Server(OK)

    async def work(send, client) -> None:
        assert await whole(await send(proxy="yes")) == b"ok"
        assert server.heads[0].startswith(
            b"POST http://elsewhere.invalid/v/x?y=1 HTTP/1.1\r\nhost: elsewhere.invalid\r\n"
        )

    run(server, work)


@pytest.mark.parametrize("value", [b"a\r\nx: y", b"a\nb", b"a\rb", b"a\0b"])
def test_a_header_value_with_a_line_break_or_nul_is_refused(value: bytes) -> None:
    server = Server(OK)

    async def work(send, client) -> None:
        with pytest.raises(HTTPException):
            await send(headers=[(b"x", value)])

    run(server, work)
    assert server.heads == []


@pytest.fixture
def certificate_file(tmp_path, monkeypatch):
    """Create a certificate for this machine that is trusted during the test."""
    file = write_certificate(tmp_path / "both.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    clients._tls_context.cache_clear()
    yield file
    clients._tls_context.cache_clear()


async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
    writer.close()


@pytest.mark.parametrize("through", ["nothing", "proxy", "refusing proxy", "no trust"])
def test_an_https_upstream_is_reached_directly_and_through_a_proxy(
    certificate_file, monkeypatch, through: str
) -> None:
    server, connects = Server(OK, OK), []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        connects.append(head)
        if through == "refusing proxy":
            writer.write(b"HTTP/1.1 407 No\r\ncontent-length: 0\r\n\r\n")
            writer.close()
            return
        target = await asyncio.open_connection(
            "127.0.0.1", int(head.split()[1].rpartition(b":")[2])
        )
        writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
        await asyncio.gather(
            pipe(reader, target[1]), pipe(target[0], writer), return_exceptions=True
        )

    async def go() -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate_file)
        listening = await asyncio.start_server(server, "127.0.0.1", 0, ssl=context)
        between = await asyncio.start_server(proxy, "127.0.0.1", 0)
        ports = [listener.sockets[0].getsockname()[1] for listener in (listening, between)]
        by = f"http://us%40er:pw@127.0.0.1:{ports[1]}" if "proxy" in through else ""
        up, client = (
            Upstream(name="up", url=f"https://127.0.0.1:{ports[0]}/base/", proxy=by),
            HTTPClient(Limits()),
        )
        order = UpstreamRequest(up, "POST", "/x", [], b"{}")
        try:
            if through in ("refusing proxy", "no trust"):
                with pytest.raises(HTTPException):
                    await client.send(order)
            else:
                for _ in range(2):
                    assert await whole(await client.send(order)) == b"ok"
                assert server.connections == 1
                assert all(head.startswith(b"POST /base/x HTTP/1.1\r\n") for head in server.heads)
                assert not any(b"proxy-auth" in head for head in server.heads)
            if by:
                assert connects[0].startswith(b"CONNECT 127.0.0.1:%d HTTP/1.1\r\n" % ports[0])
                assert b"\r\nproxy-authorization: Basic dXNAZXI6cHc=\r\n" in connects[0]
        finally:
            client.close()
            await asyncio.sleep(0.05)
            listening.close()
            between.close()

    if through == "no trust":
        monkeypatch.delenv("SSL_CERT_FILE")
    asyncio.run(go())
