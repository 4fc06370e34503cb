"""One operation as plain data: the document, the routes and the checks are made of these."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from refold.gateway.api.context import Desk
from refold.gateway.api.json_schema import Schema

Handler = Callable[[Desk, dict[str, Any]], Awaitable[dict[str, Any]]]
"""What an operation does: from its arguments, which are as its schema says, to its answer. Raises as `problems` knows."""


@dataclass(frozen=True, slots=True)
class Operation:
    """A name below `/refold/api/`."""

    name: str
    """The last part of its path, and its `operationId`."""
    method: Literal["GET", "POST"]
    summary: str
    takes: Schema
    """An object: the query of a GET, the body of a POST."""
    gives: Schema
    run: Handler
    example: Mapping[str, Any] = field(default_factory=dict)
    """Arguments that can be sent, for readers."""
    text: str = ""
    """More of it, for readers."""

    @property
    def path(self) -> str:
        """Where it is."""
        return f"/refold/api/{self.name}"
