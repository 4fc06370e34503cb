"""What goes to the terminal: colours where they are wanted, and nothing that could command it."""

import io
import json
import os
import sys
from collections.abc import Iterable
from typing import Any, BinaryIO, TextIO

from rich.console import Console

from refold.errors import FormatError

PIPE_WIDTH = 100
"""Columns of a table that is not read on a terminal."""
_CONTROL = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"}
_CONTROL |= dict.fromkeys((127, *range(128, 160), *range(8234, 8239), *range(8294, 8298), *range(55296, 57344)), 65533)


def clean(text: str) -> str:
    """*text* with control characters shown instead of obeyed: a session holds what tools printed."""
    return text.replace("\r\n", "\n").translate(_CONTROL)


def short(text: str, width: int) -> str:
    """The beginning of *text* on one line, at most *width* characters."""
    line = " ".join(clean(text[: 4 * width]).split())
    return line if len(line) <= width else line[: width - 1] + "…"


def console(stream: TextIO) -> Console:
    """Colours only on a terminal that has them, and not where NO_COLOR asks for none."""
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
    """Standard output."""
    return console(sys.stdout)


def err() -> Console:
    """Standard error: what is not the answer."""
    return console(sys.stderr)


def complain(text: str) -> None:
    """One line on standard error."""
    sys.stderr.write(f"refold: {short(text, 1_000)}\n")


def complain_all(texts: Iterable[str], most: int = 5) -> None:
    """The first few, and how many more there are."""
    lines = list(texts)
    for line in lines[:most]:
        complain(line)
    if len(lines) > most:
        complain(f"... and {len(lines) - most:,} more of this file")


def emit(document: Any) -> None:
    """One JSON document on standard output."""
    text = json.dumps(document, ensure_ascii=False, indent=2)
    try:
        data = text.encode()
    except UnicodeEncodeError:
        data = json.dumps(document, indent=2).encode()
    write(data + b"\n")


def write(data: bytes) -> None:
    """Bytes on standard output, as they are."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def tokens(count: float) -> str:
    """A number of tokens as people say it: 950, 12.3k, 1.25M."""
    if count < 1_000:
        return f"{count:.0f}"
    if count < 999_950:
        return f"{count / 1_000:.1f}k"
    return f"{count / 1_000_000:.2f}M"


def many(count: int, what: str) -> str:
    """A number of things: `1 edit`, `1,200 edits`."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def bar(part: float, whole: float, width: int = 30) -> str:
    """A bar whose length is the share of *part*; anything over nothing is at least a sliver."""
    eighths = round(8 * width * part / whole) if whole > 0 else 0
    full, rest = divmod(max(eighths, int(part > 0)), 8)
    return "█" * full + (" ▏▎▍▌▋▊▉"[rest] if rest else "")


def stdin() -> BinaryIO:
    """Standard input. Raises `FormatError` where it is closed."""
    if sys.stdin is None:
        raise FormatError("standard input is closed")
    return sys.stdin.buffer


def prepare() -> None:
    """What the terminal's encoding has no character for becomes a question mark, not an error; what goes to a stream
    that is closed goes nowhere."""
    sys.stdout, sys.stderr = sys.stdout or _nowhere(), sys.stderr or _nowhere()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _nowhere() -> TextIO:
    """A stream for as long as the process lives."""
    return os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8", closefd=False)


def let_go() -> None:
    """Nobody reads our output any more: let Python's own last flush go nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
