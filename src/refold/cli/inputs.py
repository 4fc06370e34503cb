"""Which sessions a command works on."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from refold import session_files as transcripts
from refold.cli import terminal as screen
from refold.codecs.json_text import dump
from refold.compactor.strategy_names import parse_strategy
from refold.core.strategy import Strategy
from refold.errors import FormatError, RefoldError
from refold.session_files import Session
from refold.session_files.edited_session import EditedSession, list_session_files, open_edited
from refold.stores import MemoryStore
from refold.stores.open import file_path, open_store, require_file
from refold.stores.store import Store
from refold.tokens.count import Counter, count_message, counter
from refold.tokens.exact import exact

ENCODING = "o200k_base"
"""What `--exact` counts with."""
MOST = 10**15
"""Tokens that no request has."""
Use = Literal["look", "try", "change", "make"]
"""What a command does with the store: look at it; look, if there is one yet; change one that is there; make one too."""
_NUMBER = re.compile(r"(\d[\d_,]{0,30}(?:\.\d{1,30})?)\s*([kKmM]?)", re.ASCII)


def tokens(value: str) -> int:
    """A number of tokens: 60000, 60_000, 60k, 1.5M. Raises `click.BadParameter`, for 0 and for more than `MOST` too."""
    found = _NUMBER.fullmatch(value.strip())
    if not found:
        raise click.BadParameter(f"{value[:40]!r} is no number of tokens; write 60000, 60k or 1.5M")
    count = round(Fraction(re.sub("[_,]", "", found[1])) * {"": 1, "k": 1_000, "m": 1_000_000}[found[2].lower()])
    if not 1 <= count <= MOST:
        raise click.BadParameter(f"{value!r}: it must be from 1 to {MOST:,} tokens")
    return count


def named(value: str) -> Strategy:
    """A strategy with its settings: ClearToolResults(keep=3). Raises `click.BadParameter`."""
    try:
        return parse_strategy(value)
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
    use: Use = "look"
    skipped: list[tuple[str, str]] = field(default_factory=list)
    """Files and directories that could not be read, and why."""
    _files: list[str | Path] | None = None

    @property
    def count(self) -> Counter:
        """How tokens are counted."""
        return counter(exact(ENCODING)) if self.exact else count_message

    def works(self) -> Iterator[EditedSession]:
        """Every session, read and opened. One that cannot be read is skipped if it is one of several.

        Raises `RefoldError` and `OSError` when there is nothing to work on.
        """
        files, many = self.files(), self.every or len(self.paths) > 1 or any(Path(p).is_dir() for p in self.paths)
        store, count, found = self._store(), self.count, 0
        place = file_path(self.store) if self.store is not None else None
        for path in _tracked(files):
            try:
                for session, data in self._sessions(path):
                    screen.complain_all(f"{session.path}: {problem}" for problem in session.problems)
                    kept = store or (MemoryStore() if session.path == Path("-") else None)
                    yield open_edited(session, data, kept, format=self.format, count=count, place=place)
                    found += 1
            except (RefoldError, OSError) as error:
                if not many:
                    raise
                self._skip(str(path), error)
        if not found:
            raise FormatError(f"no session in {', '.join(self.paths)}")

    def one(self) -> EditedSession:
        """The only session. Raises `FormatError` when there are several."""
        works = list(self.works())
        if len(works) > 1:
            raise FormatError(
                f"there are {len(works)} sessions; name one file (or one of a file's sessions with --session)"
            )
        return works[0]

    def guard(self, target: str | None) -> None:
        """Refuse to write over what is only ever read. Raises `click.UsageError`."""
        named = [path for path in self.paths if path != "-"]
        for path, sessions in ((target, self.files() if target else []), (self.store, named)):
            if path and path != "-" and any(_same(path, one) for one in sessions):
                raise click.UsageError(f"{path} is the session itself, and sessions are never written")

    def files(self) -> Sequence[str | Path]:
        """The session files that the paths name: those below a directory too, but for our own store."""
        if self._files is None:
            self._files = [file for path in self.paths for file in self._below(path)]
        return self._files

    def _below(self, path: str) -> Sequence[str | Path]:
        if path == "-" or not Path(path).is_dir():
            return [path]
        found = list_session_files(Path(path), lambda error: self._skip(str(error.filename), error))
        return [one for one in found if not self.store or not _same(self.store, one)]

    def _skip(self, path: str, error: Exception) -> None:
        self.skipped.append((path, reason(error)))
        screen.complain(f"{path}: {reason(error)}; skipped")

    def _sessions(self, path: str | Path) -> Iterator[tuple[Session, bytes | None]]:
        """Sessions of a file, each with the file's content where that may be a request as it stands."""
        if path == "-":
            data = screen.stdin().read()
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
        file = file_path(self.store)
        if self.use == "try" and file is not None and not file.exists():
            return MemoryStore()
        if self.use == "change":
            require_file(self.store)
        return open_store(self.store, read_only=self.use in ("look", "try"))


def _same(path: str, other: str | Path) -> bool:
    """Are they one file?"""
    return Path(path).exists() and Path(other).exists() and Path(path).samefile(other)


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


def guard_target(target: str | None) -> None:
    """Refuse a file that could not be written, before anything is kept or paid for. Raises `click.UsageError`."""
    if not target or target == "-":
        return
    path = Path(target)
    if path.is_dir():
        raise click.UsageError(f"--output {target}: it is a directory")
    if not path.parent.is_dir():
        raise click.UsageError(f"--output {target}: there is no directory {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise click.UsageError(f"--output {target}: it may not be written")


def one_standard_output(output: str | None, *, as_json: bool) -> None:
    """Refuse two answers on one standard output. Raises `click.UsageError`."""
    if output == "-" and as_json:
        raise click.UsageError("--json and --output - both want standard output")


def write(target: str, payload: Any) -> None:
    """A request as JSON, in the spelling in which it came if it came as text; `-` is standard output."""
    data = payload if isinstance(payload, bytes) else dump(payload).encode()
    if target == "-":
        screen.write(data)
    else:
        Path(target).write_bytes(data)
