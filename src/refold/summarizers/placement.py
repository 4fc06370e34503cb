"""How a summary is carried: in whose voice, and what stands beside it (X-2).

Five ways are in use, and each is recognised again when a view is fed back as history
(`refold.text.summary_wrapper.belongs_to_summary`). A placement that a provider's rules, or what follows, do not allow gives
way to the plain one.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from refold.core.view import View
from refold.messages import Message, Text, Thinking, user
from refold.rules.rule import Rules
from refold.speakers import Staying, has_person, heard_in, staying
from refold.text.summary_wrapper import ACK, CONTINUE, QUESTION, without_summary, wrap_summary


@dataclass(frozen=True, slots=True)
class Placement:
    """How a summary is carried."""

    role: Literal["user", "assistant", "system"] = "user"
    """In whose voice it stands. `system` only where roles need not alternate."""
    before: Literal["", "question", "first"] = ""
    """What stands before it: nothing; a user's question that it answers (S4-13); the first request,
    as it was said (S3)."""
    acknowledged: bool = False
    """Whether the assistant says that it read it (S0-31), unless the assistant speaks next."""


PLACEMENTS: Mapping[str, Placement] = MappingProxyType(
    {
        "user": Placement(),
        "acknowledged": Placement(acknowledged=True),
        "system": Placement("system"),
        "answer": Placement("assistant", "question"),
        "after_first": Placement("assistant", "first"),
    }
)
"""The five by name; `user` is the default."""


def placed(
    placement: Placement, view: View, stop: int, text: str, pinned: Sequence[int] = (), stays: Staying | None = None
) -> tuple[Message, ...]:
    """What is shown instead of `messages[:stop]`: the summary *text* as *placement* carries it, and beside it word for
    word the messages at the positions *pinned* and what *stays* (`refold.speakers.staying`): the current request where the
    fold would hide it, every order, the newest context of each kind (C1-9, C4-11, D1 to D5; conformance 8).

    Never ends on the assistant where it is the model's turn (C4-11).
    """
    said, rules = view.transcript.messages, view.lens.rules
    stays = staying(view, stop) if stays is None else stays
    first = _first_request(view, stop)
    way = _allowed(placement, rules, first)
    head = (said[first],) if way.before == "first" and first is not None else ()
    beside = dict(stays.messages) | {at: _bare(said[at], rules) for at in pinned}
    dialogue = [message for at, message in stays.dialogue if at not in beside]
    shown = [
        message for at, message in sorted(beside.items(), key=_place) if message.parts and not (head and at == first)
    ]
    follows = shown[0].role if shown else _follows(view, stop)
    question = (user(QUESTION),) if way.before == "question" else ()
    return (*dialogue, *question, *head, wrap_summary(text, way.role), *_bridge(way, follows), *shown)


def _place(told: tuple[int, Message]) -> int:
    return told[0]


def _bridge(way: Placement, follows: str) -> Iterable[Message]:
    """What stands between the summary and what *follows*: a role, `end` or `model` (its turn)."""
    if way.acknowledged and follows in ("user", "system", "end"):
        return (Message("assistant", (Text(ACK),)),)
    return (user(CONTINUE),) if way.role == "assistant" and follows in ("assistant", "model") else ()


def _follows(view: View, stop: int) -> str:
    """Who speaks behind the fold; where nobody does, `model` if it is the model's turn, else `end`."""
    shown = next((item.shown[0].role for item in view.each() if item.start >= stop and item.shown), "")
    if shown:
        return shown
    return "end" if view.transcript.messages[stop - 1].role == "assistant" else "model"


def _allowed(placement: Placement, rules: Rules, first: int | None) -> Placement:
    """*placement*, or the plain one where it is against the rules or lacks what it needs."""
    if placement.role == "system" and (rules.alternate or rules.check((wrap_summary("x", "system"),))):
        return Placement()
    if placement.role == "assistant" and (placement.before == "" or (placement.before == "first" and first is None)):
        return Placement("assistant", "question")
    return placement


def _first_request(view: View, stop: int) -> int | None:
    """The first thing that the user asked, carriers of summaries and messages merged with them aside."""
    said, spoken = view.transcript.messages, heard_in(view)
    found = (at for at in range(stop) if said[at].role == "user" and has_person(spoken[at]))
    at = next(found, None)
    return at if at is not None and not said[at].results and without_summary(said[at]) == said[at] else None


def _bare(message: Message, rules: Rules) -> Message:
    """A pinned message for another place: without its summary, and without thinking, which is bound
    to where it stood, unless the provider wants it always."""
    message = without_summary(message)
    if rules.thinking == "fixed" or not any(isinstance(part, Thinking) for part in message.parts):
        return message
    return Message(message.role, tuple(part for part in message.parts if not isinstance(part, Thinking)))
