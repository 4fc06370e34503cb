"""What a strategy is, and what it may say while it runs."""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field, fields, replace
from types import FunctionType
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar, final

from refold.core.view import View
from refold.edits import Edit, Outcome
from refold.messages import Message
from refold.tokens.usage import Usage

S = TypeVar("S")
T = TypeVar("T")


@final
@dataclass(frozen=True, slots=True)
class End(Generic[T]):
    """What a generator returned."""

    value: T


def advance(run: Generator[S, Any, T], reply: Any = None) -> S | End[T]:
    """Return the next step of *run*, which is sent *reply*, or its end."""
    try:
        return run.send(reply)
    except StopIteration as done:
        return End(done.value)


def map_steps(run: Generator[S, Any, T], change: Callable[[S], Any]) -> Generator[Any, Any, T]:
    """Change every step of *run* by *change* before the driver sees it."""
    step = advance(run)
    while not isinstance(step, End):
        step = advance(run, (yield change(step)))
    return step.value


@dataclass(frozen=True, slots=True)
class Ask:
    """A strategy's request to a model. The driver of the strategy answers it.

    It goes out as a request of its own: *system*, then *messages*, then *prompt* as the last user
    message. If *view* is given and the answering model is the one the conversation is with, it
    may go out as that view's own request (same system prompt, tools and messages, which the
    provider has cached) with *prompt* as the last user message instead of *system* and *messages*.
    """

    prompt: str
    max_tokens: int = 2_000
    """Cap of the answer, in tokens."""
    purpose: str = "summary"
    """What the answer is for; goes into logs and ledger."""
    system: str = ""
    messages: tuple[Message, ...] = ()
    """Texts in the roles `user` and `assistant`: no calls, no results, no media."""
    view: View | None = field(default=None, repr=False)
    """The conversation that the answer is about, for an answerer that continues it."""
    prompt_id: str = ""
    """Name and hash of the prompt's text, for the ledger."""


FailureKind = Literal[
    "rate",
    "overload",
    "timeout",
    "connection",
    "reply",
    "overflow",
    "auth",
    "quota",
    "request",
    "breaker",
    "other",
]
"""Kinds of failures to answer (docs/models.md)."""


class Failure(NamedTuple):
    """The kind of a failure to answer, which decides what to do next."""

    kind: FailureKind
    """Transient are `rate` (limit reached), `overload` (the server's own error), `timeout`,
    `connection` (refused or cut) and `reply` (nothing that can be read). Asking the same again does
    not help with `overflow` (the request exceeds the model's window), `auth`, `quota` (no money
    left), `request` (refused as it is), `breaker` (not even tried) and `other`."""
    retry_after: float | None = None
    """Seconds to wait, if the server says so."""

    @property
    def is_transient(self) -> bool:
        """May the same request succeed a little later?"""
        return self.kind in ("rate", "overload", "timeout", "connection", "reply")


@dataclass(frozen=True, slots=True)
class Answer:
    """A model's answer to an `Ask`, or why there is none."""

    text: str
    finish: str = "stop"
    """Why it stopped: `stop`, `length` (cut off), `filter`, `tool` (calls a tool), `error` (nobody
    answered; *error* says why), or a provider's own word for something else."""
    error: str = ""
    model: str = ""
    usage: Usage | None = None
    """Tokens of all calls made for it, if the provider reports them."""
    calls: int = 1
    """How many calls were made for it, retries included."""
    cost: float = 0.0
    """US dollars, if prices are known."""
    failure: Failure | None = None
    """The kind of an `error`, if it is known."""


class Ending(NamedTuple):
    """How a strategy's run ended, if its edits alone do not tell."""

    outcome: Outcome
    """`degraded`: it fell back on less than was asked for; `rejected`: what a model answered was no
    good; `failed`: nobody answered; `noop`: there was nothing to do."""
    reason: str


Asking = Generator[Ask, Answer | None, T]
"""What asks a model on its way to a result: an `Ask` gets its `Answer`, None when there is nobody
to ask."""
Steps = Generator[Edit | Ask, Answer | None, Ending | None]
"""An `Edit` gets None back, an `Ask` its `Answer` (None when there is nobody to ask)."""
Edits = Generator[Edit | Ask, Answer | None, None]
"""The steps of a strategy whose edits say all there is to say."""


def change_edits(run: Steps, change: Callable[[Edit], Edit | None]) -> Steps:
    """Change every edit of *run* by *change*, or leave it out if that returns None."""
    step = advance(run)
    while not isinstance(step, End):
        changed = change(step) if isinstance(step, Edit) else step
        step = advance(run, None if changed is None else (yield changed))
    return step.value


class Strategy(Protocol):
    """A rule of thumb that proposes edits: usually a frozen dataclass with `__call__`.

    A strategy does no I/O and looks only at the view it is given: one function serves sync, async
    and tests. Its repr is the name of its edits, so it must state every setting.

    With `local = True` it is *local*: each edit swaps one message, and depends on that message and
    those before it only, never on when it runs. Local edits are made at first sight, kept nowhere,
    and never break a prompt cache. All others are *retrospective*: they run when the budget says so
    and their edits are stored. One with a method `aim_at` is asked for itself with the tokens that
    a budget comes down to, and what that returns runs.
    """

    def __call__(self, view: View, /) -> Steps:
        """Propose edits of *view*, most useful first."""


def with_goal(strategy: Strategy, goal: int) -> Strategy:
    """Return *strategy* as it comes down to *goal* tokens, if it takes a goal."""
    aim_at: Callable[[int], Strategy] | None = getattr(strategy, "aim_at", None)
    return strategy if aim_at is None else aim_at(goal)


@dataclass(frozen=True)
class Wrapped:
    """A strategy that runs as *run* has it; its edits have its own name."""

    strategy: Any
    run: Callable[..., Steps]
    """Takes the strategy, aimed at a goal if there is one, and what it is called with."""

    def __repr__(self) -> str:
        return repr(self.strategy)

    @property
    def local(self) -> bool:
        """As the strategy's own."""
        return is_local(self.strategy)

    def aim_at(self, goal: int) -> "Wrapped":
        """Return the same with a strategy that comes down to *goal* tokens, if it can."""
        return replace(self, strategy=with_goal(self.strategy, goal))

    def __call__(self, view: View, *since: int) -> Steps:
        """Propose what *run* does."""
        return self.run(self.strategy, view, *since)


def full_repr(strategy: Any) -> str:
    """Return the repr of a dataclass strategy with every setting, positional ones first.

    Functions are given by their names, so that it is the same in every process.
    """
    ordered = sorted(fields(strategy), key=lambda setting: bool(setting.kw_only))
    settings = ((setting.name, getattr(strategy, setting.name)) for setting in ordered)
    arguments = (
        f"{name}={value.__qualname__ if isinstance(value, FunctionType) else repr(value)}"
        for name, value in settings
    )
    return f"{type(strategy).__name__}({', '.join(arguments)})"


def require_step(step: Any, strategy: Strategy) -> None:
    """Raise TypeError unless a strategy yielded an edit or a question."""
    if not isinstance(step, Edit | Ask):
        raise TypeError(f"a strategy yields edits and asks, and {strategy!r} yields {step!r:.80}")


def is_local(strategy: Strategy) -> bool:
    """Does this strategy decide on each message at first sight?"""
    return bool(getattr(strategy, "local", False))


class Summary(NamedTuple):
    """What a summarizer returns."""

    text: str
    """Empty if there is none to offer."""
    ending: Ending | None = None
    """How it went, if the text alone does not tell: why it is `degraded`, `rejected`, `failed`."""


Summarizer = Callable[[View, int, int, int], Asking[Summary]]
"""Summarises `messages[start:stop]` of a view: `(view, start, stop, max_tokens)`.

It may `yield Ask` to have a model answer. The text, wrapped by
`refold.text.summary_wrapper.wrap_summary`, has at most *max_tokens* by `view.profile.count`.
"""


__all__ = [
    "Answer",
    "Ask",
    "Asking",
    "Edits",
    "End",
    "Ending",
    "Failure",
    "FailureKind",
    "Steps",
    "Strategy",
    "Summarizer",
    "Summary",
]
