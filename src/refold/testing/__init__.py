"""Tools for tests of code that uses or extends Refold: random transcripts, a scripted model, and
the laws of strategies and stores.

`transcripts` needs `hypothesis` (the extra `testing`) and is imported on first use. The rest needs
only Refold.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from refold import lazy_names
from refold.budget.budget import Budget
from refold.compactor.loading import make_local_edits
from refold.compactor.run import compact_if_due
from refold.core.profile import Profile
from refold.core.strategy import Answer, Ask, Strategy, is_local
from refold.core.view import View
from refold.messages import Message
from refold.models.driver import drive
from refold.rules.rule import Rules
from refold.testing.store_laws import check_store

if TYPE_CHECKING:
    from refold.testing.random_transcripts import transcripts


@dataclass
class ScriptedModel:
    """A model that answers from a list, for tests: `ask=ScriptedModel(["a summary"])`.

    After the end of the list it returns None, which means that nobody can answer. `asked` holds the
    questions.
    """

    answers: Sequence[str | Answer] = ()
    asked: list[Ask] = field(default_factory=list)

    def __call__(self, ask: Ask) -> Answer | None:
        """Return the next answer, or None after the last."""
        self.asked.append(ask)
        if len(self.asked) > len(self.answers):
            return None
        answer = self.answers[len(self.asked) - 1]
        return Answer(answer) if isinstance(answer, str) else answer


def proposals(
    view: View, strategy: Strategy, ask: Callable[[Ask], Answer | None] | None = None
) -> View:
    """Return *view* with all proposals of *strategy* applied, whatever the budget."""
    if is_local(strategy):
        return view.apply_valid(make_local_edits(view, [strategy]))
    return drive(compact_if_due(view, [strategy], Budget(0, 0)), ask).view


def check_strategy(
    strategy: Strategy, rules: Rules | None = None, *, examples: Iterable[tuple[Message, ...]]
) -> None:
    """Check that *strategy* keeps the laws on *examples*, drawn from `transcripts()`.

    A model answers up to nine questions with "A summary.". Raises AssertionError with the name of
    the broken law: validity (no new violation, also by each edit alone), progress (never more
    tokens than before), determinism (a second run on the same history gives the same view),
    reversibility and, for local strategies, memorylessness.
    """
    for messages in examples:
        bare = View.of(messages, profile=Profile(rules=rules or Rules()))
        view = proposals(bare, strategy, ScriptedModel(["A summary."] * 9))
        _valid(bare, view)
        assert view.estimate <= bare.estimate, f"progress: {view.estimate} > {bare.estimate} tokens"
        assert proposals(bare, strategy, ScriptedModel(["A summary."] * 9)) == view, "determinism"
        assert view.revert().messages == tuple(messages), "reversibility"
        for edit in view.edits:
            _valid(bare, bare.apply_valid([edit]))
        if is_local(strategy):
            _memoryless(bare, view, strategy)


def _valid(bare: View, view: View) -> None:
    rules = bare.profile.rules
    before = {(v.rule, v.subject) for v in rules.check(bare.messages)}
    after = {(v.rule, v.subject) for v in rules.check(view.messages)}
    assert after <= before, f"validity: {sorted(after - before)} by {[e.by for e in view.edits]}"


def _memoryless(bare: View, at_once: View, strategy: Strategy) -> None:
    grown = View.of((), profile=bare.profile)
    for message in bare.transcript.messages:
        grown = grown.extend([message])
        grown = grown.apply_valid(
            make_local_edits(grown.revert(), [strategy], len(grown.transcript) - 1)
        )
    assert grown.messages == at_once.messages, "memorylessness: turn by turn is not at once"


__getattr__ = lazy_names(__name__, {"random_transcripts": ("transcripts",)})[1]

__all__ = ["ScriptedModel", "check_store", "check_strategy", "proposals", "transcripts"]
