"""How many units of an output are still readable: folders of a listing, entries of JSON.

The outputs are made from what every Python installation has: its own sources, their list, a search
in them, their differences, and its documentation as a page. So the figures depend on its
version.
"""

import csv
import difflib
import inspect
import io
import json
import pydoc
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from benchmarks.evidence.names import percent
from benchmarks.table import table
from refold.core.view import View
from refold.messages import Message, Text, ToolCall, ToolResult, user
from refold.strategies import ClipResults, OutlineResults
from refold.testing import proposals
from refold.text.outline import KINDS

SOURCES = Path(inspect.getfile(json)).parents[1]
"""The standard library."""
MODULES = ("argparse", "pathlib", "subprocess", "zipfile")


class Output(NamedTuple):
    """Possible output of a tool, and the strings that represent its units."""

    kind: str
    unit: str
    text: str
    units: tuple[str, ...]
    asked: str = ""
    """What the call mentions besides its name."""


def source(name: str) -> str:
    """Return the source of a module of the standard library."""
    return inspect.getsource(sys.modules.get(name) or __import__(name))


def stat_rows() -> list[dict[str, str | int]]:
    """Return one row for each module of the standard library."""
    return [
        {"id": n, "name": path.stem, "kind": "module", "lines": path.read_bytes().count(b"\n")}
        for n, path in enumerate(sorted(SOURCES.glob("*.py")))
    ]


def make_outputs() -> list[Output]:
    """Return one output of each kind, or one for each module."""
    paths = [
        path.relative_to(SOURCES.parent).as_posix()
        for path in sorted(SOURCES.glob("[a-m]*/*.py"))
        if "-packages" not in str(path)
    ]
    matches = [
        f"{name}.py:{n}:{line}"
        for name in MODULES
        for n, line in enumerate(source(name).split("\n"), 1)
        if "raise " in line
    ]
    changes = [
        line
        for name in MODULES
        for line in (
            f"diff --git a/{name}.py b/{name}.py",
            *difflib.unified_diff(
                source(name).split("\n"),
                source(name).replace("raise ", "return ").split("\n"),
                f"a/{name}.py",
                f"b/{name}.py",
                lineterm="",
            ),
        )
    ]
    rows = stat_rows()
    cells = io.StringIO()
    writer = csv.DictWriter(cells, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    page = pydoc.HTMLDoc().page("subprocess", pydoc.HTMLDoc().docmodule(sys.modules["subprocess"]))
    folders = dict.fromkeys(path.rpartition("/")[0].rpartition("/")[2] for path in paths)
    return [
        Output("listing", "folders", "\n".join(paths), tuple(f"{name}/" for name in folders)),
        Output("listing", "names", "\n".join(paths), tuple(path.rpartition("/")[2] for path in paths)),
        Output("search", "files", "\n".join(matches), tuple(f"{name}.py:" for name in MODULES)),
        Output("search", "matches", "\n".join(matches), tuple(line.partition(":")[2] for line in matches)),
        Output("diff", "files", "\n".join(changes), tuple(f"b/{name}.py" for name in MODULES)),
        Output("json", "entries", json.dumps(rows, indent=2), tuple(f'{row["name"]}"' for row in rows)),
        Output("table", "rows", cells.getvalue(), tuple(f',{row["name"]},' for row in rows)),
        Output("html", "functions, methods", f"<!DOCTYPE html>{page}", tuple({
            f"{name}(": 0 for name in re.findall(r"^ *def ([a-z]\w*)", source("subprocess"), re.MULTILINE) if f">{name}<" in page
        })),
        *(Output("code", "signatures", source(name), tuple(re.findall(r"^(?:class|def) .*$", source(name), re.MULTILINE))) for name in MODULES),
        *(output for name in MODULES for output in list_functions_asked_for(name)),
    ]  # fmt: skip


def list_functions_asked_for(name: str) -> list[Output]:
    """Return a module's source as read by calls that each name one of its functions, which should
    be readable."""
    module = sys.modules.get(name) or __import__(name)
    functions = [
        (each, inspect.getsource(function))
        for each, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == name and "@" not in inspect.getsource(function)
    ]
    return [
        Output("code", "asked for", source(name), (body[:400],), function)
        for function, body in functions
    ]


def share(output: Output, show: Callable[[int], ClipResults | OutlineResults], limit: int) -> int:
    """Return the number of units in what a strategy shows."""
    call = ToolCall("c1", "run", json.dumps({"about": output.asked}))
    result = ToolResult("c1", (Text(output.text),))
    messages = [user("Go."), Message("assistant", (call,)), Message("tool", (result,))]
    shown = proposals(View.of(messages), show(limit)).messages[2].parts[0]
    assert isinstance(shown, ToolResult)
    text = re.sub(r"<[^<>]*+>", "", shown.text) if output.kind == "html" else shown.text
    return sum(unit in text for unit in output.units)


def print_units(limit: int) -> None:
    """Print the share of units that head and tail shows, and that an outline shows."""
    every = tuple(KINDS)
    sums: dict[tuple[str, str], list[int]] = {}
    for output in make_outputs():
        total = sums.setdefault((output.kind, output.unit), [0, 0, 0])
        total[0] += len(output.units)
        total[1] += share(output, ClipResults, limit)
        total[2] += share(output, lambda size: OutlineResults(size, every, size), limit)
    rows = [
        [*labels, f"{units:,}", percent(clipped, units), percent(outlined, units)]
        for labels, (units, clipped, outlined) in sums.items()
    ]
    head = ["output", "units", "in all", "head and tail, %", "outline, %"]
    print(f"\nunits to be read in {limit:,} characters\n\n{table(head, rows)}", flush=True)
