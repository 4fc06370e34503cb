"""Options that several commands take."""

import getpass
from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from refold.cli.inputs import Inputs, Use, guard_target
from refold.codecs.detect import CODECS

Command = Callable[..., int | None]

JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
SESSIONS = click.argument("paths", nargs=-1, required=True, metavar="FILE...")
SESSION = click.argument("paths", metavar="FILE")
EDIT = click.option("--edit", is_flag=True, help="Open the summary in $VISUAL or $EDITOR first.")


def user() -> str:
    """Who runs this, as the system knows them."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user id without a name
        return "manual"


ACTOR = click.option("--actor", metavar="NAME", default=user, help="Who wants it, for the ledger. Default: your login.")


def takes_sessions(command: Command) -> Command:
    """Give a command that changes what is kept the options that say which sessions it works on, as an `Inputs`."""
    return _with_sessions(command, "change")


def looks_at_sessions(command: Command) -> Command:
    """Give a command that only looks the same options."""
    return _with_sessions(command, "look")


def _with_sessions(command: Command, use: Use) -> Command:

    @wraps(command)
    def wrapped(
        paths: str | tuple[str, ...],
        store: str | None,
        id: str,
        every: bool,
        format: str | None,
        exact: bool,
        **rest: Any,
    ) -> int | None:
        inputs = Inputs((paths,) if isinstance(paths, str) else paths, store, id, every, format, exact, use)
        inputs.guard(rest.get("output"))
        guard_target(rest.get("output"))
        return command(inputs, **rest)

    for option in (
        click.option(
            "--store",
            metavar="PLACE",
            help="Keep edits here (SQLite; FILE.refold as text; postgresql://...), not beside the session.",
        ),
        click.option(
            "--session", "id", default="", metavar="ID", help="Which session of a file with several; else the latest."
        ),
        click.option("--all", "every", is_flag=True, help="Every session of each file."),
        click.option(
            "--format",
            type=click.Choice([codec.NAME for codec in CODECS]),
            help="The wire format, if its shape misleads.",
        ),
        click.option("--exact", is_flag=True, help="Count with o200k_base instead of estimating (extra `exact`)."),
        JSON,
    ):
        wrapped = option(wrapped)
    return wrapped
