"""The command `refold`. Needs the extra `cli` (click and rich)."""

import gc
import sys
from importlib import import_module

from refold.errors import install_hint

INTERRUPTED = 130
"""Exit code after Ctrl-C."""
QUICK = {"run": "refold.cli.run", "hook": "refold.cli.hook"}
"""Modules of commands whose start must be fast. They load no other command."""


def main() -> None:
    """Run the command line. If click or rich is missing, say how to install it."""
    first, *rest = sys.argv[1:] or [""]
    name, arguments = (
        (QUICK[first], rest) if first in QUICK else ("refold.cli.commands", sys.argv[1:])
    )
    gc.disable()  # imports leave no garbage, and collecting it took a tenth of a short command
    try:
        module = import_module(name)
    except KeyboardInterrupt:  # this import takes most of a short run
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
    except KeyboardInterrupt:  # before the command started or after it ended
        sys.exit(INTERRUPTED)


__all__ = ["main"]
