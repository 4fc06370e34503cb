"""A summary in the user's own editor, as git does it with a commit's message."""

import os
import sys
from pathlib import Path

import click

from refold.cli import terminal as screen
from refold.compactor.preview import Preview
from refold.errors import EditError, RefoldError
from refold.session_files.drafts import amend_summary, draft_path, write_private
from refold.session_files.edited_session import EditedSession


def summaries(made: Preview) -> dict[str, str]:
    """The summaries of a preview that show, by the ids of their edits."""
    shown = {placed.edit.id for placed in made.view.visible_edits}
    return {id: text for id, text in made.summaries().items() if id in shown}


def edited(work: EditedSession, made: Preview, actor: str) -> Preview | None:
    """*made* with its summaries as the user left them, one after another; None once one was left empty.

    An unchanged one stays as it is. Raises `EditError` for a text that is no summary (it stays in its
    file then) and where there is none to edit, `click.ClickException` when the editor fails.
    """
    found = summaries(made)
    if not found:
        raise EditError(f"{work.name}: nothing to edit: no summary is among these edits")
    path = _file(work)
    for id, text in found.items():
        shown = text.encode("utf-8", "backslashreplace").strip()
        said = _ask(path, shown)
        if said and said != shown:
            made = _amended(made, id, said.decode("utf-8", "replace"), actor, path)
        path.unlink(missing_ok=True)
        if not said:
            return None
    return made


def _amended(made: Preview, id: str, text: str, actor: str, path: Path) -> Preview:
    try:
        return amend_summary(made, id, text, actor)
    except RefoldError as error:
        raise EditError(f"{error}; your text is in {path}") from error


def _ask(path: Path, text: bytes) -> bytes:
    write_private(path, text + b"\n")
    click.edit(filename=str(path))
    return path.read_bytes().strip() if path.exists() else b""


def _file(work: EditedSession) -> Path:
    """The file that the editor is given. Raises `click.UsageError` where no editor could be used."""
    path = draft_path(work)
    if path is None:
        raise click.UsageError("a session from standard input has no place for what is edited: name a --store")
    if not (os.environ.get("VISUAL") or os.environ.get("EDITOR") or (sys.stdin and sys.stdin.isatty())):
        raise click.UsageError("--edit needs a terminal, or an editor in $VISUAL or $EDITOR")
    if screen.err().is_terminal:
        screen.complain("opening the summary; leave it empty to keep nothing")
    return path.with_name(path.name + ".md")
