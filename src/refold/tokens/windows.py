"""How much a model can take: a small dated table (`windows.json`), and what you say instead.

A table in a library is never complete and soon old. So a window that you state always wins, and a
model that is not in the table is said to be unknown, never guessed (S1-39, conformance 44).
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from refold.tokens.model_table import ModelTable


@dataclass(frozen=True, slots=True)
class Window:
    """What one model can take, in tokens. Raises ValueError for figures that cannot be."""

    context: int
    """Request and answer together."""
    input: int | None = None
    """A limit of the request alone, if the provider has one; never more than *context*."""
    output: int | None = None
    """The longest answer."""

    def __post_init__(self) -> None:
        if self.context <= 0 or not 0 < self.room <= self.context:
            raise ValueError(
                f"a window of {self.context} tokens with an input limit of {self.input} cannot be"
            )

    @property
    def room(self) -> int:
        """Tokens that a request may have, nothing kept back for the answer."""
        return self.context if self.input is None else self.input


Windows = Callable[[str], Window | None]
"""Your own table: from a model's name to its window, None to look it up in ours."""


class Found(NamedTuple):
    """A window, or why there is none."""

    window: Window | None
    reason: str


def find_window(model: str, given: int | Window | Windows | None = None) -> Found:
    """Return the window of *model*: what is *given*, else what the table says.

    *given* is a number of tokens, a `Window` or a function; 0 switches it off. The reason says
    where the window comes from, or why there is none.
    """
    if callable(given):
        given = given(model)
    if isinstance(given, Window):
        return Found(given, f"given as {given.room} tokens")
    if given is not None:
        return (
            Found(Window(given), f"given as {given} tokens")
            if given > 0
            else Found(None, "the window is switched off")
        )
    if not model:
        return Found(None, "the request names no model and no window is given")
    window = lookup(model)
    if window is None:
        return Found(None, f"no window is known for the model {model!r} (table of {table_date()})")
    return Found(window, f"{model}: {window.room} tokens (table of {table_date()})")


def lookup(model: str) -> Window | None:
    """Return the table's entry for *model*; None if it is not in the table."""
    return _TABLE.lookup(model)


def table_date() -> str:
    """Return the day when the table was checked, `YYYY-MM-DD`."""
    return _TABLE.date


_TABLE = ModelTable(Path(__file__).with_name("windows.json"), Window)
