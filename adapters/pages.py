"""The blocks of docs/frameworks.md that run in a framework's environment."""

import re
from collections.abc import Iterator
from pathlib import Path

EACH = "each"
"""Name of the blocks with which the examples of all frameworks begin."""
PAGE = Path(__file__).parents[1] / "docs" / "frameworks.md"
_BLOCK = re.compile(r"^```python ([\w-]+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def code_of(page: Path, name: str) -> str:
    """Return the code for a framework and for all frameworks, on the same lines as in *page*."""
    code = ""
    for line, block_name, block in _blocks(page):
        if block_name in {name, EACH}:
            code += "\n" * (line - 1 - code.count("\n")) + block
    return code


def names_in(page: Path) -> set[str]:
    """Return the frameworks that have blocks in *page*."""
    return {name for _, name, _ in _blocks(page)} - {EACH}


def _blocks(page: Path) -> Iterator[tuple[int, str, str]]:
    text = page.read_text(encoding="utf-8")
    for match in _BLOCK.finditer(text):
        yield text.count("\n", 0, match.start()) + 2, match.group(1), match.group(2)
