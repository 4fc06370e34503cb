"""Recorded agent sessions, split into those for tuning and those for testing."""

import os
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from refold.codecs.detect import open_payload
from refold.errors import FormatError
from refold.messages import Message
from refold.session_files import read, with_calls
from refold.tokens.count import count_fixed, count_message

ROOT = Path(__file__).parents[2]
SPLITS = Path(__file__).with_name("splits.toml")


@dataclass(frozen=True)
class Session:
    """A recorded session: a request body that holds all of it."""

    name: str
    client: str
    payload: dict[str, Any]

    @cached_property
    def messages(self) -> Sequence[Message]:
        """All messages."""
        return open_payload(self.payload).decode()

    @cached_property
    def calls(self) -> tuple[int, ...]:
        """Positions of model calls: the first message of each answer."""
        roles = [message.role for message in self.messages]
        return tuple(
            at
            for at, role in enumerate(roles)
            if at and role == "assistant" and roles[at - 1] != "assistant"
        )

    @cached_property
    def size(self) -> int:
        """Tokens of all messages, without system prompt and tools."""
        return sum(map(count_message, self.messages))

    @cached_property
    def fixed(self) -> int:
        """Tokens of system prompt and tools, which no policy changes."""
        payload = open_payload(self.payload)
        return count_fixed(payload.system, payload.tools)

    def requests(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the position and the request body of each model call."""
        payload = open_payload(self.payload)
        field, head = payload.codec.FIELD, payload.head
        entries = self.payload[field]
        for at in self.calls:
            yield at, {**self.payload, field: entries[: head + at]}


def datasets() -> Path:
    """Return the folder of recorded conversations: in REFOLD_SHARED, or in `shared` beside the
    repository."""
    return Path(os.environ.get("REFOLD_SHARED", ROOT.parent / "shared")) / "datasets"


def load_sessions(split: str, at_least: int = 0, root: Path | None = None) -> Iterator[Session]:
    """Yield the sessions of *at_least* tokens in a split (`tune` or `test`) or in a folder.

    A file in a folder that is not a session is reported on standard error.
    """
    for path in _find_files(split, root or datasets()):
        try:
            recorded = with_calls(read(path))
        except FormatError as error:
            if not Path(split).is_dir():
                raise
            print(f"{path}: {error}", file=sys.stderr)
            continue
        session = Session(path.stem, recorded.client, recorded.payload)
        if session.size >= at_least:
            yield session


def _find_files(split: str, root: Path) -> Iterator[Path]:
    if Path(split).is_dir():
        yield from sorted(Path(split).rglob("*.json*"))
        return
    for dataset, beginnings in tomllib.loads(SPLITS.read_text("utf-8"))[split].items():
        for path in sorted((root / dataset).rglob("*.json*")):
            if path.name.startswith(tuple(beginnings)) and "subagents" not in path.parts:
                yield path
