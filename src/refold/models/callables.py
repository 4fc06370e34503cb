"""Any function as a model: of a text, or of an `Ask`; sync or async."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from inspect import isawaitable
from typing import Any

from refold.core.strategy import Answer, Ask
from refold.models.errors import answer_of_exception
from refold.models.model import as_async
from refold.models.responses import strip_reasoning

_log = logging.getLogger("refold")


def as_text_model(function: Callable[[str], Any]) -> "FunctionModel":
    """A model out of a function `str -> str` (or `-> Answer`), sync or async. The text it gets is the
    ask's system prompt, messages and prompt, one after the other."""
    return FunctionModel(function, ask_as_text)


def as_model(function: Callable[[Ask], Any]) -> "FunctionModel":
    """A model out of a function `Ask -> Answer | str | None`, sync or async."""
    return FunctionModel(function)


def ask_safely(ask: Callable[[Ask], Any], question: Ask) -> Answer | None:
    """Ask whatever answers, a model or a function of an `Ask`. Never raises for what that does (F6): an exception, or
    a reply that is no answer, is an `Answer` that says so."""
    try:
        return as_model(ask)(question)
    except Exception as error:  # noqa: BLE001 - whatever it is, a model that fails must not stop an agent
        return _fallen(error)


async def aask_safely(ask: Callable[[Ask], Any], question: Ask) -> Answer | None:
    """As `ask_safely`, for async code. Cancelling passes through."""
    try:
        return await as_model(ask).acall(question)
    except Exception as error:  # noqa: BLE001 - likewise
        return _fallen(error)


def ask_as_text(ask: Ask) -> str:
    """The ask as one text; of several messages each is headed by its role."""
    messages = [f"[{message.role}]\n{message.text}" for message in ask.messages]
    return "\n\n".join(text for text in (ask.system, *messages, ask.prompt) if text)


def _itself(ask: Ask) -> Ask:
    return ask


@dataclass(frozen=True, slots=True)
class FunctionModel:
    """A function as a model: what it raises becomes an `Answer` that says so.

    A function that blocks cannot be cut short: in sync code it takes what it takes, in async code
    it runs in a thread that a cancelled task leaves behind.
    """

    function: Callable[[Any], Any]
    form: Callable[[Ask], Any] = field(default=_itself, repr=False)
    """What the function gets of an ask."""

    def __call__(self, ask: Ask, _within: float | None = None, /) -> Answer | None:
        """Ask. An async function is run to its end; raises TypeError inside a running event loop."""
        try:
            reply = self.function(self.form(ask))
        except Exception as error:  # noqa: BLE001 - whatever it is, a model that fails must not stop an agent
            return _fallen(error)
        return _run(reply) if isawaitable(reply) else _answer(reply)

    async def acall(self, ask: Ask, _within: float | None = None, /) -> Answer | None:
        """As calling it, for async code."""
        try:
            return _answer(await as_async(self.function)(self.form(ask)))
        except Exception as error:  # noqa: BLE001 - likewise
            return _fallen(error)


async def _finished(reply: Any) -> Answer | None:
    try:
        return _answer(await reply)
    except Exception as error:  # noqa: BLE001 - likewise
        return _fallen(error)


def _run(reply: Any) -> Answer | None:
    if _in_a_loop():
        if hasattr(reply, "close"):
            reply.close()
        raise TypeError("this model is an async function: inside an event loop use `acompact`")
    return asyncio.run(_finished(reply))


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _answer(reply: Any) -> Answer | None:
    if isinstance(reply, str):
        return Answer(strip_reasoning(reply))
    if reply is None or isinstance(reply, Answer):
        return reply
    return _fallen(
        TypeError(
            f"a model answers with an Answer, a text or None, not with {type(reply).__name__}"
        )
    )


def _fallen(error: Exception) -> Answer:
    _log.warning(
        "a model raised %s", type(error).__name__
    )  # what it says may quote the conversation
    return answer_of_exception(error)
