"""Parts of the gateway without sockets: events, usage, content codings, metrics, headers."""

import asyncio
import gzip
import itertools
import json
import re
import zlib

import brotli
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from refold.gateway.exchange import APIS, HTTPException, RequestHead, error_response
from refold.gateway.http.client import Response as Answer
from refold.gateway.http.decoding import (
    MAX_EVENT_BYTES,
    DecodingThreads,
    EventSplitter,
    classify_event,
    create_decoder,
    decode_body,
    decode_piece,
    error_body,
    event_data,
)
from refold.gateway.http.request import client_api, generation_api, read_head, upstream_headers
from refold.gateway.http.response import (
    MAX_BODY_BYTES,
    MAX_STREAM_BYTES,
    ResponseStart,
    ResponseWriter,
    UsageTap,
    copy_body,
    find_usage,
)
from refold.gateway.logs import AccessLogEntry
from refold.gateway.metrics import Counters, render
from refold.gateway.settings import Limits
from refold.gateway.tenants import TenantResolver, redact_keys
from refold.testing.scripted_provider import Reply
from refold.testing.scripted_replies import encode_reply, events
from refold.tokens.usage import read_usage
from tests.support.examples import examples_at_night

ENDS = st.sampled_from([b"\n\n", b"\r\n\r\n", b"\r\r"])
LINES = st.binary(min_size=1, max_size=40).map(
    lambda b: b"data: " + b.replace(b"\n", b"x").replace(b"\r", b"x")
)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({min(place, len(data)) for place in places} | {0, len(data)})
    return [data[a:b] for a, b in itertools.pairwise(edges)]


@given(
    st.lists(st.tuples(LINES, ENDS), max_size=8), st.lists(st.integers(0, 400), max_size=12), LINES
)
def test_sse_events_do_not_depend_on_packet_boundaries(
    sent: list, places: list[int], rest: bytes
) -> None:
    reader = EventSplitter()
    stream = b"".join(line + end for line, end in sent) + rest
    assert [event for piece in cut(stream, places) for event in reader.feed(piece)] == [
        line for line, _ in sent
    ]
    assert reader.remainder() == rest


def test_an_event_that_is_too_long_is_skipped_and_the_next_is_read() -> None:
    reader = EventSplitter()
    for _ in range(MAX_EVENT_BYTES // (1024 * 1024) + 2):
        assert list(reader.feed(b"x" * 1024 * 1024)) == []
    assert list(reader.feed(b"end\n\ndata: 1\n\n")) == [b"data: 1"]


def test_data_of_several_lines_is_joined() -> None:
    assert event_data(b"event: a\ndata: 1\ndata:2\nid: 3\n: comment") == b"1\n2"


SORTS = {
    b": keep-alive": "opening",
    b'event: ping\ndata: {"type": "ping"}': "opening",
    b'data: {"type": "response.created"}': "opening",
    b'data: {"type": "error", "message": "x"}': "error",
    b'data: {"error": {"code": 400}}': "error",
    b'data: {"type": "response.failed", "response": {}}': "error",
    b'data: {"choices": [], "error": null}': "content",
    b"data: [DONE]": "content",
    b"data: {broken": "content",
    b'data: {"type": "message_start"}': "content",
    b"data: " + b"{" * 70_000: "content",
}


@pytest.mark.parametrize("event", SORTS)
def test_a_first_event_is_classified(event: bytes) -> None:
    assert classify_event(event) == SORTS[event]


def test_an_error_event_is_converted_to_an_error_body() -> None:
    failed = b'data: {"type": "response.failed", "response": {"error": {"code": "c"}}}'
    assert json.loads(error_body(failed)) == {"error": {"code": "c"}}
    flat = b'data: {"type": "error", "code": "c", "message": "m", "sequence_number": 3}'
    assert json.loads(error_body(flat)) == {"error": {"type": "error", "code": "c", "message": "m"}}
    nested = b'data: {"type": "error", "error": {"type": "t"}}'
    assert json.loads(error_body(nested)) == {"type": "error", "error": {"type": "t"}}


PATHS = {
    "openai_chat": "/v1/chat/completions",
    "openai_responses": "/v1/responses",
    "anthropic": "/v1/messages",
    "gemini": "/v1beta/models/m:generateContent",
}


@given(
    st.sampled_from(APIS),
    st.tuples(st.integers(1, 10**6), st.integers(0, 10**5), st.integers(0, 1)),
    st.text(max_size=60),
    st.lists(st.integers(0, 6_000), max_size=9),
    st.sampled_from(["", "gzip"]),
)
def test_usage_is_the_same_in_a_stream_and_in_an_answer(
    api: str, usage: tuple, text: str, places: list, coding: str
) -> None:
    asked = {"model": "m", "stream_options": {"include_usage": True}}
    whole = encode_reply(Reply(text, usage=usage), PATHS[api], asked)
    stream = b"".join(events(PATHS[api], json.loads(whole), asked))
    heard = []
    for kind, body in (("application/json", whole), ("text/event-stream; charset=utf-8", stream)):
        tap = UsageTap(kind, coding)
        for piece in cut(gzip.compress(body) if coding else body, places):
            list(tap.feed(piece))
        heard.append(read_usage(tap.usage()))
    assert heard[0] == heard[1]
    assert (heard[0].input, heard[0].output, heard[0].cached) == usage


@given(
    st.lists(st.binary(max_size=60), max_size=6),
    st.sampled_from(["", "gzip", "br", "zstd", "deflate", "odd"]),
)
def test_a_usage_tap_never_fails_on_any_bytes(pieces: list[bytes], coding: str) -> None:
    for kind in ("text/event-stream", "application/json", ""):
        tap = UsageTap(kind, coding)
        for piece in (*pieces, b'data: {"usage": 3}\n\n', b'{"usage": '):
            list(tap.feed(piece))
        assert tap.usage() is None


def test_the_usage_of_a_too_large_response_is_not_read() -> None:
    tap = UsageTap("application/json")
    for _ in range(MAX_BODY_BYTES // 2**20 + 1):
        list(tap.feed(b" " * 2**20))
    list(tap.feed(b'{"usage": {"prompt_tokens": 1}}'))
    assert tap.usage() is None


def test_missing_or_null_usage_is_read_as_none() -> None:
    assert (
        find_usage({"usage": None}) is None
        and find_usage([]) is None
        and find_usage({"response": "x"}) is None
    )


def test_unsupported_content_encodings_have_no_decoder() -> None:
    assert create_decoder("compress") is None and create_decoder("gzip, br") is None
    assert decode_body(b"x", "compress", 10) is None and decode_body(b"x", " Identity ", 10) == b"x"


CODECS_BY_NAME = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "zstd": zstandard.ZstdCompressor().compress,
}


@given(
    st.sampled_from(sorted(CODECS_BY_NAME)),
    st.lists(st.binary(max_size=60) | st.integers(0, 50_000).map(bytes), min_size=1, max_size=6),
    st.lists(st.integers(0, 600), max_size=9),
    st.data(),
)
def test_a_body_of_several_compressed_parts_is_decoded_whole_or_not_at_all(
    coding: str, parts: list, places: list, data
) -> None:
    plain, coded = b"".join(parts), [CODECS_BY_NAME[coding](part) for part in parts]
    body = b"".join(coded)
    assert decode_body(body, coding, len(plain)) == plain
    assert decode_body(body + bytes(9), coding, len(plain)) == plain, (
        "zeros are filling (gzip's manual)"
    )
    assert decode_body(body + b"more", coding, len(plain) + 100) is None
    short = data.draw(st.integers(1, len(coded[-1]) - 1), "bytes that are cut off")
    assert decode_body(body[:-short], coding, len(plain)) is None
    if plain:
        assert decode_body(body, coding, len(plain) - 1) is None
    reader = create_decoder(coding)
    assert reader is not None
    assert (
        b"".join(itertools.chain.from_iterable(map(reader.feed, cut(body, places)))) == plain
        and reader.is_complete
    )


PACKED = {**CODECS_BY_NAME, "deflate": zlib.compress, "br": brotli.compress}


@given(
    st.sampled_from(sorted(PACKED)),
    st.binary(max_size=300),
    st.integers(0, 200_000),
    st.lists(st.integers(0, 900)),
)
def test_c9_every_content_encoding_is_decoded_in_small_steps(
    coding: str, text: bytes, zeros: int, places: list[int]
) -> None:
    plain = text + bytes(zeros)
    body = PACKED[coding](plain)
    assert decode_body(body, coding, len(plain)) == plain
    assert not plain or decode_body(body, coding, len(plain) - 1) is None
    assert (
        decode_body(body + b"more", coding, len(plain) + 100) is None
        and decode_body(body[:-1], coding, len(plain)) is None
    )
    reader = create_decoder(coding)
    assert reader is not None
    steps = [step for piece in cut(body, places) for step in reader.feed(piece)]
    assert (
        b"".join(steps) == plain
        and reader.is_complete
        and max(map(len, steps), default=0) <= 5 * 2**20
    )


@pytest.mark.parametrize("coding", sorted(PACKED))
@pytest.mark.parametrize("pieces", [1, 7])
def test_c9_a_decoder_returns_all_of_its_buffered_output(coding: str, pieces: int) -> None:
    """Brotli returned the first 98,272 bytes of a highly compressible request, and the request went
    out unread."""
    plain = json.dumps(
        [{"role": "user", "content": f"line {n}"} for n in range(5_000)]
    ).encode() + bytes(300_000)
    body = PACKED[coding](plain)
    assert decode_body(body, coding, len(plain)) == plain
    reader = create_decoder(coding)
    assert reader is not None
    places = list(range(0, len(body), len(body) // pieces + 1))
    assert b"".join(step for piece in cut(body, places) for step in reader.feed(piece)) == plain
    assert reader.is_complete


BOMB = bytes(examples_at_night(40_000_000, 200_000_000))


@pytest.fixture(scope="module")
def bombs() -> dict[str, bytes]:
    """Return about 40 kB that decompress to 40 MB (nightly: 200 MB). Brotli needs 300 bytes."""
    quick = {
        "gzip": lambda plain: gzip.compress(plain, 6),
        "deflate": lambda plain: zlib.compress(plain, 6),
        "br": lambda plain: brotli.compress(plain, quality=3),
        "zstd": zstandard.ZstdCompressor().compress,
    }
    return {coding: pack(BOMB) for coding, pack in quick.items()}


def test_decode_piece_returns_none_if_nothing_can_be_decoded() -> None:
    """A decoding error is counted as unread."""
    assert decode_piece(create_decoder("gzip"), b"no gzip at all", 2**20) is None
    half = gzip.compress(b"prompt is too long" * 99)[:-30]
    assert decode_piece(create_decoder("gzip"), half, 2**20)


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd"])
def test_c9_a_decompression_bomb_is_decoded_in_small_steps(bombs, coding: str) -> None:
    """Such a response used to block every other request for 2.5 to 6 s: it was decompressed whole,
    on the event loop."""
    reader = create_decoder(coding)
    assert (
        reader is not None
        and max(map(len, itertools.islice(reader.feed(bombs[coding]), 200))) <= 5 * 2**20
    )
    assert decode_body(bombs[coding], coding, 16 * 2**20) is None
    reader = create_decoder(coding)
    assert reader is not None and decode_piece(reader, bombs[coding], 2**20) is None
    for kind, limit in (
        ("application/json", MAX_BODY_BYTES),
        ("text/event-stream", MAX_STREAM_BYTES),
    ):
        tap = UsageTap(kind, coding)
        steps = sum(1 for piece in cut(bombs[coding], [1_000, 50_000]) for _ in tap.feed(piece))
        assert 5 <= steps <= limit // 2**15, (
            "others are served in between, and the rest of it is not unpacked"
        )
        assert tap.usage() is None


def test_c9_the_event_loop_runs_while_a_large_response_is_decoded() -> None:
    """It is sent in one piece. Its decompressed form is inspected in steps, and the event loop runs
    between them."""

    async def run() -> int:
        async def send(message: object) -> None: ...

        reply, turns = Answer(None, has_body=False), 0  # type: ignore[arg-type]  # received completely
        reply.is_complete = True
        opening, tap = (
            ResponseStart([gzip.compress(bytes(10_000_000))]),
            UsageTap("application/json", "gzip"),
        )
        copying = asyncio.create_task(
            copy_body(reply, ResponseWriter(send, AccessLogEntry(), 60), opening, tap)
        )
        while not copying.done():
            await asyncio.sleep(0)
            turns += 1
        return turns

    assert asyncio.run(run()) > 100


def test_c9_a_request_body_is_decompressed_off_the_event_loop() -> None:
    body = bytes(20_000_000)  # so large that no thread is done before its caller looks

    async def run() -> None:
        decoding = DecodingThreads().decode(gzip.compress(body), "gzip", len(body))
        unpacking = asyncio.create_task(decoding)
        await asyncio.sleep(0)
        assert not unpacking.done(), "else all of it was done in one turn of the loop"
        assert await unpacking == body

    asyncio.run(run())


def test_c9_json_that_takes_long_to_parse_is_not_parsed() -> None:
    """The parser blocks all threads, and 3 MB of brackets took as long as 100 MB of text."""
    usage = b'"usage":{"prompt_tokens":1}}'
    for filling, read in (
        (b"[" + b"[]," * 1_000_000 + b"0]", False),
        (b'"' + b"text " * 1_000_000 + b'"', True),
    ):
        tap = UsageTap("application/json")
        list(tap.feed(b'{"a":' + filling + b"," + usage))
        assert (tap.usage() is not None) is read


@given(st.binary(max_size=200), st.integers(1, 7))
def test_a_deflate_body_has_exactly_one_part(plain: bytes, short: int) -> None:
    body = zlib.compress(plain)
    assert decode_body(body, "deflate", 200) == plain
    assert decode_body(body[:-short], "deflate", 200) is None
    assert decode_body(body + body, "deflate", 400) is None


def test_a_body_of_too_many_gzip_parts_is_not_decoded() -> None:
    assert decode_body(gzip.compress(b"") * 10_001, "gzip", 10) is None


def test_a_body_without_an_encoding_is_returned_as_the_same_object() -> None:
    body = b"{}"
    assert decode_body(body, "", 10) is body


LINE = re.compile(r'[a-z_]+(\{([a-z_]+="(\\.|[^"\\])*",?)+\})? [0-9.e+]+')


@given(st.text(max_size=20), st.floats(0, 1000))
def test_metrics_are_rendered_in_the_prometheus_format(label: str, seconds: float) -> None:
    counters = Counters()
    counters.add("http_requests", upstream=label, status="200")
    counters.add("other", 2)
    counters.observe("prepare_seconds", seconds, api=label)
    lines = render(counters.samples(http_requests_in_progress=3)).decode().split("\n")
    assert (
        lines[-1] == ""
        and "refold_other_total 2" in lines
        and "refold_http_requests_in_progress 3" in lines
    )
    assert all(line.startswith("# ") or LINE.fullmatch(line) for line in lines[:-1])
    buckets = [int(line.rpartition(" ")[2]) for line in lines if "_bucket" in line]
    assert buckets == sorted(buckets) and buckets[-1] == 1


def head(path: str = "/v1/x", query: str = "", *headers: tuple[bytes, bytes]) -> RequestHead:
    return RequestHead("POST", path, query, headers)


def test_the_api_of_a_request_is_recognised_by_its_path() -> None:
    assert generation_api("POST", "/openai/deployments/d/chat/completions") == "openai_chat"
    assert (
        generation_api("POST", "/v1beta/models/a/models/gemini-x:streamGenerateContent") == "gemini"
    )
    assert generation_api("POST", "/v1/projects/p/models/g%2Fh:generateContent") == "gemini"
    assert generation_api("POST", "/v1/publishers/anthropic/models/c:rawPredict") == "anthropic"
    for path in (
        "/v1/publishers/anthropic/models/count-tokens:rawPredict",
        "/v1/publishers/mistralai/models/m:rawPredict",
        "/v1/messages/count_tokens",
        "/v1/responses/compact",
        "/v1beta/models/m:countTokens",
        "/v1/files",
    ):
        assert generation_api("POST", path) == ""
    assert generation_api("GET", "/v1/responses") == ""


def test_the_client_api_of_other_paths_is_guessed() -> None:
    assert client_api(head("/v1/models", "", (b"anthropic-version", b"1"))) == "anthropic"
    assert client_api(head("/v1beta/models")) == "gemini"
    assert client_api(head("/v1/responses/x")) == "openai_responses"
    assert client_api(head("/v1/models")) == "openai_chat"
    assert client_api(head("/v1beta/openai/chat/completions")) == "openai_chat"


def credential(shown: RequestHead, salt: bytes) -> str:
    return TenantResolver(salt).identify(shown, ()).credential


def test_credentials_differ_by_key_place_and_salt() -> None:
    credentials = {
        credential(head("/", "", (b"authorization", b"Bearer a")), b"1"),
        credential(head("/", "", (b"authorization", b"Bearer b")), b"1"),
        credential(head("/", "", (b"authorization", b"Bearer a")), b"2"),
        credential(head("/", "", (b"x-api-key", b"Bearer a")), b"1"),
        credential(head("/", "", (b"authorization", b"Bearer a"), (b"x-api-key", b"c")), b"1"),
        credential(head("/", "key=a"), b"1"),
        credential(head("/", "", (b"cookie", b"a")), b"1"),
    }
    assert len(credentials) == 7 and "" not in credentials
    assert credential(head("/", "", (b"x-title", b"a")), b"1") == ""
    assert redact_keys("/p?a=1&key=SECRET&api_key=S2&monkey=1") == "/p?a=1&key=&api_key=&monkey=1"


@given(st.binary(max_size=200))
def test_long_salts_and_arbitrary_key_bytes_are_accepted(key: bytes) -> None:
    assert len(credential(head("/", "", (b"authorization", key)), key * 3)) == 32


def test_hop_by_hop_headers_are_not_sent_upstream() -> None:
    sent = (
        (b"connection", b"close, x-a"),
        (b"x-a", b"1"),
        (b"x-b", b"2"),
        (b"x-b", b"3"),
        (b"te", b"trailers"),
    )
    assert upstream_headers(sent) == [(b"x-b", b"2"), (b"x-b", b"3")]


def scope(*headers: tuple[bytes, bytes], raw: bytes = b"/v1/x", **fields) -> dict:
    fixed = {
        "method": "POST",
        "raw_path": raw,
        "path": raw.decode(),
        "query_string": b"",
        "http_version": "1.1",
    }
    return {**fixed, "headers": [(b"host", b"h"), *headers], **fields}


def test_the_application_itself_refuses_invalid_request_heads() -> None:
    """Against request smuggling, and for other servers: the application refuses the same heads as
    uvicorn's parser."""
    for headers, status in (
        ([(b"content-length", b"1"), (b"content-length", b"2")], 400),
        ([(b"content-length", b"1"), (b"transfer-encoding", b"chunked")], 400),
        ([(b"content-length", b"+1")], 400),
        ([(b"transfer-encoding", b"gzip, chunked")], 501),
        ([(b"host", b"h2")], 400),
        ([(b"x", b"1")] * 300, 431),
        ([(b"x", b"1" * 70_000)], 431),
    ):
        with pytest.raises(HTTPException) as refused:
            read_head(scope(*headers), Limits())
        assert refused.value.status == status
    with pytest.raises(HTTPException):
        read_head(scope(raw=b"http://other.example/"), Limits())
    with pytest.raises(HTTPException):
        read_head({**scope(), "headers": []}, Limits())
    with pytest.raises(HTTPException) as refused:
        read_head(scope((b"transfer-encoding", b"chunked"), http_version="1.0"), Limits())
    assert refused.value.status == 400 and refused.value.close


def test_request_paths_are_read_below_a_root_path_or_without_a_raw_path() -> None:
    assert read_head(scope(raw=b"/llm/v1/x", root_path="/llm"), Limits()).path == "/v1/x"
    assert (
        read_head({**scope(), "raw_path": None, "path": "/v1/你"}, Limits()).path == "/v1/%E4%BD%A0"
    )


@given(
    st.sampled_from(APIS),
    st.sampled_from([400, 401, 404, 408, 413, 426, 431, 500, 501, 502, 503, 504]),
)
def test_every_refusal_is_json_with_the_message(api: str, status: int) -> None:
    answer_status, headers, body = error_response(api, HTTPException(status, "why"))
    assert answer_status == status and dict(headers)["content-length"] == str(len(body))
    assert json.loads(body)["error"]["message"] == "why"


DEEP = b"[" * 30_000


@pytest.mark.parametrize(
    "event", [b'data: {"type": [1]}', b'data: {"type": {}}', b'data: {"a": ' + DEEP]
)
def test_c15_events_of_an_unknown_shape_are_classified_as_content(event: bytes) -> None:
    """A stream that began with such an event was answered with 500 instead of the upstream's
    response."""
    assert classify_event(event) == "content"
    assert json.loads(error_body(event)) in (None, {"type": [1]}, {"type": {}})


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
def test_c15_usage_that_is_nested_too_deeply_is_not_read(kind: str) -> None:
    """Such a stream used to be cut off there."""
    tap = UsageTap(kind)
    list(tap.feed(b'data: {"usage": %b\n\n' % DEEP if "stream" in kind else b'{"usage": %b' % DEEP))
    assert tap.usage() is None
