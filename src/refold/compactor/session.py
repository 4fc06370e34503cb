"""A conversation that is given only what is new."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from refold.compactor.conversations import ConversationState
from refold.core.view import View
from refold.errors import FormatError


class Session:
    """One growing conversation: each step costs what was added. `Compactor.session` makes it.

    Append what belongs to one step in one call (the model's message with its calls, and their
    results), so that nothing is compacted between them. Entries are kept as they are given and must
    not be changed afterwards.
    """

    def __init__(
        self,
        step: Callable[[ConversationState | None, Sequence[Any]], ConversationState],
        report: Callable[[View, Any], None],
        history: Sequence[Any] = (),
    ) -> None:
        """*step* takes the state of a conversation and all of its entries and returns the next
        state."""
        if isinstance(history, Mapping | str | bytes):
            raise FormatError(
                "a session starts from a list of messages; "
                "give a request body to the compactor itself"
            )
        self._step, self._report, self._wires = step, report, list(history)
        self._state = step(None, self._wires)

    @property
    def view(self) -> View:
        """The view of all of it."""
        return self._state.view

    def append(self, *entries: Any) -> View:
        """Add entries (messages in wire form), compact if that is due, and return the view of all
        of it.

        Raises as calling the compactor does; then nothing was added.
        """
        before = len(self._wires)
        self._wires += entries
        try:
            self._state = self._step(self._state, self._wires)
        except BaseException:
            del self._wires[before:]
            raise
        return self.view

    def report(self, usage: Any) -> None:
        """Learn from what the provider reported for the request that the latest view made."""
        self._report(self.view, usage)
