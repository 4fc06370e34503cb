"""Drafts: compactions of sessions that are made now and kept later, without asking a model again.

Drafts are in a file beside the edits (`session.jsonl.refold-draft`), a line for each session, so
that they outlive the process and no store loads them as edits. A draft is found by the
conversation's content, as edits are.
"""

import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

import click

from refold.cli import terminal
from refold.compactor.by_hand import Preview
from refold.edits import Attempt, Edit
from refold.errors import EditError, RefoldError, StoreError
from refold.session_files.edited import EditedSession
from refold.stores.edit_json import FORMAT, dump, edit_fields, load, read_edit

SUFFIX = ".refold-draft"
"""Not `.jsonl`: agents take every `*.jsonl` in their folders for a session."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A compaction of one session that is not accepted yet."""

    tip: str
    """The transcript's tip when it was made."""
    session: tuple[str, str]
    """Absolute path and id of the session."""
    base: tuple[str, ...]
    """Ids of the session's edits at that time."""
    edits: tuple[Edit, ...]
    """The new edits, in order."""
    attempts: tuple[Attempt, ...] = ()
    """How each strategy's run ended."""


def draft_path(edited: EditedSession) -> Path | None:
    """Return the file of drafts, `FILE.refold-draft` beside the edits, if those have a file."""
    return edited.place and edited.place.with_name(
        edited.place.name.removesuffix(".refold") + SUFFIX
    )


def find_draft(edited: EditedSession) -> tuple[Preview, int] | None:
    """Return the draft of a session as a preview of it as it is now, and how many messages were
    said since; they stay as they are.

    Of a moved or copied file it is the latest draft that it continues. Raises `EditError` for a
    draft of this session whose history or edits have changed since, `StoreError`.
    """
    draft, transcript = _find_match(edited, read_drafts(draft_path(edited))), edited.view.transcript
    if draft is None:
        return None
    if draft.tip not in transcript.tips:
        raise EditError(
            f"the history in {edited.name} has changed since the preview; preview it again"
        )
    if {edit.id for edit in edited.view.edits} != set(draft.base):
        raise EditError(
            f"the edits of {edited.name} have changed since the preview; preview it again"
        )
    view = replace(edited.view.apply(*draft.edits), attempts=draft.attempts)
    grown = len(transcript) - transcript.tips.index(draft.tip)
    return Preview(edited.view, view, draft.edits), grown


def find_drafts(sessions: Sequence[EditedSession]) -> list[tuple[EditedSession, Preview, int]]:
    """Return the sessions that have a draft, with it, and how many messages were said since.

    Raises `EditError` if there is none, or one that does not fit any more.
    """
    ready = [(edited, *draft) for edited in sessions if (draft := find_draft(edited))]
    if not ready:
        name = sessions[0].name
        raise EditError(f"there is no draft of {name}: refold compact {name} --preview makes one")
    return ready


def write_draft(edited: EditedSession, preview: Preview) -> Path:
    """Write a preview as the session's draft, in place of an earlier one. Raises `StoreError`."""
    path = draft_path(edited)
    if path is None:
        raise StoreError(f"{edited.name}: there is no place for a draft; name a store")
    tip, base = edited.view.transcript.tips[-1], tuple(edit.id for edit in edited.view.edits)
    draft = Draft(tip, _session_key(edited), base, preview.edits, preview.attempts)
    rest = [
        entry
        for entry in read_drafts(path)
        if entry.session != draft.session and entry.tip != draft.tip
    ]
    _write(path, [*rest, draft])
    return path


def delete_draft(edited: EditedSession) -> bool:
    """Delete the draft of a session, even an outdated one; return if it existed.

    Raises `StoreError`.
    """
    path = draft_path(edited)
    drafts = read_drafts(path)
    gone = _find_match(edited, drafts)
    if path and gone:
        _write(path, [draft for draft in drafts if draft != gone])
    return gone is not None


def _find_match(edited: EditedSession, drafts: Sequence[Draft]) -> Draft | None:
    session, tips = _session_key(edited), set(edited.view.transcript.tips)
    own = [draft for draft in drafts if draft.session == session]
    matches = own or [draft for draft in drafts if draft.tip in tips]
    return matches[-1] if matches else None


def _session_key(edited: EditedSession) -> tuple[str, str]:
    """Return what identifies a session; one from standard input is known by its content alone."""
    if edited.session.path == Path("-"):
        return "-", edited.view.transcript.tips[-1]
    return str(edited.session.path.resolve()), edited.session.id


# --- the file --------------------------------------------------------------------------------


def read_drafts(path: Path | None) -> list[Draft]:
    """Return the drafts in a file, if there is one, the latest last. Raises `StoreError`."""
    try:
        lines = path.read_bytes().splitlines() if path else []
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(f"{path}: cannot read: {error.strerror or error}") from error
    try:
        return [_read_draft(line) for line in lines]
    except (StoreError, KeyError, TypeError, ValueError) as error:
        raise StoreError(f"{path}: not a Refold draft, or a damaged one: {error}") from error


def _read_draft(line: bytes) -> Draft:
    value = load(line)["draft"]
    path, id = value["session"]
    names = {field.name for field in fields(Attempt)}
    return Draft(
        tip=str(value["tip"]),
        session=(path, id),
        base=tuple(value["base"]),
        edits=tuple(read_edit(edit) for edit in value["edits"]),
        attempts=tuple(
            Attempt(**{k: v for k, v in attempt.items() if k in names})
            for attempt in value["attempts"]
        ),
    )


def _dump_draft(draft: Draft) -> bytes:
    value = {**asdict(draft), "edits": [edit_fields(edit) for edit in draft.edits]}
    return dump({"refold": FORMAT, "draft": value}).encode() + b"\n"


def _write(path: Path, drafts: Sequence[Draft]) -> None:
    """Replace the file by these drafts, whole or not at all; without drafts, delete it."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        if not drafts:
            path.unlink(missing_ok=True)
            return
        write_private(beside, b"".join(map(_dump_draft, drafts)))
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise StoreError(f"{path}: cannot write: {error.strerror or error}") from error


def write_private(path: Path, data: bytes) -> None:
    """Write a file that nobody else may read, since sessions are private. Raises `OSError`."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


# --- the user's editor -----------------------------------------------------------------------


def summaries(preview: Preview) -> dict[str, str]:
    """Return the summaries of a preview that show, by the ids of their edits."""
    shown = {placed.edit.id for placed in preview.view.visible_edits}
    return {id: text for id, text in preview.summaries().items() if id in shown}


def edit_summaries(edited: EditedSession, preview: Preview, actor: str) -> Preview | None:
    """Open the summaries in the user's editor, one after another; None once one is left empty.

    An unchanged one stays as it is. Raises `EditError` for a text that is no summary (it stays in
    its file then) and if there is none to edit, `click.ClickException` if the editor fails.
    """
    texts = summaries(preview)
    if not texts:
        raise EditError(f"{edited.name}: nothing to edit: no summary is among these edits")
    path = _editor_file(edited)
    for id, text in texts.items():
        before = text.encode("utf-8", "backslashreplace").strip()
        after = _open_editor(path, before)
        if after and after != before:
            try:
                preview = amend_summary(preview, id, after.decode("utf-8", "replace"), actor)
            except RefoldError as error:
                raise EditError(f"{error}; your text is in {path}") from error
        path.unlink(missing_ok=True)
        if not after:
            return None
    return preview


def amend_summary(preview: Preview, id: str, text: str, actor: str) -> Preview:
    """Return *preview* with another text in a summary, noted in its attempt. Raises `EditError`."""
    amended, edit = preview.amend(id, text), preview.view.find(id)
    attempts = tuple(
        _with_amendment(attempt, actor) if attempt.by == edit.by else attempt
        for attempt in preview.attempts
    )
    return replace(amended, view=replace(amended.view, attempts=attempts))


def _with_amendment(attempt: Attempt, actor: str) -> Attempt:
    return replace(attempt, reason="; ".join(filter(None, (attempt.reason, f"amended by {actor}"))))


def _open_editor(path: Path, text: bytes) -> bytes:
    write_private(path, text + b"\n")
    click.edit(filename=str(path))
    return path.read_bytes().strip() if path.exists() else b""


def _editor_file(edited: EditedSession) -> Path:
    """Return the file for the editor. Raises `click.UsageError` if no editor could be used."""
    path = draft_path(edited)
    if path is None:
        raise click.UsageError(
            "a session from standard input has no place for what is edited: name a --store"
        )
    has_editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not (has_editor or (sys.stdin and sys.stdin.isatty())):
        raise click.UsageError("--edit needs a terminal, or an editor in $VISUAL or $EDITOR")
    if terminal.err().is_terminal:
        terminal.warn("opening the summary; leave it empty to keep nothing")
    return path.with_name(path.name + ".md")
