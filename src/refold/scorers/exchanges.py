"""Tool calls with their results, in order: what errors and fresh reads are judged by."""

from typing import NamedTuple

from refold.failures import is_failure
from refold.groups import Pair, groups
from refold.messages import ToolCall, ToolResult
from refold.view import View


class Exchange(NamedTuple):
    """A call that was answered."""

    call: ToolCall
    made: int
    """Position of the call."""
    answered: int
    """Position of the result."""
    failed: bool
    """Does the result report a failure?"""


def exchanges(view: View) -> list[Exchange]:
    """All answered calls of the transcript, oldest call first."""
    pairs = (pair for group in groups(view.transcript.messages) for pair in group)
    return [_exchange(view, pair, pair.answered) for pair in pairs if pair.answered is not None]


def _exchange(view: View, pair: Pair, answered: int) -> Exchange:
    parts = view.transcript.messages[answered].parts
    results = [part for part in parts if isinstance(part, ToolResult) and part.id == pair.call.id]
    failed = any(part.error or is_failure(part.text) for part in results)
    return Exchange(pair.call, pair.made, answered, failed)
