"""The command group `refold`, and the exit code of a run."""

import os
import re
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib.metadata import version
from pathlib import Path

import click
from click.shell_completion import shell_complete
from rich.console import Group
from rich.live import Live

from refold.cli import (
    demo,
    gateway_commands,
    hook,
    json_output,
    read_commands,
    read_output,
    sessions,
    terminal,
    write_commands,
)
from refold.cli.gateway_commands import report as report_command
from refold.cli.inputs import error_text
from refold.cli.mcp_server import mcp as mcp_command
from refold.cli.options import JSON, parse_since
from refold.cli.places import find_store, flag, option
from refold.cli.run import run as run_command
from refold.cli.unroll import unroll as unroll_command
from refold.errors import RefoldError
from refold.session_files import FoundSession
from refold.text.json_values import JsonObject


def run(arguments: Sequence[str]) -> int:
    """Run a command and return its exit code (docs/cli.md): 2 for misuse or unreadable input, 130
    if interrupted, 141 if nobody reads the output. Errors are one line on standard error."""
    terminal.prepare_streams()
    try:
        with refold.make_context("refold", list(arguments)) as context:
            return refold.invoke(context) or 0
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as error:
        terminal.warn(error.format_message())
    except (click.Abort, KeyboardInterrupt):
        return 130
    except (BrokenPipeError, SystemExit):  # rich turns the first into the second
        terminal.flush_output()
        return 141
    except (RefoldError, OSError, ImportError) as error:  # ImportError says which extra is missing
        terminal.flush_output()
        terminal.warn(error_text(error))
    except (RecursionError, MemoryError) as error:
        terminal.warn(f"the input is too deep or too large to work on ({type(error).__name__})")
    return 2


class _Commands(click.Group):
    """The command group. A file or a mistyped name in place of a command gets a hint."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that *args* name. Raises `click.UsageError`."""
        if self.get_command(ctx, args[0]) is None and Path(args[0]).exists():
            name = terminal.argument(args[0])
            raise click.UsageError(
                f"{args[0]} is no command; refold stats {name} shows where its tokens are"
            )
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            like = get_close_matches(args[0], self.commands, 1)
            hint = f" Did you mean {like[0]}?" if like else ""
            raise click.UsageError(f"{error.message}{hint}") from error


@click.group(
    cls=_Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Commands take ids of sessions on this machine, session files, directories of them, or "
    "- for standard input. Session files are never written.",
)
@click.version_option(version("refold"), prog_name="refold", message="%(prog)s %(version)s")
@flag("--all every", "List all sessions, not only the newest 20.")
@option(
    "--since",
    "TIME",
    "List only sessions changed in the last 12h, 2d ...",
    default="",
    callback=parse_since,
)
@click.option(
    "--sort",
    type=click.Choice(list(sessions.ORDERS)),
    default="age",
    show_default=True,
    help="Sort by age (newest first), or by tokens or cost (largest first).",
)
@click.option(
    "--by",
    type=click.Choice(["project"]),
    help="Print one line per project, the most expensive first.",
)
@JSON
@click.pass_context
def refold(
    context: click.Context, every: bool, since: float, sort: str, by: str | None, as_json: bool
) -> None:
    """Compact agent sessions, show what a model would see, and undo it.

    Without a command, list the newest sessions of coding agents on this machine (Claude Code,
    Codex, Copilot CLI, Gemini CLI, Qwen Code, pi, OpenCode, Kilo, Kimi Code, Kimi CLI, Continue),
    with their cost by the provider's own figures.
    """
    if context.invoked_subcommand is not None:
        return
    files, refused = _discover(since)
    is_whole = every or bool(since) or bool(by) or sort != "age"
    if as_json and not is_whole:
        rows = [sessions.SessionEntry(file, title=file.title, is_read=False) for file in files]
    else:
        chosen = files if is_whole else files[: sessions.LISTED_COUNT]
        seconds = None if is_whole else sessions.READ_SECONDS
        rows = list(sessions.read_listed(terminal.track(chosen, "reading"), seconds, find_store()))
    rows.sort(key=sessions.ORDERS[sort])
    width = terminal.width()
    if as_json:
        skipped = [{"path": path, "reason": why} for path, why in refused.items()]
        terminal.print_json({**_documents(rows, by), "skipped": skipped})
    elif by:
        terminal.page(read_output.show_projects(rows, width))
    else:
        terminal.page(read_output.show_listed(rows, len(files), width))


def _documents(rows: Sequence[sessions.SessionEntry], by: str | None) -> JsonObject:
    if by:
        groups = sessions.group_projects(rows)
        return {"projects": [json_output.project(cwd, group) for cwd, group in groups]}
    return {"found": list(map(json_output.session_on_disk, rows))}


@click.command()
def pick() -> int:
    """Choose a session with the arrow keys and inspect it."""
    if not (sys.stdin and sys.stdin.isatty() and terminal.err().is_terminal):
        raise click.UsageError("refold pick needs a terminal; refold lists the sessions")
    files, _ = _discover()
    newest = files[: 5 * sessions.LISTED_COUNT]
    rows = list(sessions.read_listed(newest, sessions.READ_SECONDS, find_store()))
    if not rows:
        terminal.print_lines(read_output.show_listed((), 0, None))
        return 0
    choice = _pick_session(rows)
    if choice is None:
        return 0
    (command, *options), file = choice
    which = ["--session", file.id] if file.id and file.client != sessions.GATEWAY else []
    return run([command, str(file.path), *which, *options])


KEYS = {
    "\r": ("stats",),
    "\n": ("stats",),
    "v": ("view",),
    "d": ("diff",),
    "h": ("history",),
    "p": ("compact", "--preview"),
}
"""Command and options to run with the session, by key."""
MOVES = {
    **dict.fromkeys(("\x1b[B", "\x1bOB", "j"), 1),
    **dict.fromkeys(("\x1b[A", "\x1bOA", "k"), -1),
    "\x1b[6~": 10,
    "\x1b[5~": -10,
    **dict.fromkeys(("\x1b[F", "\x1bOF", "\x1b[4~", "G"), 10**6),
    **dict.fromkeys(("\x1b[H", "\x1bOH", "\x1b[1~", "g"), -(10**6)),
}
"""Rows to move by, for the arrows, page keys, Home and End, as terminals send them."""
_KEY = re.compile(r"\x1b\[[0-9;]*.|\x1bO.|.", re.DOTALL)
HELP = "↑ ↓ move · Enter stats · v view · d diff · h history · p preview · q leave"


def _pick_session(
    rows: Sequence[sessions.SessionEntry],
) -> tuple[tuple[str, ...], FoundSession] | None:
    """Let the user choose a session and a command for it. Return None if they quit."""
    console, at = terminal.err(), 0
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while True:
            live.update(_picture(rows, at, console.width, console.height), refresh=True)
            keys = _KEY.findall(click.getchar())  # a held key arrives several times at once
            for key in keys:
                if key in KEYS:
                    return KEYS[key], rows[at].file
                if key in ("q", "\x1b", "\x03", "\x04"):
                    return None
                at = max(0, min(at + MOVES.get(key, 0), len(rows) - 1))


def _picture(rows: Sequence[sessions.SessionEntry], at: int, width: int, height: int) -> Group:
    heading, *lines = read_output.session_table(rows, width - 2)
    room = max(1, height - 3)
    first = max(0, min(at - room // 2, len(lines) - room))
    shown = [
        terminal.Line.assemble(
            "› " if row == at else "  ", (lines[row].plain, "bold" if row == at else "")
        )
        for row in range(first, min(len(lines), first + room))
    ]
    return Group(
        terminal.Line.assemble("  ", heading),
        *shown,
        terminal.Line(terminal.printable(HELP), "dim"),
    )


@click.command("hook", epilog="The plugin in integrations/claude-code calls this command.")
@click.argument("event", type=click.Choice(list(hook.EVENTS)))
def hook_command(event: str) -> int:
    """Answer a hook of Claude Code, read as JSON from standard input.

    post-tool-use shortens a long tool result, and replaces a repeated one by a reference to the
    first; `refold recall` and `refold unfold` find what it leaves out. pre-compact keeps a copy of
    the session for 90 days. The exit code is 0. If anything is unexpected, nothing is changed.
    """
    return hook.main([event])


def _discover(since: float = 0.0) -> tuple[list[FoundSession], dict[str, str]]:
    """Return the sessions on this machine changed *since* a time (or, if no client has any, those
    that a gateway recorded), and the reasons why places could not be read."""
    refused = dict[str, str]()

    def note(error: OSError) -> None:
        refused.setdefault(str(error.filename), error_text(error))

    files = sessions.list_files(note)
    if not files:
        try:
            files = sessions.list_readable(find_store())
        except RefoldError as error:
            refused[find_store()] = error_text(error)
    files = [file for file in files if file.modified.timestamp() >= since]
    terminal.warn_all(f"{why}; left out" for why in refused.values())
    return files, refused


for command in (
    pick,
    read_commands.stats,
    write_commands.compact,
    write_commands.accept,
    write_commands.discard,
    write_commands.revert,
    read_commands.history,
    read_commands.view,
    read_commands.diff,
    read_commands.unfold,
    read_commands.recall,
    read_commands.check,
    gateway_commands.serve,
    gateway_commands.prune,
    report_command,
    write_commands.export,
    hook_command,
    unroll_command,
    mcp_command,
    run_command,
    demo.demo,
):
    refold.add_command(command)


COMPLETE = "_REFOLD_COMPLETE"
"""Environment variable with which a shell asks for completion."""


def main(arguments: Sequence[str]) -> int:
    """Run a command, or complete a command line if a shell asks for it."""
    if instruction := os.environ.get(COMPLETE):
        return shell_complete(refold, {}, "refold", COMPLETE, instruction)
    return run(arguments)


__all__ = ["main", "refold", "run"]
