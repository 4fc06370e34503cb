"""Virtual environments for documentation pages: Refold with the extras that a reader has installed
so far."""

import os
import re
import subprocess
import tomllib
import venv
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

import refold
from tests.support.pages import ROOT, read_blocks, texts_by_door

_INSTALL = re.compile(r"pip install '\.\[([\w,-]+)\]'")
_PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def extras_before(text: str, line: int) -> frozenset[str]:
    """Collect the extras of the install commands above *line* of a page's *text*."""
    above = text.splitlines()[: line - 1]
    return frozenset(
        extra for names in _INSTALL.findall("\n".join(above)) for extra in names.split(",")
    )


def code_by_extras(page: Path) -> Iterator[tuple[frozenset[str], str]]:
    """Split *page* into sets of extras and the Python code that must run with only these.

    Each code starts at the top of the page and ends before more extras are named. The last is the
    whole page. Each door of the page is read separately. Lines keep their numbers.
    """
    for text in texts_by_door(page).values():
        yield from _split_by_extras(text)


def _split_by_extras(text: str) -> Iterator[tuple[frozenset[str], str]]:
    code, extras = "", frozenset[str]()
    for line, language, block in read_blocks(text):
        if language != "python":
            continue
        named = extras_before(text, line)
        if code and named != extras:
            yield extras, code
        extras = named
        code += "\n" * (line - 1 - code.count("\n")) + block
    if code:
        yield extras, code


def create_environment(extras: frozenset[str], root: Path) -> Path:
    """Create a virtual environment under *root* with Refold and *extras*, and return its
    interpreter.

    Its packages are links to those that run the tests, so nothing is downloaded.
    """
    home = root / ("_".join(sorted(extras)) or "bare")
    python = home / "bin" / "python"
    if not python.exists():
        venv.create(home, symlinks=True)
        (packages,) = home.glob("lib/python*/site-packages")
        (packages / "refold").symlink_to(Path(refold.__file__).parent)
        for part in _closure(extras):
            _link(part, packages)
    return python


OF_LANGSMITH = "ignore:'asyncio.iscoroutinefunction' is deprecated:DeprecationWarning"
"""A warning of Python 3.14 when LangChain is imported."""


def run_code(python: Path, code: str, page: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run *code* of *page* in *folder*, which has no packages. Warnings are errors."""
    compiled = f"compile(sys.stdin.read(), {str(page)!r}, 'exec')"
    # The process ends soon, and collecting garbage among the imports took a sixth of its time.
    start = f"import gc, sys; gc.disable(); exec({compiled}, {{'__name__': 'docs'}})"
    variables = {
        name: os.environ[name] for name in ("HOME", "LANG", "SYSTEMROOT") if name in os.environ
    }
    variables["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # no price table from the network
    command = [python, "-P", "-W", "error", "-W", OF_LANGSMITH, "-c", start]
    return subprocess.run(
        command,
        input=code,
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )


def _closure(extras: frozenset[str]) -> list[Distribution]:
    """Return the direct and indirect requirements of *extras*."""
    wanted = [
        Requirement(text) for extra in extras for text in _PROJECT["optional-dependencies"][extra]
    ]
    wanted += map(Requirement, _PROJECT["dependencies"])
    parts: dict[str, Distribution] = {}
    asked = set[tuple[str, str]]()
    while wanted:
        requirement = wanted.pop()
        for extra in ("", *requirement.extras):
            if (requirement.name.lower(), extra) not in asked and _holds(requirement, ""):
                asked.add((requirement.name.lower(), extra))
                part = parts.setdefault(requirement.name.lower(), distribution(requirement.name))
                needs = map(Requirement, part.requires or ())
                wanted += [need for need in needs if _holds(need, extra)]
    return list(parts.values())


def _holds(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def _link(part: Distribution, packages: Path) -> None:
    """Link *part* into *packages*: whole packages, and file by file for folders that parts
    share."""
    files = [file for file in part.files or () if ".." not in file.parts]
    whole = {file.parts[0] for file in files if file.parts[1:] == ("__init__.py",)}
    paths = {Path(file.parts[0]) if file.parts[0] in whole else Path(file) for file in files}
    for path in paths:
        link = packages / path
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(part.locate_file(path))
