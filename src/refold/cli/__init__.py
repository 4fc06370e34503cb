"""The command `refold`. Needs the extra `cli` (click and rich)."""

import sys

from refold.errors import install_hint

INTERRUPTED = 130
"""The exit code after Ctrl-C."""

try:
    from refold.cli.commands import run
except KeyboardInterrupt:  # most of a short run is this import
    sys.exit(INTERRUPTED)
except ImportError as missing:
    if missing.name is None or missing.name.partition(".")[0] not in {"click", "rich"}:
        raise
    run = None  # type: ignore[assignment]


def main() -> None:
    """Run the command line, and say how to install what it needs where that is missing."""
    if run is None:
        sys.stderr.write(f"refold: the command line needs click and rich: {install_hint('cli')}\n")
        sys.exit(2)
    try:
        sys.exit(run(sys.argv[1:]))
    except KeyboardInterrupt:  # before the command began, or after it had ended
        sys.exit(INTERRUPTED)


__all__ = ["main"]
