"""The description of an agent for the runner."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clients import task
from clients.model import Script

MODEL_OUTPUT = 4_096
"""Output tokens that clients are configured to ask for."""
NOMINAL = 200_000
"""Window that clients are configured with: more than the server's, as happens with local servers
and stale model tables."""


HUB = "hub.json"
"""File in a client's home with the id of a process that it leaves running."""


@dataclass(frozen=True, slots=True)
class Command:
    """How to start an agent."""

    arguments: tuple[str, ...]
    """Arguments after the program's name."""
    environment: Mapping[str, str] = field(default_factory=dict)
    typed: tuple[str, ...] = ()
    """Texts for its standard input: the first at once, the next while it works."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """An agent with one of its APIs."""

    name: str
    package: str
    """Name in the npm registry or on PyPI."""
    is_python: bool = False
    """Whether it is from PyPI. It is then in an environment with its package's name."""
    program: str
    api: str
    """Name of the API in Refold."""
    model: str
    configure: Callable[[Path, str], Command]
    """Writes its settings for a base URL into a home directory and returns the command."""
    make_script: Callable[[], Script]
    """Returns the model's script."""
    turns: tuple[tuple[str, ...], ...] = ((task.PROMPT,),)
    """The user's texts by turn. The second text of a turn is typed while the agent works."""

    @property
    def is_interrupted(self) -> bool:
        """Whether the user types something while the agent works."""
        return len(self.turns) == 1 and len(self.turns[0]) > 1


def write_json(path: Path, value: Any) -> None:
    """Write *value* as JSON and create the folders above the file."""
    write_file(path, json.dumps(value, indent=2))


def write_file(path: Path, text: str) -> None:
    """Write a file and create the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
