"""`WholeHistory`, `FromLastN` and `Chunked`: what they summarise, and what stays beside it."""

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.budget.budget import Budget
from refold.compactor.run import compact_if_due
from refold.core.profile import Profile
from refold.core.strategy import Ask, Ending, Summary
from refold.core.view import View
from refold.errors import EditError
from refold.messages import Message, Text, ToolCall, ToolResult, user
from refold.models.driver import drive
from refold.rules import anthropic, openai_chat
from refold.rules.rule import Rules
from refold.strategies import Chunked, FromLastN, WholeHistory
from refold.summarizers.model import ModelSummary
from refold.summarizers.placement import (
    MemoryContaining,
    TaggedMemory,
    find_kept,
    keep_before,
    remember,
)
from refold.summarizers.tail import find_unanswered, find_unsummarized
from refold.testing import ScriptedModel, check_strategy, proposals, transcripts
from refold.text.summary_wrapper import (
    OPEN,
    is_only_summary,
    summary_in,
    without_summary,
    wrap_summary,
)
from tests.support.messages import assistant
from tests.support.messages import call as call_tool

CHAT = Rules(openai_chat.RULES)
ANTHROPIC = Rules(anthropic.RULES, alternate=True, thinking="bound")
RULES = st.sampled_from([Rules(), CHAT, ANTHROPIC])
WORDS = "some words that take room " * 12


def call(id):
    return Message("assistant", (ToolCall(id, "bash", '{"command":"make"}'),))


def result(id):
    return Message("tool", (ToolResult(id, (Text(WORDS),)),))


def talk(turns, start=0):
    return [
        m
        for n in range(start, start + turns)
        for m in (user(f"Request {n}. {WORDS}"), assistant(f"Answer {n}. {WORDS}"))
    ]


@dataclass(frozen=True)
class ByModel:
    """Asks for a summary of exactly the messages it is given."""

    def __call__(self, view, start, stop, max_tokens):
        answer = yield Ask(f"{start}:{stop}", max_tokens)
        return Summary(answer.text) if answer else Summary("", Ending("failed", "nobody to ask"))


def run(strategy, messages, *answers, rules=None, view=None):
    model = ScriptedModel(answers)
    view = view or View.of(messages, profile=Profile(rules=rules or CHAT))
    return proposals(view, strategy, model), [ask.prompt for ask in model.asked]


def tldrs(view):
    return [summary_in(m) for m in view.messages if summary_in(m) is not None]


STRATEGIES = [
    WholeHistory(max_tokens=300),
    FromLastN(4, max_tokens=300),
    Chunked(3, max_tokens=300),
]


@given(transcripts(), RULES, st.sampled_from(STRATEGIES))
def test_they_keep_the_laws(messages, rules, strategy):
    check_strategy(strategy, rules, examples=[messages])


@given(transcripts(), RULES, st.sampled_from([WholeHistory(), FromLastN(3), Chunked(2)]))
def test_they_keep_the_laws_with_a_model(messages, rules, strategy):
    """S3-02: one or several summaries."""
    check_strategy(replace(strategy, summarizer=ByModel()), rules, examples=[messages])


@given(
    transcripts(max_turns=5),
    RULES,
    st.sampled_from([WholeHistory(summarizer=ByModel()), FromLastN(3, summarizer=ByModel())]),
    transcripts(max_turns=4),
)
def test_the_first_request_and_all_unanswered_messages_are_kept(
    messages, rules, strategy, continuation
):
    """S3-09 C3-1 C3-3 C3-4, conformance 20: also when it runs a second time."""
    view = View.of(messages, profile=Profile(rules=rules))
    for added in ((), tuple(m for m in continuation if not m.calls and not m.results)):
        view = proposals(view.extend(added), strategy, ScriptedModel(["A summary."] * 3))
        history = view.transcript.messages
        shown = [part for message in view.messages for part in message.parts]
        asked = {p for p in history[0].parts if not isinstance(p, Text) or p.text.strip()}
        assert asked <= set(shown)
        tail = history[find_unanswered(view) :]
        assert (
            not tail
            or [p for m in tail for p in m.parts] == shown[-sum(len(m.parts) for m in tail) :]
        )
        if view.edits and not tail:
            assert view.messages[-1].role != "assistant"


def test_the_whole_history_becomes_one_summary_after_the_first_request():
    """S3-01 S3-14: calls and results too; exactly one summary over 15 exchanges, the first request before it."""
    messages = [
        user("Mend the build."),
        *(m for n in range(15) for m in (call(f"c{n}"), result(f"c{n}"))),
        assistant("Done."),
    ]
    view, asked = run(WholeHistory(summarizer=ByModel()), messages, "TLDR")
    assert asked == ["0:32"]
    assert [m.role for m in view.messages] == ["user", "user"]
    assert view.messages[0] == messages[0]
    assert tldrs(view) == ["TLDR"]


def test_a_second_summary_covers_the_whole_history_and_replaces_the_first():
    """S3-14 C3-1: the first request still stands, from the transcript and not from what was shown."""
    view, _ = run(WholeHistory(summarizer=ByModel()), talk(4), "one")
    again, _ = run(WholeHistory(summarizer=ByModel()), (), "two", view=view)
    assert again == view
    grown, asked = run(WholeHistory(summarizer=ByModel()), (), "two", view=view.extend(talk(4, 4)))
    assert asked == ["0:16"]
    assert tldrs(grown) == ["two"]
    assert grown.messages[0] == talk(1)[0]


def test_the_last_n_messages_are_summarised_and_earlier_ones_are_hidden():
    """S3-15 C3-1: exactly one summary, of the last 4; system and first user message stay."""
    messages = [talk(1)[0], Message("system", (Text("Be brief."),)), *talk(15)[1:]]
    view, asked = run(FromLastN(4, summarizer=ByModel()), messages, "the last four")
    assert asked == ["27:31"]
    assert view.messages[:2] == tuple(messages[:2])
    assert tldrs(view) == ["the last four"]
    assert len(view.messages) == 3
    assert "Answer 9" not in str(view.messages)
    assert view.revert().messages == tuple(messages)


def test_the_last_n_messages_do_not_split_a_tool_group():
    """C3-2: the cut moves before the call."""
    messages = [*talk(3), user("go"), call("a"), result("a"), assistant("done")]
    _, asked = run(FromLastN(2, summarizer=ByModel()), messages, "x")
    assert asked == ["7:10"]


def test_each_chunk_is_replaced_by_one_summary_in_order():
    """S3-16: chunks of 4 over 31 messages are 8 summaries, all of them shown, in order."""
    messages = [*talk(15), assistant(WORDS * 3)]
    answers = [f"TLDR {n}" for n in range(8)]
    view, asked = run(Chunked(4, summarizer=ByModel()), messages, *answers)
    assert asked == [f"{n}:{min(n + 4, 31)}" for n in range(0, 31, 4)]
    assert tldrs(view) == answers
    assert view.messages[0] == messages[0]


def test_chunks_do_not_split_tool_groups_and_are_not_summarised_again():
    """S3-16 C3-2: a chunk takes the rest of a group in; the next run goes on behind what is summarised."""
    messages = [
        user("go " + WORDS),
        call("a"),
        result("a"),
        call("b"),
        result("b"),
        assistant(WORDS),
    ]
    strategy = Chunked(2, summarizer=ByModel())
    view, asked = run(strategy, messages, "1", "2", "3")
    assert asked == ["0:3", "3:5", "5:6"]
    grown, asked = run(strategy, (), "4", view=view.extend(talk(1)))
    assert asked == ["6:8"]
    assert tldrs(grown) == ["1", "2", "3", "4"]


def test_chunks_stop_when_the_view_fits_and_one_can_be_reverted():
    """S3-16: oldest first."""
    view = View.of(talk(6), profile=Profile(rules=CHAT))
    done = drive(
        compact_if_due(
            view, [Chunked(4, summarizer=ByModel())], Budget(view.tokens, view.tokens * 2 // 3)
        ),
        ScriptedModel(["a"] * 9),
    )
    assert [edit.start for edit in done.view.edits] == [0, 4]
    assert done.view.revert(done.view.edits[0].id).messages[:4] == view.messages[:4]


def test_chunked_fails_after_the_first_question_without_an_answer():
    model = ScriptedModel([])
    done = drive(
        compact_if_due(View.of(talk(9)), [Chunked(4, summarizer=ByModel())], Budget(0, 0)), model
    )
    assert len(model.asked) == 1
    assert done.attempts[0].outcome == "failed"


@pytest.mark.parametrize("answers", [["We write a.py."] * 9, []])
def test_the_record_of_a_chunk_describes_the_files_as_they_were_at_its_end(answers: list[str]):
    """As by `RuleSummary`, also if that stands in for the model: the record of each chunk was made
    from all later messages, and said that a file was deleted before it was read."""
    steps = [
        call_tool("write", "Done.", path="a.py", content="x = 1\n" * 99),
        call_tool("read", "x = 1\n" * 99, path="a.py"),
        call_tool("bash", "", command="rm a.py"),
    ]
    messages = [m for step in steps for m in (user("Go on."), *step, assistant("Ok. " * 99))]
    view, _ = run(Chunked(4, summarizer=ModelSummary(headings=())), messages, *answers)
    inserts = [applied.edit.insert for applied in view.visible_edits]
    first, *_, last = ("\n".join(message.text for message in insert) for insert in inserts)
    assert "a.py" in first and "deleted" not in first and "## Current request" not in last
    assert "deleted, not tested since: a.py" in last


@pytest.mark.parametrize(
    "strategy",
    [
        WholeHistory(summarizer=ByModel()),
        FromLastN(3, summarizer=ByModel()),
        Chunked(3, summarizer=ByModel()),
    ],
)
def test_conformance_20_an_unanswered_result_is_kept_with_its_call(strategy):
    """S3-09 S3-10 C3-3: after the tool has run and before its result is sent, and before the result is there."""
    waiting = [*talk(3), user("now build"), call("b"), result("b"), call("c"), result("c")]
    view, _ = run(strategy, waiting, *"abc")
    assert view.edits
    assert view.messages[-2:] == tuple(waiting[-2:])
    assert view.messages[-3] == user("now build")
    still_open, _ = run(strategy, waiting[:-1], *"abc")
    assert still_open.messages[-1] == waiting[-2]
    assert not CHAT.check(still_open.extend([result("c")]).messages)


def test_the_unanswered_request_is_not_summarised():
    view, _ = run(WholeHistory(summarizer=ByModel()), [*talk(3), user("What now?")], "a")
    assert view.messages[-1] == user("What now?")


def test_the_roles_alternate_and_the_last_message_is_the_users():
    """C3-4: chunks are merged for providers that want alternation, and the last message is no assistant's."""
    view, _ = run(Chunked(4, summarizer=ByModel()), talk(8), *"abcd", rules=ANTHROPIC)
    assert [m.role for m in view.messages] == ["user"]
    assert view.messages[0].text.count(OPEN) == 4
    assert ANTHROPIC.check(view.messages) == ()


def test_tagged_memories_are_kept_once_by_every_strategy():
    """S3-26 S3-27 C3-5: tagged messages stay, in any role, each once, on every strategy."""
    likes, language = (
        remember("The user likes tea."),
        Message("assistant", remember("Speaks 中文。").parts),
    )
    note = Message("system", remember("A system note that is memory.").parts)
    messages = [*talk(2), likes, language, *talk(2), likes, note, *talk(2)]
    for strategy in (WholeHistory, FromLastN, Chunked):
        view, _ = run(strategy(summarizer=ByModel()), messages, *"abcdefg")
        assert [m for m in view.messages if m in (likes, language, note)] == [likes, language, note]
        again, _ = run(
            strategy(summarizer=ByModel()), (), *"abcdefg", view=view.extend([*talk(3), likes])
        )
        assert [m for m in again.messages if m in (likes, language, note)][:3] == [
            likes,
            language,
            note,
        ]
        forgetful, _ = run(
            strategy(summarizer=ByModel(), preserve_memory=False), messages, *"abcdefg"
        )
        assert likes not in forgetful.messages
        assert note in forgetful.messages


def test_only_tagged_messages_are_memories_unless_words_are_configured():
    """C3-5: a substring counts only where one asks for it."""
    assert TaggedMemory()(remember("x </memory> y"))
    for text in (
        "Here are the relevant facts from memory",
        "<memory>a</memory> and I say more",
        "see <memory>a</memory>",
        "<memory>",
    ):
        assert not TaggedMemory()(user(text))
    assert MemoryContaining()(user("Memory feature is not enabled for this agent."))
    assert not MemoryContaining(("tea",))(user("coffee"))
    messages = [*talk(2), user("Here are the relevant facts from memory: tea"), *talk(2)]
    view, _ = run(WholeHistory(summarizer=ByModel(), memory=MemoryContaining()), messages, "x")
    assert messages[4] in view.messages


def test_a_leading_assistant_memory_does_not_break_alternation():
    """C3-4: where the provider wants the user first, the summary goes before it, and the user speaks last."""
    memory = Message("assistant", remember("Likes tea.").parts)
    messages = [memory, Message("assistant", (Text(WORDS * 3),))]
    view = View.of(messages, profile=Profile(rules=ANTHROPIC))
    insert = keep_before(view, 0, 2, TaggedMemory()).around(user("told"))
    assert [m.role for m in insert] == ["user", "assistant", "user"]


def test_a_memory_in_a_tool_result_is_kept_with_its_call():
    """C3-6: what stays is valid by itself."""
    messages = [
        *talk(1),
        call("m"),
        Message("tool", (ToolResult("m", (Text("x"),)),)),
        assistant("ok"),
        *talk(4),
    ]

    def by_call(message):
        return message.results == ("m",)

    view, _ = run(WholeHistory(summarizer=ByModel(), memory=by_call), messages, "x")
    assert messages[2] in view.messages and messages[3] in view.messages
    assert CHAT.check(view.messages) == ()
    assert "by_call" in repr(WholeHistory(memory=by_call)) and "0x" not in repr(
        WholeHistory(memory=by_call)
    )


def test_a_custom_strategy_can_keep_the_messages_it_finds_important():
    """S3-21 S3-22 S3-25 C3-6: the required messages are composed around one's own; orphans are refused."""

    def keep_important(view):
        stop = find_unanswered(view)
        important = [
            m
            for m in view.transcript.messages[:stop]
            if m.role == "assistant" and "important" in m.text
        ]
        yield view.fold(
            0, stop, *keep_before(view, 0, stop, None).around(*important), by="keep_important"
        )

    messages = [*talk(3), assistant("important: the key is K-9"), *talk(3), user("next?")]
    view = proposals(View.of(messages), keep_important)
    assert view.messages == (messages[0], messages[6], messages[-1])
    orphan = View.of(
        [*talk(2), call("z"), result("z"), assistant("x")], profile=Profile(rules=CHAT)
    )
    insert = keep_before(orphan, 0, 7, None).around(call("z"))
    with pytest.raises(EditError, match="do not pair"):
        orphan.apply(orphan.fold(0, 7, *insert, by="x"))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_conformance_1_an_attempt_with_nothing_to_do_is_a_noop(strategy):
    for messages in ([], [user("hi")], [user("hi"), assistant("hello")]):
        done = drive(compact_if_due(View.of(messages), [strategy], Budget(0, 0)))
        assert done.view.edits == ()
        assert messages == [] or done.attempts[0].outcome == "noop"


def test_invalid_settings_are_refused():
    with pytest.raises(ValueError, match="at least 1"):
        FromLastN(0)
    with pytest.raises(ValueError, match="at least 1"):
        Chunked(0)


def test_the_reprs_show_the_settings():
    """S3-13: strategies are values, and their defaults the seed's examples."""
    assert (
        repr(WholeHistory())
        == "WholeHistory(max_tokens=2000, summarizer=RuleSummary(), preserve_memory=True, memory=TaggedMemory())"
    )
    assert repr(FromLastN()).startswith("FromLastN(n=5, ")
    assert repr(Chunked()).startswith("Chunked(size=10, ")


def test_positions_of_unanswered_unsummarized_and_kept_messages_can_be_found():
    view = View.of([*talk(2), user("q")], profile=Profile(rules=CHAT))
    assert (
        find_unanswered(view),
        find_unsummarized(view, 4),
        find_kept(view, 0, 4, None),
    ) == (4, [(0, 4)], [0])
    assert (find_unanswered(View.of([])), find_kept(View.of([]), 0, 0, TaggedMemory())) == (
        0,
        [],
    )


def test_conformance_9_summaries_merged_into_a_message_are_recognised_again():
    """C3-4: a view fed back as history, its neighbours of one role merged into one message."""
    first, first_summary, second_summary = user("Mend it."), wrap_summary("S1"), wrap_summary("S2")
    merged = Message("user", (*first.parts, *first_summary.parts, *second_summary.parts))
    assert summary_in(merged) == "S1\n\nS2"
    assert without_summary(merged) == first
    assert not is_only_summary(merged) and is_only_summary(
        Message("user", (*first_summary.parts, *second_summary.parts))
    )
    assert summary_in(Message("assistant", merged.parts)) is None
    view = View.of([merged, assistant(WORDS), *talk(3)], profile=Profile(rules=ANTHROPIC))
    assert find_unsummarized(view, 8) == [(1, 8)]
    view, _ = run(WholeHistory(), (), view=view)
    assert view.messages[0].parts[0] == first.parts[0]
    assert sum(summary_in(user(part.text)) is not None for part in view.messages[0].parts) == 1
    chunks, asked = run(
        Chunked(4, summarizer=ByModel()),
        [merged, assistant(WORDS), *talk(3)],
        "S3",
        "S4",
        rules=ANTHROPIC,
    )
    assert asked == ["1:5", "5:8"]
    assert summary_in(chunks.messages[0]) == "S1\n\nS2\n\nS3\n\nS4"


class Pairs(Chunked):
    """A strategy of a user's own whose constructor takes fewer settings."""

    def __init__(self) -> None:
        Chunked.__init__(self, size=2)


def test_a_subclass_with_a_constructor_of_its_own_summarises_chunks() -> None:
    """It was copied with the settings of its base class, which raised TypeError."""
    view = View.of([m for n in range(9) for m in (user(f"{n}? " * 90), assistant(f"{n}. " * 90))])
    assert drive(compact_if_due(view, [Pairs()], Budget(0, 0))).view.visible_edits
