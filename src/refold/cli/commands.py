"""The command `refold`: all its commands, and the exit code of a run."""

import os
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import click

from refold.cli import (
    demo,
    gateway_commands,
    json_output,
    read_commands,
    read_output,
    terminal,
    write_commands,
)
from refold.cli.inputs import reason
from refold.cli.options import JSON
from refold.errors import RefoldError
from refold.session_files import discover


def run(arguments: Sequence[str]) -> int:
    """Run a command; return 0 for done, 1 for a failed check, 2 for misuse or unreadable input.

    Errors are one line on standard error.
    """
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
    except (BrokenPipeError, SystemExit):  # rich makes the second of the first
        terminal.discard_output()
        return 141
    except (RefoldError, OSError) as error:
        terminal.warn(reason(error))
    except (RecursionError, MemoryError) as error:
        terminal.warn(f"the input is too deep or too large to work on ({type(error).__name__})")
    return 2


@click.group(
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Commands take session files, directories of them, or - for standard input. "
    "Session files are only ever read.",
)
@click.version_option(version("refold"), prog_name="refold", message="%(prog)s %(version)s")
@JSON
@click.pass_context
def refold(context: click.Context, as_json: bool) -> None:
    """Compact agents' sessions, see what a model would see, and take it back.

    Without a command: the sessions of Claude Code, Codex, Gemini CLI, Qwen Code, pi and OpenCode
    on this machine.
    """
    if context.invoked_subcommand is not None:
        return
    refused = dict[str, str]()

    def note(error: OSError) -> None:
        refused.setdefault(str(error.filename), reason(error))

    sessions = discover(Path.home(), os.environ, note)
    terminal.warn_all(f"{why}; left out" for why in refused.values())
    if as_json:
        skipped = [{"path": path, "reason": why} for path, why in refused.items()]
        documents = list(map(json_output.session_on_disk, sessions))
        terminal.print_json({"found": documents, "skipped": skipped})
    else:
        terminal.print_lines(read_output.show_sessions(sessions))


for command in (
    read_commands.stats,
    write_commands.compact,
    write_commands.accept,
    write_commands.discard,
    write_commands.revert,
    read_commands.history,
    read_commands.view,
    read_commands.unfold,
    read_commands.recall,
    read_commands.check,
    gateway_commands.serve,
    gateway_commands.report,
    demo.demo,
):
    refold.add_command(command)

__all__ = ["refold", "run"]
