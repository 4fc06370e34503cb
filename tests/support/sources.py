"""The package's source files, each parsed once for all tests of a process."""

import ast
from functools import cache
from pathlib import Path

import refold

SOURCE = Path(refold.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))


@cache
def syntax_trees() -> dict[Path, ast.Module]:
    """Parse all files when the first test asks for them."""
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in FILES}


@cache
def syntax_nodes() -> dict[Path, list[ast.AST]]:
    """List all that stands in each file, in the order of `ast.walk`."""
    return {path: list(ast.walk(tree)) for path, tree in syntax_trees().items()}
