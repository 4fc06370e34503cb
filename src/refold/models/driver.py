"""Functions as models, and drivers that run a strategy and its asks to the end."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from inspect import isawaitable, iscoroutinefunction
from typing import Any, SupportsFloat, TypeVar

from refold.core.strategy import Answer, Ask, End, advance
from refold.errors import is_number
from refold.models.responses import answer_of_exception, strip_reasoning

_log = logging.getLogger("refold")
T = TypeVar("T")

Effect = Callable[[], Any]
"""A blocking call, such as loading from a store. The sync driver calls it, the async one runs it in
a thread."""
Asker = Callable[[Ask], Answer | Awaitable[Answer | None] | None]
"""A model or function, sync or async."""
AsyncAsker = Callable[[Ask], Awaitable[Answer | None]]

# --- drivers -----------------------------------------------------------------------------------


def drive(run: Generator[Ask | Effect, Any, T], ask: Asker | None = None) -> T:
    """Run a generator to its end and return its value. Without *ask* the answer to each question is
    None; exceptions of *ask* become failed answers. Those of effects, and interrupts, propagate and
    close the generator."""
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
    """Async version of `drive`: questions are awaited; sync functions and blocking effects run in a
    thread."""
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
    """Call a model or a store in a thread and return its value. A StopIteration, such as from
    `next` on exhausted answers, would never reach the awaiting code, so it becomes a
    RuntimeError."""

    def call() -> T:
        try:
            return function(*values)
        except StopIteration as error:
            raise RuntimeError("a model or store raised StopIteration") from error

    return await asyncio.to_thread(call)


def call_safely(act: Callable[..., Any], *values: Any) -> None:
    """Call a listener or a ledger. Its exception is logged and not raised, because it must not lose
    a compaction."""
    try:
        act(*values)
    except Exception:  # noqa: BLE001 - whatever a listener raises
        _log.exception("a hook, listener or ledger of refold failed")


# --- functions as models -----------------------------------------------------------------------


def as_text_model(function: Callable[[str], Any]) -> "FunctionModel":
    """Return a model from a function `str -> str` (or `-> Answer`), sync or async. Its argument is
    the ask's system prompt, messages and prompt, one after the other."""
    return FunctionModel(function, ask_as_text)


def as_model(function: Callable[[Ask], Any]) -> "FunctionModel":
    """Return a model from a function `Ask -> Answer | str | None`, sync or async."""
    return FunctionModel(function)


def require_asker(ask: T) -> T:
    """Return *ask*, which may be None. Raises TypeError if it cannot be called, such as a chat
    model of LangChain."""
    if ask is not None and not callable(ask):
        raise TypeError(
            f"a model is a function of an Ask, and {type(ask).__name__} is none; a chat model of "
            "LangChain's is given as refold.adapters.langchain.ChatModel(model)"
        )
    return ask


def ask_safely(ask: Callable[[Ask], Any], question: Ask) -> Answer | None:
    """Ask a model or a function. Never raises for its errors: an exception, or a reply that is not
    an answer, becomes a failed `Answer`."""
    try:
        return as_model(ask)(question)
    except Exception as error:  # noqa: BLE001 - a model that fails must not stop an agent
        return _error_answer(error)


def ask_as_text(ask: Ask) -> str:
    """Return the ask as one text: system prompt, messages, each with its role as a heading, and
    prompt."""
    messages = [f"[{message.role}]\n{message.text}" for message in ask.messages]
    return "\n\n".join(text for text in (ask.system, *messages, ask.prompt) if text)


@dataclass(frozen=True, slots=True)
class FunctionModel:
    """A function as a model. Its exceptions become failed answers.

    A blocking function cannot be interrupted: in async code it runs in a thread, which continues
    after a cancelled task.
    """

    function: Callable[[Any], Any]
    convert: Callable[[Ask], Any] = field(default=lambda ask: ask, repr=False)
    """Converts an ask to the function's argument."""

    def __call__(self, ask: Ask, _within: float | None = None, /) -> Answer | None:
        """Answer the ask. Runs an async function to its end; raises TypeError inside a running
        event loop."""
        try:
            reply = self.function(self.convert(ask))
        except Exception as error:  # noqa: BLE001 - a model that fails must not stop an agent
            return _error_answer(error)
        return _run(reply) if isawaitable(reply) else _as_answer(reply)

    async def acall(self, ask: Ask, _within: float | None = None, /) -> Answer | None:
        """Async version of `__call__`."""
        try:
            return _as_answer(await as_async(self.function)(self.convert(ask)))
        except Exception as error:  # noqa: BLE001 - a model that fails must not stop an agent
            return _error_answer(error)


def as_async(ask: Callable[[Ask], Any]) -> Callable[[Ask], Awaitable[Answer | None]]:
    """Return *ask* as an async function: a model's `acall`, *ask* itself if it is async, or a
    function that calls it in a thread."""
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
    if reply is None:
        return None
    if isinstance(reply, Answer) and isinstance(reply.text, str) and is_number(reply.calls):
        cost: Any = reply.cost
        with suppress(OverflowError, ValueError):  # a huge number, a signaling NaN
            if isinstance(cost, SupportsFloat) and not isinstance(cost, bool):  # or a Decimal
                cost = float(cost)
            if is_number(cost):
                return replace(reply, cost=cost)
    return _error_answer(
        TypeError(
            "a model answers with an Answer of a text, with numbers as calls and cost, a text or "
            f"None, not with {type(reply).__name__}"
        )
    )


def _error_answer(error: Exception) -> Answer:
    # Only the type is logged, because the text may quote the conversation.
    _log.warning("a model raised %s", type(error).__name__)
    return answer_of_exception(error)
