"""The sessions that a command works on."""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple

import click
from rich.console import Console

from refold import session_files
from refold.cli import terminal
from refold.cli.places import find_store
from refold.cli.sessions import GATEWAY, choose_on_machine, find_on_machine, open_recorded
from refold.cli.terminal import Line
from refold.errors import FormatError, RefoldError
from refold.session_files import FoundSession, Session
from refold.session_files.edited import EditedSession, open_edited, save_first_sight, show_request
from refold.session_files.source import NAMES, OnError, files_below
from refold.stores import MemoryStore, file_path, open_store, require_file
from refold.stores.store import Store, list_problems
from refold.text.json_values import JsonObject
from refold.tokens.count import Counter, count_message, counter, exact

ENCODING = "o200k_base"
"""Tokenizer of `--exact`."""
SUFFIXES = (".jsonl", ".json", ".jsonl.zst", ".db")
"""Suffixes of session files. Other files in a directory are ignored."""
NO_SESSION = "no session is named: give a file or an id, or --last or --project"
Use = Literal["read", "try", "change", "create"]
"""How a command uses a named store: `read` and `change` require it to exist, `try` reads it if it
exists, `create` makes it."""


@dataclass
class Inputs:
    """The sessions that the command line selects, and how to open them."""

    paths: tuple[str, ...]
    store: str | None = None
    id: str = ""
    every: bool = False
    last: bool = False
    project: str | None = None
    format: str | None = None
    exact: bool = False
    as_json: bool = False
    why: bool = False
    """Whether errors list the formats that were tried."""
    request: int | None = None
    """Number of a request, from 1: sessions are shown as they were sent in it."""
    use: Use = "read"
    skipped: list[dict[str, str]] = field(default_factory=list)
    """Path and reason for each file or directory that could not be read."""

    def __post_init__(self) -> None:
        is_chosen = self.last or self.project is not None
        if bool(self.paths) == is_chosen:
            problem = (
                "name sessions or choose them with --last or --project, not both"
                if is_chosen
                else NO_SESSION
            )
            raise click.UsageError(problem)
        if self.id and (is_chosen or self.every):
            raise click.UsageError(
                "--session names a session of a file: not with --last, --project or --all"
            )
        if "" in self.paths:  # otherwise it would be the current directory with all below it
            raise click.UsageError("an empty name is no session: give a file or an id")
        self.protect(self.store, [path for path in self.paths if path != "-"])

    @cached_property
    def count(self) -> Counter:
        """Token counter."""
        return counter(exact(ENCODING)) if self.exact else count_message

    def sessions(self) -> Iterator[EditedSession]:
        """Yield every session. Of several, unreadable ones are skipped.

        Raises `RefoldError` and `OSError` if no session can be read.
        """
        store, empty = self._open_store(), True
        if store is not None:
            warn_of_problems(store, self.store)
        several = (
            self.every or len(self.targets) > 1 or any(Path(path).is_dir() for path in self.paths)
        )
        hint = " (--last chose this session; name another: refold lists them)" * self.last
        for target in terminal.track(self.targets, "reading"):
            try:
                for edited in self._open(target, store):
                    yield edited
                    empty = False
            except (RefoldError, OSError) as error:
                if several:
                    self._skip(str(target.path), error)
                elif isinstance(error, FormatError):
                    raise FormatError(self._explain(error, target.client) + hint) from error
                else:
                    raise
        if empty:
            raise FormatError(f"no session in {', '.join(self.paths) or 'what was chosen'}")

    def _open(self, target: "Target", store: Store | None) -> Iterator[EditedSession]:
        """Yield the sessions of a target with their edits from *store* or from beside each."""
        if target.client == GATEWAY:
            edited = open_recorded(
                *(self.gateway_store, target.id, self.count),
                read_only=self.use in ("read", "try"),
                request=self.request,
                as_sent=self.use == "read",  # commands that write change only stored edits
            )
            yield replace(edited, typed_store=self.store or "")
            return
        place = file_path(self.store) if self.store is not None else None
        for session, data in self._read(target.path, target.id):
            terminal.warn_all(
                f"{terminal.short_path(session.path)}: {problem}" for problem in session.problems
            )
            own = store or (MemoryStore() if session.path == Path("-") else None)
            edited = open_edited(
                session, data, own, format=self.format, count=self.count, place=place
            )
            if own is None:
                warn_of_problems(edited.store, edited.place)
            if self.use in ("change", "create"):
                save_first_sight(edited)
            if self.request is not None:
                edited = show_request(edited, self.request)
            typed = "" if self.every else target.typed
            yield replace(edited, typed=typed, typed_store=self.store or "")

    def single_session(self) -> EditedSession:
        """Return the only session. Raises `FormatError` if there are several."""
        sessions = list(self.sessions())
        if len(sessions) > 1:
            raise FormatError(
                f"there are {len(sessions)} sessions; name one file "
                "(or one of a file's sessions with --session), or choose the latest with --last"
            )
        return sessions[0]

    def protect(self, target: str | None, files: Sequence[str | Path]) -> None:
        """Raise `click.UsageError` if *target* is one of *files*: sessions are never written."""
        if target is not None and any(_is_same_file(target, file) for file in files):
            raise click.UsageError(
                f"{target} is the session itself, and sessions are never written"
            )

    def print_answer(
        self,
        documents: Iterable[JsonObject],
        lines: Iterable[Line],
        console: Console | None = None,
        *,
        paged: bool = False,
    ) -> None:
        """Print a command's answer: one JSON document with an entry per session, or *lines*. If
        *paged* and no *console* is given, lines that fill a terminal go through a pager."""
        if self.as_json:
            terminal.print_json({"sessions": list(documents), "skipped": self.skipped})
        elif paged and console is None:
            terminal.page(lines)
        else:
            terminal.print_lines(lines, console)

    @property
    def gateway_store(self) -> str:
        """Store in which sessions that a gateway recorded are looked up."""
        return self.store or find_store()

    @cached_property
    def targets(self) -> Sequence["Target"]:
        """The selected sessions, each once. Raises `FormatError`."""
        if not self.paths:
            chosen = choose_on_machine(self.project, self.gateway_store, last=self.last)
            return list(map(_target_of, chosen))
        targets = dict[tuple[str, str], Target]()
        for target in (target for path in self.paths for target in self._targets_in(path)):
            targets.setdefault(target.key, target)
        return list(targets.values())

    def _targets_in(self, path: str) -> Sequence["Target"]:
        if _may_be_id(path):
            if self.id:
                raise click.UsageError(
                    f"{path} is no file: --session names one of a file's sessions"
                )
            session = find_on_machine(path, self.gateway_store)
            return [_target_of(session)._replace(typed=path)]
        if not Path(path).is_dir():
            return [Target(path, self.id)]
        files = list_session_files(Path(path), lambda error: self._skip(str(error.filename), error))
        return [
            Target(file, self.id)
            for file in files
            if not self.store or not _is_same_file(self.store, file)
        ]

    def _skip(self, path: str, error: Exception) -> None:
        name = Path(path).name
        text = self._explain(error)
        is_sentence = text.startswith(f"{name} ")  # its subject is the file
        why = text.removeprefix(f"{name} " if is_sentence else f"{name}: ")
        self.skipped.append({"path": path, "reason": why})
        terminal.warn(f"{path} {why}; skipped" if is_sentence else f"{path}: {why}; skipped")

    def _explain(self, error: Exception, client: str = "") -> str:
        """Return why a file cannot be read, with the formats tried only if *why* is set."""
        text, tried, _ = error_text(error).partition(" Tried: ")
        if tried and client:
            text += f" A newer version of {NAMES.get(client, client)} may have written it."
        return (
            f"{text} (--why says what was tried)" if tried and not self.why else error_text(error)
        )

    def _read(self, path: str | Path, id: str) -> Iterator[tuple[Session, bytes | None]]:
        """Yield a file's sessions, each with the file's content if that may itself be a request."""
        if path == "-":
            data = terminal.stdin().read()
            session = session_files.read_bytes(data, "-", id)
            yield session, data if _is_request(session) else None
        elif self.every:
            yield from ((session, None) for session in session_files.read_all(path))
        else:
            session = session_files.read(path, id)
            yield session, session.path.read_bytes() if _is_request(session) else None

    def _open_store(self) -> Store | None:
        if self.store is None:
            return None
        file = file_path(self.store)
        if self.use == "try" and file is not None and not file.exists():
            return MemoryStore()
        if self.use == "change":
            require_file(self.store)
        return open_store(self.store, read_only=self.use in ("read", "try"))


class Target(NamedTuple):
    """A session file selected on the command line."""

    path: str | Path
    id: str = ""
    """Id of the session in a file with several."""
    client: str = ""
    """Client, if known."""
    typed: str = ""
    """Name typed on the command line; empty if it is the file."""

    @property
    def key(self) -> tuple[str, str]:
        """File and id, the same however the file is named."""
        return os.path.realpath(self.path), self.id


def _target_of(session: FoundSession) -> Target:
    return Target(session.path, session.id, session.client, session.id)


def _may_be_id(path: str) -> bool:
    """Return whether an argument is a word and no file, so it may be a session id."""
    return not Path(path).exists() and re.fullmatch(r"[\w-]{2,}", path, re.ASCII) is not None


def _is_same_file(path: str, file: str | Path) -> bool:
    return Path(path).exists() and Path(file).exists() and Path(path).samefile(file)


def _is_request(session: Session) -> bool:
    """Return whether the whole file is one request, whose bytes must be preserved."""
    return session.client == "plain" and not session.id and not session.is_respelled


def warn_of_problems(store: Store, place: str | Path | None) -> None:
    """Warn of the unreadable parts of the store at *place*. Raises `StoreError`."""
    name = terminal.short_path(place or "")
    terminal.warn_all(f"{name}: {problem}" for problem in list_problems(store))


def error_text(error: BaseException) -> str:
    """Return the message of an error, without its number."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__


def list_session_files(directory: Path, on_error: OnError) -> list[Path]:
    """Return the possible session files below *directory*, sorted by name.

    *on_error* is called with the errors of unreadable directories.
    """
    paths = files_below(directory, "**/*", on_error)
    return sorted(path for path in paths if path.name.endswith(SUFFIXES))
