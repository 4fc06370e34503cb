"""Lines in columns, of which the last may be as long as it is: a path is never cropped or broken."""

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console

GAP = "  "


def columns(console: Console, names: Sequence[str], rows: Sequence[Sequence[str]], total: Sequence[str] = ()) -> None:
    """Print *rows* under *names*; a column whose name ends in `>` is flush right. Only a terminal breaks
    the lines, where they are wider than it; what is copied from it is whole."""
    if not rows:
        return
    right = [name.endswith(">") for name in names]
    heads = [name.rstrip(">") for name in names]
    cells = [heads, *rows, *([total] if total else [])]
    widths = [max(cell_len(row[at]) for row in cells) for at in range(len(names) - 1)]
    for at, row in enumerate(cells):
        style = "dim" if at == 0 else "bold" if total and at == len(cells) - 1 else None
        padded = (_padded(*cell) for cell in zip(row, widths, right, strict=False))
        console.out(GAP.join((*padded, row[-1])).rstrip(), style=style, highlight=False)


def _padded(text: str, width: int, right: bool) -> str:
    gap = " " * (width - cell_len(text))
    return gap + text if right else text + gap
