"""The task: find a code in each of many long files and write all of them to a file."""

import random
import re
from pathlib import Path

PARTS = 20
LINES = 150
"""Of each file; about 2,200 tokens."""
RESULT = "result.md"
PROMPT = (
    f"In this directory are {PARTS} logs, part-01.log to part-{PARTS:02}.log. Each has one line that tells its code. "
    f"Read them one after the other and write all codes to {RESULT}, one line a part."
)
_WORDS = (
    "cache",
    "lock",
    "queue",
    "worker",
    "shard",
    "index",
    "retry",
    "flush",
    "lease",
    "token",
    "batch",
    "probe",
)
_CODE = re.compile(r"part-(\d\d) code ([0-9a-f]{8})")
_WROTE = re.compile(r"lines in the result: \d+")


def parts() -> tuple[str, ...]:
    """The names of the files."""
    return tuple(f"part-{n:02}.log" for n in range(1, PARTS + 1))


def code(part: str) -> str:
    """What stands in a file."""
    return f"{random.Random(part).getrandbits(32):08x}"


def lay_out(place: Path) -> None:
    """Write the files."""
    for part in parts():
        dice = random.Random(f"lines of {part}")
        lines = [
            f"{n:04} {' '.join(dice.choices(_WORDS, k=8))} {dice.random():.3f}"
            for n in range(LINES)
        ]
        lines[LINES // 2] = f"{part.removesuffix('.log')} code {code(part)}"
        (place / part).write_text("\n".join(lines) + "\n", encoding="utf-8")


def found(said: str) -> dict[str, str]:
    """The codes that stand in a text, by file."""
    return {f"part-{number}.log": told for number, told in _CODE.findall(said)}


def notes(codes: dict[str, str]) -> str:
    """Codes as `found` finds them."""
    return "\n".join(
        f"{part.removesuffix('.log')} code {told}" for part, told in sorted(codes.items())
    )


def writing(codes: dict[str, str]) -> str:
    """The command that writes the result."""
    count = f"grep -c code {RESULT} | sed 's/^/lines in the result: /'"  # Gemini CLI refuses $(...)
    return f"cat > {RESULT} <<'END'\n{notes(codes)}\nEND\n{count}"


def is_written(said: str) -> bool:
    """Does a text tell what that command prints?"""
    return _WROTE.search(said) is not None


def is_done(place: Path) -> bool:
    """Is the result there, and right?"""
    path = place / RESULT
    return path.is_file() and found(path.read_text(encoding="utf-8")) == {
        part: code(part) for part in parts()
    }
