"""What a rule is, and the cuts that a set of rules leaves."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from refold.messages import Message
from refold.rules.draft import Mend


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing in a request that a provider refuses."""

    rule: str
    """Rule id, such as `AN-1`."""
    at: int
    """Position of the message (system messages at the start not counted)."""
    text: str
    """What is wrong, in a sentence."""
    subject: str = ""
    """What it is wrong of (a call id), so that two lists can be compared though positions moved."""
    unmended: str = field(default="", compare=False)
    """Why a repair left it as it is, in a sentence; empty outside of a repair's report."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one rule says of a conversation."""

    violations: tuple[Violation, ...] = ()
    joined: tuple[tuple[int, int], ...] = ()
    """Pairs (i, j), i < j: messages i to j stay together, no cut falls between them."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing that providers refuse."""

    id: str
    title: str
    judge: Callable[[Sequence[Message], Mapping[str, Any]], Verdict]
    """Looks at the messages and at the rest of the request body."""
    mend: Mend | None = None
    """Mends what `judge` finds, where that needs no invention; None where it always would."""
    limit: str = ""
    """What would have to be invented or lost to mend what `mend` leaves, in a sentence."""


@dataclass(frozen=True, slots=True)
class Rules:
    """All that one provider's API refuses."""

    rules: tuple[Rule, ...] = ()
    alternate: bool = False
    """Roles alternate and the first is `user`: neighbours of one role are merged at an edit's edge."""
    thinking: Literal["free", "fixed", "loop", "bound"] = "free"
    """May thinking be removed? `free`: any; `fixed`: none (OA-4, GE-3, DS-1); `loop`: oldest first,
    not that of the latest assistant turn (AN-6); `bound`: oldest first, and a late edit takes what
    was signed after it along (AN-7, AN-10, AN-11)."""

    def check(self, messages: Sequence[Message], body: Mapping[str, Any] | None = None) -> tuple[Violation, ...]:
        """Every violation, in order of position."""
        found = (v for rule in self.rules for v in rule.judge(messages, body or {}).violations)
        return tuple(sorted(found, key=lambda v: (v.at, v.rule)))

    def cuts(self, messages: Sequence[Message]) -> frozenset[int]:
        """Positions where *messages* may be cut: whatever stands between two of them may be hidden."""
        return free(len(messages), (pair for rule in self.rules for pair in rule.judge(messages, {}).joined))


def free(length: int, joined: Iterable[tuple[int, int]]) -> frozenset[int]:
    """Cuts 0 to *length* that part no pair (i, j): those not in i+1 to j."""
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
