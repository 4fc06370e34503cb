"""The command `refold`. Needs the extra `cli` (click and rich)."""

import sys

try:
    from refold.cli.commands import run
except ImportError as missing:
    if missing.name is None or missing.name.partition(".")[0] not in {"click", "rich"}:
        raise
    run = None  # type: ignore[assignment]


def main() -> None:
    """Run the command line, and say how to install what it needs where that is missing."""
    if run is None:
        sys.stderr.write("refold: the command line needs click and rich: pip install 'refold[cli]'\n")
        sys.exit(2)
    sys.exit(run(sys.argv[1:]))


__all__ = ["main"]
