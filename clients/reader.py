"""The model's behaviour for an agent with tools: it reads file after file, notes each code once,
and writes the result."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from clients import task
from clients.model import Asked
from refold.testing.scripted_provider import Call, Reply

STEPS = 120
"""Number of answers after which it gives up."""
INSTRUCTION = 8_000
"""Characters at the end of a request that may contain a client's request for a summary."""
TRIES = 8
"""Reads of one file in a row. The shell of Qwen Code sometimes shows empty output, also without a
gateway."""
ASKS_SUMMARY = re.compile(r"Do NOT call any tools|Create a handoff summary")
"""Summary requests of Claude Code and Kimi Code."""


@dataclass
class Reader:
    """A model that reads the first file whose code is not in its request, and states a code once,
    with the next call. With all codes it writes the result by the names in the request, and again
    if the request asks for a last line. So anything that a compaction loses is read again or
    missing in the result. A file with empty output is read again, up to `TRIES` times. A client's
    own summary gets the codes of its request."""

    read: Callable[[str], Call]
    """Returns a call of the client's tool that reads a file of the working directory."""
    shell: Callable[[str], Call]
    """Returns a call of its tool that runs a command."""
    end: Call | None = None
    """Call that ends its task, if text does not."""
    reads: list[str] = field(default_factory=list)
    reread: int = 0
    seen: set[str] = field(default_factory=set)
    """Files whose codes were in a request."""
    steps: int = 0

    def answer_aside(self, asked: Asked) -> str | None:
        """Return the task and the codes for a title or a summary, which clients request without
        tools, or with all tools at the end of the history."""
        if asked.has_tools and not ASKS_SUMMARY.search(asked.text[-INSTRUCTION:]):
            return None
        notes = (
            task.note(part, code) for part, code in sorted(task.read_codes(asked.text).items())
        )
        return "\n".join(("<summary>", task.PROMPT, *notes, "</summary>"))

    def answer(self, asked: Asked) -> Reply:
        """Take the next step."""
        text = asked.text
        self.steps += 1
        codes, names = task.read_codes(text), task.read_names(text)
        self.seen |= codes.keys()
        lines = [
            task.line(part, names.get(part, "?"), codes[part])
            for part in task.parts()
            if part in codes
        ]
        lines += [task.LAST_LINE] if task.LATE in text else []
        missing = [part for part in task.parts() if part not in codes]
        if task.count_written(text) >= max(len(lines), task.PARTS):
            return self._call("The result is written.", self.end)
        if self.steps > STEPS or self.reads[-TRIES:] == missing[:1] * TRIES:
            return Reply("I give up.")
        latest = self.reads[-1] if self.reads else ""
        words = task.note(latest, codes[latest]) if latest in codes else "I read the logs."
        if not missing:
            return self._call(words, self.shell(task.write_command(lines)))
        self.reads.append(missing[0])
        self.reread += missing[0] in self.seen
        return self._call(words, self.read(missing[0]))

    def _call(self, words: str, call: Call | None) -> Reply:
        if call is None:
            return Reply(words)
        return Reply(words, calls=(Call(call.name, call.arguments, id=f"call_{self.steps:04}"),))
