"""Does the test that proves a row of docs/seeds.md fail when the row is broken? `make mutants PRESETS=1`.

`row_mutants.toml` says for each row how to break it: in which file, which text, and what to put in its place. Each
mutation is made in a copy of the project, and only the tests that the page names for the row are run there. The run
fails where a mutation survives, where its text stands no longer in its file, and where it breaks more than a test
can tell (an import). Rows can be named, and another table: `python tests/seeds/row_mutants.py S0-14 S2-41 mine.toml`.
"""

import contextlib
import importlib
import os
import re
import shutil
import signal
import sys
import tempfile
import tomllib
import traceback
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
TABLE = Path(__file__).with_suffix(".toml")
SECONDS = 600
"""How long the tests of one mutant may take; one that is stopped is not thereby killed."""
COPIED = ("src", "tests", "docs", "benchmarks", "README.md", "CHANGELOG.md", "pyproject.toml")
LINE = re.compile(r"^\| ((?:[SC]\d|X)-\d+) \| .+ \| (.+?) \|$", re.MULTILINE)
TEST = re.compile(r"`([\w/]+\.py)::(\w+)`")
OPTIONS = ("-x", "-q", "-p", "no:cacheprovider", "--assert=plain")
VERDICTS = {0: "survived", 1: "killed", -signal.SIGALRM: "timed out"}


class Mutation(NamedTuple):
    """One way to break a row."""

    row: str
    file: str
    old: str
    new: str

    def apply(self, tree: Path) -> str:
        """Break the row in *tree*; return the text of the file as it was. Raises ValueError for a text that stands
        there no longer, or more than once."""
        path = tree / self.file
        text = path.read_text("utf-8")
        if text.count(self.old) != 1:
            raise ValueError(
                f"{self.row}: {self.old!r} stands {text.count(self.old)} times in {self.file}"
            )
        rewrite(path, text.replace(self.old, self.new))
        return text


def rewrite(path: Path, text: str) -> None:
    """Write *text* into the file, a second later than it was written last: by that Python knows to read it anew."""
    later = int(path.stat().st_mtime) + 1
    path.write_text(text, "utf-8")
    os.utime(path, (later, later))


def mutations(table: Path = TABLE) -> list[Mutation]:
    """All of them, row by row."""
    rows = tomllib.loads(table.read_text("utf-8"))
    return [Mutation(row, *ways) for row, each in rows.items() for ways in each]


def read_named_tests() -> dict[str, tuple[str, ...]]:
    """The tests that the page names, as pytest wants them."""
    page = (ROOT / "docs" / "seeds.md").read_text("utf-8")
    return {
        row: tuple(f"tests/{file}::{name}" for file, name in TEST.findall(cell))
        for row, cell in LINE.findall(page)
    }


@contextlib.contextmanager
def copy_project() -> Iterator[Path]:
    """A copy of the project."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(
                    ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__")
                )
            else:
                shutil.copy(ROOT / name, tree / name)
        yield tree


def outcome(tree: Path, tests: Sequence[str], seconds: int = 0) -> tuple[int, str]:
    """pytest's exit code for *tests* in *tree*, negative for a signal, and what it wrote. It is stopped after so many
    *seconds*, with 0 never."""
    with tempfile.TemporaryFile("w+") as out:
        if (child := os.fork()) == 0:
            os._exit(_in_child(tree, tests, out.fileno(), seconds))
        _, status = os.waitpid(child, 0)
        out.seek(0)
        return os.waitstatus_to_exitcode(status), out.read()


def _in_child(tree: Path, tests: Sequence[str], out: int, seconds: int) -> int:
    signal.alarm(seconds)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.chdir(tree)
    os.environ |= {"HYPOTHESIS_PROFILE": "mutants", "PYTHONPATH": str(tree / "src")}
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    os.environ.setdefault("REFOLD_SHARED", str(ROOT.parent / "shared"))
    sys.path[:] = [str(tree / "src"), *(path for path in sys.path if Path(path) != ROOT / "tests")]
    try:
        return int(pytest.main([*OPTIONS, *tests]))
    except BaseException:  # noqa: BLE001 - the child must end here, whatever happens
        traceback.print_exc()
        return 99
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def say(text: str) -> None:
    """Write a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def is_killed(mutation: Mutation, tree: Path, tests: Sequence[str]) -> bool:
    """Make *mutation* in *tree*, and take it back: was it killed? What was not is told."""
    try:
        before = mutation.apply(tree)
    except ValueError as error:
        say(str(error))
        return False
    code, written = outcome(tree, tests, SECONDS)
    rewrite(tree / mutation.file, before)
    verdict = VERDICTS.get(code, "broken")
    if verdict != "killed":
        say(f"{mutation.row} {verdict}: {mutation.file}: {mutation.old!r} -> {mutation.new!r}")
    if verdict == "broken":
        say(written)
    return verdict == "killed"


def run(chosen: Sequence[Mutation]) -> int:
    """Make each mutation, telling of each row how many were killed; return how many were not."""
    tests, alive = read_named_tests(), 0
    with copy_project() as tree:
        named = sorted({test for mutation in chosen for test in tests[mutation.row]})
        code, written = outcome(tree, named)
        if code:
            say(f"{written}\n{code}: without any mutation the tests fail")
            return len(chosen)
        for row, each in groupby(chosen, lambda mutation: mutation.row):
            killed = [is_killed(mutation, tree, tests[row]) for mutation in each]
            say(f"{row} {sum(killed)} of {len(killed)}")
            alive += killed.count(False)
    return alive


def main(arguments: Sequence[str]) -> int:
    """The exit code: 0 where each mutation was killed."""
    rows = [name for name in arguments if not name.endswith(".toml")]
    table = next((Path(name) for name in arguments if name.endswith(".toml")), TABLE)
    chosen = [mutation for mutation in mutations(table) if not rows or mutation.row in rows]
    alive = run(chosen)
    say(f"{len(chosen) - alive} of {len(chosen)} mutations killed")
    return int(alive > 0 or not chosen)


if __name__ == "__main__":
    for library in ("hypothesis", "langgraph.graph"):  # once, so that no mutant's tests need to
        importlib.import_module(library)
    sys.exit(main(sys.argv[1:]))
