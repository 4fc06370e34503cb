"""Which sessions a command works on."""

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from refold import transcripts
from refold.cli import screen
from refold.errors import FormatError, RefoldError
from refold.named import strategy
from refold.store import Store
from refold.stores import MemoryStore
from refold.stores.places import file_of, open_store
from refold.strategy import Strategy
from refold.tokens.count import Counter, count_message, counter
from refold.tokens.exact import exact
from refold.transcripts import Session
from refold.workfile import WorkFile, open_work, session_files

ENCODING = "o200k_base"
"""What `--exact` counts with."""
_NUMBER = re.compile(r"(\d[\d_,]*(?:\.\d+)?)\s*([kKmM]?)")


def tokens(value: str) -> int:
    """A number of tokens: 60000, 60_000, 60k, 1.5M. Raises `click.BadParameter`."""
    found = _NUMBER.fullmatch(value.strip())
    if not found:
        raise click.BadParameter(f"{value!r} is no number of tokens; write 60000, 60k or 1.5M")
    return round(float(re.sub("[_,]", "", found[1])) * {"": 1, "k": 1_000, "m": 1_000_000}[found[2].lower()])


def named(value: str) -> Strategy:
    """A strategy with its settings: ClearToolResults(keep=3). Raises `click.BadParameter`."""
    try:
        return strategy(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@dataclass(slots=True)
class Inputs:
    """What the command line says about its sessions."""

    paths: tuple[str, ...]
    store: str | None = None
    id: str = ""
    every: bool = False
    format: str | None = None
    exact: bool = False
    skipped: list[tuple[str, str]] = field(default_factory=list)
    """Files that could not be read, and why."""

    @property
    def stdin(self) -> bool:
        """Does it read standard input?"""
        return "-" in self.paths

    @property
    def count(self) -> Counter:
        """How tokens are counted."""
        return counter(exact(ENCODING)) if self.exact else count_message

    def works(self) -> Iterator[WorkFile]:
        """Every session, read and opened. One that cannot be read is skipped if it is one of several.

        Raises `RefoldError` and `OSError` when there is nothing to work on.
        """
        files, many = self._files(), self.every or len(self.paths) > 1 or any(Path(p).is_dir() for p in self.paths)
        store, count, found = self._store(), self.count, 0
        place = file_of(self.store) if self.store is not None else None
        for path in _tracked(files):
            try:
                for session, data in self._sessions(path):
                    screen.complain_all(f"{session.path}: {problem}" for problem in session.problems)
                    kept = store or (MemoryStore() if session.path == Path("-") else None)
                    yield open_work(session, data, kept, format=self.format, count=count, place=place)
                    found += 1
            except (RefoldError, OSError) as error:
                if not many:
                    raise
                self.skipped.append((str(path), reason(error)))
                screen.complain(f"{path}: {reason(error)}; skipped")
        if not found:
            raise FormatError(f"no session in {', '.join(self.paths)}")

    def one(self) -> WorkFile:
        """The only session. Raises `FormatError` when there are several."""
        works = list(self.works())
        if len(works) > 1:
            raise FormatError(
                f"there are {len(works)} sessions; name one file (or one of a file's sessions with --session)"
            )
        return works[0]

    def guard(self, target: str | None) -> None:
        """Refuse to write over what is only ever read. Raises `click.UsageError`."""
        for path in filter(None, (target, self.store)):
            if (
                path != "-"
                and Path(path).exists()
                and any(p != "-" and Path(p).exists() and Path(p).samefile(path) for p in self.paths)
            ):
                raise click.UsageError(f"{path} is the session itself, and sessions are never written")

    def _files(self) -> list[str | Path]:
        files = list[str | Path]()
        for path in self.paths:
            files += session_files(Path(path)) if path != "-" and Path(path).is_dir() else [path]
        return files

    def _sessions(self, path: str | Path) -> Iterator[tuple[Session, bytes | None]]:
        """Sessions of a file, each with the file's content where that may be a request as it stands."""
        if path == "-":
            data = sys.stdin.buffer.read()
            session = transcripts.read_bytes(data, "-", self.id)
            yield session, _own(session, data)
        elif self.every:
            yield from ((session, None) for session in transcripts.read_all(path))
        else:
            session = transcripts.read(path, self.id)
            yield session, _own(session, None)

    def _store(self) -> Store | None:
        if self.store is None:
            return None
        return open_store(self.store)


def _own(session: Session, data: bytes | None) -> bytes | None:
    """The content of a file that is one request, to keep its spelling."""
    if session.client != "plain" or session.id:
        return None
    return session.path.read_bytes() if data is None else data


def _tracked(files: Sequence[str | Path]) -> Iterator[str | Path]:
    """*files*, with a progress bar on a terminal if there are several."""
    console = screen.err()
    if len(files) < 2 or not console.is_terminal:
        yield from files
        return
    columns = (TextColumn("reading"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        yield from progress.track(files)


def reason(error: BaseException) -> str:
    """Why something failed, without what Python adds."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__
