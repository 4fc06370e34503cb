"""What the runner wants to know of an agent."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clients import task
from clients.model import Script

MODEL_OUTPUT = 4_096
"""Output tokens that clients are told to ask for."""
NOMINAL = 200_000
"""The window that clients are told: more than the server's, as happens with local servers and stale model tables."""


HUB = "hub.json"
"""In a client's home, the file in which it notes a process that it leaves running."""


@dataclass(frozen=True, slots=True)
class Command:
    """How to start it."""

    arguments: tuple[str, ...]
    """Behind the program's name."""
    environment: Mapping[str, str] = field(default_factory=dict)
    typed: tuple[str, ...] = ()
    """What is written to its standard input: the first at once, the next while it works."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """An agent and an API that it speaks."""

    name: str
    package: str
    """In the npm registry, or on PyPI."""
    is_python: bool = False
    """Is it from PyPI? Then it is in an environment that has its package's name."""
    program: str
    api: str
    """As Refold names it."""
    model: str
    configure: Callable[[Path, str], Command]
    """Writes its settings into a home directory, for the base URL given, and says how to start it."""
    make_script: Callable[[], Script]
    """What its model does."""
    turns: tuple[tuple[str, ...], ...] = ((task.PROMPT,),)
    """What the person says, by turn; in one turn the second text is typed while it works."""

    @property
    def is_interrupted(self) -> bool:
        """Does the person type something while it works?"""
        return len(self.turns) == 1 and len(self.turns[0]) > 1


def write_json(path: Path, value: Any) -> None:
    """Write *value* as JSON, and the folders above its file."""
    write_file(path, json.dumps(value, indent=2))


def write_file(path: Path, text: str) -> None:
    """Write a file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
