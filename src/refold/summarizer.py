"""What writes a summary: with a model or without."""

from collections.abc import Callable, Generator
from typing import NamedTuple

from refold.strategy import Answer, Ask, Ending
from refold.view import View


class Summary(NamedTuple):
    """What a summarizer returns."""

    text: str
    """Empty where there is none to offer."""
    ending: Ending | None = None
    """How it went, where the text alone does not tell: `degraded` to what, `rejected` or `failed` why."""


Summarizer = Callable[[View, int, int, int], Generator[Ask, Answer | None, Summary]]
"""Summarises `messages[start:stop]` of a view: `(view, start, stop, max_tokens)`. It may `yield Ask`
to have a model answer. The text, wrapped by `refold.summary.wrap`, must not exceed *max_tokens* by
`view.lens.count`."""
