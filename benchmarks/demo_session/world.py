"""The tools of the demo's agent, run on the imaginary project.

They really read, search and edit its files, and the tests fail and pass as the files require, so
the session is consistent.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import unified_diff
from typing import Any

from benchmarks.demo_session import project
from benchmarks.demo_session.project import Thing, number, pick

NAIVE, CLOCK = "datetime.now()", "clock.now()"
READ_TIME, PARSE = "datetime.fromisoformat(row", "clock.parse(row"
SEATS = [f"{row}{letter}" for row in range(10, 30) for letter in "ACDF"]


@dataclass(slots=True)
class World:
    """The current state of the project."""

    files: dict[str, str] = field(default_factory=project.files)
    before: dict[str, str] = field(default_factory=project.files)
    things: list[Thing] = field(default_factory=project.things)

    def run(self, tool: str, input: Mapping[str, Any]) -> tuple[str, bool]:
        """Return a tool's result and whether it is an error."""
        tools: dict[str, Callable[..., tuple[str, bool]]] = {
            "Read": self.read, "Grep": self.grep, "Edit": self.edit, "Write": self.write, "Bash": self.bash, "TodoWrite": _todos,
        }  # fmt: skip
        return tools[tool](**input)

    def count(self, path: str, text: str) -> int:
        """Return the number of occurrences of *text* in a file."""
        return self.files[path].count(text)

    def line(self, path: str, text: str) -> int:
        """Return the number of the first line of a file that contains *text*, 0 if none does."""
        lines = self.files[path].split("\n")
        return next((n for n, line in enumerate(lines, 1) if text in line), 0)

    # --- tools --------------------------------------------------------------------------------

    def read(self, file_path: str, offset: int = 1, limit: int = 2000) -> tuple[str, bool]:
        """Return a file with line numbers."""
        if file_path not in self.files:
            return f"File does not exist: {file_path}", True
        lines = self.files[file_path].split("\n")
        return "\n".join(
            f"{n:6}→{line}" for n, line in enumerate(lines, 1) if offset <= n < offset + limit
        ), False

    def grep(self, pattern: str, path: str = "") -> tuple[str, bool]:
        """Return matching lines as `path:line:text`."""
        matches = [
            f"{name}:{n}:{line}"
            for name, text in sorted(self.files.items())
            if name.startswith(path)
            for n, line in enumerate(text.split("\n"), 1)
            if re.search(pattern, line)
        ]
        return "\n".join(matches) or "No matches found", False

    def edit(
        self, file_path: str, old_string: str, new_string: str, replace_all: bool = False
    ) -> tuple[str, bool]:
        """Replace a text and show the place."""
        text = self.files[file_path]
        if old_string not in text:
            return f"String to replace not found in file.\nString: {old_string}", True
        if text.count(old_string) > 1 and not replace_all:
            return (
                f"Found {text.count(old_string)} matches of the string to replace, but replace_all is false.",
                True,
            )
        at = text[: text.index(old_string)].count("\n") + 1
        self.files[file_path] = text.replace(old_string, new_string)
        shown, _ = self.read(file_path, max(1, at - 3), 7 + new_string.count("\n"))
        return (
            f"The file {file_path} has been updated. Here's the result of running `cat -n` on a snippet:\n{shown}",
            False,
        )

    def write(self, file_path: str, content: str) -> tuple[str, bool]:
        """Create a file."""
        self.files[file_path] = content
        return f"File created successfully at: {file_path}", False

    def bash(self, command: str, description: str = "") -> tuple[str, bool]:  # noqa: ARG002 - the agent says why
        """Run a command, if it is one of those that the agent uses."""
        first, _, rest = command.partition(" ")
        if first == "pytest":
            return self.pytest(
                [
                    thing
                    for thing in self.things
                    if thing.tests in rest or ("-x" not in rest and "tests/test_" not in rest)
                ]
            )
        if first == "git":
            return self.git(rest), False
        if first == "grep":
            return _log(), False
        if first == "sqlite3":
            return _list_sold_twice(), False
        if first == "ruff":
            return self.ruff(rest)
        return NO_NETWORK, True

    def git(self, rest: str) -> str:
        """Return `git diff`, of one path or with `--stat`."""
        *_, path = rest.split()
        changed = [
            name
            for name, text in sorted(self.files.items())
            if text != self.before.get(name) and (path in name or "--stat" in rest)
        ]
        diffs = [
            list(
                unified_diff(
                    self.before.get(n, "").split("\n"),
                    self.files[n].split("\n"),
                    f"a/{n}",
                    f"b/{n}",
                    lineterm="",
                )
            )
            for n in changed
        ]
        if "--stat" not in rest:
            return "\n".join(line for diff in diffs for line in diff)
        rows = [_stat(name, diff) for name, diff in zip(changed, diffs, strict=True)]
        return "\n".join([*rows, f" {len(changed)} files changed"])

    def ruff(self, rest: str) -> tuple[str, bool]:
        """Report imports that an edit has made unused."""
        path = rest.rsplit(maxsplit=1)[-1]
        uses = len(re.findall(r"\bdatetime\b", self.files[path]))
        if uses > 2 or "from datetime import datetime, " not in self.files[path]:
            return "All checks passed!", False
        return (
            f"Exit code 1\n{path}:5:22: F401 [*] `datetime.datetime` imported but unused\nFound 1 error.\n[*] 1 fixable with the `--fix` option.",
            True,
        )

    # --- the tests of the project -------------------------------------------------------------

    def pytest(self, chosen: list[Thing]) -> tuple[str, bool]:
        """Run the tests of some things, which fail while their files are inconsistent."""
        failures = {thing.name: list(self._failures(thing)) for thing in chosen}
        head = f"============================= test session starts ==============================\nplatform linux -- Python 3.12.7, pytest-8.3.3, pluggy-1.5.0\nrootdir: /home/mika/src/harbor\nconfigfile: pyproject.toml\nplugins: anyio-4.6.2, cov-5.0.0, xdist-3.6.1\ncollected {sum(self._tests(t) for t in chosen)} items\n"
        out, done = [head], 0
        total = sum(map(self._tests, chosen))
        for thing in chosen:
            done += self._tests(thing)
            bad = len(failures[thing.name])
            out.append(
                f"{thing.tests} {'.' * (self._tests(thing) - bad)}{'F' * bad:<8}".ljust(70)
                + f"[{done * 100 // total:3}%]"
            )
        blocks = [block for shown_failures in failures.values() for block in shown_failures]
        if blocks:
            out += [
                "",
                "=================================== FAILURES ===================================",
                *(text for _, text in blocks),
            ]
            out += [
                "=========================== short test summary info ============================",
                *(name for name, _ in blocks),
            ]
        seconds = f"{0.4 + total * 0.031:.2f}s"
        passed = total - len(blocks)
        end = f"{len(blocks)} failed, {passed} passed" if blocks else f"{passed} passed"
        out.append(f"========================= {end} in {seconds} =========================")
        return ("Exit code 1\n" if blocks else "") + "\n".join(out), bool(blocks)

    def _tests(self, thing: Thing) -> int:
        return self.files[thing.tests].count("\ndef test_")

    def _failures(self, thing: Thing) -> Iterator[tuple[str, str]]:
        service, store, api = (self.files[path] for path in (thing.service, thing.store, thing.api))
        if NAIVE in service:
            yield self._failure(
                thing, "_across_the_clock_change", "service.remaining", self._clock_change(thing), 0
            )
        elif READ_TIME in store:
            for test in ("test_sweep_leaves", "test_too_late"):
                yield self._failure(
                    thing,
                    test,
                    "service.",
                    COMPARE,
                    self.line(thing.service, f".{thing.fields[3]} + GRACE"),
                )
        elif "local(" not in api:
            yield self._failure(thing, "test_json_field_names", 'body["dueAt"] ==', CONTRACT, 0)

    def _clock_change(self, thing: Thing) -> str:
        minutes = int(re.findall(r"minutes=(\d+) - 11", self.files[thing.tests])[0]) - 11
        return f"AssertionError: assert datetime.timedelta(0) == datetime.timedelta(seconds={minutes * 60})\n +  where datetime.timedelta(0) = remaining({thing.name})"

    def _failure(self, thing: Thing, test: str, at: str, error: str, line: int) -> tuple[str, str]:
        """Return a failed test as pytest shows it, and its line in the summary."""
        text = self.files[thing.tests]
        body = next(
            b
            for b in re.findall(r"(?:^@.*\n)*^def test_\w+.*\n(?:    .*\n|\n)*", text, re.MULTILINE)
            if test in b
        ).rstrip()
        name = re.search(r"def (\w+)", body)
        title = name[1] if name else test
        lines = body.split("\n")
        marked = next((n for n, row in enumerate(lines) if at in row and n), len(lines) - 1)
        shown = [f"    {row}" for row in lines[:marked]] + [
            ">   " + lines[marked][0:] if lines[marked].startswith(" ") else lines[marked]
        ]
        where = (
            f"{thing.service}:{line}"
            if line
            else f"{thing.tests}:{text[: text.index(body)].count(chr(10)) + marked + 1}"
        )
        source = self.files[thing.service].split("\n")
        inner = (
            [
                "",
                f"{thing.tests}:{text[: text.index(body)].count(chr(10)) + marked + 1}:",
                "_ " * 40,
                "",
                *(f"    {row}" for row in source[line - 6 : line - 1]),
                f">   {source[line - 1]}",
            ]
            if line
            else []
        )
        message, kind = error, error.partition(":")[0]
        whole = [
            f"{' ' + title + ' ':_^80}",
            "",
            *shown,
            *inner,
            *(f"E   {row}" for row in message.split("\n")),
            "",
            f"{where}: {kind}",
        ]
        return f"FAILED {thing.tests}::{title} - {message.partition(chr(10))[0]}", "\n".join(whole)


COMPARE = "TypeError: can't compare offset-naive and offset-aware datetimes"
CONTRACT = "AssertionError: assert '2026-06-01T10:00:00+00:00' == '2026-06-01T12:00:00'\n  - 2026-06-01T12:00:00\n  + 2026-06-01T10:00:00+00:00"
NO_NETWORK = """Exit code 1
Looking in indexes: http://packages.harbor.internal/simple
WARNING: Retrying (Retry(total=4)) after connection broken by 'NewConnectionError: Failed to establish a new connection: [Errno -2] Name or service not known'
ERROR: Could not find a version that satisfies the requirement freezegun (from versions: none)
ERROR: No matching distribution found for freezegun"""


def _stat(name: str, diff: list[str]) -> str:
    """Return a line of `git diff --stat`."""
    plus = sum(line.startswith("+") for line in diff) - 1
    minus = sum(line.startswith("-") for line in diff) - 1
    return f" {name:<36} | {plus + minus:3} {'+' * plus}{'-' * minus}"


def _todos(todos: list[dict[str, str]]) -> tuple[str, bool]:
    return (
        f"Todos have been modified successfully ({len(todos)} items). Continue to use the todo list to track your progress.",
        False,
    )


def _log() -> str:
    """Return a night of the worker's log, including the hour that happens twice."""
    lines = list[str]()
    for n in range(170):
        minute = (30 + n // 2) % 60
        stamp = f"2026-10-25T02:{minute:02}:{n % 2 * 30 + number(30, 'second', n):02}.{number(1000, 'ms', n):03}"
        lines.append(json.dumps(_log_line(n, stamp)))
    return "\n".join(lines)


def _log_line(n: int, stamp: str) -> dict[str, Any]:
    seat, sailing = pick(SEATS, "seat", n), 88_410 + number(6, "sailing", n)
    kind = pick(
        (
            "hold.place",
            "hold.place",
            "hold.extend",
            "hold.expired",
            "booking.create",
            "payment.capture",
        ),
        "kind",
        n,
    )
    if n in {40, 43, 118}:
        seat, sailing, kind = (
            "14C",
            88_412,
            ("hold.place", "hold.expired")[n % 2] if n < 100 else "booking.create",
        )
    return {
        "ts": stamp, "level": "INFO", "logger": f"harbor.{kind.split('.')[0]}s.service", "event": kind, "sailing": sailing, "seat": seat,
        "actor": 7_000 + number(2_000, "actor", n), "trace": f"{number(2**48, 'trace', n):012x}", "took_ms": number(240, "took", n),
    }  # fmt: skip


def _list_sold_twice() -> str:
    rows = [(88_412, "14C"), (88_412, "15A"), (88_413, "22F"), (88_415, "11D")]
    lines = [
        f"{sailing}|{seat}|2|HB-{number(36**3, sailing, seat):04X},HB-{number(36**3, seat):04X}|2026-10-25 02:{10 + n * 7}"
        for n, (sailing, seat) in enumerate(rows)
    ]
    return "sailing_id|seat|count|references|first_sold\n" + "\n".join(lines)
