"""What the runner wants to know of an agent."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from refold.testing.scripted_provider import Call

MODEL_OUTPUT = 4_096
"""Output tokens that clients are told to ask for."""
NOMINAL = 200_000
"""The window that clients are told: more than the server's, as happens with local servers and stale model tables."""


@dataclass(frozen=True, slots=True)
class Command:
    """How to start it."""

    arguments: tuple[str, ...]
    """Behind the program's name."""
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Client:
    """An agent and an API that it speaks."""

    name: str
    package: str
    """In the npm registry."""
    program: str
    api: str
    """As Refold names it."""
    model: str
    settled: Callable[[Path, str, str], Command]
    """Writes its settings into a home directory, for the base URL and the prompt given, and says how to start it."""
    read: Callable[[str], Call]
    """Its tool that reads a file of the working directory."""
    shell: Callable[[str], Call]
    """Its tool that runs a command."""


def written(path: Path, value: Any) -> None:
    """Write *value* as JSON, with the directories that takes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2), encoding="utf-8")
