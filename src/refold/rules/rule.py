"""What a rule is, and the cuts that a set of rules leaves."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from refold.messages import Message, Part
from refold.rules.repair_draft import Mend


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing in a request that a provider refuses."""

    rule: str
    """Rule id, such as `AN-1`."""
    at: int
    """Position of the message (system messages at the start not counted); 0 for what stands in another
    field of the request, which `subject` then names."""
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
    inseparable: tuple[tuple[int, int], ...] = ()
    """Pairs (i, j), i < j: messages i to j stay together, no cut falls between them."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing that providers refuse."""

    id: str
    title: str
    judge: Callable[[Sequence[Message], Mapping[str, Any]], Verdict]
    """Looks at the messages and at the rest of the request body. Where a whole request is checked, the
    body holds the conversation too, as it is sent: for what messages do not hold, such as `cache_control`."""
    mend: Mend | None = None
    """Mends what `judge` finds, where that needs no invention; None where it always would."""
    limit: str = ""
    """What would have to be invented or lost to mend what `mend` leaves, in a sentence."""
    joins: bool = True
    """May its verdicts join messages? One that never does is not asked for cuts."""


@dataclass(frozen=True, slots=True)
class SentRequest:
    """A request that was, or would be, sent."""

    messages: Sequence[Message]
    entries: Sequence[Any]
    """The messages as they are sent, one for each."""
    body: Mapping[str, Any] = field(default_factory=dict)
    """The whole request, as parsed; empty for a bare list."""
    system: tuple[Part, ...] = ()
    tools: tuple[str, ...] = ()
    """Each tool definition as canonical JSON."""


@dataclass(frozen=True, slots=True)
class ContinuityRule:
    """One thing that a request must keep of the request before it."""

    id: str
    title: str
    judge: Callable[[SentRequest, SentRequest], Iterable[Violation]]
    """From the request before and the one that follows it to what is refused in the latter."""
    thinking: tuple[str, ...]
    """Kinds of `Rules.thinking` for which it holds."""


@dataclass(frozen=True, slots=True)
class Rules:
    """All that one provider's API refuses."""

    rules: tuple[Rule, ...] = ()
    alternate: bool = False
    """Roles alternate and the first is `user`: neighbours of one role are merged at an edit's edge."""
    thinking: Literal["free", "fixed", "loop", "bound", "unsure"] = "free"
    """May thinking be removed? `free_cuts`: any; `fixed`: none (OA-4, GE-3, DS-1); `loop`: oldest first,
    not that of the latest assistant turn (AN-6); `bound`: oldest first, and a late edit takes what
    was signed after it along (AN-7, AN-10, AN-11); `unsure`: one of these two, since no model is named: as
    `bound`, but the current turn keeps its thinking (F14)."""
    continuity: tuple[ContinuityRule, ...] = ()
    """What a request must keep of the one before it."""

    @property
    def binds(self) -> bool:
        """May signed thinking be bound to what stood before it?"""
        return self.thinking in ("bound", "unsure")

    def check(
        self, messages: Sequence[Message], body: Mapping[str, Any] | None = None
    ) -> tuple[Violation, ...]:
        """Every violation, in order of position."""
        violations = (v for rule in self.rules for v in rule.judge(messages, body or {}).violations)
        return tuple(sorted(violations, key=lambda v: (v.at, v.rule)))

    def check_continuity(self, before: SentRequest, after: SentRequest) -> tuple[Violation, ...]:
        """What *after* was bound to keep of *before*, the request before it in the conversation, and did
        not, in order of position."""
        violations = (
            v
            for rule in self.continuity
            if self.thinking in rule.thinking
            for v in rule.judge(before, after)
        )
        return tuple(sorted(violations, key=lambda v: (v.at, v.rule)))

    def cuts(self, messages: Sequence[Message]) -> frozenset[int]:
        """Positions where *messages* may be cut: whatever stands between two of them may be hidden."""
        return free_cuts(
            len(messages),
            (
                pair
                for rule in self.rules
                if rule.joins
                for pair in rule.judge(messages, {}).inseparable
            ),
        )


def free_cuts(length: int, joined: Iterable[tuple[int, int]]) -> frozenset[int]:
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
