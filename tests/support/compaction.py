"""Histories of agents in Anthropic's format, and strategies that compact them."""

import random

from refold.core.strategy import Ask, Summary
from refold.strategies import (
    ClearToolResults,
    ClipResults,
    DropDuplicates,
    Summarize,
)


def conversation(rounds: int, size: int = 600) -> list[dict]:
    """Build the messages of an agent: one task, then *rounds* files of about *size* characters."""
    rng = random.Random(rounds)
    messages = [{"role": "user", "content": "Fix the parser. Never touch the migrations."}]
    for n in range(rounds):
        text = " ".join(rng.choices(["alpha", "beta", "gamma", "delta"], k=size // 5))
        call = {
            "type": "tool_use",
            "id": f"t{n}",
            "name": "read",
            "input": {"path": f"src/m{n}.py"},
        }
        messages.append(
            {"role": "assistant", "content": [{"type": "text", "text": f"Reading m{n}."}, call]}
        )
        messages.append(
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": f"t{n}", "content": text}],
            }
        )
    return messages


STRATEGIES = [DropDuplicates(), ClipResults(2_000), ClearToolResults(keep=2), Summarize(keep=4)]


class ModelSummarizer:
    """A summarizer that uses the model's answer as the summary."""

    def __call__(self, view, start, stop, max_tokens):
        answer = yield Ask("Summarise.", max_tokens, prompt_id="short@1#0a")
        return Summary(answer.text if answer else "")

    def __repr__(self) -> str:
        return "ModelSummarizer()"


def thinking_steps(steps: int, words: int = 100) -> list[dict]:
    """Build the messages of an agent that thinks before each call, with results of *words*
    words."""
    messages: list[dict] = [{"role": "user", "content": "Find the bug."}]
    for i in range(steps):
        thinking = {"type": "thinking", "thinking": f"hm {i}", "signature": f"sig{i}"}
        call = {"type": "tool_use", "id": f"c{i}", "name": "read", "input": {"n": i}}
        result = {
            "type": "tool_result",
            "tool_use_id": f"c{i}",
            "content": f"{i} " + "text " * words,
        }
        messages += [
            {"role": "assistant", "content": [thinking, call]},
            {"role": "user", "content": [result]},
        ]
    return messages
