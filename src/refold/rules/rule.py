"""What a rule is, and the cuts that a set of rules leaves."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from refold.messages import Message
from refold.rules.repair_draft import Mend
from refold.rules.request import Fault, Request


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing in a request that a provider refuses."""

    rule: str
    """Rule id, such as `AN-1`."""
    at: int
    """Position of the message (system messages at the start not counted); 0 for what stands in
    another field of the request, which `subject` then names."""
    text: str
    """What is wrong, in a sentence."""
    subject: str = ""
    """What it is wrong of (a call id), so that two lists can be compared though positions moved."""
    unmended: str = field(default="", compare=False)
    """Why a repair left it as it is, in a sentence; empty outside of a repair's report."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing that providers refuse."""

    id: str
    title: str
    judge: Callable[[Request], Iterable[Fault]]
    """Finds what is wrong in a request."""
    join: Callable[[Request], Iterable[tuple[int, int]]] | None = None
    """Pairs (i, j), i < j: messages i to j stay together, no cut falls between them."""
    mends: tuple[Mend, ...] = ()
    """Mend what `judge` finds, if that needs no invention; tried in turn until one mends."""
    limit: str = ""
    """What would have to be invented or lost to mend what `mends` leave, in a sentence."""


@dataclass(frozen=True, slots=True)
class ContinuityRule:
    """One thing that a request must keep of the request before it."""

    id: str
    title: str
    judge: Callable[[Request, Request], Iterable[Fault]]
    """From the request before and the one that follows it to what is refused in the latter."""
    thinking: tuple[str, ...]
    """Kinds of `Rules.thinking` for which it holds."""


@dataclass(frozen=True, slots=True)
class Rules:
    """All that one provider's API refuses."""

    rules: tuple[Rule, ...] = ()
    alternate: bool = False
    """Roles alternate and the first is `user`: neighbours of one role are merged at an edit's
    edge."""
    thinking: Literal["free", "fixed", "loop", "bound", "unsure"] = "free"
    """May thinking be removed? `free`: any; `fixed`: none (OA-4, GE-3, DS-1); `loop`: oldest
    first, not that of the latest assistant turn (AN-6); `bound`: oldest first, and a late edit
    takes what was signed after it along (AN-7, AN-10, AN-11); `unsure`: one of these two, since no
    model is named: as `bound`, but the current turn keeps its thinking (F14)."""
    continuity: tuple[ContinuityRule, ...] = ()
    """What a request must keep of the one before it."""

    @property
    def binds(self) -> bool:
        """May signed thinking be bound to what stood before it?"""
        return self.thinking in ("bound", "unsure")

    def check(
        self, messages: Sequence[Message], body: Mapping[str, Any] | None = None
    ) -> tuple[Violation, ...]:
        """Return every violation, in order of position."""
        request = Request(messages, body or {})
        return _in_order(
            Violation(rule.id, *fault) for rule in self.rules for fault in rule.judge(request)
        )

    def check_continuity(self, before: Request, after: Request) -> tuple[Violation, ...]:
        """Return what *after* does not keep of *before*, in order of position.

        *before* is the request before it in the conversation.
        """
        return _in_order(
            Violation(rule.id, *fault)
            for rule in self.continuity
            if self.thinking in rule.thinking
            for fault in rule.judge(before, after)
        )

    def cuts(self, messages: Sequence[Message]) -> frozenset[int]:
        """Return where *messages* may be cut: what stands between two cuts may be hidden."""
        request = Request(messages)
        joined = (pair for rule in self.rules if rule.join for pair in rule.join(request))
        return free_cuts(len(messages), joined)


def _in_order(violations: Iterable[Violation]) -> tuple[Violation, ...]:
    return tuple(sorted(violations, key=lambda v: (v.at, v.rule)))


def free_cuts(length: int, joined: Iterable[tuple[int, int]]) -> frozenset[int]:
    """Return the cuts 0 to *length* that part no pair (i, j): those not in i+1 to j."""
    depth = [0] * (length + 2)
    for start, stop in joined:
        depth[start + 1] += 1
        depth[min(stop, length) + 1] -= 1
    cuts, level = [], 0
    for cut in range(length + 1):
        level += depth[cut]
        if level == 0:
            cuts.append(cut)
    return frozenset(cuts)
