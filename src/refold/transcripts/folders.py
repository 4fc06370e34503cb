"""Finding files below a directory, and saying which parts of it may not be looked at."""

import os
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path

Refused = Callable[[OSError], object]
"""Is told of what could not be looked at; the error names it."""


def files_below(root: Path, pattern: str, refused: Refused) -> Iterator[Path]:
    """The files whose path below *root* is as *pattern* says, in no order: `*` for any name, and `**/` at its
    beginning for any directories (without following links into them). What is not there has no files."""
    deep = pattern.startswith("**/")
    first, _, rest = pattern.removeprefix("**/").partition("/")
    for entry in _entries(root, refused):
        if deep and entry.is_dir(follow_symlinks=False):
            yield from files_below(Path(entry.path), pattern, refused)
        if fnmatchcase(entry.name, first):
            yield from _matched(Path(entry.path), rest, refused)


def _matched(path: Path, rest: str, refused: Refused) -> Iterator[Path]:
    try:
        if rest and path.is_dir():
            yield from files_below(path, rest, refused)
        elif not rest and path.is_file():
            yield path
    except OSError as error:
        refused(error)


def _entries(directory: Path, refused: Refused) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as found:
            return list(found)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        refused(error)
        return []
