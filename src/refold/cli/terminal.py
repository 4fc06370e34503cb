"""Output on the terminal, with colours if wanted and without control characters."""

import io
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby, islice
from pathlib import Path
from typing import Any, BinaryIO, TextIO, TypeVar

from rich import progress
from rich.cells import cell_len, set_cell_size
from rich.console import Console, RenderableType
from rich.text import Text

from refold.core.view_lines import LineKind, ViewLine
from refold.errors import FormatError

T = TypeVar("T")
Line = Text
"""A line of output with its styles."""
Lines = Iterator[Line]
Row = tuple[str, ...]
"""The cells of a table row."""

STYLES: Mapping[LineKind, str] = {
    "user": "bold green",
    "assistant": "bold cyan",
    "tool": "bold yellow",
    "system": "bold magenta",
    "edit": "bold magenta",
    "note": "dim",
    "call": "yellow",
    "result": "blue",
    "error": "red",
    "thinking": "dim italic",
    "media": "magenta",
    "hunk": "bold cyan",
    "removed": "red",
    "added": "green",
}
PIPE_WIDTH = 100
"""Width of paragraphs if the output is not a terminal."""
_CONTROL = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"}
_CONTROL |= dict.fromkeys(
    (127, *range(128, 160), *range(8234, 8239), *range(8294, 8298), *range(55296, 57344)), 65533
)
_ESCAPED = {code: f"\\u{code:04x}" for code in _CONTROL if code > 126}
"""The same for JSON, which escapes the first 32 itself."""

# --- text ------------------------------------------------------------------------------------


def printable(text: str) -> str:
    """Return *text* with its control characters made visible: tools may print any."""
    return text.replace("\r\n", "\n").translate(_CONTROL)


def shorten(text: str, width: int) -> str:
    """Return the beginning of *text* on one line, at most *width* cells wide."""
    line = " ".join(printable(text[: 4 * width]).split())
    if cell_len(line) <= width:
        return line
    return set_cell_size(line, max(0, width - 1)).rstrip() + "…"


def argument(path: str | Path) -> str:
    """Return a path as typed in a shell: with `~`, or quoted if necessary."""
    typed = short_path(path, 10_000)
    if typed.startswith("~") and re.fullmatch(r"[\w@%+=:,./-]*", typed[1:]):
        return typed
    return shlex.quote(printable(str(path)))  # a shell expands no ~ inside quotes


def short_path(path: str | Path, width: int = 60) -> str:
    """Return a path with `~` for home, cut at its beginning to at most *width* cells."""
    text, home = printable(str(path)), str(Path.home()).rstrip("/\\")
    if text == home or text.startswith((f"{home}/", f"{home}\\")):
        text = "~" + text[len(home) :]
    while cell_len(text) > width:
        text = "…" + text[max(2, len(text) - width) :]
    return text


def style_lines(lines: Iterable[ViewLine]) -> Lines:
    """Return the lines of a view with their styles."""
    return (Line(printable(line.text), STYLES.get(line.kind, "")) for line in lines)


def tokens(count: float) -> str:
    """Return a number of tokens in short form: 950, 12.3k, 1.25M."""
    if count < 1_000:
        return f"{count:.0f}"
    if count < 999_950:
        return f"{count / 1_000:.1f}k"
    return f"{count / 1_000_000:.2f}M"


def dollars(amount: float) -> str:
    """Return an amount of US dollars, with its significant digits."""
    if amount >= 1 or not amount:
        return f"${amount:,.2f}"
    return f"${amount:.4f}" if amount >= 0.001 else f"${amount:.2g}"


def plural(count: int, noun: str) -> str:
    """Return a number with its noun: `1 edit`, `1,200 edits`."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def bar(part: float, whole: float, width: int) -> str:
    """Return a bar of *part*'s share of *whole*, which is *width* cells; a sliver if it is tiny."""
    eighths = round(8 * width * part / whole) if whole > 0 else 0
    full, rest = divmod(max(eighths, int(part > 0)), 8)
    return "█" * full + (" ▏▎▍▌▋▊▉"[rest] if rest else "")


# --- streams ---------------------------------------------------------------------------------


def console(stream: TextIO) -> Console:
    """Return a console. It has colours on a terminal that supports them, unless NO_COLOR is set."""
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
    """Return a console on standard output."""
    return console(sys.stdout)


def width() -> int | None:
    """Return the width of standard output in cells; None if it is no terminal."""
    console = out()
    return console.width if console.is_terminal else None


def err() -> Console:
    """Return a console on standard error, for everything except the answer."""
    return console(sys.stderr)


def stdin() -> BinaryIO:
    """Return standard input. Raises `FormatError` if it is closed."""
    if sys.stdin is None:
        raise FormatError("standard input is closed")
    return sys.stdin.buffer


def prepare_streams() -> None:
    """Prevent output errors: replace unencodable characters by `?`, closed streams by a sink."""
    sys.stdout, sys.stderr = sys.stdout or _open_sink(), sys.stderr or _open_sink()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _open_sink() -> TextIO:
    """Open the null device for the life of the process."""
    return os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8", closefd=False)


def flush_output() -> None:
    """Write what is buffered. If that is impossible, discard it: Python tries again at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(_open_sink().fileno(), sys.stdout.fileno())


# --- printing --------------------------------------------------------------------------------


def warn(text: str) -> None:
    """Print one line on standard error. Failures are ignored: the disk may be full."""
    with suppress(OSError):
        sys.stderr.write(f"refold: {shorten(text, 1_000)}\n")


def warn_all(texts: Iterable[str]) -> None:
    """Print the first five lines on standard error, and the number of further ones."""
    lines = list(texts)
    for line in lines[:5]:
        warn(line)
    if rest := lines[5:]:
        warn(f"... and {len(rest):,} more of this file")


def print_json(document: Any) -> None:
    """Print one JSON document on standard output, safe for a terminal."""
    write(json.dumps(document, ensure_ascii=False, indent=2).translate(_ESCAPED).encode() + b"\n")


def write(data: bytes) -> None:
    """Write bytes to standard output, unchanged."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def print_lines(lines: Iterable[RenderableType], console: Console | None = None) -> None:
    """Print lines on standard output, or on *console*.

    A `Line` is not wrapped here, only by a terminal that is too narrow, so copied text is whole. A
    plain string is a paragraph, which is wrapped.
    """
    console = console or out()
    for is_line, group in groupby(lines, lambda line: isinstance(line, Line)):
        for piece in _join_lines(group) if is_line else group:
            console.print(piece, soft_wrap=is_line)


def _join_lines(lines: Iterator[Any]) -> Lines:
    """Join lines into batches, since each print has a fixed cost."""
    while batch := list(islice(lines, 200)):
        yield Line("\n").join(batch)


def page(lines: Iterable[RenderableType]) -> None:
    """Print lines through $PAGER, like git: only on a terminal, and only if they fill it."""
    console, command = out(), os.environ.get("PAGER", "less").strip()
    if not console.is_terminal or command in ("", "cat"):
        print_lines(lines, console)
        return
    environment = {"LESS": "FRX", **os.environ}
    try:
        pager = subprocess.Popen(  # noqa: S603 - the user chooses the pager
            shlex.split(command), stdin=subprocess.PIPE, encoding="utf-8", env=environment
        )
    except (OSError, ValueError):  # no such program, or a quote is open
        print_lines(lines, console)
        return
    console.file = pager.stdin or sys.stdout
    with suppress(BrokenPipeError, KeyboardInterrupt, SystemExit):  # the user may quit the pager
        print_lines(lines, console)
    while pager.poll() is None:
        with suppress(BrokenPipeError, KeyboardInterrupt):  # Ctrl-C is the pager's: it stays
            pager.communicate()


MIN_COLUMN_WIDTH = 8
"""Minimum width of a text column in cells."""


def table(
    names: Sequence[str],
    rows: Iterable[Row],
    total: Row = (),
    style: str = "",
    width: int | None = None,
) -> Lines:
    """Yield *rows* under *names*, without borders. Columns whose name ends in `>` are
    right-aligned.

    *style* is that of the last column. If there is a *width*, left-aligned columns are cut to fit
    it, the widest first. Numbers are never cut.
    """
    cells = [tuple(name.rstrip(">") for name in names), *rows]
    if len(cells) == 1:
        return
    cells += [total] if total else []
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    if width:
        texts = [at for at, name in enumerate(names) if not name.endswith(">")]
        for _ in range(sum(widths) + 2 * (len(widths) - 1) - width):
            widest = max(texts, key=widths.__getitem__, default=None)
            if widest is None or widths[widest] <= MIN_COLUMN_WIDTH:
                break
            widths[widest] -= 1
        cells = [tuple(map(shorten, row, widths)) for row in cells]
    for at, row in enumerate(cells):
        line = Line(style="dim" if at == 0 else "bold" if total and at == len(cells) - 1 else "")
        for name, cell, room in zip(names[:-1], row, widths, strict=False):
            gap = " " * (room - cell_len(cell))
            line.append(f"{gap}{cell}  " if name.endswith(">") else f"{cell}{gap}  ")
        line.append(row[-1], style if at else "")
        line.rstrip()
        yield line


def track(items: Sequence[T], label: str) -> Iterable[T]:
    """Return *items*, with a progress bar on a terminal if there are several."""
    console = err()
    if len(items) < 2 or not console.is_terminal:
        return items
    return progress.track(items, label, console=console, transient=True)
