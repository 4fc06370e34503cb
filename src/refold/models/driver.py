"""Run a generator of questions and blocking effects to its end: a sync and an async driver."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator
from contextlib import closing
from typing import Any, TypeVar

from refold.core.strategy import Answer, Ask, End, advance
from refold.models.callables import as_model, ask_safely

_log = logging.getLogger("refold")
T = TypeVar("T")


Effect = Callable[[], Any]
"""Something blocking, such as a store's load: the sync driver calls it, the async one in a
thread."""


Asker = Callable[[Ask], Answer | None]


AsyncAsker = Callable[[Ask], Awaitable[Answer | None]]


def drive(run: Generator[Ask | Effect, Any, T], ask: Asker | None = None) -> T:
    """Run a generator to its end; without *ask* every question goes unanswered. Whatever *ask*
    raises is an answer that failed (F6). Interrupts pass, and end the generator too."""
    with closing(run):
        step = advance(run)
        while not isinstance(step, End):
            if isinstance(step, Ask):
                reply = ask_safely(ask, step) if ask else None
            else:
                reply = step()
            step = advance(run, reply)
        return step.value


async def adrive(run: Generator[Ask | Effect, Any, T], ask: Asker | AsyncAsker | None = None) -> T:
    """As `drive`, for async code: questions are awaited, or asked in a thread where *ask* is a sync
    function, as blocking effects are."""
    with closing(run):
        step = advance(run)
        while not isinstance(step, End):
            if isinstance(step, Ask):
                reply = await as_model(ask).acall(step) if ask else None
            else:
                reply = await asyncio.to_thread(step)
            step = advance(run, reply)
        return step.value


def call_safely(act: Callable[..., Any], *values: Any) -> None:
    """Call a listener or a ledger. Its failure is logged, never raised: it must not lose a
    compaction."""
    try:
        act(*values)
    except Exception:  # noqa: BLE001 - whatever a listener raises
        _log.exception("a hook, listener or ledger of refold failed")
