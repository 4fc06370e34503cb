"""Hand-over in `python -m benchmarks.evidence handover`: what has to be told, and what is shown."""

import json
from collections import Counter
from itertools import pairwise

from benchmarks.evidence.canaries import CANARIES, plant_all, plant_each
from benchmarks.evidence.handover import Shown, find_points, names_path
from benchmarks.evidence.items import read_items
from benchmarks.evidence.sessions import Session

from refold.messages import Message, Text, ToolCall, ToolResult, user

PAY = "/home/ann/shop/src/pay.py"


def call(name: str, **arguments: object) -> Message:
    return Message("assistant", (ToolCall(f"c-{name}", name, json.dumps(arguments)),))


def result(name: str, text: str, *, error: bool = False) -> Message:
    return Message("tool", (ToolResult(f"c-{name}", (Text(text),), error=error),))


TODOS = [
    {"content": "mend rounding", "status": "completed"},
    {"content": "write a test", "status": "in_progress"},
    {"content": "update the docs", "status": "pending"},
]
SESSION = [
    user("Mend the payment. Never touch the migrations.\n<system-reminder>Always lint.</system-reminder>"),
    call("Edit", file_path=PAY, old_string="a", new_string="b"),
    result("Edit", "done"),
    call("TodoWrite", todos=TODOS),
    result("TodoWrite", "ok"),
    call("Bash", command="cat > note.txt <<'EOF'\necho x > inside.txt\nEOF"),
    result("Bash", ""),
    call("Run", command="pytest -q"),
    result("Run", "....F\n1 failed, 4 passed in 0.12s"),
    Message("assistant", (Text("One test fails. Now let me look at the rounding."),)),
]  # fmt: skip


def test_items_to_hand_over_are_read_from_the_recording():
    items = read_items(SESSION)
    assert items.request == "Mend the payment. Never touch the migrations."
    assert list(items.instructions) == ["Never touch the migrations."]
    assert list(items.files) == [PAY, "note.txt"]
    assert items.check == "1 failed, 4 passed in 0.12s"
    assert (items.under_way, items.open) == (("write a test",), ("update the docs",))
    assert items.next == "Now let me look at the rounding."


def test_an_edit_that_failed_and_a_file_that_was_removed_are_not_handed_over():
    assert not read_items(
        [SESSION[0], SESSION[1], result("Edit", "no such file", error=True)]
    ).files
    gone = [call("Rm", command="rm -f old.txt note.txt"), result("Rm", "")]
    assert list(read_items([*SESSION, *gone]).files) == [PAY]
    moved = [call("Mv", command="mv note.txt log.txt"), result("Mv", "")]
    assert list(read_items([*SESSION, *moved]).files) == [PAY, "log.txt"]


def test_a_file_counts_if_its_path_is_unambiguous():
    assert names_path("see src/pay.py", PAY)
    assert not names_path("see test/src/pay.pyc", PAY)
    bare = Shown([user("changed: pay.py")], SESSION)
    assert bare.has_file(PAY, Counter(["pay.py"]))
    assert not bare.has_file(PAY, Counter(["pay.py", "pay.py"]))
    assert Shown([user("modified: src/{pay.py,tax.py}")], SESSION).has_file(PAY, Counter())
    shown = Shown([user("root: C:\\work\\\nmodified: src\\{pay.py,tax.py}")], SESSION)
    assert shown.has_file(r"C:\work\src\pay.py", Counter()), "a path of Windows, too"
    assert shown.has_state(r"C:\work\src\pay.py")


def test_the_state_of_a_file_is_read_from_its_line_heading_or_call():
    assert Shown([user("modified: src/pay.py")], SESSION).has_state(PAY)
    assert Shown([user("## Files changed\n- src/pay.py")], SESSION).has_state(PAY)
    assert Shown(SESSION[1:3], SESSION).has_state(PAY)
    assert not Shown([user("src/pay.py was read")], SESSION).has_state(PAY)


def test_the_figures_of_a_test_run_must_be_on_one_line():
    assert Shown([user("pytest: 1 failed, 4 passed")], []).has_figures("1 failed, 4 passed in 1s")
    assert not Shown([user("1 failed\n4 passed")], []).has_figures("1 failed, 4 passed in 1s")


def test_points_come_after_the_first_the_fifth_and_the_tenth_compaction():
    turns = [
        message
        for at in range(60)
        for message in (
            {"role": "user", "content": f"Question {at}? " + "word " * 40},
            {"role": "assistant", "content": f"Answer {at}."},
        )
    ]
    session = Session("chat", "chat", {"messages": turns})
    points = list(find_points(session, session.size // 6))
    assert {point.compactions for point in points} == {1, 5, 10}
    assert all(p.at in session.calls and p.items.request.startswith("Question") for p in points)


def test_every_canary_is_planted_exactly_once():
    roles = ("user", "assistant")
    turns = [{"role": role, "content": f"{role} {n}"} for n in range(60) for role in roles]
    session = Session("chat", "chat", {"messages": turns})
    for planted in (plant_each(session), plant_all(session)):
        text = "\n".join(message.text for message in planted.messages)
        assert all(text.count(canary) == 1 for canary in CANARIES)
        rest = [message for message in planted.messages if message in session.messages]
        assert rest == list(session.messages)
        for message, follows in pairwise(planted.messages):
            if message not in session.messages:
                assert (message.role, follows.role) == ("user", "assistant")
    assert len(plant_each(session).messages) == len(session.messages) + len(CANARIES) + 1
