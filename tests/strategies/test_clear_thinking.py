"""ClearThinking clears the oldest thinking first, without a gap, as far as the provider allows."""

from dataclasses import replace
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.core.profile import Profile
from refold.core.tool_groups import latest_turn_start
from refold.core.view import View
from refold.messages import Message, Text, Thinking, ToolCall, ToolResult, user
from refold.rules import anthropic
from refold.rules.rule import Rules
from refold.strategies.clear import ClearThinking
from refold.testing import check_strategy, proposals, transcripts

Mode = Literal["free", "fixed", "loop", "bound", "unsure"]
MODES = st.sampled_from(["free", "fixed", "loop", "bound", "unsure"])


def rules(mode: Mode) -> Rules:
    return Rules(anthropic.RULES, alternate=True, thinking=mode)


def view_of(*messages: Message, mode: Mode = "free") -> View:
    return View.of(messages, profile=Profile(rules=rules(mode)))


def thinking_message(text: str = "let me see " * 9, id: str = "", sig: str = "sig") -> Message:
    return Message(
        "assistant", (Thinking(text, sig), ToolCall(id, "bash", "{}") if id else Text("so"))
    )


def result(id: str) -> Message:
    return Message("user", (ToolResult(id, (Text("ok"),)),))


def thinks(message: Message) -> bool:
    return any(isinstance(part, Thinking) for part in message.parts)


LOOP = (
    user("x"),
    thinking_message(id="a"),
    result("a"),
    thinking_message(id="b"),
    result("b"),
    thinking_message(),
    user("y"),
    thinking_message(id="c"),
    result("c"),
)


@given(transcripts(signed=True), st.integers(0, 4), MODES)
def test_it_keeps_the_laws(messages: tuple[Message, ...], keep: int, mode: Mode) -> None:
    check_strategy(ClearThinking(keep), rules(mode), examples=[messages])


@given(
    transcripts(signed=True),
    st.integers(0, 4),
    st.sampled_from(["loop", "bound"]),
    st.integers(0, 9),
)
def test_thinking_is_cleared_oldest_first_without_gaps_wherever_it_stops(
    messages: tuple[Message, ...], keep: int, mode: Mode, taken: int
) -> None:
    view = view_of(*messages, mode=mode)
    shown = view.apply(*list(ClearThinking(keep)(view))[:taken])
    thinking = {at for at, message in enumerate(messages) if thinks(message)}
    thinking_left = [
        at
        for item in shown.items
        for at in range(item.start, item.stop)
        if any(map(thinks, item.messages))
    ]
    assert thinking_left == sorted(thinking)[len(thinking) - len(thinking_left) :]
    assert {at for at in thinking if at >= latest_turn_start(messages)} <= set(thinking_left)


@given(transcripts(signed=True), st.integers(0, 4), MODES)
def test_it_is_idempotent(messages: tuple[Message, ...], keep: int, mode: Mode) -> None:
    once = proposals(view_of(*messages, mode=mode), ClearThinking(keep))
    assert list(ClearThinking(keep)(once)) == []


@pytest.mark.parametrize(
    ("mode", "keep", "expected"),
    [
        ("free", 0, [1, 3, 5]),
        ("unsure", 0, [1, 3, 5]),
        ("loop", 0, [1, 3, 5]),
        ("bound", 0, [1, 3, 5]),
        ("loop", 2, [1, 3]),
        ("fixed", 0, []),
    ],
)
def test_mode_and_keep_decide_which_signed_thinking_is_cleared(
    mode: Mode, keep: int, expected: list[int]
) -> None:
    view = proposals(view_of(*LOOP, mode=mode), ClearThinking(keep))
    assert [edit.start for edit in view.edits] == expected


UNSIGNED = tuple(
    replace(m, parts=tuple(replace(p, signature="") if isinstance(p, Thinking) else p for p in m.parts))
    for m in LOOP
)  # fmt: skip


@pytest.mark.parametrize(
    ("mode", "keep", "expected"),
    [
        ("free", 0, [1, 3, 5, 7]),
        ("free", 1, [1, 3, 5]),
        ("free", 3, [1]),
        ("free", 9, []),
        ("unsure", 0, []),
    ],
)
def test_unsigned_thinking_is_cleared_in_any_turn_or_never_if_the_model_is_unknown(
    mode: Mode, keep: int, expected: list[int]
) -> None:
    """DS-1: an unknown model may require it."""
    view = proposals(view_of(*UNSIGNED, mode=mode), ClearThinking(keep))
    assert [edit.start for edit in view.edits] == expected


def test_all_parts_except_thinking_are_kept() -> None:
    view = proposals(view_of(*LOOP), ClearThinking(0))
    assert view.messages[1] == Message("assistant", (ToolCall("a", "bash", "{}"),))
    assert [m.calls for m in view.messages] == [m.calls for m in LOOP]


def test_consecutive_assistant_messages_count_as_one_step() -> None:
    messages = (
        user("x"),
        Message("assistant", (Thinking("hm " * 9),)),
        thinking_message(sig=""),
        user("y"),
        thinking_message(sig=""),
        user("z"),
    )
    view = proposals(View.of(messages), ClearThinking(1))
    assert [edit.start for edit in view.edits] == [1, 2]


def test_a_message_of_thinking_alone_is_hidden() -> None:
    alone = Message("assistant", (Thinking("hm " * 9, "sig"),))
    view = proposals(
        view_of(user("x"), alone, user("y"), thinking_message(), user("z"), mode="loop"),
        ClearThinking(1),
    )
    assert view.messages[0] == Message("user", (Text("x"), Text("y")))


def test_thinking_that_cannot_be_cleared_keeps_later_thinking_if_gaps_are_forbidden() -> None:
    alone = Message("assistant", (Thinking("hm " * 9, "sig"),))
    messages = (alone, user("x"), thinking_message(), user("y"), thinking_message(), user("z"))
    assert proposals(view_of(*messages, mode="loop"), ClearThinking(0)).edits == ()
    bare = [
        Message("assistant", (Thinking("hm " * 9),)),
        *(user(m.text) if m.role == "user" else thinking_message(sig="") for m in messages[1:]),
    ]
    assert [edit.start for edit in proposals(view_of(*bare), ClearThinking(0)).edits] == [2, 4]


def test_a_negative_keep_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 0"):
        ClearThinking(-1)
