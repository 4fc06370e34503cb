"""Ask: functions as models, and drivers that run a strategy's questions to their end."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator
from contextlib import closing
from dataclasses import dataclass, field
from inspect import isawaitable, iscoroutinefunction
from typing import Any, TypeVar

from refold.core.strategy import Answer, Ask, End, advance
from refold.models.responses import answer_of_exception, strip_reasoning

_log = logging.getLogger("refold")
T = TypeVar("T")

Effect = Callable[[], Any]
"""Something blocking, such as a store's load: the sync driver calls it, the async one in a
thread."""
Asker = Callable[[Ask], Answer | Awaitable[Answer | None] | None]
"""Sync or async."""
AsyncAsker = Callable[[Ask], Awaitable[Answer | None]]

# --- drivers -----------------------------------------------------------------------------------


def drive(run: Generator[Ask | Effect, Any, T], ask: Asker | None = None) -> T:
    """Run a generator to its end; without *ask* every question goes unanswered. Whatever *ask*
    raises is an answer that failed. Interrupts pass, and end the generator too."""
    with closing(run):
        reply: Any = None
        while True:
            try:
                step = run.send(reply)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            if isinstance(step, Ask):
                reply = ask_safely(ask, step) if ask else None
            else:
                reply = step()


async def adrive(run: Generator[Ask | Effect, Any, T], ask: Asker | None = None) -> T:
    """As `drive`, for async code: questions are awaited, or asked in a thread where *ask* is a sync
    function, as blocking effects are."""
    with closing(run):
        step = advance(run)
        while not isinstance(step, End):
            if isinstance(step, Ask):
                reply = await as_model(ask).acall(step) if ask else None
            else:
                reply = await call_in_thread(step)
            step = advance(run, reply)
        return step.value


async def call_in_thread(function: Callable[..., T], *values: Any) -> T:
    """Call a model or a store in a thread. A StopIteration, as of `next` on answers that ran out,
    cannot leave one: who awaits it would wait for ever, so it is a RuntimeError."""

    def call() -> T:
        try:
            return function(*values)
        except StopIteration as error:
            raise RuntimeError("a model or store raised StopIteration") from error

    return await asyncio.to_thread(call)


def call_safely(act: Callable[..., Any], *values: Any) -> None:
    """Call a listener or a ledger. Its failure is logged, never raised: it must not lose a
    compaction."""
    try:
        act(*values)
    except Exception:  # noqa: BLE001 - whatever a listener raises
        _log.exception("a hook, listener or ledger of refold failed")


# --- functions as models -----------------------------------------------------------------------


def as_text_model(function: Callable[[str], Any]) -> "FunctionModel":
    """Make a model of a function `str -> str` (or `-> Answer`), sync or async. The text it gets is
    the ask's system prompt, messages and prompt, one after the other."""
    return FunctionModel(function, ask_as_text)


def as_model(function: Callable[[Ask], Any]) -> "FunctionModel":
    """Make a model of a function `Ask -> Answer | str | None`, sync or async."""
    return FunctionModel(function)


def require_asker(ask: T) -> T:
    """Return what is to answer. Raises TypeError for what cannot be called, such as a chat model of
    LangChain's."""
    if ask is not None and not callable(ask):
        raise TypeError(
            f"a model is a function of an Ask, and {type(ask).__name__} is none; a chat model of "
            "LangChain's is given as refold.adapters.langchain.ChatModel(model)"
        )
    return ask


def ask_safely(ask: Callable[[Ask], Any], question: Ask) -> Answer | None:
    """Ask a model or a function of an `Ask`. Never raises for what that does: an exception, or
    a reply that is no answer, becomes an `Answer` that says so."""
    try:
        return as_model(ask)(question)
    except Exception as error:  # noqa: BLE001 - a model that fails must not stop an agent
        return _error_answer(error)


def ask_as_text(ask: Ask) -> str:
    """Return the ask as one text; each message is headed by its role."""
    messages = [f"[{message.role}]\n{message.text}" for message in ask.messages]
    return "\n\n".join(text for text in (ask.system, *messages, ask.prompt) if text)


@dataclass(frozen=True, slots=True)
class FunctionModel:
    """A function as a model: what it raises becomes an `Answer` that says so.

    A function that blocks cannot be cut short: in sync code it takes what it takes, in async code
    it runs in a thread that a cancelled task leaves behind.
    """

    function: Callable[[Any], Any]
    convert: Callable[[Ask], Any] = field(default=lambda ask: ask, repr=False)
    """Makes of an ask what the function takes."""

    def __call__(self, ask: Ask, _within: float | None = None, /) -> Answer | None:
        """Ask. Runs an async function to its end; raises TypeError inside a running event loop."""
        try:
            reply = self.function(self.convert(ask))
        except Exception as error:  # noqa: BLE001 - a model that fails must not stop an agent
            return _error_answer(error)
        return _run(reply) if isawaitable(reply) else _as_answer(reply)

    async def acall(self, ask: Ask, _within: float | None = None, /) -> Answer | None:
        """As calling it, for async code."""
        try:
            return _as_answer(await as_async(self.function)(self.convert(ask)))
        except Exception as error:  # noqa: BLE001 - a model that fails must not stop an agent
            return _error_answer(error)


def as_async(ask: Callable[[Ask], Any]) -> Callable[[Ask], Awaitable[Answer | None]]:
    """Return *ask* for async code: a model's `acall`, an async function, any other in a thread."""
    acall = getattr(ask, "acall", None)
    if acall is not None:
        return acall  # type: ignore[no-any-return]
    call = getattr(ask, "__call__", None)  # noqa: B004 - is it async?
    if iscoroutinefunction(ask) or iscoroutinefunction(call):
        return ask

    async def ask_in_thread(question: Ask) -> Answer | None:
        reply = await call_in_thread(ask, question)
        answer: Answer | None = await reply if isawaitable(reply) else reply
        return answer

    return ask_in_thread


async def _await_answer(reply: Awaitable[Any]) -> Answer | None:
    try:
        return _as_answer(await reply)
    except Exception as error:  # noqa: BLE001 - a model that fails must not stop an agent
        return _error_answer(error)


def _run(reply: Any) -> Answer | None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(_await_answer(reply))
    if hasattr(reply, "close"):
        reply.close()
    raise TypeError("this model is an async function: inside an event loop use `acompact`")


def _as_answer(reply: Any) -> Answer | None:
    if isinstance(reply, str):
        return Answer(strip_reasoning(reply))
    if reply is None or isinstance(reply, Answer):
        return reply
    kind = type(reply).__name__
    return _error_answer(
        TypeError(f"a model answers with an Answer, a text or None, not with {kind}")
    )


def _error_answer(error: Exception) -> Answer:
    # Only the kind is logged: the text may quote the conversation.
    _log.warning("a model raised %s", type(error).__name__)
    return answer_of_exception(error)
