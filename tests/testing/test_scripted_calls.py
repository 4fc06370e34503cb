"""What a scripted model calls arrives in the real SDKs as it was scripted, at once and streamed, in all four APIs."""

import json

import httpx
import pytest

from refold.testing.scripted_provider import Call, Reply, ScriptedProvider
from refold.testing.scripted_replies import encode_reply, events
from tests.support.sdks import LazyModule

anthropic, genai, openai, pydantic = map(
    LazyModule, ("anthropic", "google.genai", "openai", "pydantic")
)

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
CALLS = (Call("read", {"path": "中文.txt"}), Call("bash", {"command": "ls -l"}, id="own_id"))
WANTED = [(call.name, call.arguments) for call in CALLS]
ASK = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def upstream():
    with ScriptedProvider([Reply("Let me look.", calls=CALLS)]) as upstream:
        yield upstream


def test_scripted_calls_arrive_unchanged_in_the_chat_completions_sdk(upstream) -> None:
    with openai.OpenAI(base_url=f"{upstream.url}/v1", api_key="k") as client:
        answer = client.chat.completions.create(model="m", messages=ASK)
        with client.chat.completions.stream(model="m", messages=ASK) as stream:
            streamed = stream.get_final_completion()
    for choice in (answer.choices[0], streamed.choices[0]):
        assert choice.finish_reason == "tool_calls" and choice.message.content == "Let me look."
        calls = choice.message.tool_calls
        assert [(c.function.name, json.loads(c.function.arguments)) for c in calls] == WANTED
        assert [c.id for c in calls] == ["call_1", "own_id"]


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_model_whose_name_holds_half_a_character_is_answered(upstream, is_streamed) -> None:
    """The provider broke off without an answer."""
    body = json.dumps({"model": "m\udcff", "messages": ASK, "stream": is_streamed})
    answer = httpx.post(f"{upstream.url}/v1/chat/completions", content=body)
    text = answer.text.partition("data: ")[2].partition("\n")[0] if is_streamed else answer.text
    assert json.loads(text)["model"] == "m\udcff"


def test_scripted_calls_arrive_unchanged_in_the_responses_sdk(upstream) -> None:
    with openai.OpenAI(base_url=f"{upstream.url}/v1", api_key="k") as client:
        answer = client.responses.create(model="m", input="hi")
        with client.responses.stream(model="m", input="hi") as stream:
            begun = [e.item for e in stream if e.type == "response.output_item.added"]
            streamed = stream.get_final_response()
    assert [item.arguments for item in begun if item.type == "function_call"] == ["", ""]
    for response in (answer, streamed):
        calls = [item for item in response.output if item.type == "function_call"]
        assert [(c.name, json.loads(c.arguments)) for c in calls] == WANTED
        assert [c.call_id for c in calls] == ["call_1", "own_id"]


def test_scripted_calls_arrive_unchanged_in_the_anthropic_sdk(upstream) -> None:
    with anthropic.Anthropic(base_url=upstream.url, api_key="k") as client:
        answer = client.messages.create(model="m", max_tokens=9, messages=ASK)
        with client.messages.stream(model="m", max_tokens=9, messages=ASK) as stream:
            streamed = stream.get_final_message()
    for message in (answer, streamed):
        assert message.stop_reason == "tool_use"
        calls = [block for block in message.content if block.type == "tool_use"]
        assert [(c.name, c.input) for c in calls] == WANTED
        assert [c.id for c in calls] == ["toolu_1", "own_id"]


def test_scripted_calls_arrive_unchanged_in_the_gemini_sdk(upstream) -> None:
    with genai.Client(api_key="k", http_options={"base_url": upstream.url}) as client:
        answer = client.models.generate_content(model="m", contents="hi")
        pieces = list(client.models.generate_content_stream(model="m", contents="hi"))
    streamed = [call for piece in pieces for call in piece.function_calls or ()]
    for calls in (answer.function_calls, streamed):
        assert [(c.name, c.args) for c in calls] == WANTED
        assert [c.id for c in calls] == [None, "own_id"]


def test_a_request_for_a_gateway_page_is_not_recorded_by_the_provider() -> None:
    """A browser goes on asking a port whose gateway has ended; a provider may have it by then."""
    with ScriptedProvider(["Yes."]) as provider:
        assert httpx.get(f"{provider.url}/refold/ready").status_code == 404
        body = {"model": "m", "messages": [{"role": "user", "content": "Go on?"}]}
        answer = httpx.post(f"{provider.url}/v1/chat/completions", json=body)
    assert "Yes." in answer.text
    assert [request.path for request in provider.received] == ["/v1/chat/completions"]


STREAMS = {
    "/v1/messages": ("anthropic.types", "RawMessageStreamEvent"),
    "/v1/chat/completions": ("openai.types.chat", "ChatCompletionChunk"),
    "/v1/responses": ("openai.types.responses", "ResponseStreamEvent"),
    "/m:generateContent": ("google.genai.types", "GenerateContentResponse"),
}


@pytest.mark.parametrize("path", STREAMS)
def test_streamed_events_have_the_fields_that_the_types_of_the_sdks_require(path: str) -> None:
    """The SDKs themselves read events without checking them."""
    module, name = STREAMS[path]
    schema = pydantic.TypeAdapter(getattr(pytest.importorskip(module), name))
    reply = Reply("Let me look.", reasoning="Hm.", calls=CALLS, usage=(100, 20, 40))
    asked = {"model": "m", "stream_options": {"include_usage": True}}
    streamed = b"".join(events(path, json.loads(encode_reply(reply, path, asked)), asked)).decode()
    lines = [line[6:] for line in streamed.splitlines() if line.startswith("data: {")]
    for event in map(json.loads, lines):
        if event.get("type") != "ping":  # which Anthropic's SDK drops
            schema.validate_python(event)


def test_the_last_event_of_a_messages_stream_has_all_of_its_usage(upstream) -> None:
    """As the API sends since 2025; it had the output's tokens alone."""
    body = {"model": "m", "messages": ASK, "stream": True, "max_tokens": 9}
    answer = httpx.post(f"{upstream.url}/v1/messages", json=body).text
    lines = [line[6:] for line in answer.splitlines() if '"message_delta"' in line]
    usage = json.loads(lines[-1])["usage"]
    assert (usage["input_tokens"], usage["output_tokens"]) == (100, 20)
    assert usage["cache_read_input_tokens"] == usage["cache_creation_input_tokens"] == 0
