"""What a summary calls the current text of files, against real files that the same calls change."""

import shlex
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest

from refold.messages import Message, user
from refold.summarizers.heuristic.current_files import read_files
from refold.summarizers.heuristic.steps import read_steps
from tests.support.examples import examples_at_night
from tests.support.messages import call

ROWS = (
    "def run():",
    "    return 1",
    "\treturn x ",
    "  ",
    "",
    "x = 1",
    "x = 1",
    "价格 = 10",
    "}",
    "x = x",
    "    }",
)
NAMES = ("a.py", "src/a.py", "lib/a.py", "文件.py", "src/价格.md")
MISSING = "<tool_use_error>String to replace not found in file.</tool_use_error>"
STEPS = 14


@dataclass
class Replay:
    """Random calls of an agent, each of which changes the files under *root* as it says."""

    random: Random
    root: Path
    messages: list[Message] = field(default_factory=lambda: [user("Go.")])

    def text(self, name: str) -> str:
        """Return the text of a file; empty if there is none."""
        path = self.root / name
        return path.read_bytes().decode() if path.is_file() else ""

    def put(self, name: str, text: str) -> None:
        """Write a file."""
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_bytes(text.encode())

    def add(self, tool: str, result: str, *, is_error: bool = False, **arguments: Any) -> None:
        """Add a call with its result."""
        self.messages += call(tool, result, is_error=is_error, **arguments)

    def make_text(self, most: int = 8) -> str:
        """Return a text with one kind of line ends, at its end too or not."""
        end = self.random.choice(["\n"] * 6 + ["\r\n"])
        rows = self.random.choices(ROWS, k=self.random.randint(1, most))
        return end.join(rows) + self.random.choice([end, end, ""])

    def make_edit(self, text: str) -> tuple[str, str, bool]:
        """Return an old text, mostly one in *text*, the new one, and whether it holds everywhere."""
        start = self.random.randrange(len(text) + 1)
        stop = start + self.random.randint(1, 30)
        if self.random.random() < 0.6:  # whole lines
            start = text.rfind("\n", 0, start) + 1
            stop = text.find("\n", stop) if "\n" in text[stop:] else len(text)
        old = text[start:stop] or self.random.choice(ROWS)
        new = self.random.choice(["", f"{old}\n", f"{old} ", self.make_text(3)])
        if old.startswith("\n") and not new.startswith("\n"):  # it may join lines behind a blank
            old = old.lstrip("\n") or "x"
        return old, new, self.random.random() < 0.3

    def apply(self, text: str, old: str, new: str, everywhere: bool) -> str | None:
        """Return the edited text; None if the old one is missing, or not unique and has to be."""
        count = text.count(old)
        return text.replace(old, new) if count and (everywhere or count == 1) else None

    def write(self, name: str) -> None:
        text = self.make_text()
        self.put(name, text)
        self.add("Write", "File created successfully.", file_path=name, content=text)

    def read(self, name: str) -> None:
        rows = self.text(name).split("\n")
        start = self.random.choice([1, 1, self.random.randint(1, len(rows))])
        stop = self.random.choice([len(rows), start + 3])
        shown = "\n".join(
            f"{at:6d}\t{row}" for at, row in enumerate(rows, 1) if start <= at <= stop
        )
        if (self.root / name).is_file() and self.text(name):
            self.add("Read", shown, file_path=name, offset=start, limit=stop - start + 1)

    def edit(self, name: str) -> None:
        """Edit as Claude Code and as OpenHands do, once or several times in a call."""
        text, edits = self.text(name), list[dict[str, Any]]()
        after: str | None = text
        for _ in range(self.random.choice([1, 1, 3])):
            old, new, everywhere = self.make_edit(after or text)
            edits.append({"old_string": old, "new_string": new, "replace_all": everywhere})
            after = after and self.apply(after, old, new, everywhere)
        result = MISSING if after is None or not text else "The file has been updated."
        if result != MISSING:
            self.put(name, after or "")
        if len(edits) > 1:
            return self.add(
                "MultiEdit", result, is_error=result == MISSING, file_path=name, edits=edits
            )
        [fields] = edits
        if fields["replace_all"] or self.random.random() < 0.5:
            return self.add("Edit", result, is_error=result == MISSING, file_path=name, **fields)
        words = {"old_str": fields["old_string"], "new_str": fields["new_string"]}
        answer = (
            "No replacement was performed." if result == MISSING else "The file has been edited."
        )
        return self.add("str_replace_editor", answer, command="str_replace", path=name, **words)

    def patch(self, name: str) -> None:
        text = self.text(name)
        rows = text.removesuffix("\n").split("\n")
        if not text.strip() or "\r" in text:
            return
        at = self.random.randrange(len(rows))
        before, behind = rows[max(0, at - 2) : at], rows[at + 1 : at + 3]
        old, new = (
            [*before, rows[at], *behind],
            self.random.choices(ROWS, k=self.random.randint(0, 2)),
        )
        first = next(start for start in range(len(rows)) if rows[start : start + len(old)] == old)
        self.put(
            name, "\n".join([*rows[:first], *before, *new, *behind, *rows[first + len(old) :], ""])
        )
        lines = [f" {row}" for row in before] + [f"-{rows[at]}"] + [f"+{row}" for row in new]
        hunk = "\n".join((*lines, *(f" {row}" for row in behind)))
        body = f"*** Begin Patch\n*** Update File: {name}\n@@\n{hunk}\n*** End Patch"
        self.add("apply_patch", f"Success. Updated the following files:\nM {name}", input=body)

    def run(self, name: str) -> None:
        """Run a command that edits, writes, shows, moves or deletes files."""
        file, target = shlex.quote(name), shlex.quote(self.random.choice(NAMES))
        at = self.random.randint(1, max(1, self.text(name).count("\n")))
        script = self.random.choice(
            ["s/x/z y/", "s/x/价/g", "%ds/x/z/", "%dd", "%di\\  q", "%da q", "%dc\\价"]
        )
        script = script.replace("%d", str(at))
        body = "".join(f"{row}\n" for row in self.make_text().replace("\r", "").split("\n"))
        command = self.random.choice([
            f"sed -i '{script}' {file}", f"sed -i '{script}' {file}", f"cat > {file} <<'EOF'\n{body}EOF",
            f"cat >> {file} <<'EOF'\n{body}EOF", f"cat {file}", f"head -n 3 {file}", f"sed -n '2,4p' {file}",
            f"cat -n {file}", f"mv {file} {target}", f"cp {file} {target}", f"rm {file}", "rm -rf src", "mkdir -p src lib",
        ])  # fmt: skip
        done = subprocess.run(
            ["bash", "-c", command], cwd=self.root, capture_output=True, check=False
        )
        output = (done.stdout + done.stderr).decode().rstrip("\n")
        result = f"Exit code {done.returncode}\n{output}" if done.returncode else output
        self.add("Bash", result, is_error=bool(done.returncode), command=command)

    def list_wrong_lines(self) -> list[tuple[str, str]]:
        """Return the lines that are called current text, and are not in their files in that
        order."""
        wrong = list[tuple[str, str]]()
        for path, file in read_files(read_steps(self.messages)).items():
            rows = iter([row.rstrip() for row in self.text(path).split("\n")])
            lines = [text for _, text in file.lines if text and not file.is_stale]
            wrong += [(path, line) for line in lines if line not in rows]
        return wrong


@pytest.mark.parametrize("seed", range(examples_at_night(10, 1_000)))
def test_every_line_that_is_called_current_text_is_in_its_file(seed: int, tmp_path: Path) -> None:
    """`sed s/x/y/` changed every x of a line, and edits that ended in a blank, or that no known line
    could place, left lines that were gone."""
    replay = Replay(Random(seed), tmp_path)
    actions = (
        replay.write,
        replay.read,
        replay.read,
        replay.edit,
        replay.edit,
        replay.patch,
        replay.run,
        replay.run,
    )
    for _ in range(STEPS):
        replay.random.choice(actions)(replay.random.choice(NAMES))
        assert replay.list_wrong_lines() == []
