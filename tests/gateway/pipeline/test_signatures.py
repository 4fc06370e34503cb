"""Signed thinking over real HTTP, with a provider that checks signatures: the client never sees an
error."""

import asyncio
import gzip
import json
from dataclasses import replace
from time import sleep
from typing import Any

import httpx
import pytest

from refold.gateway import Config, Gateway, Pipeline, Settings, Upstream
from refold.gateway.config import parse_config
from refold.gateway.exchange import Incoming, Outgoing
from refold.gateway.pipeline.upstream_errors import is_thinking_refused, thinking_block_index
from refold.gateway.serve import create_gateway
from refold.stores import MemoryStore
from refold.testing.scripted_gateway import Serving
from refold.testing.scripted_provider import Received, Reply, ScriptedProvider
from refold.tokens.model_table import Window
from tests.support.compaction import thinking_steps
from tests.support.pipeline_driver import UnreliableStore
from tests.support.raw_http import eventually
from tests.support.signing import refuse_bad_signatures, sign

MODEL = "claude-opus-5-5"
VERTEX = "/v1/projects/p/locations/us-east5/publishers/anthropic/models"
HEADERS = {"anthropic-version": "2023-06-01", "x-claude-code-session-id": "s1"}


def provider(asked: Received) -> Reply:
    """A provider that signs its thinking and refuses bad signatures, also when it counts tokens
    (AN-12)."""
    if asked.all("content-encoding"):  # a count, which contains no new thinking
        return Reply(body=json.dumps({"input_tokens": len(asked.body)}))
    if error := refuse_bad_signatures(asked.body):
        return Reply(status=400, body=error.decode())
    if asked.target.endswith(("count_tokens", "count-tokens:rawPredict")):
        return Reply(body=json.dumps({"input_tokens": len(asked.body)}))
    sent = asked.json["messages"]
    thought = {"type": "thinking", "thinking": "hm", "signature": sign(sent)}
    call = {"type": "tool_use", "id": f"toolu_{sign(sent)[:12]}", "name": "read", "input": {}}
    usage = {"input_tokens": len(asked.body) // 4, "output_tokens": 5}
    message = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "stop_reason": "tool_use",
    }
    return Reply(body=json.dumps({**message, "usage": usage, "content": [thought, call]}))


class Place:
    """A provider, a gateway in front of it, and an agent that sends its whole history each time."""

    def __init__(self, upstream: ScriptedProvider) -> None:
        self.upstream, self.key = upstream, "k1"
        self.history: list[Any] = [{"role": "user", "content": "Find the bug. " * 400}]
        self.served = self.start()

    def restart(self) -> None:
        """Start a new gateway process without any state."""
        self.stop()
        self.served = self.start()

    def stop(self) -> None:
        self.served.__exit__(None, None, None)

    def start(self, seconds: float = 30, **fields: Any) -> Serving:
        settings = Settings(
            windows={MODEL: Window(100_000)}, decide_timeout_seconds=seconds, **fields
        )
        config = Config(
            upstreams=(Upstream(name="up", url=self.upstream.url),), settings=settings, salt=b"s"
        )
        self.store = UnreliableStore()
        self.gateway = Gateway(config, Pipeline(settings, self.store))
        return Serving(self.gateway).__enter__()

    def count_tokens(self) -> httpx.Response:
        """Count the tokens of the next request. The body is chunked, as from clients that do not
        know its length."""
        body = json.dumps({"model": MODEL, "messages": self.history}).encode()
        headers = {**HEADERS, "x-api-key": self.key}
        with httpx.Client(base_url=self.served.url, timeout=60, headers=headers) as client:
            return client.post(
                "/v1/messages/count_tokens", content=iter([body[:9_000], body[9_000:]])
            )

    def ask(self, path: str = "/v1/messages", **options: Any) -> httpx.Response:
        body = {"model": MODEL, "messages": self.history}
        if path == "/v1/messages":
            body["max_tokens"] = 1_000
        coded = (
            {"content": gzip.compress(json.dumps(body).encode())}
            if options.get("zipped")
            else {"json": body}
        )
        headers = {**HEADERS, "x-api-key": self.key} | (
            {"content-encoding": "gzip"} if options.get("zipped") else {}
        )
        with httpx.Client(base_url=self.served.url, timeout=60, headers=headers) as client:
            return client.post(path, **coded)

    def turn(self, words: int) -> None:
        answer = self.ask()
        assert answer.status_code == 200, answer.text
        content = answer.json()["content"]
        self.history.append({"role": "assistant", "content": content})
        result = {
            "type": "tool_result",
            "tool_use_id": content[1]["id"],
            "content": f"{len(self.history)} " + "word " * words,
        }
        self.history.append({"role": "user", "content": [result]})

    def count_refused(self) -> int:
        """Return the number of requests that the provider has refused."""
        return sum(
            refuse_bad_signatures(request.body) is not None for request in self.upstream.received
        )


@pytest.fixture
def place():
    with ScriptedProvider(provider) as upstream:
        opened_place = Place(upstream)
        yield opened_place
        opened_place.stop()


def play_edited_session(place: Place) -> None:
    """Run a session with a result that is clipped at once, and thinking before and after it."""
    for words in (10, 15_000, 10, 10):
        place.turn(words)
    assert refuse_bad_signatures(json.dumps({"messages": place.history}).encode()), (
        "the client's own history would be refused"
    )
    assert place.count_refused() == 0


@pytest.mark.parametrize("loss", ["key", "store"])
def test_a_session_continues_after_its_edits_are_lost(place, loss: str) -> None:
    """AN-7: thinking behind edits is refused without them. It is removed once and stays removed
    (AN-10)."""
    play_edited_session(place)
    if loss == "key":
        place.key = "k2"
    else:
        place.restart()
    for _ in range(4):
        place.turn(10)
    assert place.count_refused() == 1
    blocks = [
        b
        for m in json.loads(place.upstream.received[-1].body)["messages"]
        for b in m["content"]
        if isinstance(b, dict)
    ]
    assert sum(b["type"] == "thinking" for b in blocks) == 5, (
        "two before the edit, three since then"
    )


def test_refused_signatures_are_counted_and_other_errors_are_not_retried(place) -> None:
    play_edited_session(place)
    place.key = "k2"
    place.turn(10)
    lines = place.gateway.pipeline.counters.values()
    assert (
        lines["binding_errors", (("api", "anthropic"), ("result", "retried"), ("upstream", "up"))]
        == 1
    )
    before = len(place.upstream.received)
    place.upstream.script = lambda _: Reply("messages.0: something else is wrong", status=400)
    assert place.ask().status_code == 400
    assert len(place.upstream.received) == before + 1


def test_a_repeated_signature_refusal_is_passed_on_after_two_retries(place) -> None:
    """After two retries no thinking is left to remove, and the client gets the error."""
    play_edited_session(place)
    message = "messages.3.content.0: Invalid `signature` in `thinking` block"
    place.upstream.script = lambda _: Reply(message, status=400, code="invalid_request_error")
    before = len(place.upstream.received)
    answer = place.ask()
    assert answer.status_code == 400 and message in answer.text
    assert len(place.upstream.received) - before == 3
    assert b'"thinking"' not in place.upstream.received[-1].body


@pytest.mark.parametrize("path", ["/v1/messages/count_tokens", f"{VERTEX}/count-tokens:rawPredict"])
@pytest.mark.parametrize("zipped", [False, True])
def test_count_tokens_counts_the_messages_that_would_be_sent(
    place, path: str, zipped: bool
) -> None:
    """AN-12: count_tokens checks signatures too, and counts the request that would be sent."""
    play_edited_session(place)
    answer = place.ask(path, zipped=zipped)
    assert answer.status_code == 200, answer.text
    counted = json.loads(place.upstream.received[-1].body)
    assert place.ask().status_code == 200
    assert json.loads(place.upstream.received[-1].body)["messages"] == counted["messages"]
    assert place.count_refused() == 0


def test_a_compaction_finished_after_the_deadline_causes_no_refusal(place) -> None:
    """Its edits were recorded as shown, so thinking that was made without them was kept."""
    place.stop()
    events = list[Any]()

    def be_late(event: Any) -> None:
        events.append(event)
        if len(events) == 1:
            sleep(2)

    place.served = place.start(1, on_event=be_late)
    while not events:
        place.turn(3_000)
    assert eventually(lambda: place.ask().headers.get("refold-edits", "0") != "0", 30)
    assert place.count_refused() == 0


@pytest.mark.parametrize("verb", ["rawPredict", "streamRawPredict"])
def test_claude_requests_on_vertex_are_edited_too(place, verb: str) -> None:
    """They used to pass unread: sessions ended in a context error, and the ledger had none of their
    calls."""
    play_edited_session(place)
    answer = place.ask(f"{VERTEX}/{MODEL}:{verb}")
    assert answer.status_code == 200 and int(answer.headers["refold-edits"]) > 0
    assert place.count_refused() == 0


def test_a_chunked_count_tokens_request_is_edited_too(place) -> None:
    play_edited_session(place)
    assert place.count_tokens().status_code == 200
    assert place.count_refused() == 0


def test_count_tokens_keeps_its_edits_while_the_store_fails(place) -> None:
    play_edited_session(place)
    place.store.down = True
    for _ in range(5):  # and if it is no longer called
        assert place.count_tokens().status_code == 200
    assert place.count_refused() == 0


def test_a_refused_count_tokens_request_is_retried_like_a_message_request(place) -> None:
    play_edited_session(place)
    place.key = "k2"
    assert place.count_tokens().status_code == 200
    assert place.count_refused() == 1
    place.turn(10)
    assert place.count_refused() == 1, "it stays mended"


def test_count_tokens_of_an_unknown_conversation_is_sent_unchanged(place) -> None:
    play_edited_session(place)
    place.history = [{"role": "user", "content": "foo " * 3_000}]
    answer = place.ask("/v1/messages/count_tokens", zipped=True)
    assert answer.status_code == 200, answer.text
    assert (
        gzip.decompress(place.upstream.received[-1].body)
        == json.dumps({"model": MODEL, "messages": place.history}).encode()
    )
    assert len(list(place.gateway.pipeline.conversations)) == 1


def late(**fields: Any) -> tuple[int, int]:
    """Return the thinking blocks that are sent before and after a compaction, to an upstream of an
    older account."""
    body = {"model": MODEL, "max_tokens": 99, "messages": thinking_steps(60, words=400), **fields}
    incoming = Incoming("anthropic", "old", "/v1/messages", (), json.dumps(body).encode(), "hash")
    windows = {MODEL: Window(16_000)}
    pipeline = Pipeline(
        Settings(
            windows=windows,
            older_accounts=frozenset({"old"}),
            economy=False,
            decide_timeout_seconds=60,
        ),
        MemoryStore(),
    )

    async def run() -> Outgoing:
        try:
            return await pipeline.prepare(incoming)
        finally:
            await pipeline.aclose()

    outgoing = asyncio.run(run())
    assert (outgoing.outcome, outgoing.reason) == ("edited", "hard")
    return incoming.body.count(b'"signature"'), outgoing.body.count(b'"signature"')


def test_thinking_of_an_older_account_is_kept_after_a_late_edit() -> None:
    """AN-8: thinking of such an account is bound only in requests that ask for the check."""
    before, after = late()
    assert before == 60 and after > 0
    asking = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "error"}}
    assert late(thinking=asking) == (60, 0)


def test_older_account_is_read_from_the_configuration() -> None:
    text = '[[upstream]]\npreset = "anthropic"\nolder_account = true\n[[upstream]]\nname = "b"\nurl = "http://127.0.0.1:1"\n'
    gateway = create_gateway(replace(parse_config(text), store=":memory:", salt=b"s"))
    assert gateway.pipeline.settings.older_accounts == {"anthropic"}
    asyncio.run(gateway.pipeline.aclose())


SENT = b'{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": [{"type": "thinking"}, {"type": "text"}]},'
SENT += b'{"role": "user", "content": "b"}, {"role": "assistant", "content": [{"type": "text"}, {"type": "redacted_thinking"}]}]}'


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (
            "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation.",
            0,
        ),
        ("messages.3.content.1: Invalid `signature` in `redacted_thinking` block", 1),
        ("The block is bound to a different conversation.", 0),
        ("Validation failed: messages.3.content.1: Invalid signature in thinking block", 1),
    ],
)
def test_signature_errors_are_recognised_in_all_their_wordings(words: str, place: int) -> None:
    body = json.dumps(
        {"type": "error", "error": {"type": "invalid_request_error", "message": words}}
    ).encode()
    assert is_thinking_refused("anthropic", 400, body)
    assert thinking_block_index("anthropic", SENT, body) == place
    assert not is_thinking_refused("gemini", 400, body)
    assert not is_thinking_refused("anthropic", 500, body)


_WORDS = "messages.3.content.1: Invalid `signature` in `thinking` block"


@pytest.mark.parametrize(
    "error",
    [
        {"message": "Provider returned error", "code": 400, "metadata": {"raw": json.dumps({"message": _WORDS.replace("`", "")}), "provider_name": "Amazon Bedrock"}},
        {"message": "Provider returned error", "code": 400, "metadata": {"raw": json.dumps({"type": "error", "error": {"type": "invalid_request_error", "message": _WORDS}})}},
        {"message": "litellm.BadRequestError: AnthropicException - " + json.dumps({"type": "error", "error": {"type": "invalid_request_error", "message": _WORDS}}) + ". Received Model Group=claude", "type": None, "param": None, "code": "400"},
    ],
    ids=["OpenRouter, Bedrock", "OpenRouter, Anthropic", "LiteLLM"],
)  # fmt: skip
def test_signature_errors_wrapped_by_a_translator_are_recognised(error: Any) -> None:  # fmt: skip
    body = json.dumps({"error": error}).encode()
    assert is_thinking_refused("openai_chat", 400, body)
    assert thinking_block_index("openai_chat", SENT, body) == 0


def test_quoted_text_in_an_error_is_not_taken_for_a_signature_error() -> None:
    quoted = json.dumps(
        {"error": {"message": 'unknown field: "bound to a different conversation"'}}
    ).encode()
    assert not is_thinking_refused("anthropic", 400, quoted)
