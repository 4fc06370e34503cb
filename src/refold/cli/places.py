"""The user's data directory, and helpers to declare options. It imports nothing slow."""

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

LOCATION_TYPE = click.Path(readable=False)
"""Type of options and arguments that name a file, which shells complete, or another place."""
STORE = "REFOLD_STORE"
"""Environment variable that names the store."""
SESSIONS = "sessions"
"""Folder in the user's data directory where `refold hook pre-compact` keeps sessions."""


def data_directory(
    home: Path, environment: Mapping[str, str] = os.environ, platform: str = sys.platform
) -> Path:
    """Return the user's data directory, by the conventions of *platform* (`sys.platform`)."""
    if platform == "win32":
        return Path(environment.get("LOCALAPPDATA") or home / "AppData/Local") / "refold"
    if platform == "darwin" and not environment.get("XDG_DATA_HOME"):
        return home / "Library/Application Support/refold"
    return Path(environment.get("XDG_DATA_HOME") or home / ".local/share") / "refold"


def user_store(environment: Mapping[str, str] = os.environ) -> str:
    """Return the user's store: that in REFOLD_STORE, or a file in the user's data directory."""
    return environment.get(STORE) or str(data_directory(Path.home(), environment) / "refold.db")


def find_store(environment: Mapping[str, str] = os.environ) -> str:
    """Return a gateway's default store: that in REFOLD_STORE, else that of an earlier gateway in
    this directory, else the user's."""
    here = "refold.db"
    is_used = not environment.get(STORE) and Path(f"{here}.ledger").exists()
    return here if is_used else user_store(environment)


# --- options --------------------------------------------------------------------------------------

Command = Callable[..., int | None]
Option = Callable[[Command], Command]


def option(names: str, metavar: str, help: str, **settings: Any) -> Option:
    """Return an option. *names* may end with the parameter's name."""
    return click.option(*names.split(), metavar=metavar, help=help, **settings)


def flag(names: str, help: str) -> Option:
    """Return an option without a value."""
    return click.option(*names.split(), is_flag=True, help=help)
