"""The gateway on real sockets: what passes, how it passes, and what is answered instead."""

import asyncio
import gzip
import json
import socket
import threading
import zlib
from contextlib import ExitStack
from dataclasses import replace

import brotli
import httpx
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from refold.gateway.config import Config
from refold.gateway.exchange import GatewayResponse, Outgoing
from refold.gateway.pipeline.upstream_errors import ErrorFigures, read_figures
from refold.gateway.settings import Limits, Upstream
from refold.testing.scripted_gateway import ScriptedPipeline, serving
from refold.testing.scripted_provider import Received, Reply, ScriptedProvider
from tests.support.raw_http import eventually, pour, statuses, talk

CLIENT = httpx.Client(timeout=60)


@pytest.fixture(scope="session", autouse=True)
def close_client():
    """The client's connections are closed at the end."""
    yield
    CLIENT.close()


APIS = {
    "openai_chat": (
        "/v1/chat/completions",
        {"model": "m", "messages": [{"role": "user", "content": "hi"}]},
    ),
    "openai_responses": ("/v1/responses", {"model": "m", "input": "hi"}),
    "anthropic": (
        "/v1/messages",
        {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]},
    ),
    "gemini": (
        "/v1beta/models/m:generateContent",
        {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]},
    ),
}


def config(upstream: ScriptedProvider, **changes) -> Config:
    limits = changes.pop("limits", Limits())
    return Config(
        upstreams=(Upstream(name="up", url=upstream.url),), salt=b"salt", limits=limits, **changes
    )


def stream_of(api: str) -> tuple[str, dict]:
    path, body = APIS[api]
    if api == "gemini":
        return path.replace(":generate", ":streamGenerate") + "?alt=sse", body
    return path, {
        **body,
        "stream": True,
        **({"stream_options": {"include_usage": True}} if "chat" in path else {}),
    }


@pytest.fixture(scope="module")
def echo():
    """A gateway that changes nothing before an upstream that always says the same."""
    with ScriptedProvider(["Done."]) as upstream, serving(config(upstream)) as gateway:
        yield upstream, gateway


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_every_method_and_path_passes(echo, method: str) -> None:
    upstream, gateway = echo
    target = "/v1/files/a%2Fb%20c/%E4%BD%A0?limit=20&after=a%2Bb&empty=&x=1|2"
    raw = f"{method} {target} HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nConnection: close\r\n\r\n\x00\xff!"
    answer = talk(gateway.port, raw.encode("latin-1"))
    assert statuses(answer) == [200]
    assert (
        upstream.received[-1].method,
        upstream.received[-1].target,
        upstream.received[-1].body,
    ) == (
        method,
        target,
        b"\x00\xff!",
    )


def test_headers_are_passed_on_except_hop_by_hop_headers(echo) -> None:
    upstream, gateway = echo
    raw = (
        b"POST /v1/messages?beta=true HTTP/1.1\r\nHost: other\r\nanthropic-beta: a\r\nanthropic-beta: b\r\n"
        b"X-Own: \xe4\xbd\xa0\r\nauthorization: Bearer k\r\nCookie: c=1\r\nKeep-Alive: 5\r\nTE: trailers\r\n"
        b"Proxy-Authorization: p\r\nX-Hop: 1\r\nConnection: close, X-Hop, Authorization\r\nExpect: 100-continue\r\n"
        b"User-Agent: me\r\nContent-Length: 2\r\n\r\n{}"
    )
    assert 200 in statuses(talk(gateway.port, raw))
    sent = upstream.received[-1]
    assert sent.all("anthropic-beta") == ["a", "b"]
    assert sent.all("x-own")[0].encode("latin-1") == b"\xe4\xbd\xa0"
    assert sent.all("cookie") == ["c=1"]
    assert sent.all("authorization") == ["Bearer k"], "a key is not for `connection` to name"
    assert sent.all("host") == [upstream.url.removeprefix("http://")]
    names = {name.lower() for name, _ in sent.headers}
    assert not names & {
        "keep-alive",
        "te",
        "proxy-authorization",
        "x-hop",
        "expect",
        "connection",
        "accept-encoding",
    }
    assert sent.all("user-agent") == ["me"] and sent.all("content-length") == ["2"]


def test_the_upstreams_status_and_headers_are_returned() -> None:
    headers = (
        ("set-cookie", "a=1"),
        ("set-cookie", "b=2"),
        ("request-id", "r"),
        ("keep-alive", "timeout=5"),
    )
    with (
        ScriptedProvider(
            [Reply(status=418, body=(b"{}",), headers=headers, has_length=True)]
        ) as upstream,
        serving(config(upstream)) as gateway,
    ):
        answer = CLIENT.post(f"{gateway.url}/v1/chat/completions", json={})
        assert answer.status_code == 418 and answer.content == b"{}"
        assert answer.headers.get_list("set-cookie") == ["a=1", "b=2"]
        assert answer.headers["request-id"] == "r" and answer.headers["content-length"] == "2"
        assert "keep-alive" not in answer.headers and "server" not in answer.headers


def test_redirects_are_returned_to_the_client() -> None:
    with (
        ScriptedProvider(
            [Reply("moved", status=307, location="http://127.0.0.1:9/elsewhere")]
        ) as upstream,
        serving(config(upstream)) as gateway,
    ):
        answer = CLIENT.post(f"{gateway.url}/v1/messages", json={})
        assert (
            answer.status_code == 307
            and answer.headers["location"] == "http://127.0.0.1:9/elsewhere"
        )
        assert len(upstream.received) == 1


@given(st.binary(max_size=300))
def test_bodies_pass_byte_for_byte(echo, body: bytes) -> None:
    upstream, gateway = echo
    CLIENT.post(f"{gateway.url}/v1/messages", content=body)
    assert upstream.received[-1].body == body


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/files"])
def test_chunked_bodies_pass(echo, path: str) -> None:
    upstream, gateway = echo
    CLIENT.post(f"{gateway.url}{path}", content=iter([b"{", b'"a":1', b"}"]))
    assert upstream.received[-1].body == b'{"a":1}'


def test_a_large_upload_is_passed_on_whole(echo) -> None:
    upstream, gateway = echo
    size = 20 * 1024 * 1024
    answer = CLIENT.post(
        f"{gateway.url}/v1/files",
        content=(b"x" * 65_536 for _ in range(size // 65_536)),
        timeout=60,
    )
    assert answer.status_code == 200 and len(upstream.received[-1].body) == size
    upstream.received.pop()


@pytest.mark.parametrize("api", APIS)
def test_a_stream_arrives_as_it_is_made(api: str) -> None:
    gate = threading.Event()

    def pieces():
        yield b'data: {"n": 1'
        yield b'}\r\n\r\n: comment\n\ndata: {"n": 2}\n\n'
        assert gate.wait(300)
        yield b"data: [DONE]\n\n"

    play = Reply(body=pieces(), type="text/event-stream")
    path, body = stream_of(api)
    with (
        ScriptedProvider([play]) as upstream,
        serving(config(upstream)) as gateway,
        CLIENT.stream("POST", gateway.url + path, json=body, timeout=60) as answer,
    ):
        came = b""
        for piece in answer.iter_raw():
            came += piece
            if came.endswith(b'{"n": 2}\n\n'):
                gate.set()  # a gateway that waits for the end would never let us here
        assert came == b'data: {"n": 1}\r\n\r\n: comment\n\ndata: {"n": 2}\n\ndata: [DONE]\n\n'


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("stream", [False, True])
def test_usage_is_reported_and_bytes_are_the_same(api: str, stream: bool) -> None:
    path, body = stream_of(api) if stream else APIS[api]
    pipeline = ScriptedPipeline()
    with (
        ScriptedProvider([Reply("你好 there, my friend", usage=(1_000, 50, 300))]) as upstream,
        serving(config(upstream), pipeline) as gateway,
    ):
        direct = CLIENT.post(upstream.url + path, json=body)
        through = CLIENT.post(gateway.url + path, json=body)
        assert (
            through.content == direct.content
            and through.headers["content-type"] == direct.headers["content-type"]
        )
        assert eventually(lambda: pipeline.counters.get("http_tokens", kind="input") == 1_000)
        assert pipeline.counters.get("http_tokens", kind="output") == 50
        assert pipeline.counters.get("http_tokens", kind="cached") == 300
        ((outgoing, usage),) = pipeline.finishes  # told before it is counted
        assert outgoing.body == upstream.received[-1].body and usage


def test_usage_is_read_from_a_gemini_stream_in_json_list_form() -> None:
    pipeline = ScriptedPipeline()
    with (
        ScriptedProvider([Reply("one two three", usage=(77, 5, 0))]) as upstream,
        serving(config(upstream), pipeline) as gateway,
    ):
        path, body = APIS["gemini"]
        answer = CLIENT.post(gateway.url + path.replace(":generate", ":streamGenerate"), json=body)
        assert len(answer.json()) == 3
        assert eventually(lambda: pipeline.counters.get("http_tokens", kind="input") == 77)


CODINGS = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": brotli.compress,
    "zstd": zstandard.ZstdCompressor().compress,
}


@pytest.mark.parametrize("coding", CODINGS)
def test_compressed_responses_stay_compressed_and_their_usage_is_read(coding: str) -> None:
    plain = b'data: {"usage": {"prompt_tokens": 5, "completion_tokens": 1}}\n\n'
    packed = CODINGS[coding](plain)
    pieces = tuple(packed[at : at + 7] for at in range(0, len(packed), 7))
    pipeline = ScriptedPipeline()
    play = Reply(body=pieces, type="text/event-stream", headers=(("content-encoding", coding),))
    with ScriptedProvider([play]) as upstream, serving(config(upstream), pipeline) as gateway:
        path, body = stream_of("openai_chat")
        with CLIENT.stream("POST", gateway.url + path, json=body) as answer:
            assert (
                b"".join(answer.iter_raw()) == packed
                and answer.headers["content-encoding"] == coding
            )
        assert eventually(lambda: pipeline.counters.get("http_tokens", kind="input") == 5)


@pytest.mark.parametrize("coding", ["gzip", "deflate", "zstd"])
def test_compressed_requests_are_read_and_sent_unchanged(echo, coding: str) -> None:
    upstream, gateway = echo
    body = json.dumps(APIS["openai_responses"][1]).encode()
    packed = CODINGS[coding](body)
    CLIENT.post(f"{gateway.url}/v1/responses", content=packed, headers={"content-encoding": coding})
    assert upstream.received[-1].body == packed and upstream.received[-1].all(
        "content-encoding"
    ) == [coding]
    assert gateway.gateway.pipeline.incoming[-1].body == body


def test_an_edited_compressed_request_is_sent_uncompressed() -> None:
    pipeline = ScriptedPipeline(
        lambda incoming: Outgoing(b'{"model":"m","input":"less"}', ("e",), 9, 3, "edited")
    )
    with ScriptedProvider() as upstream, serving(config(upstream), pipeline) as gateway:
        body = gzip.compress(b'{"model":"m","input":"more"}')
        answer = CLIENT.post(
            f"{gateway.url}/v1/responses", content=body, headers={"content-encoding": "gzip"}
        )
        sent = upstream.received[-1]
        assert sent.json == {"model": "m", "input": "less"}
        assert sent.all("content-encoding") == [] and sent.all("content-length") == [
            str(len(sent.body))
        ]
        headers = {
            name: answer.headers[f"refold-{name}"]
            for name in ("edits", "tokens-before", "tokens-after")
        }
        assert headers == {"edits": "1", "tokens-before": "9", "tokens-after": "3"}


def test_digest_headers_are_removed_from_an_edited_request() -> None:
    pipeline = ScriptedPipeline(
        lambda incoming: Outgoing(
            incoming.body if b"same" in incoming.body else b"{}", ("e",), 9, 3, "edited"
        )
    )
    names = ("content-md5", "content-digest", "repr-digest", "digest")
    with ScriptedProvider() as upstream, serving(config(upstream), pipeline) as gateway:
        for body, count in ((b'{"input":"same"}', 4), (b'{"input":"more"}', 0)):
            headers = dict.fromkeys(names, "sha-256=:x:")
            CLIENT.post(f"{gateway.url}/v1/responses", content=body, headers=headers)
            assert sum(len(upstream.received[-1].all(name)) for name in names) == count


@pytest.mark.parametrize(
    "packed",
    [b"not gzip", gzip.compress(b"x" * 2_000_000), gzip.compress(b"{}")[:-4]],
    ids=["broken", "a bomb", "cut"],
)
def test_a_request_that_cannot_be_decompressed_is_sent_unread(packed: bytes) -> None:
    pipeline = ScriptedPipeline()
    small = Limits(body_bytes=1_000_000)
    with (
        ScriptedProvider() as upstream,
        serving(config(upstream, limits=small), pipeline) as gateway,
    ):
        answer = CLIENT.post(
            f"{gateway.url}/v1/responses", content=packed, headers={"content-encoding": "gzip"}
        )
        assert answer.status_code == 200 and upstream.received[-1].body == packed
        assert pipeline.incoming == []
        assert {out.reason for out, _ in pipeline.finishes} <= {"encoding"}, (
            "it is billed all the same"
        )


def test_headers_of_the_core_replace_the_clients() -> None:
    beta = (("anthropic-beta", "a,b"),)
    pipeline = ScriptedPipeline(lambda incoming: Outgoing(incoming.body, headers=beta))
    with ScriptedProvider() as upstream, serving(config(upstream), pipeline) as gateway:
        CLIENT.post(
            f"{gateway.url}/v1/messages", json={}, headers={"anthropic-beta": "a", "x-other": "1"}
        )
        assert upstream.received[0].all("anthropic-beta") == ["a,b"] and upstream.received[0].all(
            "x-other"
        ) == ["1"]


def test_refold_response_headers_can_be_turned_off() -> None:
    pipeline = ScriptedPipeline(lambda incoming: Outgoing(b"{}", ("e",), 9, 3, "edited"))
    with (
        ScriptedProvider() as upstream,
        serving(config(upstream, answer_headers=False), pipeline) as gateway,
    ):
        answer = CLIENT.post(f"{gateway.url}/v1/responses", json={})
        assert not [name for name in answer.headers if name.startswith("refold-")]


def test_a_refusal_of_the_pipeline_is_answered_without_asking_the_upstream() -> None:
    response = GatewayResponse(
        400, (("content-type", "application/json"), ("content-length", "2")), b"{}"
    )
    pipeline = ScriptedPipeline(
        lambda incoming: Outgoing(incoming.body, outcome="refused", response=response)
    )
    with ScriptedProvider() as upstream, serving(config(upstream), pipeline) as gateway:
        answer = CLIENT.post(f"{gateway.url}/v1/messages", json={})
        assert (answer.status_code, answer.content, upstream.received) == (400, b"{}", [])


def test_a_client_that_leaves_cancels_its_upstream() -> None:
    pipeline = ScriptedPipeline()
    with (
        ScriptedProvider([Reply("late", delay=3_600)]) as upstream,
        serving(config(upstream), pipeline) as gateway,
    ):
        with socket.create_connection(("127.0.0.1", gateway.port), timeout=60) as line:
            line.sendall(b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
            assert eventually(lambda: len(upstream.received) == 1)
        assert eventually(lambda: upstream.clients_left == 1)
        assert eventually(lambda: pipeline.counters.get("http_client_disconnects") == 1)
        assert eventually(lambda: [usage for _, usage in pipeline.finishes] == [None])


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/things"])
def test_a_client_that_leaves_in_a_stream_cancels_its_upstream(path: str) -> None:
    play = Reply(body=(b"data: {}\n\n",) * 400, pause=0.05, type="text/event-stream")
    with ScriptedProvider([play]) as upstream, serving(config(upstream)) as gateway:
        with CLIENT.stream("POST", gateway.url + path, json={"stream": True}) as answer:
            next(answer.iter_raw())
        assert eventually(lambda: upstream.clients_left == 1)


@pytest.mark.parametrize("length", [True, False])
def test_an_answer_that_breaks_off_is_not_ended_cleanly(length: bool) -> None:
    play = Reply(
        body=(b"data: {}\n\n",) * 4, cut_after=2, has_length=length, type="text/event-stream"
    )
    pipeline = ScriptedPipeline()
    with ScriptedProvider([play]) as upstream, serving(config(upstream), pipeline) as gateway:
        with (
            pytest.raises(httpx.RemoteProtocolError),
            CLIENT.stream("POST", f"{gateway.url}/v1/messages") as answer,
        ):
            list(answer.iter_raw())
        assert eventually(lambda: pipeline.counters.get("http_truncated") == 1)


def test_an_upload_that_becomes_too_large_is_no_fault_of_its_upstream() -> None:
    """The upstream had begun to answer, and was then logged and counted as having broken off."""
    pipeline, chunk = ScriptedPipeline(), b"400\r\n" + b"a" * 1_024 + b"\r\n"
    with socket.create_server(("127.0.0.1", 0)) as listening:
        upstream = Upstream(name="up", url=f"http://127.0.0.1:{listening.getsockname()[1]}")
        limits = Limits(upload_bytes=100_000)
        with (
            serving(Config(upstreams=(upstream,), salt=b"s", limits=limits), pipeline) as gateway,
            socket.create_connection(("127.0.0.1", gateway.port)) as line,
        ):
            head = b"POST /v1/files HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
            line.sendall(head + chunk)
            with listening.accept()[0] as connection:
                connection.recv(1)
                connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nearly")
                assert line.recv(4) == b"HTTP"
                pour(line, chunk, 200)
                refused = {"reason": "http_413"}
                assert eventually(lambda: pipeline.counters.get("http_refused", **refused) == 1)
        assert pipeline.counters.get("http_truncated") == 0


def test_a_304_response_may_have_a_content_length() -> None:
    """A 304 says it (RFC 9110, 8.6): it was waited for, taken for a fault, and the connection closed."""
    answer = (
        b"HTTP/1.1 304 Not Modified\r\netag: x\r\ncontent-length: 99\r\nconnection: close\r\n\r\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            for _ in range(2):
                with listening.accept()[0] as connection:
                    connection.recv(65_536)
                    connection.sendall(answer)

        upstream = threading.Thread(target=serve)
        upstream.start()
        up, pipeline = (
            Upstream(name="up", url=f"http://127.0.0.1:{listening.getsockname()[1]}"),
            ScriptedPipeline(),
        )
        ask = b"GET /v1/models HTTP/1.1\r\nHost: x\r\nIf-None-Match: x\r\n"
        with serving(Config(upstreams=(up,), salt=b"salt"), pipeline) as gateway:
            both = talk(gateway.port, ask + b"\r\n", ask + b"Connection: close\r\n\r\n")
            assert statuses(both) == [304, 304]
            assert pipeline.counters.get("http_refused", reason="fault") == 0
        upstream.join()


TYPES = {
    "openai_chat": lambda body: body["error"]["code"],
    "openai_responses": lambda body: body["error"]["code"],
    "anthropic": lambda body: body["error"]["type"],
    "gemini": lambda body: body["error"]["code"],
}


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("chunked", [False, True])
def test_a_too_large_body_is_refused_in_the_error_format_of_the_api(
    api: str, chunked: bool
) -> None:
    with (
        ScriptedProvider() as upstream,
        serving(config(upstream, limits=Limits(body_bytes=1_000))) as gateway,
    ):
        body = b"x" * 1_001
        answer = CLIENT.post(
            gateway.url + APIS[api][0], content=iter([body[:500], body[500:]]) if chunked else body
        )
        assert answer.status_code == 413 and upstream.received == []
        assert TYPES[api](answer.json()) in ("request_too_large", 413)
        assert "1,000 bytes that [limits]" in answer.json()["error"]["message"]
        exact = CLIENT.post(gateway.url + APIS[api][0], content=body[1:])
        assert exact.status_code == 200


@pytest.mark.parametrize("api", APIS)
def test_an_unreachable_upstream_is_answered_with_502(api: str) -> None:
    with ScriptedProvider() as upstream:
        where = config(upstream)
    with serving(where) as gateway:
        answer = CLIENT.post(gateway.url + APIS[api][0] + "?key=SECRET", json=APIS[api][1])
        assert answer.status_code == 502 and "SECRET" not in answer.text
        assert answer.headers["content-type"] == "application/json"
        error = answer.json()["error"]
        assert "cannot be reached" in error.pop("message")
        expected = {
            "anthropic": {"type": "api_error"},
            "gemini": {"code": 502, "status": "UNAVAILABLE"},
        }
        openai = {"type": "server_error", "param": None, "code": "upstream_unreachable"}
        assert error == expected.get(api, openai)
        assert answer.json().get("type") == ("error" if api == "anthropic" else None)


def test_an_upstream_that_is_silent_is_given_up() -> None:
    with (
        ScriptedProvider([Reply("late", delay=20)]) as upstream,
        serving(config(upstream, limits=Limits(silence_seconds=0.2))) as gateway,
    ):
        answer = CLIENT.post(f"{gateway.url}/v1beta/models/m:generateContent", json={})
        assert answer.status_code == 504 and answer.json()["error"]["status"] == "DEADLINE_EXCEEDED"


TOO_LONG = {
    "openai_chat": Reply("too long", status=400, code="context_length_exceeded"),
    "openai_responses": Reply("too long", status=400, code="context_length_exceeded"),
    "anthropic": Reply("prompt is too long: 210000 tokens > 200000 maximum", status=400),
    "gemini": Reply(
        "The input token count (9) exceeds the maximum number of tokens allowed (8).", status=400
    ),
}


def text_of_refusal(api: str) -> str:
    return TOO_LONG[api].text


def smaller(incoming, outgoing, error) -> Outgoing:
    return Outgoing(b'{"smaller": true}', ("a", "b"), 100, 40, "retried", "context")


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("coding", ["", "gzip"])
def test_after_a_context_error_something_smaller_is_sent(api: str, coding: str) -> None:
    path, body = APIS[api]
    pipeline = ScriptedPipeline(on_shrink=smaller)
    refused = TOO_LONG[api]
    if coding:
        packed = gzip.compress(
            json.dumps({"error": {"message": f"{refused.text} {refused.code}"}}).encode()
        )
        refused = replace(refused, body=(packed,), headers=(("content-encoding", "gzip"),))
    with (
        ScriptedProvider([refused, "Now it fits."]) as upstream,
        serving(config(upstream), pipeline) as gateway,
    ):
        answer = CLIENT.post(gateway.url + path, json=body)
        assert answer.status_code == 200 and "Now it fits." in answer.text
        assert [request.json for request in upstream.received] == [body, {"smaller": True}]
        assert (
            answer.headers["refold-edits"] == "2" and answer.headers["refold-tokens-after"] == "40"
        )
        assert len(pipeline.errors) == 1 and text_of_refusal(api).encode() in pipeline.errors[0]
        assert eventually(lambda: [done.outcome for done, _ in pipeline.finishes] == ["retried"])


@pytest.mark.parametrize("api", APIS)
def test_a_second_context_error_is_passed_on_to_the_client(api: str) -> None:
    path, body = APIS[api]
    pipeline = ScriptedPipeline(on_shrink=smaller)
    with (
        ScriptedProvider([TOO_LONG[api]]) as upstream,
        serving(config(upstream), pipeline) as gateway,
    ):
        answer = CLIENT.post(gateway.url + path, json=body)
        assert answer.status_code == 400 and answer.json()["error"]["message"] == TOO_LONG[api].text
        assert len(upstream.received) == 2 and len(pipeline.errors) == 1


FIRST_EVENTS = {
    "openai_chat": b'data: {"error": {"message": "x", "code": "context_length_exceeded"}}\n\n',
    "openai_responses": b'event: response.created\ndata: {"type": "response.created"}\n\nevent: response.failed\ndata: '
    b'{"type": "response.failed", "response": {"error": {"code": "context_length_exceeded", "message": "x"}}}\n\n',
    "anthropic": b'event: error\ndata: {"type": "error", "error": {"type": "invalid_request_error", "message": '
    b'"prompt is too long: 9 tokens > 8 maximum"}}\n\n',
    "gemini": b'data: {"error": {"code": 400, "message": "exceeds the maximum number of tokens"}}\r\n\r\n',
}


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("shape", ["at once", "byte by byte"])
def test_a_context_error_in_the_first_event_is_retried_too(api: str, shape: str) -> None:
    path, body = stream_of(api)
    first = FIRST_EVENTS[api]
    pieces = (first,) if shape == "at once" else tuple(bytes([byte]) for byte in first)
    pipeline = ScriptedPipeline(on_shrink=smaller)
    with (
        ScriptedProvider(
            [Reply(body=pieces, type="text/event-stream"), "Now it fits."]
        ) as upstream,
        serving(config(upstream, hold_seconds=20), pipeline) as gateway,
    ):
        answer = CLIENT.post(gateway.url + path, json=body)
        assert (
            answer.status_code == 200
            and len(upstream.received) == 2
            and first not in answer.content
        )


def test_an_error_after_the_first_words_is_passed_on() -> None:
    first = b'data: {"choices": [{"delta": {"content": "Hel"}}]}\n\n' + FIRST_EVENTS["openai_chat"]
    pipeline = ScriptedPipeline(on_shrink=smaller)
    with (
        ScriptedProvider([Reply(body=(first,), type="text/event-stream")]) as upstream,
        serving(config(upstream), pipeline) as gateway,
    ):
        path, body = stream_of("openai_chat")
        assert CLIENT.post(gateway.url + path, json=body).content == first
        assert pipeline.errors == []


def test_opening_events_without_content_are_held_back_only_briefly() -> None:
    gate = threading.Event()

    def pieces():
        yield b'data: {"type": "response.created"}\n\n'
        assert gate.wait(300)
        yield b'data: {"type": "response.completed"}\n\n'

    with (
        ScriptedProvider([Reply(body=pieces(), type="text/event-stream")]) as upstream,
        serving(config(upstream, hold_seconds=0.05)) as gateway,
        CLIENT.stream(
            "POST", f"{gateway.url}/v1/responses", json={"stream": True}, timeout=60
        ) as answer,
    ):
        pieces_come = answer.iter_raw()
        assert b"response.created" in next(pieces_come)
        gate.set()
        assert b"response.completed" in b"".join(pieces_come)


@pytest.mark.parametrize("api", APIS)
def test_a_context_error_in_another_format_is_rewritten_for_the_callers_api(api: str) -> None:
    odd = Reply(
        "the request exceeds the available context size, try increasing it",
        status=500,
        code="exceed",
    )
    with ScriptedProvider([odd]) as upstream, serving(config(upstream)) as gateway:
        answer = CLIENT.post(gateway.url + APIS[api][0], json=APIS[api][1])
        text = answer.text.lower()
        assert answer.status_code == 400
        assert any(
            w in text
            for w in ("context_length_exceeded", "prompt is too long", "maximum number of tokens")
        )


@pytest.mark.parametrize("api", APIS)
def test_a_context_error_that_begins_a_stream_becomes_a_400_of_the_callers_api(api: str) -> None:
    """As OpenRouter and servers of open models say it after they have begun with 200."""
    message = "the request exceeds the available context size (8192 tokens), try increasing it"
    pieces = [
        f"data: {json.dumps({'error': {'code': 500, 'message': message}})}\n\n".encode(),
        b"data: [DONE]\n\n",
    ]
    with (
        ScriptedProvider([Reply(body=pieces, type="text/event-stream")]) as upstream,
        serving(config(upstream)) as gateway,
    ):
        answer = CLIENT.post(gateway.url + APIS[api][0], json=APIS[api][1] | {"stream": True})
        text = answer.text.lower()
        assert answer.status_code == 400 and answer.headers["content-type"] == "application/json"
        assert any(
            w in text
            for w in ("context_length_exceeded", "prompt is too long", "maximum number of tokens")
        )
        assert CLIENT.post(gateway.url + APIS[api][0], json=APIS[api][1]).status_code == 400, (
            "the connection is in order"
        )


@pytest.mark.parametrize("api", ["anthropic", "openai_chat", "gemini"])
@pytest.mark.parametrize(("words", "limit"), [(" (40000 tokens)", 8_192), ("", 0)])
def test_token_counts_of_a_rewritten_error_are_kept_and_none_are_invented(
    api: str, words: str, limit: int
) -> None:
    window = f" ({limit} tokens)" if limit else ""
    odd = Reply(
        f"request{words} exceeds the available context size{window}, try increasing it",
        status=400,
        code="x",
    )
    with ScriptedProvider([odd]) as upstream, serving(config(upstream)) as gateway:
        answer = CLIENT.post(gateway.url + APIS[api][0], json=APIS[api][1])
        assert answer.status_code == 400
        assert read_figures(answer.content) == (
            ErrorFigures(40_000, 0, limit) if limit else ErrorFigures()
        )


def test_other_errors_pass_as_they_are() -> None:
    pipeline = ScriptedPipeline(on_shrink=smaller)
    with (
        ScriptedProvider([Reply("slow down", status=429, retry_after=7)]) as upstream,
        serving(config(upstream), pipeline) as gateway,
    ):
        answer = CLIENT.post(f"{gateway.url}/v1/messages", json={})
        assert answer.status_code == 429 and answer.headers["retry-after"] == "7"
        assert pipeline.errors == [] and len(upstream.received) == 1


def test_websockets_are_answered_with_426(echo) -> None:
    """Codex then goes on with HTTP at once, with its full history."""
    _, gateway = echo
    raw = (
        b"GET /v1/responses HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    last = b"GET /refold/health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    answer = talk(gateway.port, raw + last)
    assert statuses(answer) == [426, 200] and b"upgrade: HTTP/1.1" in answer


def test_an_internal_error_fails_only_its_own_request(caplog) -> None:
    def broken(incoming):
        raise RuntimeError("SECRET of the conversation")

    with (
        ScriptedProvider() as upstream,
        serving(config(upstream), ScriptedPipeline(broken)) as gateway,
    ):
        answer = CLIENT.post(f"{gateway.url}/v1/messages", json={})
        assert answer.status_code == 500 and "SECRET" not in answer.text
        assert CLIENT.get(f"{gateway.url}/v1/models").status_code == 200
    record = next(
        record_logged
        for record_logged in caplog.records
        if getattr(record_logged, "fields", {}).get("internal_error")
    )
    assert "RuntimeError" in record.fields["internal_error"] and "SECRET" not in str(record.fields)


def test_more_requests_than_allowed_get_a_retry_after() -> None:
    gate = threading.Event()

    def pieces():
        assert gate.wait(300)
        yield b"{}"

    with (
        ScriptedProvider([Reply(body=pieces())]) as upstream,
        serving(config(upstream, limits=Limits(requests=1))) as gateway,
    ):
        first = threading.Thread(target=CLIENT.post, args=(f"{gateway.url}/v1/messages",))
        first.start()
        assert eventually(lambda: len(upstream.received) == 1)
        answer = CLIENT.post(f"{gateway.url}/v1/messages")
        assert answer.status_code == 503 and answer.headers["retry-after"] == "1"
        assert answer.json()["error"]["type"] == "overloaded_error"
        assert "answers 1 requests at once: [limits]" in answer.json()["error"]["message"]
        gate.set()
        first.join()


def test_streams_are_finished_when_the_gateway_is_stopped() -> None:
    gate = threading.Event()

    def pieces():
        yield b'data: {"n": 1}\n\n'
        assert gate.wait(300)
        yield b'data: {"n": 2}\n\n'

    with (
        ScriptedProvider([Reply(body=pieces(), type="text/event-stream")]) as upstream,
        serving(config(upstream)) as gateway,
        CLIENT.stream(
            "POST", f"{gateway.url}/v1/messages", json={"stream": True}, timeout=60
        ) as answer,
    ):
        came = answer.iter_raw()
        first = next(came)
        gateway.stop()
        assert eventually(lambda: gateway.gateway.stopping)
        gate.set()
        assert first + b"".join(came) == b'data: {"n": 1}\n\ndata: {"n": 2}\n\n'


def test_concurrent_requests_get_their_own_answers() -> None:
    def echoing(asked: Received) -> Reply:
        return Reply(asked.json["messages"][0]["content"], delay=0.05)

    async def many(url: str) -> list[str]:
        async with httpx.AsyncClient(timeout=60) as client:
            asks = [
                client.post(
                    f"{url}/v1/chat/completions",
                    json={"messages": [{"role": "user", "content": f"n{n}"}]},
                )
                for n in range(60)
            ]
            return [
                answer.json()["choices"][0]["message"]["content"]
                for answer in await asyncio.gather(*asks)
            ]

    with ScriptedProvider(echoing) as upstream, serving(config(upstream)) as gateway:
        assert asyncio.run(many(gateway.url)) == [f"n{n}" for n in range(60)]
        assert eventually(lambda: gateway.gateway.in_progress == 0)


def test_upstreams_are_chosen_by_prefix_model_and_api() -> None:
    with ScriptedProvider() as local, ScriptedProvider() as qwen, ScriptedProvider() as claude:
        upstreams = (
            Upstream(name="one", url=f"{local.url}/base", prefix="/local"),
            Upstream(name="two", url=qwen.url, models=("qwen*",)),
            Upstream(name="three", url=claude.url, apis=("anthropic",)),
        )
        with serving(replace(config(local), upstreams=upstreams)) as gateway:
            CLIENT.post(f"{gateway.url}/local/v1/messages", json={"model": "m"})
            CLIENT.post(f"{gateway.url}/v1/chat/completions", json={"model": "qwen3-coder"})
            CLIENT.post(f"{gateway.url}/v1beta/models/qwen-g:generateContent", json={})
            CLIENT.post(f"{gateway.url}/v1/messages", json={"model": "claude"})
            CLIENT.get(f"{gateway.url}/v1/models", headers={"anthropic-version": "2023-06-01"})
            nowhere = CLIENT.post(f"{gateway.url}/v1/chat/completions", json={"model": "other"})
        assert [asked.target for asked in local.received] == ["/base/v1/messages"]
        assert [asked.target for asked in qwen.received] == [
            "/v1/chat/completions",
            "/v1beta/models/qwen-g:generateContent",
        ]
        assert [asked.target for asked in claude.received] == ["/v1/messages", "/v1/models"]
        assert nowhere.status_code == 404 and nowhere.json()["error"]["code"] == "not_found"


def test_the_core_gets_a_credential_and_no_key() -> None:
    pipeline = ScriptedPipeline()
    with ScriptedProvider() as upstream, serving(config(upstream), pipeline) as gateway:
        path = "/v1beta/models/m:generateContent"
        CLIENT.post(f"{gateway.url}{path}?key=KEY1&alt=json", json={})
        CLIENT.post(f"{gateway.url}{path}", json={}, headers={"x-goog-api-key": "KEY1"})
        CLIENT.post(f"{gateway.url}{path}", json={}, headers={"x-goog-api-key": "KEY1"})
        CLIENT.post(f"{gateway.url}{path}", json={})
        assert upstream.received[0].target == f"{path}?key=KEY1&alt=json"
    first, second, third, none = pipeline.incoming
    assert first.path == f"{path}?key=&alt=json"
    assert len({first.credential, second.credential}) == 2
    assert second.credential == third.credential and none.credential == ""
    assert "KEY1" not in first.credential


@pytest.mark.parametrize(
    ("kind", "status"),
    [("application/json", 200), ("application/json", 400), ("text/event-stream", 200)],
)
@pytest.mark.parametrize("coding", ["gzip", "br"])
def test_c9_a_response_that_decompresses_to_much_is_passed_on_and_counted(
    coding, kind, status
) -> None:
    plain = b" " * 40_000_000
    packed = gzip.compress(plain) if coding == "gzip" else brotli.compress(plain, quality=3)
    headers = (("content-encoding", coding),)
    played = Reply(status=status, body=(packed,), headers=headers, type=kind)
    with ExitStack() as stack:
        upstream = stack.enter_context(ScriptedProvider([played]))
        config = Config(upstreams=(Upstream(name="up", url=upstream.url),), salt=b"s")
        gateway = stack.enter_context(serving(config))
        body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
        with httpx.stream(
            "POST", f"{gateway.url}/v1/chat/completions", json=body, timeout=60
        ) as answer:
            assert b"".join(answer.iter_raw()) == packed and answer.status_code == status
        counter = b"http_unread_total{" if status == 400 else b"http_usage_missing_total{"
        assert eventually(lambda: counter in gateway.gateway.render_metrics())


@pytest.mark.parametrize("coding", ["gzip", "br"])
def test_c9_a_request_that_decompresses_to_much_is_passed_on_and_counted(coding) -> None:
    plain = b" " * 40_000_000
    packed = gzip.compress(plain) if coding == "gzip" else brotli.compress(plain, quality=3)
    with ScriptedProvider(["Hello."]) as upstream:
        limits = Limits(body_bytes=2**20)
        with serving(
            Config(upstreams=(Upstream(name="up", url=upstream.url),), salt=b"s", limits=limits)
        ) as gateway:
            headers = {"content-encoding": coding, "content-type": "application/json"}
            httpx.post(
                f"{gateway.url}/v1/chat/completions", content=packed, headers=headers, timeout=60
            )
            assert upstream.received[0].body == packed
            assert (
                b'refold_http_unread_total{body="request",upstream="up"} 1'
                in gateway.gateway.render_metrics()
            )
