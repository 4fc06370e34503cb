"""The conversation of every framework: the user's messages, tool results and model answers."""

import base64
import random
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, NamedTuple

from refold import Message, Text, ToolCall, ToolResult
from refold.testing.scripted_provider import Call, Received, Reply
from refold.tokens.model_table import prior_of

WINDOW = 16_000
"""The model's window in tokens, as the server counts them."""
TRIGGER, TARGET = 10_000, 5_000
ANSWERS = 10
"""Number of the model's answers in each turn. The last calls no tool."""
BROKEN = "part-14"
"""Name of the part whose check fails."""
_WORDS = ("bolt", "frame", "gauge", "joint", "lever", "panel", "shaft", "valve", "weld")


class ToolError(Exception):
    """Raised by a tool that fails."""


def _png(size: int) -> bytes:
    """Draw a grey square."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", size, size, 8, 0, 0, 0, 0)
    rows = zlib.compress((b"\0" + b"\x80" * size) * size)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    )


class Turn(NamedTuple):
    """A user message, and how its turn is run."""

    text: str
    image: bytes = b""
    """PNG beside the text."""
    streams: bool = False
    """Whether the model's answers are streamed."""


TURNS = (
    Turn("Read and check the parts one after the other, and tell me which of them is broken."),
    Turn(
        "This is how they are mounted. Go on with the parts that are left.", _png(32), streams=True
    ),
    Turn(
        "Never mind the broken one. Go on to the last part, then say in one sentence what you have."
    ),
)
"""Turns of the conversation. The third runs in another process."""


def read_part(part: str) -> str:
    """Read the log of a part, about 700 tokens."""
    dice = random.Random(part)
    lines = [f"{n:03} {' '.join(dice.choices(_WORDS, k=8))} {dice.random():.4f}" for n in range(36)]
    lines[18] = f"{part} has the code {dice.getrandbits(32):08x}"
    return "\n".join(lines)


def check_part(part: str) -> str:
    """Check a part. Raises `ToolError` for the broken one."""
    if part == BROKEN:
        raise ToolError(f"{part} is broken: no answer from the sensor")
    return f"{part} is whole, weight {random.Random(part).randint(100, 999)} g"


class Answer(NamedTuple):
    """An answer of the model."""

    text: str
    calls: tuple[Call, ...]


def _answers() -> Iterator[Answer]:
    part = 0
    for n in range(len(TURNS) * ANSWERS):
        if n % ANSWERS == ANSWERS - 1:
            yield Answer(
                f"These are the parts of turn {n // ANSWERS + 1}, up to part-{part:02}.", ()
            )
            continue
        calls = []
        for k in range(n % 3 + 1):
            part += k < 2
            name = "read_part" if k < 2 else "check_part"
            calls.append(Call(name, {"part": f"part-{part:02}"}, f"call_{n:02}{k}"))
        yield Answer(f"Step {n + 1}: the next parts." if n % 2 else "", tuple(calls))


SCRIPT = tuple(_answers())


def texts_said() -> list[str]:
    """Return every text of a whole history: the user's, the model's and the tools'."""
    texts = [turn.text for turn in TURNS]
    for answer in SCRIPT:
        texts += [answer.text] if answer.text else []
        texts += [_result(call) for call in answer.calls]
    return texts


def _result(call: Call) -> str:
    part = str(call.arguments["part"])
    if call.name == "read_part":
        return read_part(part)
    return f"{part} is broken" if part == BROKEN else check_part(part)


@dataclass
class Model:
    """The script of a `ScriptedProvider`: answers in order, and refuses requests over its
    window."""

    count: Any
    """Tokenizer: returns the number of tokens of a text."""
    asked: list[Received] = field(default_factory=list)
    """Answered requests, in order."""
    refused: int = 0
    """Number of requests over the window."""
    aside: int = 0
    """Number of requests without tools: the framework's own summaries and titles."""

    def __post_init__(self) -> None:
        self._lock = Lock()

    def __call__(self, received: Received) -> Reply:
        """Answer one request."""
        with self._lock:
            return self._answer(received)

    def _answer(self, received: Received) -> Reply:
        body = received.json
        size = self._size(received)
        if not isinstance(body, dict) or not body.get("tools"):
            self.aside += 1
            return Reply("Nothing to add.", usage=(size, 4, 0))
        if size > WINDOW:
            self.refused += 1
            text = f"This model's maximum context length is {WINDOW} tokens, not {size}."
            return Reply(text, status=400, code="context_length_exceeded")
        if len(self.asked) == len(SCRIPT):
            return Reply("The script is at its end.", status=400)
        answer = SCRIPT[len(self.asked)]
        self.asked.append(received)
        at = len(self.asked)
        reply = Reply(answer.text, calls=answer.calls, usage=(size, 40, 0), id=f"{at:04}")
        if not (answer.calls and _thinks(received)):
            return reply
        signature = base64.b64encode(f"thought {at:04}".encode()).decode()
        return replace(reply, reasoning=f"Which part is next after step {at}?", signature=signature)

    def _size(self, received: Received) -> int:
        """Return the tokens about as the model's provider counts them."""
        body = received.json
        model = (body.get("model") if isinstance(body, dict) else "") or received.path
        return round(self.count(received.body.decode()) * prior_of(str(model)))


def _thinks(received: Received) -> bool:
    """Return whether the request asks for thinking that can be sent again."""
    body = received.json
    if "enerateContent" in received.path:
        return True
    if "reasoning.encrypted_content" in (body.get("include") or ()):
        return True
    return (body.get("thinking") or {}).get("type") in {"enabled", "adaptive"}


# --- the history of the regressions ---------------------------------------------------------------


def neutral_history(steps: int = 12, every: int = 4, lines: int = 36) -> list[Message]:
    """Return *steps* of two parallel calls, with a user message before each *every*-th."""
    messages = list[Message]()
    for n in range(steps):
        if n % every == 0:
            messages.append(Message("user", (Text(f"Please see to the parts from {n} on."),)))
        parts = [f"part-{n:02}a", f"part-{n:02}b"]
        ids = [f"call_{part}" for part in parts]
        calls = [
            ToolCall(i, "read_part", f'{{"part":"{p}"}}') for i, p in zip(ids, parts, strict=True)
        ]
        messages.append(Message("assistant", (Text(f"Step {n}."), *calls)))
        for id, part in zip(ids, parts, strict=True):
            text = "\n".join(read_part(part).splitlines()[:lines])
            messages.append(Message("tool", (ToolResult(id, (Text(text),), name="read_part"),)))
    return messages
