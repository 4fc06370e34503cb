"""Reading the names that a command of this repository is given."""

import argparse
from collections.abc import Collection


def read_names(program: str, description: str | None, names: Collection[str]) -> list[str]:
    """Return the names on the command line of `python -m PROGRAM`; none mean all.

    Prints the *description*, the module's docstring, for `--help`, and exits with code 2 for an
    unknown name.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m {program}",
        description=description,
        epilog=f"names: {', '.join(names)}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME")
    given: list[str] = parser.parse_args().names
    if unknown := [name for name in given if name not in names]:
        parser.error(f"unknown: {', '.join(unknown)}; the names are {', '.join(names)}")
    return given
