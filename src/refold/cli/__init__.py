"""The command `refold`. Needs the extra `cli` (click and rich)."""

import gc
import sys
from importlib import import_module

from refold.errors import install_hint

INTERRUPTED = 130
"""The exit code after Ctrl-C."""
QUICK = {"run": "refold.cli.run", "hook": "refold.cli.hook"}
"""Modules of commands that somebody waits for: they load nothing else of this package."""


def main() -> None:
    """Run the command line, and say how to install what it needs where that is missing."""
    first, *rest = sys.argv[1:] or [""]
    name, arguments = (
        (QUICK[first], rest) if first in QUICK else ("refold.cli.commands", sys.argv[1:])
    )
    gc.disable()  # what is imported stays: to look for garbage in it took a tenth of a short command
    try:
        module = import_module(name)
    except KeyboardInterrupt:  # most of a short run is this import
        sys.exit(INTERRUPTED)
    except ImportError as missing:
        if missing.name is None or missing.name.partition(".")[0] not in {"click", "rich"}:
            raise
        sys.stderr.write(f"refold: the command line needs click and rich: {install_hint('cli')}\n")
        sys.exit(2)
    gc.freeze()
    gc.enable()
    try:
        sys.exit(module.main(arguments))
    except KeyboardInterrupt:  # before the command began, or after it had ended
        sys.exit(INTERRUPTED)


__all__ = ["main"]
