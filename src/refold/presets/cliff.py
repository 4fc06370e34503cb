"""CliffCompaction's recipe: messages stay, and tool results only if they are short
(docs/presets/cliff.md)."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from refold.budget.budget import Budget
from refold.compactor.compactor import Compactor
from refold.core.strategy import (
    Asking,
    Ending,
    Steps,
    Strategy,
    Summary,
    full_repr,
)
from refold.core.tool_groups import find_answers, tool_results
from refold.core.view import View
from refold.errors import require_int
from refold.messages import Message, Text, Thinking, ToolCall, user
from refold.speakers import own_words, view_segments
from refold.strategies import Summarize
from refold.text.clip import head
from refold.text.summary_wrapper import summary_in, wrap_summary

TITLE = "The following is a summary of your previous actions (long observations omitted):"
SEPARATOR = "\n\n---\n\n"
THRESHOLD_TOKENS = 200_000
THOUGHT_MAX_CHARS = 300
"""Maximum characters of an assistant text at the harshest step."""


@dataclass(frozen=True)
class CliffConfig:
    """The recipe's settings under its own names. 0 characters means no limit. Raises ValueError for
    a negative figure, and for one of the first two below 1."""

    threshold_tokens: int = THRESHOLD_TOKENS
    """Requests with more tokens are compacted."""
    keep_recent: int = 3
    """Number of newest answers of the model that stay, with everything after them."""
    thought_max_chars: int = 0
    """Maximum characters of an assistant text."""
    cmd_max_chars: int = 150
    """Maximum characters of a tool call's arguments."""
    result_max_chars: int = 500
    """Maximum characters of a tool result. Longer ones are left out."""
    human_max_chars: int = 20_000
    """Maximum characters of a user's text."""
    keep_thinking: bool = True
    """Whether the summary includes the model's thinking."""
    thinking_max_chars: int = 0

    def __post_init__(self) -> None:
        require_int(1, threshold_tokens=self.threshold_tokens, keep_recent=self.keep_recent)
        require_int(
            0,
            thought_max_chars=self.thought_max_chars,
            cmd_max_chars=self.cmd_max_chars,
            result_max_chars=self.result_max_chars,
            human_max_chars=self.human_max_chars,
            thinking_max_chars=self.thinking_max_chars,
        )


@dataclass(frozen=True)
class MechanicalSummary:
    """Summarizer that lists messages and tool calls in their order. It asks no model.

    Parts before the first answer take priority, then the newest that fit.
    """

    config: CliffConfig = CliffConfig()

    def __call__(self, view: View, start: int, stop: int, max_tokens: int) -> Asking[Summary]:
        """Return the parts of `messages[start:stop]` that fit in *max_tokens* tokens, joined."""
        yield from ()
        messages, spoken = view.transcript.messages[start:stop], view_segments(view)[start:stop]
        parts, first = list[str](), -1
        for message, segments in zip(messages, spoken, strict=True):
            if message.role == "assistant":
                first = len(parts) if first < 0 else first
                parts += self._spell_answer(message)
            else:
                parts += _earlier_parts(message)
                words = (own_words(s) for s in segments if s.voice == "person" and s.text)
                parts += (f"user: {_cut(text, self.config.human_max_chars)}" for text in words)
            parts += self._spell_results(message)
        return Summary(_join(view, parts, max(first, 0), max_tokens))

    def _spell_answer(self, message: Message) -> Iterator[str]:
        config, lines = self.config, list[str]()
        for part in message.parts:
            match part:
                case Thinking(text) if text.strip() and config.keep_thinking:
                    lines.append(f"thinking: {_cut(text.strip(), config.thinking_max_chars)}")
                case Text(text) if text.strip():
                    lines.append(f"assistant: {_cut(text.strip(), config.thought_max_chars)}")
                case ToolCall(_, name, arguments):
                    lines.append(f"[{name}] {_cut(arguments, config.cmd_max_chars)}")
        if lines:
            yield "\n".join(lines)

    def _spell_results(self, message: Message) -> Iterator[str]:
        for result in tool_results(message):
            text = result.text.strip()
            if text and len(text) <= self.config.result_max_chars:
                yield f"result: {text}"


def _earlier_parts(message: Message) -> list[str]:
    """Return the parts of a summary in the history; none for any other message."""
    text = (summary_in(message) or "").removeprefix(TITLE).strip()
    return text.split(SEPARATOR) if text else []


def _cut(text: str, size: int) -> str:
    return f"{head(text, size)}..." if 0 < size < len(text) else text


def _join(view: View, parts: list[str], first: int, max_tokens: int) -> str:
    """Join the first *first* parts and the newest that fit; return an empty text if none does."""
    count = view.profile.count
    room = max_tokens - count(wrap_summary(TITLE))
    chosen = list[int]()
    for at in (*range(first), *range(len(parts) - 1, first - 1, -1)):
        room -= count(user(SEPARATOR + parts[at]))
        if room < 0:
            break
        chosen.append(at)
    return f"{TITLE}\n\n{SEPARATOR.join(parts[at] for at in sorted(chosen))}" if chosen else ""


@dataclass(frozen=True, repr=False)
class Cliff:
    """Replaces everything before the newest answers of the model by a `MechanicalSummary`."""

    config: CliffConfig = CliffConfig()
    max_tokens: int = THRESHOLD_TOKENS // 2
    """Maximum tokens of the summary."""

    __repr__ = full_repr

    def __call__(self, view: View) -> Steps:
        """Propose one edit, or none if there are no older answers."""
        messages = view.transcript.messages
        answers = [at for at in find_answers(messages) if at in view.cuts]
        if len(answers) <= self.config.keep_recent:
            return Ending("noop", f"no more than {self.config.keep_recent} answers")
        keep = len(messages) - answers[-self.config.keep_recent]
        summarize = Summarize(keep, self.max_tokens, MechanicalSummary(self.config))
        return (yield from summarize(view))


def cliff(config: CliffConfig = CliffConfig()) -> list[Strategy]:
    """Return the recipe and two harsher steps: one answer stays, then texts are cut and thinking is
    left out too."""
    shorter = replace(config, keep_recent=1)
    size = min(config.thought_max_chars or THOUGHT_MAX_CHARS, THOUGHT_MAX_CHARS)
    shortest = replace(shorter, thought_max_chars=size, keep_thinking=False)
    room = max(1, config.threshold_tokens // 2)
    return [Cliff(each, room) for each in dict.fromkeys((config, shorter, shortest))]


def cliff_compactor(config: CliffConfig = CliffConfig(), **settings: Any) -> Compactor:
    """Return a compactor for whole histories. *settings* are the other ones of `Compactor`."""
    budget = Budget(config.threshold_tokens + 1, config.threshold_tokens)
    return Compactor(cliff(config), budget, **settings)


__all__ = [
    "THRESHOLD_TOKENS",
    "TITLE",
    "Cliff",
    "CliffConfig",
    "MechanicalSummary",
    "cliff",
    "cliff_compactor",
]
