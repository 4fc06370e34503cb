"""Read the code blocks of the documentation, for tests to run."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def code_blocks(page: Path, language: str) -> Iterator[tuple[int, str]]:
    """Read line number and code of each block of *page* in *language*."""
    text = page.read_text(encoding="utf-8")
    for match in _BLOCK.finditer(text):
        if match.group(1) == language:
            yield text.count("\n", 0, match.start()) + 2, match.group(2)
