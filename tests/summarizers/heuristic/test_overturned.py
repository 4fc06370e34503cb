"""A decision that a person takes back does not stand as one."""

import pytest

from refold.core.view import View
from refold.messages import Message, Text, ToolCall, ToolResult, user
from refold.models.driver import drive
from refold.summarizers.heuristic import RuleSummary, read_material
from refold.summarizers.heuristic.layout import render_state
from refold.summarizers.heuristic.source import read_source
from refold.text.summary_wrapper import wrap_summary
from tests.support.summaries import collect


def says(text):
    return Message("assistant", (Text(text),))


LOOKS = [
    message
    for number in range(5)
    for message in (
        Message("assistant", (ToolCall(f"c{number}", "bash", '{"command": "ls"}'),)),
        Message("tool", (ToolResult(f"c{number}", (Text("queue.py"),)),)),
    )
]


def decisions_of(messages):
    text = render_state(collect(messages), 4_000).partition("## Decisions\n")[2]
    return [line.removeprefix("- ") for line in text.split("\n") if line.startswith("- ")]


@pytest.mark.parametrize(("decided", "taken_back"), [
    ("We will use Redis for the queue of `orders`.", "No, use PostgreSQL instead."),
    ("I decided on MongoDB, because the rows differ.", "Actually, put them into SQLite."),
    ("Fixed: `parse_line` now keeps the last field.", "No, that is wrong, the last field is still lost."),
    ("决定用 Redis 存放订单队列，因为它快。", "不用 Redis 了，改用 PostgreSQL。"),
    ("最终决定采用蓝色主题。", "等等，还是用绿色主题吧。"),
    ("已修复：`parse_line` 现在保留最后一列。", "不对，最后一列还是丢了。"),
])  # fmt: skip
def test_what_a_person_takes_back_stands_with_their_words(decided, taken_back):
    spoken = [user("Plan it."), says(f"{decided} Shall I?"), user(taken_back), says("OK.")]
    assert decisions_of(spoken) == [f"{decided} (then the user: {taken_back})"]


@pytest.mark.parametrize(("decided", "taken_back"), [
    ("We will use Redis for the queue.", "Please use PostgreSQL instead of Redis."),
    ("We will use Redis for the queue.", "Use PostgreSQL rather than `Redis` there."),
    ("决定用 Redis 存放订单队列。", "队列不用 Redis 了，改用 PostgreSQL。"),
    ("決定採用藍色主題。", "別用藍色主題了，換成綠色。"),
])  # fmt: skip
def test_what_is_named_is_taken_back_later_too(decided, taken_back):
    work = [
        says(decided),
        user("Write the tests."),
        says("The tests pass because of `conftest.py`."),
    ]
    assert decisions_of([user("Plan it."), *work, user(taken_back), says("OK.")]) == [
        f"{decided} (then the user: {taken_back})",
        "The tests pass because of `conftest.py`.",
    ]


@pytest.mark.parametrize("later", [
    "Thanks. Now write the tests.",
    "Use the same Redis in the tests.",
    "Why do we use Redis instead of PostgreSQL? And PostgreSQL instead of Redis?",
    "Use a list instead of the stack.",
    "Is PostgreSQL slower? Wait for CI, then merge.",
    "不错，接着写测试。",
    "测试里也用 Redis。",
])  # fmt: skip
def test_what_nobody_takes_back_stands(later):
    decided = "We will use Redis for the queue."
    assert decisions_of([user("Plan it."), says(decided), user(later), says("OK.")]) == [decided]


def test_of_several_decisions_the_closest_is_taken_back():
    text = "We will use Redis for the queue. The table is `orders`, because it was there."
    spoken = [user("Plan it."), says(text), user("No, use PostgreSQL for the queue.")]
    assert decisions_of([*spoken, says("OK.")]) == [
        "We will use Redis for the queue. (then the user: No, use PostgreSQL for the queue.)",
        "The table is `orders`, because it was there.",
    ]


def test_what_is_decided_again_stands_again():
    decided = "We will use Redis for the queue."
    spoken = [user("Plan it."), says(decided), user("No, use PostgreSQL instead."), says("OK.")]
    again = [user("It is too slow, go back."), says(decided), user("Fine.")]
    assert decisions_of([*spoken, *again]) == [decided]


def test_what_is_taken_back_behind_the_summary_does_not_stand_in_it():
    decided = "We will use Redis for the queue."
    call = Message("assistant", (ToolCall("c1", "bash", '{"command": "make"}'),))
    result = Message("tool", (ToolResult("c1", (Text("ok"),)),))
    said = [user("Plan it."), says(decided), user("No, use SQLite instead."), call, result]
    state = read_material(read_source(View.of(said), 0, 2)).state
    assert f"- {decided} (then the user: No, use SQLite instead.)" in render_state(state, 900)


def test_a_decision_that_an_earlier_summary_holds_is_no_note_once_it_is_taken_back():
    decided = "We will use Redis for the queue."
    view = View.of([user("Plan it."), *LOOKS, says(decided), user("Go on."), says("I did.")])
    stop = len(LOOKS) + 2
    summary = drive(RuleSummary()(view, 0, stop, 900)).text
    assert f"- {decided}" in summary
    view = view.apply(view.fold(0, stop, wrap_summary(summary)))
    view = view.extend([user("Use SQLite instead of Redis."), says("OK."), user("Go on.")])
    for end in (stop + 4, stop + 5):
        text = drive(RuleSummary()(view, 0, end, 900)).text
        assert text.count(decided) == text.count(f"{decided} (then the user: ") == 1
        view = view.apply(view.fold(0, end, wrap_summary(text)))
