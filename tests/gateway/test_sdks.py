"""The real SDKs through the gateway, to a scripted upstream: sync, async, streaming, tools, images, errors."""

import asyncio
import json
from typing import Any

import pytest

from refold.gateway.config import Config
from refold.gateway.settings import Upstream
from refold.testing.scripted_gateway import ScriptedPipeline, serving
from refold.testing.scripted_provider import Received, Reply, ScriptedProvider
from tests.support.raw_http import eventually
from tests.support.sdks import IGNORE_SDK_WARNINGS, PIXEL, LazyModule

pytestmark = IGNORE_SDK_WARNINGS
anthropic, genai, litellm, openai = map(
    LazyModule, ("anthropic", "google.genai", "litellm", "openai")
)
TEXT = "Hello 你好 from the model"


def tools_then_text(asked: Received) -> Reply:
    """Call a tool until its result is in the request."""
    body = asked.body.decode()
    if "tools" not in body and "functionDeclarations" not in body:
        return Reply(TEXT)
    return Reply("It is sunny.") if "the file says" in body else Reply(finish="tool")


@pytest.fixture(scope="module")
def place():
    with ScriptedProvider(tools_then_text) as upstream:
        config = Config(upstreams=(Upstream(name="up", url=upstream.url),), salt=b"s")
        with serving(config) as gateway:
            yield upstream, gateway


@pytest.fixture(scope="module")
def refusing():
    """An upstream that refuses everything as OpenAI, Anthropic and Google refuse what is too long."""

    def refuse(asked: Received) -> Reply:
        if "/messages" in asked.target:
            return Reply("prompt is too long: 210000 tokens > 200000 maximum", status=400)
        if "generateContent" in asked.target:
            return Reply(
                "The input token count (9) exceeds the maximum number of tokens allowed (8).",
                status=400,
            )
        message = "This model's maximum context length is 128000 tokens."
        return Reply(message, status=400, code="context_length_exceeded")

    with ScriptedProvider(refuse) as upstream:
        config = Config(upstreams=(Upstream(name="up", url=upstream.url),), salt=b"s")
        with serving(config) as gateway:
            yield gateway


MESSAGES = [{"role": "user", "content": "hi"}]
CHAT_TOOL = {
    "type": "function",
    "function": {"name": "read", "parameters": {"type": "object", "properties": {}}},
}
ANTHROPIC_TOOL = {"name": "read", "input_schema": {"type": "object", "properties": {}}}
RESPONSES_TOOL = {
    "type": "function",
    "name": "read",
    "parameters": {"type": "object", "properties": {}},
}


def test_openai_chat(place) -> None:
    upstream, gateway = place
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="k") as client:
        image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
        content = [{"type": "text", "text": "look"}, image]
        answer = client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": content}]
        )
        assert answer.choices[0].message.content == TEXT and answer.usage.prompt_tokens == 100
        assert upstream.received[-1].json["messages"][0]["content"] == content
        assert upstream.received[-1].all("authorization") == ["Bearer k"]
        chunks = list(
            client.chat.completions.create(
                model="m", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
            )
        )
        assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == TEXT
        assert chunks[-1].usage.prompt_tokens == 100


def test_openai_chat_tool_loop(place) -> None:
    _, gateway = place
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="k") as client:
        history = list(MESSAGES)
        for _ in range(3):
            message = (
                client.chat.completions.create(model="m", messages=history, tools=[CHAT_TOOL])
                .choices[0]
                .message
            )
            if not message.tool_calls:
                break
            history.append(message.model_dump(exclude_none=True))
            history += [
                {"role": "tool", "tool_call_id": call.id, "content": "the file says hello"}
                for call in message.tool_calls
            ]
        assert message.content == "It is sunny." and len(history) == 3


def test_openai_responses(place) -> None:
    upstream, gateway = place
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="k") as client:
        assert client.responses.create(model="m", input="hi").output_text == TEXT
        with client.responses.stream(model="m", input="hi") as stream:
            words = [event.delta for event in stream if event.type == "response.output_text.delta"]
            assert "".join(words) == TEXT and stream.get_final_response().usage.input_tokens == 100
        first = client.responses.create(model="m", input="hi", tools=[RESPONSES_TOOL])
        call = first.output[-1]
        result = {
            "type": "function_call_output",
            "call_id": call.call_id,
            "output": "the file says hello",
        }
        history = [
            {"role": "user", "content": "hi"},
            *[item.model_dump() for item in first.output],
            result,
        ]
        assert (
            client.responses.create(model="m", input=history, tools=[RESPONSES_TOOL]).output_text
            == "It is sunny."
        )
        assert upstream.received[-1].json["input"][-1] == result


def test_openai_async(place) -> None:
    _, gateway = place

    async def run() -> tuple[str, str]:
        async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="k") as client:
            plain = await client.chat.completions.create(model="m", messages=MESSAGES)
            stream = await client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
            words = [
                chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices
            ]
            return plain.choices[0].message.content, "".join(words)

    assert asyncio.run(run()) == (TEXT, TEXT)


def test_anthropic(place) -> None:
    upstream, gateway = place
    with anthropic.Anthropic(base_url=gateway.url, api_key="k") as client:
        image = {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": PIXEL},
        }
        asked = [{"role": "user", "content": [image, {"type": "text", "text": "look"}]}]
        answer = client.messages.create(model="m", max_tokens=99, messages=asked)
        assert answer.content[0].text == TEXT and answer.usage.input_tokens == 100
        assert (
            upstream.received[-1].all("authorization") == ["Bearer k"]
            and upstream.received[-1].json["messages"] == asked
        )
        with client.messages.stream(model="m", max_tokens=99, messages=MESSAGES) as stream:
            assert "".join(stream.text_stream) == TEXT
            assert stream.get_final_message().usage.output_tokens == 20


def test_anthropic_tool_loop(place) -> None:
    _, gateway = place
    with anthropic.Anthropic(base_url=gateway.url, api_key="k") as client:
        ask = {"model": "m", "max_tokens": 99, "tools": [ANTHROPIC_TOOL]}
        with client.messages.stream(messages=MESSAGES, **ask) as stream:
            first = stream.get_final_message()
        assert first.stop_reason == "tool_use"
        result = {
            "type": "tool_result",
            "tool_use_id": first.content[-1].id,
            "content": "the file says hello",
        }
        history = [
            *MESSAGES,
            {"role": "assistant", "content": [block.model_dump() for block in first.content]},
            {"role": "user", "content": [result]},
        ]
        assert client.messages.create(messages=history, **ask).content[0].text == "It is sunny."


def test_anthropic_async(place) -> None:
    _, gateway = place

    async def run() -> str:
        async with (
            anthropic.AsyncAnthropic(base_url=gateway.url, api_key="k") as client,
            client.messages.stream(model="m", max_tokens=9, messages=MESSAGES) as stream,
        ):
            return "".join([text async for text in stream.text_stream])

    assert asyncio.run(run()) == TEXT


def test_anthropic_count_tokens_passes_and_is_not_prepared() -> None:
    pipeline = ScriptedPipeline()
    with ScriptedProvider([Reply(body='{"input_tokens": 7}')]) as upstream:
        config = Config(upstreams=(Upstream(name="up", url=upstream.url),), salt=b"s")
        with (
            serving(config, pipeline) as gateway,
            anthropic.Anthropic(base_url=gateway.url, api_key="k") as client,
        ):
            assert client.messages.count_tokens(model="m", messages=MESSAGES).input_tokens == 7
        assert (
            upstream.received[-1].target == "/v1/messages/count_tokens" and pipeline.incoming == []
        )


def gemini(url: str) -> Any:
    return genai.Client(api_key="k", http_options={"base_url": url})


def test_gemini(place) -> None:
    upstream, gateway = place
    client = gemini(gateway.url)
    answer = client.models.generate_content(model="gemini-2.5-pro", contents="hi")
    assert answer.text == TEXT and answer.usage_metadata.prompt_token_count == 100
    assert upstream.received[-1].all("x-goog-api-key") == ["k"]
    pieces = [
        piece.text
        for piece in client.models.generate_content_stream(model="gemini-2.5-pro", contents="hi")
    ]
    assert "".join(pieces) == TEXT and len(pieces) > 1


def test_gemini_tool_loop_by_the_sdk_itself(place) -> None:
    upstream, gateway = place

    def read() -> str:
        """Read the file."""
        return "the file says hello"

    client = gemini(gateway.url)
    answer = client.models.generate_content(
        model="gemini-2.5-pro",
        contents="hi",
        config=genai.types.GenerateContentConfig(tools=[read]),
    )
    assert answer.text == "It is sunny."
    assert "functionResponse" in json.dumps(upstream.received[-1].json["contents"])


def test_gemini_async(place) -> None:
    _, gateway = place

    async def run() -> str:
        client = gemini(gateway.url)
        stream = await client.aio.models.generate_content_stream(
            model="gemini-2.5-pro", contents="hi"
        )
        text = "".join([piece.text async for piece in stream])
        await client.aio.aclose()
        return text

    assert asyncio.run(run()) == TEXT


def test_litellm(place) -> None:
    upstream, gateway = place
    answer = litellm.completion(
        model="openai/m", api_base=f"{gateway.url}/v1", api_key="k", messages=MESSAGES
    )
    assert answer.choices[0].message.content == TEXT
    claude = litellm.completion(
        model="anthropic/claude-opus-5-5",
        api_base=gateway.url,
        api_key="k",
        messages=MESSAGES,
        stream=True,
    )
    assert "".join(chunk.choices[0].delta.content or "" for chunk in claude) == TEXT
    assert upstream.received[-1].target == "/v1/messages"


def test_context_errors_raise_the_exceptions_of_each_sdk(refusing) -> None:
    with openai.OpenAI(base_url=f"{refusing.url}/v1", api_key="k") as client:
        with pytest.raises(openai.BadRequestError) as chat:
            client.chat.completions.create(model="m", messages=MESSAGES)
        assert chat.value.code == "context_length_exceeded"
        with pytest.raises(openai.BadRequestError) as responses:
            client.responses.create(model="m", input="hi", stream=True)
        assert responses.value.code == "context_length_exceeded"
    with (
        anthropic.Anthropic(base_url=refusing.url, api_key="k") as claude,
        pytest.raises(anthropic.BadRequestError, match="prompt is too long"),
    ):
        claude.messages.create(model="m", max_tokens=9, messages=MESSAGES)
    client = gemini(refusing.url)
    with pytest.raises(genai.errors.ClientError, match="exceeds the maximum number of tokens"):
        client.models.generate_content(model="gemini-2.5-pro", contents="hi")
    with pytest.raises(litellm.ContextWindowExceededError):
        litellm.completion(
            model="openai/m", api_base=f"{refusing.url}/v1", api_key="k", messages=MESSAGES
        )


def test_a_client_that_closes_a_stream_ends_the_request() -> None:
    chunk = {"choices": [{"index": 0, "delta": {"content": "word "}}]}
    events = (f"data: {json.dumps(chunk)}\n\n".encode(),) * 400
    with ScriptedProvider([Reply(body=events, pause=0.05, type="text/event-stream")]) as upstream:
        config = Config(upstreams=(Upstream(name="up", url=upstream.url),), salt=b"s")
        pipeline = ScriptedPipeline()
        with (
            serving(config, pipeline) as gateway,
            openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="k") as client,
        ):
            stream = client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
            next(iter(stream))
            stream.close()
            assert eventually(lambda: len(pipeline.finishes) == 1)
            assert eventually(lambda: gateway.gateway.in_progress == 0)
            assert eventually(lambda: upstream.clients_left == 1)
