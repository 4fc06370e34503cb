"""`refold export`: a session file that its client opens and goes on with."""

from datetime import UTC, datetime

import click

from refold.cli import json_output
from refold.cli.edited_session import EditedSession
from refold.cli.inputs import Inputs
from refold.cli.options import SESSION, OfOneSession, session_options
from refold.cli.read_output import argument_of
from refold.cli.terminal import Line
from refold.errors import FormatError
from refold.session_files import FIELDS
from refold.session_files.export import CLIENTS, Exported, export_session


@click.command(cls=OfOneSession, epilog="Example: refold compact ID --to 60k && refold export ID")
@SESSION
@session_options("read")
def export(inputs: Inputs) -> None:
    """Write a session, as its edits show it, to a new file that its client goes on with.

    For sessions of Claude Code, Codex, pi and OpenCode. The file is written where the client looks for its
    sessions, under an id of its own; the original stays as it is.
    """
    edited = inputs.single_session()
    exported = write_exported(edited)
    inputs.print_answer(
        [{**json_output.session(edited), "export": export_as_json(exported)}],
        list(map(Line, export_lines(exported))),
    )


def write_exported(edited: EditedSession) -> Exported:
    """Write what is shown of a session. Raises `FormatError` if its client's form is not written,
    OSError."""
    session, payload = edited.session, edited.view.payload
    if not isinstance(payload, dict):  # a request as it was, of no client
        raise FormatError(f"{edited.name}: a request is no session of a client")
    return export_session(session, payload[FIELDS[session.format]], datetime.now(UTC))


def export_as_json(exported: Exported) -> dict[str, str]:
    """Return what to say of it, as JSON."""
    return {"file": str(exported.path), "new_id": exported.id, "command": exported.command}


def export_lines(exported: Exported) -> list[str]:
    """Return what to say of it."""
    return [f"written to {exported.path}", f"go on with: {exported.command}"]


def suggest_export(edited: EditedSession) -> list[str]:
    """Return how to go on with a session that was compacted; nothing where that is not written."""
    if edited.session.client not in CLIENTS:
        return []
    return [f"refold export {argument_of(edited)}    writes a session that its client goes on with"]
