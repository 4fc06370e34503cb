"""What a gateway keeps of conversations between requests."""

import asyncio
import gc
import json
from types import BuiltinFunctionType, FunctionType, ModuleType

import pytest

import refold
from refold import Edit
from refold.gateway import Incoming, Pipeline, Settings
from refold.gateway.conversations.conversations import Conversation, Conversations, LatestRequest
from refold.stores import MemoryStore
from refold.tokens.model_table import Window
from tests.support.agent_requests import read_files


def make_conversation(name: str) -> Conversation:
    return Conversation(name, name, "t", refold.Compactor([], refold.Budget(10, 10)))


def names(conversations: Conversations) -> list[str]:
    return [conversation.name for conversation in conversations]


def test_the_least_recently_used_conversation_is_forgotten():
    conversations = Conversations(most=2, known_bytes=1_000)
    for name in ("a", "b", "a", "c"):
        conversations.get_or_create(name, 1, lambda name=name: make_conversation(name))
    assert names(conversations) == ["a", "c"]


def test_older_conversations_are_forgotten_if_they_exceed_the_byte_limit():
    conversations = Conversations(most=100, known_bytes=1_000)
    for name, size in (("a", 400), ("b", 400), ("a", 500), ("c", 400)):
        conversations.get_or_create(name, size, lambda name=name: make_conversation(name))
    assert names(conversations) == ["a", "c"]
    conversations.get_or_create("d", 5_000, lambda: make_conversation("d"))
    assert names(conversations) == ["d"], "the latest is always known"


def test_a_forgotten_conversation_gets_the_same_edits_again():
    def request(session: str, steps: int) -> Incoming:
        messages = [{"role": "user", "content": session}, *read_files(steps)]
        body = json.dumps({"model": "m", "messages": messages}).encode()
        return Incoming(
            "openai_chat", "up", "/v1/chat/completions", (("x-session-id", session),), body, "c"
        )

    async def run() -> None:
        settings = Settings(
            windows={"m": Window(16_000)}, economy=False, known_bytes=1, decide_timeout_seconds=60
        )
        pipeline = Pipeline(settings, MemoryStore())
        first = await pipeline.prepare(request("one", 60))
        await pipeline.prepare(request("two", 60))
        assert len(pipeline.conversations) == 1
        again = await pipeline.prepare(request("one", 61))
        assert first.edits == again.edits != ()
        await pipeline.aclose()

    asyncio.run(run())


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_forgotten_conversation_keeps_its_history_only_if_the_store_lost_data(is_lost: bool):
    """While a database was down, each forgotten conversation kept its history, without a limit. The
    history is needed only if the store has lost its data."""
    words, conversations = "what was said " * 80, Conversations(most=1, known_bytes=1_000)
    first = conversations.get_or_create("a", 1, lambda: make_conversation("a"))
    view = first.compactor([{"role": "user", "content": words}])
    first.latest = LatestRequest("m", "up", 0.0, view)
    first.shown.unsaved = [Edit(0, 1, (), "tip", "by")]
    first.shown.is_lost = is_lost
    del first, view
    conversations.get_or_create("b", 1, lambda: make_conversation("b"))
    (waiting,) = conversations.list_unsaved()
    assert waiting.name == "a" and len(waiting.shown.unsaved) == 1
    assert any(value == words for value in reachable(waiting) if type(value) is str) == is_lost


def test_f27_a_conversation_keeps_its_texts_once_and_not_the_request_body():
    """Between requests a conversation takes about twice its JSON: the texts and what is derived
    from them. Texts that are reachable are counted, not allocated memory."""
    history = [{"role": "user", "content": f"{n} " + "a long text " * 80} for n in range(200)]
    compact = refold.Compactor(refold.default_strategies(), refold.Budget(10**9, 10**9))
    body = json.dumps({"model": "m", "messages": history}).encode()
    size = len(body)
    compact(body)
    texts = sum(
        len(text) for text in reachable(compact) if type(text) in (str, bytes) and len(text) > 500
    )
    assert 0 < texts < 1.2 * size and not any(
        text == body for text in reachable(compact) if type(text) is bytes
    )


def reachable(start):
    """Return every object reachable from *start*, except modules and classes."""
    seen, waiting = {id(start)}, [start]
    while waiting:
        value = waiting.pop()
        yield value
        for held in gc.get_referents(value):
            if id(held) not in seen and not isinstance(
                held, (type, ModuleType, FunctionType, BuiltinFunctionType)
            ):
                seen.add(id(held))
                waiting.append(held)
