"""Output on the terminal: colours where they are wanted, and no control characters."""

import io
import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any, BinaryIO, TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from refold.errors import FormatError

PIPE_WIDTH = 100
"""Columns of a table that is not read on a terminal."""
_CONTROL = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"}
_CONTROL |= dict.fromkeys(
    (127, *range(128, 160), *range(8234, 8239), *range(8294, 8298), *range(55296, 57344)), 65533
)

# --- text ------------------------------------------------------------------------------------


def clean(text: str) -> str:
    """Return *text* with control characters made visible: a session holds what tools printed."""
    return text.replace("\r\n", "\n").translate(_CONTROL)


def short(text: str, width: int) -> str:
    """Return the beginning of *text* on one line, at most *width* characters."""
    line = " ".join(clean(text[: 4 * width]).split())
    return line if len(line) <= width else line[: width - 1] + "…"


def tokens(count: float) -> str:
    """Return a number of tokens as people say it: 950, 12.3k, 1.25M."""
    if count < 1_000:
        return f"{count:.0f}"
    if count < 999_950:
        return f"{count / 1_000:.1f}k"
    return f"{count / 1_000_000:.2f}M"


def plural(count: int, noun: str) -> str:
    """Return a number of things: `1 edit`, `1,200 edits`."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def bar(part: float, whole: float, width: int = 30) -> str:
    """Return a bar as long as *part*'s share; anything over nothing is at least a sliver."""
    eighths = round(8 * width * part / whole) if whole > 0 else 0
    full, rest = divmod(max(eighths, int(part > 0)), 8)
    return "█" * full + (" ▏▎▍▌▋▊▉"[rest] if rest else "")


# --- streams ---------------------------------------------------------------------------------


def console(stream: TextIO) -> Console:
    """Return a console: colours only on a terminal that has them, none if NO_COLOR is set."""
    terminal = stream.isatty() and os.environ.get("TERM", "") not in {"dumb", "unknown"}
    plain = not terminal or bool(os.environ.get("NO_COLOR"))
    return Console(
        file=stream,
        force_terminal=terminal,
        color_system=None if plain else "auto",
        width=None if stream.isatty() else PIPE_WIDTH,
        highlight=False,
        markup=False,
        emoji=False,
    )


def out() -> Console:
    """Return standard output."""
    return console(sys.stdout)


def err() -> Console:
    """Return standard error, for everything that is not the answer."""
    return console(sys.stderr)


def stdin() -> BinaryIO:
    """Return standard input. Raises `FormatError` if it is closed."""
    if sys.stdin is None:
        raise FormatError("standard input is closed")
    return sys.stdin.buffer


def prepare_streams() -> None:
    """Let output never fail: unknown characters become question marks, closed streams a sink."""
    sys.stdout, sys.stderr = sys.stdout or _open_sink(), sys.stderr or _open_sink()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _open_sink() -> TextIO:
    """Open the null device for as long as the process lives."""
    return os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8", closefd=False)


def discard_output() -> None:
    """Send what Python still flushes at its exit to the null device: nobody reads it any more."""
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, sys.stdout.fileno())
    os.close(sink)


# --- printing --------------------------------------------------------------------------------


def warn(text: str) -> None:
    """Print one line on standard error."""
    sys.stderr.write(f"refold: {short(text, 1_000)}\n")


def warn_all(texts: Iterable[str], most: int = 5) -> None:
    """Print the first few lines on standard error, and how many more there are."""
    lines = list(texts)
    for line in lines[:most]:
        warn(line)
    if len(lines) > most:
        warn(f"... and {len(lines) - most:,} more of this file")


def print_json(document: Any) -> None:
    """Print one JSON document on standard output."""
    text = json.dumps(document, ensure_ascii=False, indent=2)
    try:
        data = text.encode()
    except UnicodeEncodeError:
        data = json.dumps(document, indent=2).encode()
    write(data + b"\n")


def write(data: bytes) -> None:
    """Write bytes to standard output, unchanged."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def print_line(console: Console, text: str, style: str | None = None) -> None:
    """Print one line, however long."""
    console.out(text, style=style, highlight=False)


def print_columns(
    console: Console, names: Sequence[str], rows: Sequence[Sequence[str]], total: Sequence[str] = ()
) -> None:
    """Print *rows* under *names*; a column whose name ends in `>` is flush right.

    Only a terminal breaks lines that are wider than it, so what is copied from it is whole.
    """
    if not rows:
        return
    right = [name.endswith(">") for name in names]
    heads = [name.rstrip(">") for name in names]
    cells = [heads, *rows, *([total] if total else [])]
    widths = [max(cell_len(row[at]) for row in cells) for at in range(len(names) - 1)]
    for at, row in enumerate(cells):
        style = "dim" if at == 0 else "bold" if total and at == len(cells) - 1 else None
        padded = (_pad(*cell) for cell in zip(row, widths, right, strict=False))
        console.out("  ".join((*padded, row[-1])).rstrip(), style=style, highlight=False)


def _pad(text: str, width: int, right: bool) -> str:
    gap = " " * (width - cell_len(text))
    return gap + text if right else text + gap


def grid(*columns: str) -> Table:
    """Return a table without lines: `name` is left, `name>` is right, `name~` may be folded."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column in columns:
        right, folds = column.endswith(">"), column.endswith("~")
        table.add_column(
            column.rstrip(">~"),
            justify="right" if right else "left",
            overflow="fold" if folds else "ellipsis",
            no_wrap=not folds,
        )
    return table
