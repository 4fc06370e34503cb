"""Runs compaction-conformance-kit in the peers' environment, with this repository on its path.

The kit plants typed instructions and facts in sessions and looks for their words in the compacted
text, at a budget of characters.
"""

import json
import sys
from collections import Counter
from dataclasses import dataclass

from compaction_kit.compacted import CompactedContext
from compaction_kit.corpus import build_random_session
from compaction_kit.runner import run_conformance
from compaction_kit.session import Turn

from benchmarks.evidence.peers import all_policies
from benchmarks.evidence.policies import MakePolicy
from benchmarks.evidence.sessions import Session
from refold.text.plain import readable_text

SEEDS = range(1, 13)
BUDGETS = (0.1, 0.2, 0.3)
SHARES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)
"""Targets to try until the text is within the budget."""


@dataclass(frozen=True)
class Compactor:
    """A policy in the form that the kit calls."""

    name: str
    make: MakePolicy

    def compact(
        self, turns: list[Turn], round_num: int = 1, budget_chars: int = 0
    ) -> CompactedContext:
        """Compact all turns once, to the budget in characters if the policy can."""
        chat = [{"role": turn.role, "content": turn.text} for turn in turns]
        session = Session("kit", "chat", {"messages": chat})
        whole, text = sum(len(turn.text) for turn in turns), ""
        for share in SHARES:
            window = int(2 * share * session.size * budget_chars / whole)
            sent = self.make(session, window)(session.payload, session.messages)
            text = "\n".join(map(readable_text, sent))
            if len(text) <= budget_chars:
                break
        return CompactedContext(text, self.name, round_num)


def run(name: str, make: MakePolicy, budget: float) -> dict[str, float]:
    """Return the share that survived by type, and the share of sessions within the budget."""
    survived, planted, within = Counter[str](), Counter[str](), 0
    for seed in SEEDS:
        session, canaries = build_random_session(seed)
        compactor = Compactor(name, make)
        only = run_conformance(
            session, compactor, rounds=1, canaries=canaries, budget_fraction=budget
        ).rounds[0]
        planted.update(canary.type.value for canary in canaries)
        survived.update(canary.type.value for canary in canaries if only.survived[canary.id])
        within += only.within_budget
    shares = {kind: survived[kind] / planted[kind] for kind in planted}
    return {"all": survived.total() / planted.total(), **shares, "within": within / len(SEEDS)}


def main() -> None:
    """Print {budget: {policy: {type: share}}} as JSON."""
    shares = {
        str(budget): {name: run(name, make, budget) for name, make in all_policies().items()}
        for budget in BUDGETS
    }
    json.dump(shares, sys.stdout)


if __name__ == "__main__":
    main()
