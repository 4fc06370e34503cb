"""The package's source files, each parsed once for all tests of a process."""

import ast
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import refold

SOURCE = Path(refold.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))


@contextmanager
def pause_collector() -> Iterator[None]:
    """Disable the garbage collector, which took most of the time of parsing."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@cache
@pause_collector()
def syntax_trees() -> dict[Path, ast.Module]:
    """Parse all files on the first call."""
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in FILES}


@cache
def syntax_nodes() -> dict[Path, list[ast.AST]]:
    """Return the syntax nodes of each file, in the order of `ast.walk`."""
    return {path: list(ast.walk(tree)) for path, tree in syntax_trees().items()}
