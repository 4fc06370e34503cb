"""What a rule summary keeps of a chat."""

from hypothesis import given
from hypothesis import strategies as st

from refold.core.profile import Profile
from refold.core.view import View
from refold.messages import Message, Text, ToolCall, ToolResult, user
from refold.models.driver import drive
from refold.strategies import Summarize
from refold.summarizers.heuristic import RuleSummary
from refold.summarizers.heuristic.chat import (
    Line,
    chat_lines,
    join_sentences,
    rank_sentences,
    read_lines,
    select_lines,
    split_sentences,
    write_lines,
)
from refold.summarizers.heuristic.parse import parse_summary
from refold.text.summary_wrapper import summary_in, wrap_summary


def says(text):
    return Message("assistant", (Text(text),))


def summary(messages, cap=400, stop=None):
    view = View.of(messages)
    run = RuleSummary()(view, 0, len(messages) if stop is None else stop, cap)
    text = drive(run).text
    assert view.profile.count(wrap_summary(text)) <= cap
    return text


def chat(turns=60):
    for n in range(turns):
        yield user(
            f"请问 {n} 号餐馆的电话是什么？"
            if n == 50
            else f"Anything else I should know about number {n}?"
        )
        yield says(
            "电话是 010-84273030。"
            if n == 50
            else "Sure. It is nice there. People like it. Let me know."
        )


def test_the_telling_sentences_of_a_chat_are_kept_as_they_were_said():
    text = summary(list(chat()), 200)
    assert "- 100 user: 请问 50 号餐馆的电话是什么？\n- assistant: 电话是 010-84273030。" in text


def test_a_sentence_is_kept_once_however_often_it_was_said():
    assert summary(list(chat())).count("It is nice there.") == 1


def test_the_talk_fills_what_is_left_of_the_cap():
    messages = [
        m
        for n in range(400)
        for m in (user(f"And item {n}?"), says(f"Item {n} costs {n * 7} euros in shop {n}."))
    ]
    text = summary(messages, 1_000)
    assert Profile().count(wrap_summary(text)) > 900
    assert "Item 398 costs" in text


def noted(count: int) -> list[Message]:
    """A task of which the assistant notes what it found, once each."""
    messages = [user("Read all parts and write down their codes.")]
    for n in range(count):
        call = ToolCall(f"c{n}", "read", f'{{"path":"part-{n:02}.txt"}}')
        note = Text(f"So part-{n - 1:02} has the code e{n * 7919 % 10_000:04}x. Next.")
        messages.append(Message("assistant", (note, call)))
        messages.append(Message("user", (ToolResult(f"c{n}", (Text("lorem ipsum " * 30),)),)))
    return messages


def test_beside_calls_what_the_assistant_noted_takes_what_is_left():
    """Which code belongs to which part stands nowhere else."""
    text = summary(noted(20), 2_000)
    assert all(f"part-{n - 1:02} has the code e{n * 7919 % 10_000:04}x" in text for n in range(20))
    assert "user:" not in text, "what users said has a section of its own"


def test_names_come_before_notes():
    """Where there is room for one of both: a later call can do with less than a sentence."""
    text = summary(noted(20), 260)
    assert "## Files" in text
    assert text.count("has the code") < 10


def test_talk_is_merged_and_keeps_its_numbers():
    messages = [*chat(60), user("My name is Mei."), says("Hello Mei, your code is X-4711.")]
    view = drive_once(View.of(messages), 100)
    again = [*view.messages, *chat(4)]
    text = summary(again, 600)
    lines = {line.text: line.at for line in parse_summary(text).talk}
    assert lines["Hello Mei, your code is X-4711."] == 121
    assert max(lines.values()) > 121


def drive_once(view, cap):
    run = Summarize(2, 4 * cap)(view)
    after = view.apply(next(run))
    assert summary_in(after.messages[0])
    return after


def test_a_done_item_of_a_plan_is_no_talk():
    assert chat_lines([says("- [x] parse\n- [ ] render\nI did it.")]) == (
        Line(0, "assistant", "I did it."),
    )


PIECES = st.lists(
    st.sampled_from(["One.", "two", "三。", "Four?", "五", "six: 7"]), min_size=1, max_size=6
)


@given(PIECES)
def test_joined_sentences_can_be_parted(pieces):
    assert list(split_sentences(join_sentences(pieces))) == pieces


@given(
    st.lists(
        st.tuples(st.integers(0, 99), st.sampled_from(["user", "assistant"])),
        unique_by=lambda row: row[0],
    )
)
def test_lines_are_read_as_they_were_written(rows):
    lines = [Line(at, role, f"text {at}") for at, role in sorted(rows)]
    assert list(read_lines(item.removeprefix("- ") for item in write_lines(lines))) == lines


def test_newer_figures_emphasis_and_statements_weigh_more():
    def first(one, two):
        return rank_sentences([Line(0, "user", one), Line(1, "user", two)])[0].line.text

    assert first("alpha beta", "gamma zeta") == "gamma zeta"
    assert first("alpha **beta**", "gamma zeta") == "alpha **beta**"
    assert first("alpha 1234", "gamma zeta") == "alpha 1234"
    assert first("alpha beta", "gamma zeta?") == "alpha beta"


def test_what_stands_elsewhere_is_not_repeated():
    best = rank_sentences(
        [Line(0, "user", "Use port 8081."), Line(1, "assistant", "Yes, done at once.")]
    )
    assert select_lines(best, 100, len, "## Constraints\n- Use port 8081.") == [
        "- 1 assistant: Yes, done at once."
    ]
