"""Conversations of clients without session keys are told apart by their history alone."""

import asyncio
import json
from typing import Any

import pytest

from refold.core.strategy import Answer, Ask
from tests.support.agent_requests import FORMATS
from tests.support.pipeline_driver import Driver, build_incoming

WORDS = "one two three four five six seven eight nine ten " * 40


def session(name: str, turns: int, *, marked: bool = False) -> bytes:
    """Return a chat about *name*. *marked* moves a cache mark to the latest message, as clients
    do."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": f"Look into {name}."}]
    for turn in range(turns):
        messages += [
            {"role": "assistant", "content": f"{name}, step {turn}: {WORDS}"},
            {"role": "user", "content": f"{name}: go on from {turn}."},
        ]
    if marked:
        last = messages[-1]
        last["content"] = [
            {"type": "text", "text": last["content"], "cache_control": {"type": "ephemeral"}}
        ]
    return json.dumps(
        {"model": "claude-opus-5-5", "max_tokens": 1_000, "messages": messages}
    ).encode()


def names(driver: Driver) -> list[str]:
    return [conversation.name for conversation in driver.pipeline.conversations]


@pytest.mark.parametrize("marked", [False, True])
def test_sessions_of_one_caller_are_conversations_of_their_own(marked: bool):
    with Driver() as driver:
        for turns in range(5):
            for number in range(12):
                driver(session(f"bug {number}", turns, marked=marked))
        assert len(set(names(driver))) == 12
        assert driver.count("prefix_breaks") == 0
        assert {
            len(conversation.history.tips) for conversation in driver.pipeline.conversations
        } == {5}


@pytest.mark.parametrize("api", FORMATS)
def test_a_growing_session_stays_one_conversation(api: str):
    with Driver() as driver:
        for steps in range(1, 12):
            driver(FORMATS[api](steps), api)
        assert len(names(driver)) == 1


def test_a_session_keeps_its_name_in_another_process():
    with Driver() as driver, Driver() as restarted:
        driver(session("a", 1))
        driver(session("a", 2))
        restarted(session("a", 7))
        assert names(driver) == names(restarted)


def test_the_same_question_twice_begins_two_conversations():
    """An evaluation may ask the same question a hundred times. The answers tell the conversations
    apart."""
    with Driver() as driver:
        driver(session("a", 0))
        driver(session("a", 3))
        driver(session("a", 0))
        assert len(set(names(driver))) == 2
        edited = json.loads(session("a", 3))
        edited["messages"][1]["content"] = "Something else."
        driver(json.dumps(edited).encode())
        driver(session("a", 4))
        assert len(set(names(driver))) == 2


def test_a_rewound_session_is_the_same_one():
    with Driver() as driver:
        for turns in range(6):
            driver(session("a", turns))
        rewound = json.loads(session("a", 3))
        rewound["messages"] += [
            {"role": "assistant", "content": "Yes."},
            {"role": "user", "content": "Another way."},
        ]
        driver(json.dumps(rewound).encode())
        driver(session("a", 6))
        assert len(names(driver)) == 1


def test_one_session_does_not_wait_for_the_summary_of_another():
    asked, answered = asyncio.Event(), asyncio.Event()

    async def ask(_: Ask) -> Answer:
        asked.set()
        await answered.wait()
        return Answer("What was done so far.")

    async def run(driver: Driver) -> tuple[str, ...]:
        long = asyncio.create_task(driver.pipeline.prepare(build_incoming(session("a", 60))))
        await asked.wait()
        short = await driver.pipeline.prepare(build_incoming(session("b", 2)))
        answered.set()
        return short.outcome, short.reason, (await long).reason

    with Driver(ask=ask) as driver:
        assert driver.run(run(driver)) == ("untouched", "", "hard")


@pytest.mark.parametrize("words", ["word " * 2_000, ""])
def test_all_known_histories_of_one_session_key_count_against_known_bytes(words: str) -> None:
    """A client that sent large histories and then a short one under one key used to have the large
    ones held uncounted."""
    with Driver(known_bytes=100_000, decide_timeout_seconds=30) as driver:
        for number in range(6):
            for text in (*(f"{number} {at} {words}" for at in range(6)), str(number)):
                entries = [{"role": "user", "content": text}, *({} for _ in range(9))]
                entries += [{} for _ in range(20 * (not words and text != str(number)))]
                body = {"model": "m", "prompt_cache_key": str(number), "messages": entries}
                driver(json.dumps(body).encode(), "openai_chat")
        assert len(driver.pipeline.conversations) < 3


def test_many_tiny_messages_count_with_a_fixed_size_against_known_bytes() -> None:
    """A body of a million `{}` is small, but the state kept for it is not, and must not come on top
    of other conversations."""
    with Driver(known_bytes=1_000_000, decide_timeout_seconds=30) as driver:
        for number in range(4):
            entries = [{"role": "user", "content": f"{number}"}, *({} for _ in range(1_500))]
            driver(json.dumps({"model": "m", "messages": entries}).encode(), "openai_chat")
        assert len(names(driver)) == 1
        assert (
            driver.pipeline.conversations.of_family(
                next(iter(driver.pipeline.conversations)).family
            )[0].size_bytes
            == 1_501 * 500
        )
