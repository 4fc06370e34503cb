"""Pinned messages stay visible whatever a strategy proposes."""

from refold.compactor.pins import pin_messages
from refold.core.strategy import Strategy
from refold.core.view import View
from refold.edits import Edit
from refold.messages import Message, Text, ToolCall, user
from refold.strategies import WholeHistory
from refold.testing import proposals


def run(strategy: Strategy, messages: list[Message]) -> tuple[Edit, ...]:
    return proposals(View.of(messages), strategy).edits


def test_a_strategy_that_would_hide_a_pinned_message_makes_no_edit() -> None:
    answer = Message("assistant", (Text("It listens on 8081, behind the proxy. " * 30),))
    history = [
        user("Start the server. " * 90),
        answer,
        user("Keep it on 8081."),
        Message("assistant", (ToolCall("c", "bash", "{}"),)),
    ]
    assert run(WholeHistory(), history)
    assert run(pin_messages(WholeHistory(), lambda message: message == history[2]), history)
    assert not run(pin_messages(WholeHistory(), lambda message: message == answer), history)
    assert not run(pin_messages(WholeHistory(), lambda message: "8081" in message.text), history)
