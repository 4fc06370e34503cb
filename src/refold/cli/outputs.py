"""Where a request goes that a command writes."""

import os
from pathlib import Path
from typing import Any

import click

from refold.cli import screen
from refold.document import dump


def guard_target(target: str | None) -> None:
    """Refuse a file that could not be written, before anything is kept or paid for. Raises `click.UsageError`."""
    if not target or target == "-":
        return
    path = Path(target)
    if path.is_dir():
        raise click.UsageError(f"--output {target}: it is a directory")
    if not path.parent.is_dir():
        raise click.UsageError(f"--output {target}: there is no directory {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise click.UsageError(f"--output {target}: it may not be written")


def one_standard_output(output: str | None, *, as_json: bool) -> None:
    """Refuse two answers on one standard output. Raises `click.UsageError`."""
    if output == "-" and as_json:
        raise click.UsageError("--json and --output - both want standard output")


def write(target: str, payload: Any) -> None:
    """A request as JSON, in the spelling in which it came if it came as text; `-` is standard output."""
    data = payload if isinstance(payload, bytes) else dump(payload).encode()
    if target == "-":
        screen.write(data)
    else:
        Path(target).write_bytes(data)
