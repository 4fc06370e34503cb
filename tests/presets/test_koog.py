"""koog's strategies and sessions (seed 3), row by row, with a scripted model."""

import asyncio
import re
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold import Answer, Ask, Message, Text, ToolCall, ToolResult, check
from refold.budget.triggers import Elapsed, EveryN, Fraction, Messages, Predicate, Tokens
from refold.messages import user
from refold.presets import koog
from refold.presets.koog import (
    LLM,
    Chunked,
    Concept,
    FactType,
    FromLastNMessages,
    HistoryCompressionStrategy,
    MemoryContaining,
    NoAnswer,
    NoCompression,
    Prompt,
    RetrieveFactsFromHistory,
    TaggedMemory,
    WholeHistory,
    compose_prompt_with_required_messages,
    remember,
)
from refold.rules.openai_chat import RULES
from refold.rules.rule import Rules
from refold.speakers.request import is_request
from refold.strategies import WholeHistory as CoreWholeHistory
from refold.testing import ScriptedModel, transcripts
from refold.text.summary_wrapper import CONTINUE, summary_in
from tests.support.messages import assistant

WORDS = "some words that take room " * 60
SYSTEM = Message("system", (Text("You are an agent."),))


def tldr(text):
    return (
        f"## Key Objectives\n- {text}\n## Tools Used & Results\n- make: passed\n## Key Findings\n- none\n"
        "## Current Status\n- on it\n## Next Steps\n- go on"
    )


def call(id, name="make"):
    return Message("assistant", (ToolCall(id, name, "{}"),))


def result(id, text=WORDS):
    return Message("tool", (ToolResult(id, (Text(text),)),))


def pairs(count, start=0):
    return [m for n in range(start, start + count) for m in (call(f"c{n}"), result(f"c{n}"))]


TASK = [SYSTEM, user("Mend the build."), *pairs(15), assistant("Done. " + WORDS)]


def run(work):
    return asyncio.run(work)


async def replace_history(
    history, *answers, strategy=None, preserve_memory=True, memory=None, **options
):
    """Return the history after one write session, the requests to the model and the outcome."""
    model = ScriptedModel(answers)
    llm = LLM(history, model, memory=memory)
    async with llm.write_session() as session:
        attempts = await session.replace_history_with_tldr(strategy, preserve_memory, **options)
    return llm.history, model.asked, attempts


def tldrs(history):
    return [text for text in map(summary_in, history) if text is not None]


def valid(history):
    return Rules(RULES).check([m for m in history if m.role != "system"]) == ()


# --- strategies -----------------------------------------------------------------------------------


def test_whole_history_is_the_default():
    """S3-01 S3-02 S3-12 S3-13 S3-14: `replace_history_with_tldr()` makes one TLDR of fifteen calls
    and their results, after the system prompt and the first request, which are the same objects
    (C3-1). The history ends with a user message (C3-4)."""
    history, asked, (attempt,) = run(replace_history(TASK, tldr("mend it")))
    assert history[0] is SYSTEM
    assert history[1] is TASK[1]
    assert len(tldrs(history)) == 1
    assert "mend it" in tldrs(history)[0]
    assert [m.role for m in history] == ["system", "user", "user"]
    assert len(asked) == 1
    assert asked[0].messages[0].text.count("<result") == 15
    assert (attempt.outcome, attempt.calls) == ("applied", 1)


def test_the_tldr_has_five_sections():
    """S3-14: the prompt asks for them."""
    _, (ask,), _ = run(replace_history(TASK, tldr("x")))
    for title in (
        "Key Objectives",
        "Tools Used & Results",
        "Key Findings",
        "Current Status",
        "Next Steps",
    ):
        assert f"## {title}" in ask.system


def test_from_last_n_messages_summarises_only_the_last_n_messages():
    """S3-15: the last five messages become one TLDR, and earlier ones are dropped. System prompt
    and first request stay (C3-1)."""
    marked = [*TASK[:2], assistant("OLD " + WORDS), *TASK[2:]]
    history, (ask,), _ = run(
        replace_history(marked, tldr("the newest"), strategy=FromLastNMessages(5))
    )
    assert history[:2] == marked[:2]
    assert len(tldrs(history)) == 1
    assert "OLD" not in ask.messages[0].text
    assert ask.messages[0].text.count("<result") == 2
    assert "OLD" not in str(history)


def test_chunked_makes_one_tldr_for_each_chunk_in_order():
    """S3-02 S3-16: 31 messages in chunks of ten, each with its own model call, become as many TLDRs
    in order. A call stays with its result (C3-2)."""
    history, asked, _ = run(
        replace_history(TASK, *(tldr(f"part {n}") for n in range(9)), strategy=Chunked(10))
    )
    assert 3 <= len(asked) <= 4
    assert [f"part {n}" in text for n, text in enumerate(tldrs(history))] == [True] * len(asked)
    for ask in asked:
        assert ask.messages[0].text.count("<call") == ask.messages[0].text.count("<result")
    assert history[:2] == TASK[:2]
    assert valid(history)


def number_remarks(count):
    """Return a request and this many numbered remarks."""
    return [
        SYSTEM,
        user("[0] Mend it. " + WORDS),
        *(assistant(f"[{n}] {WORDS}") for n in range(1, count)),
    ]


def numbers(ask):
    """Return the numbers of the messages in a prompt's record."""
    return [
        int(n)
        for n in re.findall(r"\[(\d+)\]", ask.messages[0].text.partition("</conversation>")[0])
    ]


@pytest.mark.parametrize("n", [1, 3, 5, 8])
def test_from_last_n_messages_summarises_exactly_n_messages(n):
    """S3-13 S3-15: the messages are unrelated, and nothing of the earlier ones is left."""
    history, (ask,), _ = run(
        replace_history(number_remarks(12), tldr("the newest"), strategy=FromLastNMessages(n))
    )
    assert numbers(ask) == list(range(12 - n, 12))
    assert "[1]" not in str(history)


@pytest.mark.parametrize("size", [2, 3, 5, 10])
def test_chunks_have_exactly_the_size_and_are_summarised_one_by_one(size):
    """S3-13 S3-16: each prompt contains the messages of its own chunk, and each TLDR is in its
    place."""
    answers = [tldr(f"part {n}") for n in range(9)]
    history, asked, _ = run(replace_history(number_remarks(12), *answers, strategy=Chunked(size)))
    assert [numbers(ask) for ask in asked] == [
        list(range(at, min(at + size, 12))) for at in range(0, 12, size)
    ]
    assert [f"part {n}" in text for n, text in enumerate(tldrs(history))] == [True] * len(asked)


CONCEPTS = (
    Concept(
        keyword="user_preferences",
        description="User's preferences for the recommendation system, including the preferred conversation style, "
        "theme in the application, etc.",
        fact_type=FactType.MULTIPLE,
    ),
    Concept(
        keyword="product_details",
        description="Brief details about products in the catalog the user has been checking",
        fact_type=FactType.MULTIPLE,
    ),
    Concept(
        keyword="issue_solved",
        description="Was the initial user's issue resolved?",
        fact_type=FactType.SINGLE,
    ),
)
FACTS = '{"user_preferences": ["dark theme", "short answers"], "product_details": ["Lamp 40 W"], "issue_solved": "yes"}'


def test_retrieve_facts_replaces_the_history_by_facts_about_the_concepts():
    """S3-17 S3-18 S3-19 S3-20: the facts about the seed's three concepts replace the history, with
    one prompt for all."""
    history, asked, _ = run(
        replace_history(TASK, FACTS, strategy=RetrieveFactsFromHistory(*CONCEPTS))
    )
    (text,) = tldrs(history)
    assert all(fact in text for fact in ("dark theme", "short answers", "Lamp 40 W", "yes"))
    assert all(concept.keyword in text for concept in CONCEPTS)
    assert len(asked) == 1
    assert all(concept.description in asked[0].prompt for concept in CONCEPTS)
    assert all(message.role != "tool" for message in history)


def test_without_facts_the_history_is_kept_or_a_fallback_is_used():
    """S3-17: nothing is lost if no facts are found (C3-8)."""
    none = '{"user_preferences": [], "product_details": [], "issue_solved": ""}'
    history, _, (attempt,) = run(
        replace_history(TASK, none, strategy=RetrieveFactsFromHistory(*CONCEPTS))
    )
    assert history == TASK
    assert attempt.outcome == "noop"
    facts = RetrieveFactsFromHistory(*CONCEPTS, fallback=CoreWholeHistory())
    history, _, (attempt,) = run(replace_history(TASK, none, strategy=facts))
    assert len(history) < len(TASK)
    assert attempt.outcome == "degraded"


def test_no_compression_leaves_the_history_unchanged():
    """S3-13: this strategy switches compression off."""
    history, asked, attempts = run(replace_history(TASK, strategy=NoCompression()))
    assert (history, asked, attempts) == (TASK, [], ())


# --- memory ---------------------------------------------------------------------------------------

REMEMBERED = remember("The user likes dark mode.")
WITH_MEMORY = [*TASK[:6], REMEMBERED, *TASK[6:]]
STRATEGIES = [
    (WholeHistory(), tldr("x")),
    (FromLastNMessages(5), tldr("x")),
    (RetrieveFactsFromHistory(*CONCEPTS), FACTS),
    (Chunked(10), tldr("x")),
]


@pytest.mark.parametrize(("strategy", "answer"), STRATEGIES, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("preserve", [True, False])
def test_memory_messages_are_kept_if_preserve_memory_is_true(strategy, answer, preserve):
    """S3-26 S3-27: every method keeps them, also if a custom strategy delegates to it."""
    history, _, _ = run(
        replace_history(
            [*WITH_MEMORY, user("Next?")],
            *[answer] * 9,
            strategy=strategy,
            preserve_memory=preserve,
        )
    )
    assert (REMEMBERED in history) == preserve
    assert tldrs(history)

    async def hand_over():
        async with LLM(
            [*WITH_MEMORY, user("Next?")], ScriptedModel([answer] * 9)
        ).write_session() as session:
            await strategy.compress(session, preserve, session.memory_messages())
            return session.prompt.messages

    assert (REMEMBERED in run(hand_over())) == preserve


def test_koogs_own_memory_messages_are_recognised_by_their_text():
    """S3-26: facts from memory, and the note that the feature is off, are recognised at the start
    of a message (F26). A match anywhere in the text is optional, since a user may quote them
    (C3-5)."""
    off = user("Memory feature is not enabled")
    facts = user("Here are the relevant facts from memory: dark mode")
    quoted = user("What does 'Memory feature is not enabled' mean?")
    history = [*TASK[:4], off, facts, quoted, *TASK[4:]]
    with_substrings, _, _ = run(replace_history(history, tldr("x"), memory=MemoryContaining()))
    assert [message for message in (off, facts, quoted) if message in with_substrings] == [
        off,
        facts,
        quoted,
    ]
    with_beginnings, _, _ = run(replace_history(history, tldr("x")))
    assert [message for message in (off, facts, quoted) if message in with_beginnings] == [
        off,
        facts,
    ]
    tagged, _, _ = run(replace_history(history, tldr("x"), memory=TaggedMemory()))
    assert off not in tagged


def test_a_memory_that_is_a_system_message_is_not_duplicated():
    """S3-26: it stays as the system message and is not added as memory (C3-5)."""
    memory = Message("system", REMEMBERED.parts)
    history, _, _ = run(replace_history([*TASK[:6], memory, *TASK[6:]], tldr("x")))
    assert history.count(memory) == 1


def test_a_memory_that_was_inserted_twice_is_kept_once():
    """S3-26: equal texts are one memory (C3-5)."""
    again = remember("The user likes dark mode.")
    history, _, _ = run(replace_history([*WITH_MEMORY[:9], again, *WITH_MEMORY[9:]], tldr("x")))
    assert history.count(REMEMBERED) == 1


# --- open calls -----------------------------------------------------------------------------------


def test_a_call_that_has_no_result_yet_is_kept():
    """S3-09 S3-10: a result that arrives later still has its call (C3-3)."""
    waiting = [*TASK[:-1], call("open")]
    history, _, _ = run(replace_history(waiting, tldr("x")))
    assert history[-1] is waiting[-1]
    assert valid([*history, result("open")])


def test_a_request_that_is_not_answered_yet_is_kept():
    """S3-14: a long session used to keep only the first request, and the current one was
    summarised."""
    waiting = [*TASK, user("And now the docs.")]
    history, _, _ = run(replace_history(waiting, tldr("x")))
    assert history[-1] is waiting[-1]


@pytest.mark.parametrize(("strategy", "answer"), STRATEGIES, ids=lambda value: type(value).__name__)
def test_a_blank_message_is_not_taken_for_the_first_request(strategy, answer):
    """C3-1: the user's first text stays, however many blank messages precede it."""
    blank, request = user(" \n"), user("Mend the build.")
    history = [SYSTEM, blank, assistant("Yes?"), request, *TASK[2:], user("And now the docs.")]
    compressed, _, _ = run(replace_history(history, *[answer] * 9, strategy=strategy))
    assert compressed[:2] == [SYSTEM, request]
    assert compressed[-1] == history[-1]
    assert blank not in compressed


# --- sessions -------------------------------------------------------------------------------------


def test_conditions_can_be_checked_in_a_read_session():
    """S3-05 S3-06 S3-07 S3-12: koog's message count and any other trigger (C3-7)."""

    async def conditions():
        now = iter(range(0, 1000, 30))
        async with LLM(TASK, clock=lambda: next(now)).read_session() as session:
            return (
                len(session.prompt.messages) > 100,
                len(session.prompt.messages) > 20,
                [
                    session.is_due(Messages(32)),
                    session.is_due(Tokens(3_000)),
                    session.is_due(Fraction(0.7), window=6_000),
                    session.is_due(Elapsed(60)),
                    session.is_due(EveryN(15)),
                    session.is_due(Predicate(lambda view: "Done." in view.messages[-1].text)),
                ],
                [
                    session.is_due(Messages(33)),
                    session.is_due(Tokens(30_000)),
                    session.is_due(Fraction(0.7), 60_000),
                ],
            )

    too_long, over_20, fired, quiet = run(conditions())
    assert (too_long, over_20) == (False, True)
    assert fired == [True] * 6
    assert quiet == [False] * 3


def test_write_sessions_are_exclusive_and_readers_see_the_history_before_them():
    """S3-12: a reader sees the history before the write session, never half of a change."""

    async def race():
        llm, order = LLM([user("a")]), []

        async def write(name):
            async with llm.write_session() as session:
                order.append(f"{name} in")
                await asyncio.sleep(0)
                session.append(assistant(name))
                async with llm.read_session() as reader:
                    order.append(len(reader.prompt.messages))
                await asyncio.sleep(0)
                order.append(f"{name} out")

        await asyncio.gather(write("x"), write("y"))
        return order, [m.text for m in llm.history]

    order, texts = run(race())
    assert order == ["x in", 1, "x out", "y in", 2, "y out"]
    assert texts == ["a", "x", "y"]


@pytest.mark.parametrize("entry", [user, lambda text: {"role": "user", "content": text}])
def test_entries_added_during_a_write_session_stay_behind_its_result(entry):
    """They used to be lost, or to end the session with a `ValueError`."""

    async def main() -> None:
        llm = LLM([entry("a"), entry("b")])
        async with llm.write_session() as session:
            llm.history.append(entry("late"))
            session.prompt = Prompt(session.prompt.messages[1:])
        assert llm.history == [entry("b"), entry("late")]

    run(main())


def test_an_error_in_a_write_session_leaves_the_history_unchanged():
    """S3-12: a failed write session changes nothing, and the next one can begin."""

    async def empty(llm):
        async with llm.write_session() as session:
            session.prompt = Prompt(())
            raise KeyError("x")

    async def broken():
        llm = LLM(TASK)
        with pytest.raises(KeyError):
            await empty(llm)
        async with llm.write_session() as session:
            session.append(user("more"))
        return llm.history

    assert run(broken()) == [*TASK, user("more")]


def test_a_request_without_tools_sends_calls_and_results_as_text():
    """S3-23: the history is sent as text, with calls and results. The answer is appended in a write
    session."""

    async def ask():
        model = ScriptedModel(["Two tools failed."])
        llm = LLM([SYSTEM, user("go"), call("a"), result("a", "</result> boom")], model)
        async with llm.write_session() as session:
            session.append(user("What failed?"))
            answer = await session.request_llm_without_tools(max_tokens=300)
        return model.asked[0], answer, llm.history

    asked, answer, history = run(ask())
    assert answer == assistant("Two tools failed.") == history[-1]
    assert (asked.system, asked.prompt, asked.max_tokens) == (
        "You are an agent.",
        "What failed?",
        300,
    )
    assert [m.role for m in asked.messages] == ["user", "assistant", "user"]
    assert '<call tool="make">' in asked.messages[1].text
    assert asked.messages[2].text.count("</result>") == 1


def test_a_request_after_an_answer_asks_the_model_to_continue():
    """S3-23: a request ends with a user message."""

    async def ask():
        model = ScriptedModel(["more"])
        async with LLM([user("go"), assistant("first")], model).read_session() as session:
            return await session.request_llm_without_tools(), model.asked[0]

    answer, asked = run(ask())
    assert answer.text == "more"
    assert (asked.prompt, [m.text for m in asked.messages]) == (CONTINUE, ["go", "first"])


@pytest.mark.parametrize("reply", [None, Answer("", "error", "HTTP 500"), Answer("  ")])
def test_a_missing_or_empty_answer_raises_no_answer_and_keeps_the_history(reply):
    """S3-23: the history is unchanged."""

    async def ask():
        llm = LLM([user("go")], lambda ask: reply)
        with pytest.raises(NoAnswer, match=r"no model|HTTP 500|empty"):
            async with llm.write_session() as session:
                await session.request_llm_without_tools()
        return llm.history

    assert run(ask()) == [user("go")]


def test_a_request_in_a_session_without_a_model_raises_no_answer():
    """S3-23: the error names the cause."""

    async def ask():
        async with LLM([user("go")]).read_session() as session:
            await session.request_llm_without_tools()

    with pytest.raises(NoAnswer, match="there is no model"):
        run(ask())


def test_using_switches_the_model_and_always_restores_it():
    """S3-24: the model is switched back, after an error too, and the switch never leaks out of the
    session."""

    async def switch():
        main, second_model = ScriptedModel(["main"] * 3), ScriptedModel(["other"] * 3)
        llm = LLM([user("go")], main)
        async with llm.write_session() as session:
            with session.using(second_model):
                first = await session.request_llm_without_tools()
            with pytest.raises(KeyError), session.using(second_model):
                raise KeyError("x")
            second = await session.request_llm_without_tools()
            session.model = second_model
        return first.text, second.text, llm.model is main

    assert run(switch()) == ("other", "main", True)


class Switching(HistoryCompressionStrategy):
    """A strategy that does not switch the model back, as the seed warns, and may fail."""

    def __init__(self, model, error=None):
        self.model, self.error = model, error

    async def compress(self, llm_session, preserve_memory, memory_messages):
        llm_session.model = self.model
        llm_session.prompt = Prompt(())
        if self.error:
            raise self.error


@pytest.mark.parametrize("error", [None, RuntimeError("x")])
def test_the_model_is_restored_after_a_strategy_that_changed_it(error):
    """S3-24: the session switches it back, and undoes the changes of a strategy that raises."""

    async def forgetful():
        main = ScriptedModel()
        async with LLM(TASK, main).write_session() as session:
            with suppress(RuntimeError):
                await session.replace_history_with_tldr(Switching(ScriptedModel(), error))
            return session.model is main, len(session.prompt.messages)

    assert run(forgetful()) == (True, 0 if error is None else len(TASK))


def test_the_model_option_is_asked_instead_for_one_compression():
    """S3-13 S3-24: koog's `retrievalModel` is used, for this compression alone."""
    cheap = ScriptedModel([tldr("cheap")])
    history, asked, _ = run(replace_history(TASK, tldr("dear"), model=cheap))
    assert "cheap" in tldrs(history)[0]
    assert asked == []


# --- your own strategy ----------------------------------------------------------------------------


class MyCustomCompressionStrategy(HistoryCompressionStrategy):
    """The seed's example: keep responses that contain "important"."""

    async def compress(self, llm_session, preserve_memory, memory_messages):
        important_messages = [
            message
            for message in llm_session.prompt.messages
            if "important" in str(message) and message.role == "assistant"
        ]
        compose_prompt_with_required_messages(
            llm_session, important_messages, preserve_memory, memory_messages
        )


def test_the_seeds_custom_strategy_keeps_important_and_required_messages():
    """S3-21 S3-22 S3-25: important messages stay, after system prompt, memory and first request. A
    call whose result was filtered out is no orphan (C3-6), and the history ends with a user message
    (C3-4)."""
    finding = assistant("important: the port is 5433")
    orphan = Message(
        "assistant", (Text("important too"), ToolCall("x1", "make", '{"important":1}'))
    )
    history = [*WITH_MEMORY, finding, orphan, result("x1"), assistant("Bye.")]
    messages, asked, attempts = run(
        replace_history(history, strategy=MyCustomCompressionStrategy())
    )
    assert messages == [
        SYSTEM,
        TASK[1],
        REMEMBERED,
        finding,
        assistant("important too"),
        user(CONTINUE),
    ]
    assert messages[3] is finding
    assert asked == []
    assert attempts == ()
    assert valid(messages)
    without, _, _ = run(
        replace_history(history, strategy=MyCustomCompressionStrategy(), preserve_memory=False)
    )
    assert REMEMBERED not in without


def test_a_strategy_without_a_compress_method_cannot_be_created():
    """S3-21: the class is abstract."""
    with pytest.raises(TypeError, match="abstract"):
        HistoryCompressionStrategy()


class Rewriting(HistoryCompressionStrategy):
    """A strategy that changes the prompt, calls the model and then composes the result."""

    async def compress(self, llm_session, preserve_memory, memory_messages):
        llm_session.prompt = Prompt(llm_session.prompt.messages[-2:])
        llm_session.append(user("Summarise in a word."))
        answer = await llm_session.request_llm_without_tools()
        compose_prompt_with_required_messages(
            llm_session, [answer], preserve_memory, [user("fresh memory")]
        )


def test_the_prompt_is_composed_from_the_history_before_the_strategy_changed_it():
    """S3-22 S3-23: system prompt, first request and open call are those from before, and the
    instruction is absent (C3-1, C3-3). Memory fetched in between is included."""
    waiting = [*TASK[:-1], call("open")]
    composed, (asked,), _ = run(replace_history(waiting, "A word.", strategy=Rewriting()))
    assert asked.prompt == "Summarise in a word."
    assert composed == [SYSTEM, TASK[1], user("fresh memory"), assistant("A word."), waiting[-1]]


def test_messages_that_are_kept_anyway_are_not_added_twice():
    """S3-22: kept messages are not repeated."""

    class Everything(HistoryCompressionStrategy):
        async def compress(self, llm_session, preserve_memory, memory_messages):
            messages = llm_session.prompt.messages
            compose_prompt_with_required_messages(
                llm_session, messages, preserve_memory, memory_messages
            )

    waiting = [SYSTEM, user("q"), *pairs(2), call("open")]
    composed, _, _ = run(replace_history(waiting, strategy=Everything()))
    assert composed == waiting


def test_a_history_of_one_unanswered_request_is_left_unchanged():
    """S3-22: a history whose first message is unanswered stays."""
    assert run(replace_history([user("q")], strategy=MyCustomCompressionStrategy()))[0] == [
        user("q")
    ]


# --- formats --------------------------------------------------------------------------------------


def test_messages_kept_from_a_wire_format_history_are_the_same_objects():
    """S3-12: kept entries are the same objects, with all their fields."""
    history = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Mend it.", "name": "ann"},
        *({"role": "assistant", "content": f"{n} {WORDS}"} for n in range(5)),
        {"role": "user", "content": "And now?", "name": "ann"},
    ]
    entries, _, _ = run(replace_history(history, tldr("x")))
    assert entries[0] is history[0]
    assert entries[1] is history[1]
    assert entries[-1] is history[-1]
    assert len(entries) == 4
    assert check(entries) == ()


def test_of_two_people_who_say_the_same_the_later_keeps_the_later_entry():
    """It used to get the entry, and the name, of the earlier one, which was dropped."""

    async def main() -> None:
        requests = [{"role": "user", "content": "Yes.", "name": name} for name in ("ann", "bob")]
        answers = [{"role": "assistant", "content": f"Answer {n}."} for n in range(2)]
        llm = LLM([requests[0], answers[0], requests[1], answers[1]])
        async with llm.write_session() as session:
            session.prompt = Prompt(session.prompt.messages[2:])
        assert llm.history[0] is requests[1]
        assert llm.history[1] is answers[1]
        llm = LLM([*requests, answers[0]])
        async with llm.write_session() as session:  # another object, equal to both but for the name
            session.prompt = Prompt((Message("user", (Text("Yes."),), "bob"),))
        assert llm.history[0] is requests[1]

    run(main())


def test_a_tldr_saves_tokens_and_keeps_the_task():
    """S3-03: fewer tokens cost less money and time, and the facts for the task are still there."""
    history, _, (attempt,) = run(replace_history(TASK, tldr("mend it")))
    assert attempt.tokens_after < 0.25 * attempt.tokens_before
    assert "Mend the build." in history[1].text


def test_an_unknown_attribute_of_the_module_raises_attribute_error():
    assert isinstance(koog.tldr().form.name, str)
    with pytest.raises(AttributeError, match="no attribute"):
        koog.nothing  # noqa: B018 - reading it is the test


def test_the_model_request_for_a_tldr_has_the_purpose_summary():
    """S3-14: the request to the model names its purpose."""
    _, asked, _ = run(replace_history(TASK, tldr("x")))
    assert all(isinstance(ask, Ask) and ask.purpose == "summary" for ask in asked)


# --- any history ----------------------------------------------------------------------------------


def one_result_each(messages):
    """Return a transcript as Chat Completions has it: one message per result."""
    for message in messages:
        rest = tuple(part for part in message.parts if not isinstance(part, ToolResult))
        yield from (
            Message("tool", (part,)) for part in message.parts if isinstance(part, ToolResult)
        )
        if rest or not message.results:
            yield Message(message.role, rest)


def first_request(messages):
    """Return the first user message that is not blank."""
    return next(filter(is_request, messages), None)


@given(
    transcripts(),
    st.sampled_from([*STRATEGIES, (MyCustomCompressionStrategy(), "")]),
    st.booleans(),
)
def test_any_history_is_still_valid_after_compression(messages, chosen, head):
    """S3-09 S3-22: pairs are complete, first request and open calls are there, and the model can
    continue, also after a second compression."""
    strategy, answer = chosen
    history = [*[SYSTEM] * head, *one_result_each(messages)]
    for _ in range(2):
        compressed, _, _ = run(replace_history(history, *[answer] * 60, strategy=strategy))
        assert valid(compressed)
        assert compressed[:head] == history[:head]
        assert compressed[head] == history[head] or not is_request(history[head])
        assert first_request(history) in [None, *compressed]
        if history[-1].role != "assistant" or history[-1].calls:
            assert compressed[-1] == history[-1]
        assert compressed == history or compressed[-1].role != "assistant" or compressed[-1].calls
        history = compressed


def test_the_docs_page_lists_each_strategy_and_when_to_use_it():
    """S3-28: a row for each, with what it keeps and when to use it."""
    page = (Path(__file__).parents[2] / "docs" / "presets" / "koog.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\w+)\(.*?\)`.*? \| (.{8,}) \| (.{30,}) \|$", page, re.MULTILINE)
    named = [WholeHistory, FromLastNMessages, Chunked, RetrieveFactsFromHistory, NoCompression]
    assert [name for name, _, _ in rows] == [strategy.__name__ for strategy in named]
