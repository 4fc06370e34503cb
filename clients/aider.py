"""aider: base URL and key in the environment. It has no tools: the user shows it each log by
`/run`, and it edits."""

import re
from dataclasses import dataclass, field
from pathlib import Path

from clients import task
from clients.client import MODEL_OUTPUT, NOMINAL, Client, Command, write_json
from clients.model import Asked
from refold.testing.scripted_provider import Reply

RULES = "CONVENTIONS.md"
PROMPT = (
    f"I shall show you {task.PARTS} logs, one after the other; each has one line that tells its code. Behind each I "
    f"ask you to add its line to {task.RESULT}, below the lines that are there: the part, its name, the word code and "
    f"the code, with one blank between them. The names are in {RULES}; keep to them, also where two of them sound "
    "alike. Do not write a line for a log that you have not seen, do not change a line that stands there already, and "
    f"do not sort them. Do not edit {RULES}. "
    + " ".join(
        f"If line {n} of a log is cut off, which happens when the disk of the machine was full, leave it as it is."
        for n in range(1, 21)
    )
    + " Say that you are ready."
)
"""The user's first message, about 2,800 characters."""
_ADD = f"Add the line of {{}} to {task.RESULT}, as the conventions say."
_ASKS = re.compile(r"Add the line of (part-\d\d\.log) to ")
_CONTENT = re.compile(rf"{re.escape(task.RESULT)}\n```\w*\n(.*?)```", re.DOTALL)
TURNS = (PROMPT, *(_ADD.format(part) for part in task.parts()))


@dataclass
class Editor:
    """A model that adds a line to the result if its request shows code, name and current result."""

    reads: list[str] = field(default_factory=list)
    reread: int = 0
    """Always 0: the user shows the logs."""

    def answer_aside(self, asked: Asked) -> str | None:
        """Write a commit message."""
        return "docs: add a line to the result" if "# Diffs:" in asked.text else None

    def answer(self, asked: Asked) -> Reply:
        """Take the next step."""
        text = asked.text
        asks, contents = _ASKS.findall(text), _CONTENT.findall(text)
        if not asks:
            return Reply("I am ready.")
        part, codes, names = asks[-1], task.read_codes(text), task.read_names(text)
        self.reads.append(part)
        missing = [
            name
            for name, is_there in (
                ("its code", part in codes),
                ("its name", part in names),
                (task.RESULT, contents),
            )
            if not is_there
        ]
        if missing:
            return Reply(f"I do not see {' and '.join(missing)}.")
        last = "".join(contents[-1].splitlines(keepends=True)[-1:])
        line = task.line(part, names[part], codes[part])
        return Reply(
            f"{task.RESULT}\n```\n<<<<<<< SEARCH\n{last}=======\n{last}{line}\n>>>>>>> REPLACE\n```"
        )


def _configure(home: Path, url: str) -> Command:
    (home / RULES).write_text(task.rules().replace(". Rule", ".\nRule") + "\n", encoding="utf-8")
    limits = {
        "max_input_tokens": NOMINAL,
        "max_output_tokens": MODEL_OUTPUT,
        "litellm_provider": "openai",
    }
    write_json(home / "models.json", {"openai/small": {**limits, "mode": "chat"}})
    lines = [PROMPT]
    for part in task.parts():
        lines += [f"/run cat {part}", _ADD.format(part)]
    who = {"NAME": "Mika", "EMAIL": "mika@example.org"}
    identity = {f"GIT_{role}_{key}": who[key] for role in ("AUTHOR", "COMMITTER") for key in who}
    return Command(
        (
            *("--model", "openai/small", "--edit-format", "diff", "--yes-always", "--no-pretty"),
            *("--model-metadata-file", str(home / "models.json"), "--no-show-model-warnings"),
            *("--no-analytics", "--no-check-update", "--no-show-release-notes", "--no-detect-urls"),
            *("--no-fancy-input", "--no-suggest-shell-commands"),
            *("--max-chat-history-tokens", str(NOMINAL), "--read", str(home / RULES), task.RESULT),
        ),
        {"OPENAI_API_BASE": f"{url}/v1", "OPENAI_API_KEY": "a-key", **identity},
        typed=("\n".join(lines) + "\n",),
    )


CLIENTS = (
    Client(
        name="aider",
        package="aider-chat",
        is_python=True,
        program="aider",
        api="openai_chat",
        model="small",
        configure=_configure,
        make_script=Editor,
        turns=tuple((text,) for text in TURNS),
    ),
)
