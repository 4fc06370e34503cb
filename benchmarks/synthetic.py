"""A synthetic agent session for the speed benchmarks, as plain data that every peer can convert."""

from collections.abc import Iterator
from random import Random
from typing import Any

WORDS = [
    "value",
    "index",
    "parser",
    "token",
    "cache",
    "result",
    "error",
    "request",
    "handler",
    "config",
    "stream",
    "buffer",
    "module",
    "test",
    "path",
    "node",
]


def turns(count: int, seed: int = 7) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield *count* messages as (kind, fields): a request, then rounds of a call, its result and a
    remark."""
    random = Random(seed)
    yield "user", {"text": "Fix the failing tests in src/parser.py and never touch the migrations."}
    for number in range(count - 1):
        kind = ("call", "result", "remark")[number % 3]
        if kind == "call":
            arguments = {"path": f"src/mod{number}.py", "offset": number, "limit": 200}
            yield (
                kind,
                {
                    "id": f"c{number}",
                    "name": "read",
                    "arguments": arguments,
                    "text": _prose(random, 12),
                },
            )
        elif kind == "result":
            yield kind, {"id": f"c{number - 1}", "text": _lines(random, 40)}
        else:
            yield kind, {"text": _prose(random, 40)}


def anthropic(count: int) -> list[dict[str, Any]]:
    """Return the session as Anthropic messages."""
    return [_anthropic(kind, fields) for kind, fields in turns(count)]


def _anthropic(kind: str, f: dict[str, Any]) -> dict[str, Any]:
    if kind == "user":
        return {"role": "user", "content": f["text"]}
    if kind == "call":
        call = {"type": "tool_use", "id": f["id"], "name": f["name"], "input": f["arguments"]}
        return {"role": "assistant", "content": [{"type": "text", "text": f["text"]}, call]}
    if kind == "result":
        block = {"type": "tool_result", "tool_use_id": f["id"], "content": f["text"]}
        return {"role": "user", "content": [block]}
    return {"role": "assistant", "content": [{"type": "text", "text": f["text"]}]}


def _prose(random: Random, words: int) -> str:
    return " ".join(random.choices(WORDS, k=words)) + "."


def _lines(random: Random, lines: int) -> str:
    return "\n".join(
        f"    {random.choice(WORDS)} = self.{random.choice(WORDS)}({random.randrange(999)})"
        for _ in range(lines)
    )
