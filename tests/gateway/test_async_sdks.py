"""The async SDKs through the whole gateway: images, streams, tool loops, errors, and a session that
is compacted while it runs."""

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

import pytest

from refold.gateway import Config, Gateway, Pipeline, Settings, Upstream
from refold.stores import MemoryStore
from refold.testing.scripted_gateway import Serving
from refold.testing.scripted_provider import Received, Reply, ScriptedProvider
from refold.tokens.model_table import Window
from tests.support.sdks import IGNORE_SDK_WARNINGS, PIXEL, LazyModule

pytestmark = IGNORE_SDK_WARNINGS

anthropic, genai, litellm, openai = map(
    LazyModule, ("anthropic", "google.genai", "litellm", "openai")
)

MODEL, CLAUDE, GEMINI = "gpt-local", "claude-local", "gemini-local"
TEXT = "It is 晴 today."
LIMIT = 90_000
"""Window of the upstream in bytes."""
LONG = "a line of the log\n" * 800


def provider(asked: Received) -> Reply:
    """Simulate a provider that calls its tool when asked to read, answers otherwise, and refuses
    requests over its window."""
    body = asked.body.decode()
    if len(body) > LIMIT or "too long, please" in body:
        words = {
            "m": "prompt is too long: 210000 tokens > 200000 maximum",
            "r": "This model's maximum context length is 20000 tokens.",
        }
        words["g"] = "The input token count (9) exceeds the maximum number of tokens allowed (8)."
        kind = (
            "m"
            if "/messages" in asked.target
            else "g"
            if "generateContent" in asked.target
            else "r"
        )
        return Reply(words[kind], status=400, code="context_length_exceeded" if kind == "r" else "")
    return Reply(finish="tool") if "READ" in body and "the log says" not in body else Reply(TEXT)


@pytest.fixture(scope="module")
def place():
    settings = Settings(
        windows=dict.fromkeys((MODEL, CLAUDE, GEMINI), Window(20_000)), decide_timeout_seconds=30
    )
    with ScriptedProvider(provider) as upstream:
        config = Config(
            upstreams=(Upstream(name="up", url=upstream.url),), settings=settings, salt=b"s"
        )
        with Serving(Gateway(config, Pipeline(settings, MemoryStore()))) as gateway:
            yield upstream, gateway.url


class Chat:
    """OpenAI's Chat Completions."""

    tool: ClassVar[Any] = {
        "type": "function",
        "function": {"name": "read", "parameters": {"type": "object", "properties": {}}},
    }
    picture: ClassVar[Any] = {
        "type": "image_url",
        "image_url": {"url": f"data:image/png;base64,{PIXEL}"},
    }

    def __init__(self, url: str) -> None:
        self.client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0)

    @staticmethod
    def refusal() -> type[Exception]:
        """Return the class of the error for a request that is too long."""
        return openai.BadRequestError

    def user(self, *parts: Any) -> Any:
        return {
            "role": "user",
            "content": [
                {"type": "text", "text": part} if isinstance(part, str) else part for part in parts
            ],
        }

    async def ask(self, history: list[Any]) -> tuple[str, list[Any]]:
        message = (await self.complete(messages=history, tools=[self.tool])).choices[0].message
        results = [
            {"role": "tool", "tool_call_id": call.id, "content": f"the log says {LONG}"}
            for call in message.tool_calls or ()
        ]
        return message.content or "", [message.model_dump(exclude_none=True), *results]

    async def complete(self, **asked: Any) -> Any:
        return await self.client.chat.completions.create(model=MODEL, **asked)

    async def stream(self, history: list[Any]) -> str:
        pieces = [piece async for piece in await self.complete(messages=history, stream=True)]
        assert len(pieces) > 2
        return "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices)

    async def close(self) -> None:
        await self.client.close()


class LiteLLM(Chat):
    """LiteLLM, which speaks Chat Completions to any server."""

    def __init__(self, url: str) -> None:
        self.url = f"{url}/v1"

    @staticmethod
    def refusal() -> type[Exception]:
        return litellm.ContextWindowExceededError

    async def complete(self, **asked: Any) -> Any:
        fixed = {"model": f"openai/{MODEL}", "api_base": self.url, "api_key": "k", "max_retries": 0}
        if "tools" in asked:  # its async API needs a further package for these
            return await asyncio.to_thread(litellm.completion, **fixed, **asked)
        return await litellm.acompletion(**fixed, **asked)

    async def close(self) -> None:
        """Do nothing: LiteLLM keeps its clients."""


class Responses(Chat):
    """OpenAI's Responses."""

    tool: ClassVar[Any] = {
        "type": "function",
        "name": "read",
        "parameters": {"type": "object", "properties": {}},
    }
    picture: ClassVar[Any] = {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}"}

    def user(self, *parts: Any) -> Any:
        content = [
            {"type": "input_text", "text": part} if isinstance(part, str) else part
            for part in parts
        ]
        return {"role": "user", "content": content}

    async def ask(self, history: list[Any]) -> tuple[str, list[Any]]:
        answer = await self.client.responses.create(
            model=MODEL, input=history, tools=[self.tool], store=False
        )
        calls = [item for item in answer.output if item.type == "function_call"]
        results = [
            {
                "type": "function_call_output",
                "call_id": call.call_id,
                "output": f"the log says {LONG}",
            }
            for call in calls
        ]
        return answer.output_text, [
            *(item.model_dump(exclude_none=True) for item in answer.output),
            *results,
        ]

    async def stream(self, history: list[Any]) -> str:
        async with self.client.responses.stream(model=MODEL, input=history) as stream:
            return "".join(
                [
                    event.delta
                    async for event in stream
                    if event.type == "response.output_text.delta"
                ]
            )


class Claude(Chat):
    """Anthropic's Messages."""

    tool: ClassVar[Any] = {"name": "read", "input_schema": {"type": "object", "properties": {}}}
    picture: ClassVar[Any] = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": PIXEL},
    }

    def __init__(self, url: str) -> None:
        self.messages = anthropic.AsyncAnthropic(base_url=url, api_key="k", max_retries=0)

    @staticmethod
    def refusal() -> type[Exception]:
        return anthropic.BadRequestError

    async def ask(self, history: list[Any]) -> tuple[str, list[Any]]:
        asked = {"model": CLAUDE, "max_tokens": 99, "messages": history, "tools": [self.tool]}
        answer = await self.messages.messages.create(**asked)
        answers = [
            {
                "role": "assistant",
                "content": [block.model_dump(exclude_none=True) for block in answer.content],
            }
        ]
        calls = [block.id for block in answer.content if block.type == "tool_use"]
        results = [
            {"type": "tool_result", "tool_use_id": id, "content": f"the log says {LONG}"}
            for id in calls
        ]
        text = "".join(block.text for block in answer.content if block.type == "text")
        return text, answers + ([{"role": "user", "content": results}] if results else [])

    async def stream(self, history: list[Any]) -> str:
        async with self.messages.messages.stream(
            model=CLAUDE, max_tokens=99, messages=history
        ) as stream:
            return "".join([text async for text in stream.text_stream])

    async def close(self) -> None:
        await self.messages.close()


class Gemini(Chat):
    """Google's generateContent."""

    tool: ClassVar[Any] = {"function_declarations": [{"name": "read"}]}
    picture: ClassVar[Any] = {
        "inline_data": {"data": base64.b64decode(PIXEL), "mime_type": "image/png"}
    }

    def __init__(self, url: str) -> None:
        self.models = genai.Client(api_key="k", http_options={"base_url": url}).aio

    @staticmethod
    def refusal() -> type[Exception]:
        return genai.errors.ClientError

    def user(self, *parts: Any) -> Any:
        return genai.types.Content(
            role="user",
            parts=[
                genai.types.Part(text=part) if isinstance(part, str) else part for part in parts
            ],
        )

    async def ask(self, history: list[Any]) -> tuple[str, list[Any]]:
        config = genai.types.GenerateContentConfig(
            tools=[self.tool],
            automatic_function_calling=genai.types.AutomaticFunctionCallingConfig(disable=True),
        )
        answer = await self.models.models.generate_content(
            model=GEMINI, contents=history, config=config
        )
        calls = answer.function_calls or []
        results = [
            genai.types.Part.from_function_response(
                name="read", response={"output": f"the log says {LONG}"}
            )
            for _ in calls
        ]
        contents = [answer.candidates[0].content]
        return "" if calls else answer.text, contents + (
            [genai.types.Content(role="user", parts=results)] if results else []
        )

    async def stream(self, history: list[Any]) -> str:
        stream = await self.models.models.generate_content_stream(model=GEMINI, contents=history)
        return "".join([piece.text async for piece in stream])

    async def close(self) -> None:
        await self.models.aclose()


KINDS = pytest.mark.parametrize("kind", [Chat, LiteLLM, Responses, Claude, Gemini])


def run(kind: type[Chat], url: str, work: Callable[[Chat], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        sdk = kind(url)
        try:
            return await work(sdk)
        finally:
            await sdk.close()

    return asyncio.run(main())


@KINDS
def test_an_image_is_sent_and_a_stream_read(place, kind: type[Chat]) -> None:
    upstream, url = place
    assert run(kind, url, lambda sdk: sdk.stream([sdk.user("What is this?", sdk.picture)])) == TEXT
    assert PIXEL.partition("+")[0] in json.dumps(upstream.received[-1].json)


@KINDS
def test_a_loop_of_tools_ends_in_an_answer(place, kind: type[Chat]) -> None:
    _, url = place

    async def loop(sdk: Chat) -> list[str]:
        history, texts = [sdk.user("READ the log.", sdk.picture)], list[str]()
        while len(texts) < 2:
            text, added = await sdk.ask(history)
            texts.append(text)
            history += added
        return texts

    assert run(kind, url, loop) == ["", TEXT]


@KINDS
def test_a_context_error_raises_the_exception_class_of_the_sdk(place, kind: type[Chat]) -> None:
    _, url = place
    errors = kind.refusal()
    with pytest.raises(errors):
        run(kind, url, lambda sdk: sdk.ask([sdk.user("This is too long, please.")]))
    with pytest.raises(errors):
        run(kind, url, lambda sdk: sdk.stream([sdk.user("This is too long, please.")]))


@KINDS
def test_a_session_longer_than_its_window_continues_without_refusals(
    place, kind: type[Chat]
) -> None:
    upstream, url = place

    async def session(sdk: Chat) -> int:
        history = [sdk.user("Fix the bug. ")]
        for at in range(8):
            history.append(sdk.user(f"{at}: {LONG}"))
            text, added = await sdk.ask(history)
            assert text == TEXT
            history += added
        return len(history)

    before = len(upstream.received)
    assert run(kind, url, session) >= 17
    sent = [len(request.body) for request in upstream.received[before:]]
    assert len(sent) == 8 and max(sent) < LIMIT, (
        "nothing was refused, and nothing had to be sent twice"
    )
