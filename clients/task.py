"""The task: find the code in each of many long files, and write all of them to a file with the
names that a long prompt gives them."""

import random
import re
from pathlib import Path

PARTS = 20
LINES = 150
"""Lines of each file, about 2,200 tokens."""
RESULT = "result.md"
LATE = f"One thing more: add a last line to {RESULT} that says checked by rowan-9, please."
"""Text that the user types while the agent works, if a client supports that."""
LAST_LINE = "checked by rowan-9"
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
_COLOURS = ("amber", "black", "coral", "green", "ivory", "olive", "pearl", "white")
_BIRDS = ("crane", "eagle", "finch", "heron", "raven", "robin", "stork", "swift")
_CODE = re.compile(r"part-(\d\d)(?: [a-z]+-[a-z]+-\d\d)? code ([0-9a-f]{8})")
_NAME = re.compile(r"part-(\d\d) goes by the name of ([a-z]+-[a-z]+-\d\d)")
_WROTE = re.compile(r"lines in the result: (\d+)")


def parts() -> tuple[str, ...]:
    """Return the names of the files."""
    return tuple(f"part-{n:02}.log" for n in range(1, PARTS + 1))


def code(part: str) -> str:
    """Return the code in a file."""
    return f"{random.Random(part).getrandbits(32):08x}"


def name(part: str) -> str:
    """Return the prompt's name for a file."""
    dice = random.Random(f"name of {part}")
    return f"{dice.choice(_COLOURS)}-{dice.choice(_BIRDS)}-{part[5:7]}"


def rules() -> str:
    """Return the rules of the result, one per file: about 3,000 characters on one line."""
    return " ".join(
        f"Rule {n}: in the result {part.removesuffix('.log')} goes by the name of {name(part)}, since "
        "the people who read it know the machine that wrote this log by no other name."
        for n, part in enumerate(parts(), start=1)
    )


PROMPT = (
    f"In this directory are {PARTS} logs, part-01.log to part-{PARTS:02}.log. Each has one line that tells its code. "
    f"Read them one after the other, whole, and write all codes to {RESULT}: one line a part, in order, each with the "
    "part, its name, the word code and the code, with one blank between them. Change none of the logs, and write "
    f"nothing to {RESULT} before you know all codes. These are the rules for the names. {rules()} "
    "When the result is written, say so in one sentence."
)
"""The user's prompt, about 3,500 characters."""


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


def read_codes(text: str) -> dict[str, str]:
    """Return the codes in a text by file: in a log, a note, or the result."""
    return {f"part-{number}.log": value for number, value in _CODE.findall(text)}


def read_names(text: str) -> dict[str, str]:
    """Return the names that the rules in a text give, by file."""
    return {f"part-{number}.log": value for number, value in _NAME.findall(text)}


def note(part: str, value: str) -> str:
    """Return the code of a part as a note that `read_codes` reads."""
    return f"{part.removesuffix('.log')} code {value}"


def line(part: str, given_name: str, value: str) -> str:
    """Return the result's line for a part."""
    return f"{part.removesuffix('.log')} {given_name} code {value}"


def write_command(lines: list[str]) -> str:
    """Return the command that writes the result and prints its number of lines."""
    count = f"grep -c . {RESULT} | sed 's/^/lines in the result: /'"  # Gemini CLI refuses $(...)
    return f"cat > {RESULT} <<'END'\n" + "\n".join(lines) + f"\nEND\n{count}"


def count_written(text: str) -> int:
    """Return the number of lines of the result from the output of that command, or 0."""
    counts = _WROTE.findall(text)
    return int(counts[-1]) if counts else 0


def is_done(place: Path, *, late: bool = False) -> bool:
    """Return whether the result is right. With *late*, it must have the line requested later."""
    path = place / RESULT
    expected = [line(part, name(part), code(part)) for part in parts()] + [LAST_LINE] * late
    return path.is_file() and path.read_text(encoding="utf-8").splitlines() == expected
