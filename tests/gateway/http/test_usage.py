"""Usage of responses that end early: usage reported on the way is not what the provider bills."""

import json
from itertools import pairwise
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.gateway.config import Config
from refold.gateway.http.response import UsageTap
from refold.gateway.settings import Upstream
from refold.testing.scripted_gateway import ScriptedPipeline, serving
from refold.testing.scripted_provider import Received, Reply, ScriptedProvider
from tests.support.raw_http import eventually

SSE = "text/event-stream"


def anthropic() -> list[dict[str, Any]]:
    start = {
        "input_tokens": 1_000,
        "cache_read_input_tokens": 7,
        "cache_creation_input_tokens": 0,
        "output_tokens": 1,
    }
    word = {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "text_delta", "text": "hi"},
    }
    return [
        {
            "type": "message_start",
            "message": {"id": "m", "role": "assistant", "content": [], "usage": start},
        },
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *[word] * 5,
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"output_tokens": 500},
        },
        {"type": "message_stop"},
    ]


def chat_usage(output: int) -> dict[str, Any]:
    return {
        "usage": {
            "prompt_tokens": 1_000,
            "completion_tokens": output,
            "prompt_tokens_details": None,
        }
    }


def chunk(text: str, finish: str | None = None) -> dict[str, Any]:
    return {
        "object": "chat.completion.chunk",
        "choices": [{"delta": {"content": text}, "finish_reason": finish}],
    }


def chat() -> list[dict[str, Any]]:
    """OpenAI's usage: null in each chunk, and a last chunk without choices."""
    none = {"usage": None}
    return [*[chunk("hi") | none] * 5, chunk("", "stop") | none, {"choices": [], **chat_usage(500)}]


def counting_chat() -> list[dict[str, Any]]:
    """A server that repeats the running usage in each chunk."""
    return [
        *(chunk("hi") | chat_usage(count) for count in range(1, 6)),
        chunk("", "stop") | chat_usage(500),
    ]


def late_chat() -> list[dict[str, Any]]:
    """A server with a choice in the last chunk too: `[DONE]` ends the stream."""
    return [*[chunk("hi")] * 5, chunk("", "stop"), chunk("") | chat_usage(500)]


def groq_chat() -> list[dict[str, Any]]:
    """Groq's usage, which its SDK has no option to request."""
    last = chunk("", "stop") | {"x_groq": {"id": "req", **chat_usage(500)}}
    return [chunk("hi") | {"x_groq": {"id": "req"}}, *[chunk("hi")] * 5, last]


def moonshot_chat() -> list[dict[str, Any]]:
    """Moonshot's usage, in the chunk with the finish reason."""
    ends = {"delta": {}, "finish_reason": "stop", **chat_usage(500)}
    return [*[chunk("hi")] * 6, {"choices": [ends]}]


def responses() -> list[dict[str, Any]]:
    usage = {
        "input_tokens": 1_000,
        "output_tokens": 500,
        "input_tokens_details": {"cached_tokens": 7},
    }
    begun = {"input_tokens": 1_000, "output_tokens": 0}
    return [
        {"type": "response.created", "response": {"status": "in_progress", "usage": None}},
        {"type": "response.in_progress", "response": {"status": "in_progress", "usage": begun}},
        *[{"type": "response.output_text.delta", "delta": "hi"}] * 5,
        {"type": "response.completed", "response": {"status": "completed", "usage": usage}},
    ]


def gemini() -> list[dict[str, Any]]:
    def part(count: int, **fields: str) -> dict[str, Any]:
        usage = {"promptTokenCount": 1_000, "candidatesTokenCount": count}
        return {
            "candidates": [{"content": {"parts": [{"text": "hi"}]}, **fields}],
            "usageMetadata": usage,
        }

    return [*map(part, range(1, 6)), part(500, finishReason="STOP")]


PATHS = {
    "anthropic": "/v1/messages",
    "chat": "/v1/chat/completions",
    "counting chat": "/v1/chat/completions",
    "late chat": "/v1/chat/completions",
    "groq chat": "/openai/v1/chat/completions",
    "moonshot chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "gemini": "/v1beta/models/m:streamGenerateContent?alt=sse",
}
STREAMS = {
    "anthropic": anthropic(),
    "chat": chat(),
    "counting chat": counting_chat(),
    "late chat": late_chat(),
    "groq chat": groq_chat(),
    "moonshot chat": moonshot_chat(),
    "responses": responses(),
    "gemini": gemini(),
}


def write_events(name: str) -> list[bytes]:
    """Return the events in wire form."""
    done = [b"data: [DONE]\n\n"] if "chat" in name else []
    return [b"data: " + json.dumps(event).encode() + b"\n\n" for event in STREAMS[name]] + done


def tap_usage(pieces: list[bytes], kind: str = SSE) -> Any:
    tap = UsageTap(kind)
    for piece in pieces:
        list(tap.feed(piece))
    return tap.usage()


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_cut_after_any_event_reports_all_of_its_usage_or_none(name: str) -> None:
    """The stream is cut after any event. Anthropic's first event reports one output token before
    there is any."""
    events = write_events(name)
    whole = tap_usage(events)
    assert 500 in whole.values()
    usages = [tap_usage(events[:count]) for count in range(len(events) + 1)]
    first = next(at for at, usage in enumerate(usages) if usage)
    assert usages == [None] * first + [whole] * (len(usages) - first)
    assert first >= len(events) - 1


@given(
    st.sampled_from(sorted(STREAMS)),
    st.integers(0, 3_000),
    st.lists(st.integers(0, 3_000), max_size=6),
)
def test_a_stream_cut_at_any_byte_reports_all_of_its_usage_or_none(
    name: str, end: int, places: list[int]
) -> None:
    stream = b"".join(write_events(name))[:end]
    edges = [0, *sorted(min(place, len(stream)) for place in places), len(stream)]
    pieces = [stream[a:b] for a, b in pairwise(edges)]
    assert tap_usage(pieces) in (None, tap_usage(write_events(name)))


@pytest.mark.parametrize("odd", [5, "x", None, [], {}, [5, None, []], {"a": 1}])
@pytest.mark.parametrize("name", ["type", "choices", "candidates", "response", "message"])
def test_usage_is_read_from_events_of_an_unknown_form(name: str, odd: Any) -> None:
    """A stream of an unknown API may report its usage in any form."""
    usage = {"input_tokens": 5, "output_tokens": 2}
    event = b"data: " + json.dumps({name: odd, "usage": usage}).encode() + b"\n\n"
    assert tap_usage([event, b"data: [DONE]\n\n"]) == usage


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize(
    "ends", ["the client leaves", "the upstream breaks off", "the upstream ends"]
)
def test_an_answer_that_is_not_complete_is_booked_without_usage(name: str, ends: str) -> None:
    events = write_events(name)
    begun = tuple(events[:4])
    plays = {
        "the client leaves": Reply(body=(*begun, *events[4:5] * 400), pause=0.02, type=SSE),
        "the upstream breaks off": Reply(body=tuple(events), cut_after=4, type=SSE),
        "the upstream ends": Reply(body=begun, type=SSE),
    }
    pipeline = ScriptedPipeline()
    with ScriptedProvider([plays[ends]]) as upstream:
        config = Config(upstreams=(Upstream(name="up", url=upstream.url),), salt=b"s")
        with serving(config, pipeline) as gateway:
            read_some(gateway.url + PATHS[name], ends)
            assert eventually(lambda: [usage for _, usage in pipeline.finishes] == [None])


def read_some(url: str, ends: str) -> None:
    """Read the beginning of a response, or, unless the client leaves, all of it."""
    with httpx.stream("POST", url, json={"stream": True}, timeout=60) as answer:
        pieces = answer.iter_raw()
        assert next(pieces)
        if ends == "the client leaves":
            return
        try:
            list(pieces)
        except httpx.RemoteProtocolError:
            assert ends == "the upstream breaks off"


def test_usage_is_booked_if_the_client_closes_after_the_last_event() -> None:
    """Many clients close the connection at the last event, before the upstream has ended its
    response."""
    pipeline = ScriptedPipeline()

    def play(asked: Received) -> Reply:
        name = "late chat" if "chat" in asked.target else "anthropic"
        return Reply(
            body=(b"".join(write_events(name)), *[b": still here\n\n"] * 400), pause=0.02, type=SSE
        )

    with ScriptedProvider(play) as upstream:
        config = Config(upstreams=(Upstream(name="up", url=upstream.url),), salt=b"s")
        with serving(config, pipeline) as gateway:
            for path in (PATHS["anthropic"], PATHS["chat"]):
                with httpx.stream(
                    "POST", gateway.url + path, json={"stream": True}, timeout=60
                ) as answer:
                    next(answer.iter_raw())
            assert eventually(lambda: len(pipeline.finishes) == 2)
    assert [500 in (usage or {}).values() for _, usage in pipeline.finishes] == [True, True]
