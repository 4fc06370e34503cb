"""The operations that keep something in sight whatever is compacted: `pin` and `unpin`."""

from collections.abc import Sequence
from typing import Annotated

from refold.edits import Edit
from refold.gateway.api.answers import Answer
from refold.gateway.api.arguments import (
    Arguments,
    ConversationArguments,
    EditId,
    Offset,
    SessionId,
    about,
)
from refold.gateway.api.context import ApiContext, Problem
from refold.gateway.api.lookup import find_session, locate
from refold.gateway.api.page_types import Pin
from refold.gateway.conversations.pins import WHOLE, Pins
from refold.scorers.scorer import Says

MOST_PINS = 100
"""Of one session."""


class PinArguments(Arguments):
    """A session, and what should stay in sight."""

    session: SessionId
    message: Offset
    words: Annotated[
        str, about("Words of that message; the whole message if empty.", max_length=4_000)
    ] = ""


class UnpinArguments(Arguments):
    """A session, and the pin to take back."""

    session: SessionId
    pin: EditId


class PinAnswer(Answer):
    """All that is pinned in a session."""

    session: SessionId
    pins: list[Pin]


def pin(context: ApiContext, asked: PinArguments) -> PinAnswer:
    """Keep a message, or words in it, in sight. Raises `Problem`, `FormatError`, `StoreError`,
    `ConversationBusy`."""
    located = locate(context, ConversationArguments(session=asked.session))
    messages = located.view.transcript.messages
    if asked.message >= len(messages):
        raise Problem(404, "no_message", "The session has no such message.")
    message, words = messages[asked.message], " ".join(asked.words.split())
    if words and not Says((words,))(message):
        raise Problem(409, "not_there", "The message does not say these words.")
    pins = Pins(context.pipeline.store, asked.session)
    if len(pins.load()) >= MOST_PINS:
        raise Problem(409, "too_many", f"{MOST_PINS} pins are kept of a session.")
    pins.add(asked.message, message, words)
    return _answer(context, asked.session, pins)


def unpin(context: ApiContext, asked: UnpinArguments) -> PinAnswer:
    """Take a pin back. Raises `Problem` 404, `StoreError`."""
    find_session(context, asked.session)
    pins = Pins(context.pipeline.store, asked.session)
    if not pins.remove(asked.pin):
        raise Problem(404, "no_pin", "The session has no such pin.")
    return _answer(context, asked.session, pins)


def _answer(context: ApiContext, session: str, pins: Pins) -> PinAnswer:
    row = find_session(context, session)
    readable = context.is_recorded(row.tenant, session)
    return PinAnswer(session, describe_pins(pins.load(), is_readable=readable))


def describe_pins(pins: Sequence[Edit], *, is_readable: bool) -> list[Pin]:
    """Return pins, with their words if these may be read."""
    return [
        Pin(
            pin.id,
            pin.start,
            pin.insert[0].text if is_readable and pin.by != WHOLE else "",
            pin.by == WHOLE,
        )
        for pin in pins
    ]
