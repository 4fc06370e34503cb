"""The command `refold`: its commands together, and how a run of it ends."""

import os
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import click

from refold.cli import (
    demo as tour,
)
from refold.cli import (
    json_output as documents,
)
from refold.cli import (
    listings as report,
)
from refold.cli import (
    read_commands as looking,
)
from refold.cli import (
    report as books,
)
from refold.cli import serve as serving
from refold.cli import (
    terminal as screen,
)
from refold.cli import (
    write_commands as changing,
)
from refold.cli.inputs import reason
from refold.cli.options import JSON
from refold.errors import RefoldError
from refold.session_files import discover


def run(arguments: Sequence[str]) -> int:
    """Run a command and say how it ended: 0 done, 1 a check failed, 2 misuse or unreadable input.

    Errors are one line on standard error.
    """
    screen.prepare()
    try:
        with refold.make_context("refold", list(arguments)) as context:
            return refold.invoke(context) or 0
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.ClickException as error:
        screen.complain(error.format_message())
    except (click.Abort, KeyboardInterrupt):
        return 130
    except (BrokenPipeError, SystemExit):  # rich makes the second of the first
        screen.let_go()
        return 141
    except (RefoldError, OSError) as error:
        screen.complain(reason(error))
    except (RecursionError, MemoryError) as error:
        screen.complain(f"the input is too deep or too large to work on ({type(error).__name__})")
    return 2


@click.group(
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Commands take session files, directories of them, or - for standard input. Session files are only ever read.",
)
@click.version_option(version("refold"), prog_name="refold", message="%(prog)s %(version)s")
@JSON
@click.pass_context
def refold(context: click.Context, as_json: bool) -> int | None:
    """Compact agents' sessions, see what a model would see, and take it back.

    Without a command: the sessions of Claude Code, Codex, Gemini CLI, Qwen Code, pi and OpenCode
    on this machine.
    """
    if context.invoked_subcommand is None:
        refused = dict[str, str]()
        found = discover(Path.home(), os.environ, lambda error: refused.setdefault(str(error.filename), reason(error)))
        screen.complain_all(f"{why}; left out" for why in refused.values())
        if as_json:
            skipped = [{"path": path, "reason": why} for path, why in refused.items()]
            screen.emit({"found": [documents.found(one) for one in found], "skipped": skipped})
        else:
            report.found(found)
    return None


@refold.command()
@JSON
@click.option("--turns", type=click.IntRange(min=1), metavar="N", help="Only the first N answers of the model.")
def demo(as_json: bool, turns: int | None) -> int:
    """Compact a long agent session turn by turn, and prove that nothing was lost.

    Needs no key, no network and no model. Exit code 1 if a proof fails.
    """
    done = tour.replay(turns, watch=tour.track_progress)
    if as_json:
        screen.emit(tour.as_json(done))
    else:
        tour.show(done)
    return int(not all(proof.holds for proof in done.proofs))


for command in (
    looking.stats,
    changing.compact,
    changing.accept,
    changing.discard,
    changing.revert,
    looking.history,
    looking.view,
    looking.unfold,
    looking.recall,
    looking.check,
    serving.serve,
    books.report,
):
    refold.add_command(command)

__all__ = ["refold", "run"]
