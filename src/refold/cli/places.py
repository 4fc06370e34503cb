"""Where the user's own data of Refold is, and how options are declared. Nothing is imported here
that takes time."""

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

PLACE = click.Path(readable=False)
"""What an option or argument names: a file, which shells complete, or another place."""
STORE = "REFOLD_STORE"
"""The environment variable that names another store."""
SESSIONS = "sessions"
"""The folder in the user's data directory where `refold hook pre-compact` keeps sessions."""


def data_directory(
    home: Path, environment: Mapping[str, str] = os.environ, platform: str = sys.platform
) -> Path:
    """Return where the user's data of Refold is kept, by the rules of the *platform*
    (`sys.platform`)."""
    if platform == "win32":
        return Path(environment.get("LOCALAPPDATA") or home / "AppData/Local") / "refold"
    if platform == "darwin" and not environment.get("XDG_DATA_HOME"):
        return home / "Library/Application Support/refold"
    return Path(environment.get("XDG_DATA_HOME") or home / ".local/share") / "refold"


def user_store(environment: Mapping[str, str] = os.environ) -> str:
    """Return the store that sessions of this user are kept in: what REFOLD_STORE names, else a file
    in the user's data directory."""
    return environment.get(STORE) or str(data_directory(Path.home(), environment) / "refold.db")


def find_store(environment: Mapping[str, str] = os.environ) -> str:
    """Return the store of a gateway that is given none: that of a gateway which was started in this
    directory before, else that of this user."""
    here = "refold.db"
    is_used = not environment.get(STORE) and Path(f"{here}.ledger").exists()
    return here if is_used else user_store(environment)


# --- options --------------------------------------------------------------------------------------

Command = Callable[..., int | None]
Option = Callable[[Command], Command]


def option(names: str, metavar: str, help: str, **settings: Any) -> Option:
    """Return an option: its *names* and perhaps that of its parameter, what its value is called,
    and what it does."""
    return click.option(*names.split(), metavar=metavar, help=help, **settings)


def flag(names: str, help: str) -> Option:
    """Return an option without a value."""
    return click.option(*names.split(), is_flag=True, help=help)
