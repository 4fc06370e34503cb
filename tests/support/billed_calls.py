"""Gateway calls in the form that its ledger takes, and a clock that a test moves."""

from typing import Any

from refold.core.view import View
from refold.gateway.exchange import Incoming, Outgoing
from refold.gateway.ledger.accounting import BilledCall
from refold.messages import Message, Text
from refold.transcript import Transcript

KEY = "sk-very-secret-0123456789"


class Clock:
    """A clock that returns `now`, in seconds."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def make_billed_call(
    messages: Any,
    *,
    when: float = 1_000_000.0,
    tenant: str = "t",
    session: str = "s",
    salt: str = "",
) -> BilledCall:
    """Build a call whose transcript is *messages*, and whose request holds a secret key."""
    view = View.of(Transcript.of(messages, salt))
    headers = (("authorization", f"Bearer {KEY}"), ("x-api-key", KEY))
    incoming = Incoming("openai_chat", "up", f"/v1?key={KEY}", headers, b"{}", KEY)
    return BilledCall(when, incoming, Outgoing(b"{}"), None, tenant, session, "m", view)


def text_messages(*words: str) -> list[Message]:
    """Build messages of one text each, alternating between user and assistant."""
    return [
        Message("user" if n % 2 == 0 else "assistant", (Text(word),))
        for n, word in enumerate(words)
    ]
