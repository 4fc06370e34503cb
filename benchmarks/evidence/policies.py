"""The compared policies: strategies that compact at W tokens down to W/2, and controls of equal
size."""

import random
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from benchmarks.evidence.needs import text_of
from benchmarks.evidence.sessions import Session
from benchmarks.evidence.visible import counted
from refold.budget.budget import Budget
from refold.compactor.compactor import Compactor
from refold.compactor.settings import default_strategies
from refold.core.strategy import Answer, Ask, Strategy, Summary
from refold.core.view import View
from refold.messages import Message
from refold.presets.in_place import EVERY_ROUND
from refold.presets.prune_compact import Limits, prune
from refold.strategies import ClearToolResults, SummarizeTo
from refold.text.summary_wrapper import wrap_summary
from refold.tokens.count import count_message, estimate

Policy = Callable[[dict[str, Any], Sequence[Message]], Sequence[Message]]
"""Function from a request body and its messages to the messages that are sent. It may keep state
between the calls of a session."""
MakePolicy = Callable[[Session, int], Policy]
"""Factory of a policy for one session at a window in tokens."""


@dataclass
class Sawtooth:
    """The newest messages: at *window* tokens, drop the oldest until half of it is left.

    It cuts where an answer begins, so that no result loses its call.
    """

    window: int
    start: int = 0

    def __call__(self, _: dict[str, Any], messages: Sequence[Message]) -> Sequence[Message]:
        """Return the messages from the current start on, or from a new one."""
        sizes = list(map(counted, messages))
        if sum(sizes[self.start :]) >= self.window:
            rest = list(accumulate(reversed(sizes)))[::-1]
            cuts = [at for at in range(self.start + 1, len(messages)) if is_start(messages, at)]
            fitting = [at for at in cuts if rest[at] <= self.window // 2]
            self.start = (fitting or cuts[-1:] or [self.start])[0]
        return messages[self.start :]


@dataclass
class Sliding:
    """The newest messages of at most *tokens* tokens, chosen anew at every call, so no cache
    survives."""

    tokens: int

    def __call__(self, _: dict[str, Any], messages: Sequence[Message]) -> Sequence[Message]:
        """Return the longest tail that fits."""
        rest = list(accumulate(reversed(list(map(counted, messages)))))[::-1]
        cuts = [at for at in range(len(messages)) if is_start(messages, at)]
        return messages[next((at for at in cuts if rest[at] <= self.tokens), len(messages) - 1) :]


def is_start(messages: Sequence[Message], at: int) -> bool:
    """Return whether a request may begin at this message: it holds no tool results."""
    return not messages[at].results


@dataclass(frozen=True)
class SomeLines:
    """As many of the hidden lines as fit, the newest or a random choice, in their original
    order."""

    order: str

    def __call__(
        self, view: View, start: int, stop: int, max_tokens: int
    ) -> Generator[Ask, Answer | None, Summary]:
        """Choose lines of the original messages until the summary is full."""
        messages = view.transcript.messages[start:stop]
        lines = [
            line[:200]
            for message in messages
            for line in text_of(message).splitlines()
            if line.strip()
        ]
        order = list(range(len(lines)))[::-1]
        if self.order == "random":
            random.Random(stop).shuffle(order)
        room = max_tokens - count_message(wrap_summary(""))
        chosen = list[int]()
        for at in order:
            if (room := room - estimate(lines[at]) - 1) < 0:
                break
            chosen.append(at)
        return Summary("\n".join(lines[at] for at in sorted(chosen)))
        yield  # makes this a generator, as every summarizer


def compacting(
    strategies: Sequence[Strategy], session: Session, window: int, target: int = 0
) -> Policy:
    """Compact by Refold's engine at *window* tokens of messages down to *target*, by default half
    of the window."""
    budget = Budget(session.fixed + window, session.fixed + (target or window // 2))
    compact = Compactor(strategies, budget, count=counted)
    return lambda body, _: compact(body).messages


def down_to(share: float) -> MakePolicy:
    """Return Refold with default strategies, down to a share of the window."""

    def make(session: Session, window: int) -> Policy:
        target = int(share * window)
        return compacting(default_strategies(session.fixed + target), session, window, target)

    return make


def summary_of_lines(order: str) -> MakePolicy:
    """Return a summary of plain lines, before the same tail as a summary of selected lines."""

    def make(session: Session, window: int) -> Policy:
        strategy = SummarizeTo(session.fixed + window // 2, summarizer=SomeLines(order))
        return compacting([strategy], session, window)

    return make


def clear_results(session: Session, window: int) -> Policy:
    """Return a policy that shows stubs for old tool results, the oldest first."""
    return compacting([ClearToolResults(keep=4)], session, window)


def opencode_prune(_: Session, window: int) -> Policy:
    """Return OpenCode's pruning at each call, its limits scaled from 200,000 tokens to *window*."""
    scaled = Limits(prune_protect=window // 5, prune_minimum=window // 10)
    compact = Compactor([prune(scaled)], EVERY_ROUND, count=counted)
    return lambda body, _: compact(body).messages


REFERENCE = "Refold, default strategies"
"""The policy whose number of sent tokens all others match."""
POLICIES: dict[str, MakePolicy] = {
    REFERENCE: down_to(0.5),
    "last N, sawtooth": lambda _, window: Sawtooth(window),
    "last N, sliding": lambda _, window: Sliding(3 * window // 4),
    "random lines in the summary's room": summary_of_lines("random"),
    "newest lines in the summary's room": summary_of_lines("newest"),
    "clear all results but 4": clear_results,
    "OpenCode's prune": opencode_prune,
}
DEPTHS: dict[str, MakePolicy] = {
    f"Refold, down to {share} of the window": down_to(share) for share in (0.4, 0.3, 0.2)
}
"""The first of `POLICIES` with lower targets."""
