"""`refold mcp`: serve sessions over the Model Context Protocol. Needs the extra `mcp`."""

from collections.abc import Callable, Iterable
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from refold import __version__
from refold.cli import json_output
from refold.cli.compaction import CompactOptions, compact_session
from refold.cli.inputs import Inputs
from refold.cli.options import ModelOptions, token_count
from refold.cli.read_commands import find_hits
from refold.codecs.json_text import dump
from refold.errors import RefoldError, install_hint
from refold.session_files.edited import (
    EditedSession,
    find_edits,
    with_client_compactions,
)


@click.command(epilog="Example: claude mcp add refold -- refold mcp")
def mcp() -> None:
    """Serve sessions to agents over the Model Context Protocol (MCP).

    The tools are recall, unfold, stats and preview, on standard input and output. Each takes the
    file or id of a session; the default is the latest of the working directory. Nothing is written.
    """
    try:
        make_server = import_module("mcp.server").MCPServer
        failure = import_module("mcp.server.mcpserver.exceptions").ToolError
    except ImportError as error:
        raise click.UsageError(
            f"the server needs the package mcp: {install_hint('mcp')}"
        ) from error
    server = make_server("refold", version=__version__, log_level="CRITICAL")
    for tool in TOOLS:
        server.tool()(_with_reasons(tool, failure))
    server.run("stdio")


def _with_reasons(tool: Callable[..., str], failure: type[Exception]) -> Callable[..., str]:
    """Return *tool* with expected errors (Refold's, click's, `OSError`, `ValueError`) raised as
    tool errors."""

    @wraps(tool)
    def call(*args: Any, **kwargs: Any) -> str:
        try:
            return tool(*args, **kwargs)
        except (RefoldError, OSError, ValueError, click.ClickException) as error:
            raise failure(str(error)) from error

    return call


def recall(query: str, session: str = "", limit: int = 10) -> str:
    """Search what compaction hides in a session: a file or an id, by default the latest of the
    working directory. Return at most *limit* hits, each with the edit that hides it."""
    most = max(1, limit)
    return dump(json_output.hits(*find_hits(_open(session), query, most + 1), most))


def unfold(edit: str, session: str = "") -> str:
    """Return word for word what an edit hides. *edit* is a prefix of its id, or the id of a call
    whose result is hidden. *session* is as in recall."""
    edited = with_client_compactions(_open(session))
    return dump(json_output.unfold(edited, *find_edits(edited.view, [edit])))


def stats(session: str = "") -> str:
    """Return the tokens of a session, unedited and as its edits show it. *session* is as in
    recall."""
    edited = _open(session)
    view = edited.view
    counts = {"unedited": view.tokens_unedited, "sent": view.tokens, "edits": len(view.edits)}
    return dump({**json_output.session(edited), "tokens": counts})


def preview(to: int, session: str = "") -> str:
    """Show what compacting a session to *to* tokens would do. Nothing is kept. *session* is as in
    recall."""
    options = CompactOptions(to=token_count(str(to)), dry_run=True)
    return dump(
        json_output.compaction(compact_session(_open(session), options, ModelOptions(), None))
    )


TOOLS: Iterable[Callable[..., Any]] = (recall, unfold, stats, preview)


def _open(name: str) -> EditedSession:
    """Return a session with its edits. Raises `FormatError` if there is none."""
    if name == "-":
        raise click.UsageError(
            "- is standard input, where the server is asked: name a file or an id"
        )
    if name:
        return Inputs((name,)).single_session()
    return Inputs((), last=True, project=str(Path.cwd())).single_session()
