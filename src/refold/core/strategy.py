"""What a strategy is, and what it may yield while it runs."""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field, fields, replace
from types import FunctionType
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar, final, get_args

from refold.core.view import View
from refold.edits import Edit, Outcome
from refold.messages import Message
from refold.tokens.usage import Usage

S = TypeVar("S")
T = TypeVar("T")


@final
@dataclass(frozen=True, slots=True)
class End(Generic[T]):
    """The return value of a generator."""

    value: T


def advance(run: Generator[S, Any, T], reply: Any = None) -> S | End[T]:
    """Send *reply* to the generator *run*. Return its next step, or its end."""
    try:
        return run.send(reply)
    except StopIteration as done:
        return End(done.value)


def map_steps(run: Generator[S, Any, T], change: Callable[[S], Any]) -> Generator[Any, Any, T]:
    """Pass every step of *run* through *change* before the driver gets it."""
    step = advance(run)
    while not isinstance(step, End):
        step = advance(run, (yield change(step)))
    return step.value


@dataclass(frozen=True, slots=True)
class Ask:
    """A strategy's question to a model. The driver of the strategy answers it.

    It is sent as a separate request: *system*, then *messages*, then *prompt* as the last user
    message. If *view* is given and the answering model is that of the conversation, it may be sent
    as that view's own request instead (same system prompt, tools and messages, which the provider
    has cached) with *prompt* as the last user message.
    """

    prompt: str
    max_tokens: int = 2_000
    """Maximum tokens of the answer."""
    purpose: str = "summary"
    """Purpose of the answer, for logs and the ledger."""
    system: str = ""
    messages: tuple[Message, ...] = ()
    """Text messages in the roles `user` and `assistant`, without calls, results or media."""
    view: View | None = field(default=None, repr=False)
    """The conversation that is asked about, for a driver that can continue it."""
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
"""Kinds of failed model calls (docs/models.md)."""


class Failure(NamedTuple):
    """A failed model call. Its kind decides what to do next."""

    kind: FailureKind
    """Transient kinds: `rate` (limit reached), `overload` (server error), `timeout`, `connection`
    (refused or cut), `reply` (unreadable). Others, for which a retry does not help: `overflow`
    (longer than the model's window), `auth`, `quota` (no money left), `request` (refused),
    `breaker` (not even tried) and `other`."""
    retry_after: float | None = None
    """Seconds to wait before a retry, if the server says so."""

    @property
    def is_transient(self) -> bool:
        """Whether the same request may succeed a little later."""
        return self.kind in ("rate", "overload", "timeout", "connection", "reply")


@dataclass(frozen=True, slots=True)
class Answer:
    """A model's answer to an `Ask`, or the error."""

    text: str
    finish: str = "stop"
    """Why the model stopped: `stop`, `length` (cut off), `filter`, `tool` (it calls a tool),
    `error` (no answer, see *error*), or another word of the provider."""
    error: str = ""
    model: str = ""
    usage: Usage | None = None
    """Tokens of all calls made for the answer, if the provider reports them."""
    calls: int = 1
    """Number of calls made for the answer, retries included."""
    cost: float = 0.0
    """Price in US dollars; 0 if prices are not known."""
    failure: Failure | None = None
    """Kind of the error, if known."""


class Ending(NamedTuple):
    """The outcome of a strategy's run, if its edits alone do not show it."""

    outcome: Outcome
    """`degraded`: it fell back to something weaker; `rejected`: the model's answer was unusable;
    `failed`: no model answered; `noop`: there was nothing to do."""
    reason: str


Asking = Generator[Ask, Answer | None, T]
"""A generator with a result that may ask a model: it yields an `Ask` and gets its `Answer`, or None
if there is no model."""
Steps = Generator[Edit | Ask, Answer | None, Ending | None]
"""The steps of a strategy: an `Edit` is answered by None, an `Ask` by its `Answer` (None without a
model)."""
Edits = Generator[Edit | Ask, Answer | None, None]
"""The steps of a strategy without an `Ending`."""


def change_edits(run: Steps, change: Callable[[Edit], Edit | None]) -> Steps:
    """Pass every edit of *run* through *change*, and drop those for which it returns None."""
    step = advance(run)
    while not isinstance(step, End):
        changed = change(step) if isinstance(step, Edit) else step
        step = advance(run, None if changed is None else (yield changed))
    return step.value


class Strategy(Protocol):
    """A function that proposes edits of a view, usually a frozen dataclass with `__call__`.

    A strategy does no I/O and depends only on the view, so the same function works in sync code,
    async code and tests. Its repr names its edits, so it must contain every setting.

    With `local = True` it is *local*: each edit replaces one message and depends only on that
    message and those before it, never on when it runs. Local edits are made when a message first
    appears, are not stored, and never break a prompt cache. All others are *retrospective*: they
    run when the budget says so, and their edits are stored.

    If it has a method `aim_at`, the strategy that this returns for the compaction's goal in tokens
    runs instead.
    """

    def __call__(self, view: View, /) -> Steps:
        """Yield edits of *view*, the most useful first."""


def with_goal(strategy: Strategy, goal: int) -> Strategy:
    """Return *strategy* aimed at *goal* tokens, if it has `aim_at`; otherwise *strategy*."""
    aim_at: Callable[[int], Strategy] | None = getattr(strategy, "aim_at", None)
    aimed = strategy if aim_at is None else aim_at(goal)
    if not callable(aimed):
        raise TypeError(f"aim_at returns a strategy, and that of {strategy!r} {aimed!r:.80}")
    return aimed


@dataclass(frozen=True)
class Wrapped:
    """A strategy whose steps are produced by *run*. Its repr is that of the inner *strategy*."""

    strategy: Any
    run: Callable[..., Steps]
    """Function that is called with the strategy (aimed at a goal, if there is one) and its
    arguments."""

    def __repr__(self) -> str:
        return repr(self.strategy)

    @property
    def local(self) -> bool:
        """Whether the inner strategy is local."""
        return is_local(self.strategy)

    def aim_at(self, goal: int) -> "Wrapped":
        """Return a copy with the inner strategy aimed at *goal* tokens, if it can be."""
        return replace(self, strategy=with_goal(self.strategy, goal))

    def __call__(self, view: View, *since: int) -> Steps:
        """Yield the steps of *run*."""
        return self.run(self.strategy, view, *since)


def full_repr(strategy: Any) -> str:
    """Return the repr of a dataclass strategy with every setting, positional ones first. A function
    is given by its name, so that the repr is the same in every process."""
    ordered = sorted(fields(strategy), key=lambda setting: bool(setting.kw_only))
    settings = ((setting.name, getattr(strategy, setting.name)) for setting in ordered)
    arguments = (
        f"{name}={value.__qualname__ if isinstance(value, FunctionType) else repr(value)}"
        for name, value in settings
    )
    return f"{type(strategy).__name__}({', '.join(arguments)})"


MOST_REPEATS = 100
"""Maximum number of times that a strategy may propose the same edit in a row."""


def require_step(step: Any, strategy: Strategy, repeats: int) -> None:
    """Raise TypeError unless a strategy yielded an `Ask`, or an `Edit` that it has proposed at most
    `MOST_REPEATS` times in a row before: *repeats*. Its view does not change, so a loop until the
    view fits would never end."""
    if not isinstance(step, Edit | Ask):
        raise TypeError(f"a strategy yields edits and asks, and {strategy!r} yields {step!r:.80}")
    if isinstance(step, Edit) and repeats > MOST_REPEATS:
        raise TypeError(
            f"{strategy!r} proposes edit {step.id} again: its view stays as it is while it runs"
        )


def require_ending(ending: Any, strategy: Strategy) -> None:
    """Raise TypeError unless a strategy returned an `Ending` or None."""
    if ending is not None and not (
        isinstance(ending, Ending)
        and ending.outcome in get_args(Outcome)
        and isinstance(ending.reason, str)
    ):
        raise TypeError(
            f"a strategy returns an Ending or nothing, and {strategy!r} returns {ending!r:.80}"
        )


def is_local(strategy: Strategy) -> bool:
    """Return whether a strategy is local."""
    return bool(getattr(strategy, "local", False))


class Summary(NamedTuple):
    """The result of a summarizer."""

    text: str
    """The text; empty if there is no summary."""
    ending: Ending | None = None
    """Why the summary is `degraded`, `rejected` or `failed`, if it is."""


Summarizer = Callable[[View, int, int, int], Asking[Summary]]
"""A function `(view, start, stop, max_tokens)` that summarises `messages[start:stop]` of a view. It
may `yield Ask` to have a model answer. Its text, wrapped by
`refold.text.summary_wrapper.wrap_summary`, has at most *max_tokens* tokens by
`view.profile.count`."""


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
