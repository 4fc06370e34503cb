"""What a form of summaries can do: say its shape, read it, write it, and join two of it."""

from typing import Protocol, TypeVar

Value = TypeVar("Value")


class Form(Protocol[Value]):
    """A shape that a model is asked to summarise in, with typed values behind it
    (docs/summaries.md).

    `parse(render(value)) == value` for every value with something in it. All four functions are
    deterministic, and none of them raises for any text or value.
    """

    @property
    def name(self) -> str:
        """One word for logs and the ledger."""

    @property
    def template(self) -> str:
        """The description of the shape, for a prompt."""

    def parse(self, text: str, /) -> Value | None:
        """Return the value in a model's answer or in a rendered text; None where the text is off
        template or has nothing in it."""

    def render(self, value: Value, /) -> str:
        """Return the value as text for the model that goes on."""

    def merge(self, previous: Value | None, new: Value, /) -> Value | None:
        """Return what is known after *new* is told to who knew *previous*; None where *new* cannot
        be applied to it."""

    def shorten(self, value: Value, /) -> Value | None:
        """Return the value without the one thing that matters least; None where the rest must
        stay."""
