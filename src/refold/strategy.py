"""What a strategy is, and what it may say while it runs."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Protocol

from refold.edits import Edit
from refold.view import View


@dataclass(frozen=True, slots=True)
class Ask:
    """A strategy's request to a model. Whoever drives the strategy answers it."""

    prompt: str
    max_tokens: int = 2_000
    """Cap of the answer, in tokens."""
    purpose: str = "summary"
    """What the answer is for; goes into logs and ledger."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model said to an `Ask`."""

    text: str
    finish: str = "stop"
    """Why it stopped: `stop`, or the provider's word for cut off, filtered, calling a tool."""


Steps = Generator[Edit | Ask, Answer | None, None]
"""An `Edit` gets None back, an `Ask` its `Answer` (None when nobody can answer)."""


class Strategy(Protocol):
    """A rule of thumb that proposes edits: usually a frozen dataclass with `__call__`.

    A strategy does no I/O and looks only at the view it is given: one function serves sync, async
    and tests. Its repr is the name of its edits, so it must state every setting.

    With `local = True` it is *local*: each edit swaps one message, and depends on that message and
    those before it only, never on when it runs. Local edits are made at first sight, kept nowhere,
    and never break a prompt cache. All others are *retrospective*: they run when the budget says so
    and their edits are stored.
    """

    def __call__(self, view: View, /) -> Steps:
        """Propose edits of *view*, most useful first."""


def is_local(strategy: Strategy) -> bool:
    """Does this strategy decide on each message at first sight?"""
    return bool(getattr(strategy, "local", False))
