"""An error that nobody has mended matters; one that was mended is history."""

from collections.abc import Sequence
from dataclasses import dataclass

from refold.failures import is_failure
from refold.messages import ToolResult
from refold.scorers.exchanges import Exchange, exchanges
from refold.summarizers.rules import shell
from refold.summarizers.rules.calls import act
from refold.view import View


@dataclass(frozen=True)
class Errors:
    """1.0 for a tool result that reports a failure and for its call, *resolved* if the same was
    tried again later and worked, 0.5 for every other message.

    The same is: the same tool with the same command (set-up and trimming left aside), on the same
    files, or with the same arguments. Of several results in one message the weightiest counts.
    """

    resolved: float = 0.0

    def __call__(self, view: View) -> Sequence[float]:
        """A score for each message."""
        said = view.transcript.messages
        loose = (any(isinstance(p, ToolResult) and (p.error or is_failure(p.text)) for p in m.parts) for m in said)
        found = [1.0 if failed else 0.5 for failed in loose]
        best: dict[int, float] = {}
        worked = set[tuple[str, ...]]()
        for one in reversed(exchanges(view)):
            key = _subject(one)
            score = 0.5 if not one.failed else self.resolved if key in worked else 1.0
            for at in (one.made, one.answered):
                best[at] = max(best.get(at, score), score)
            if not one.failed:
                worked.add(key)
        for at, score in best.items():
            found[at] = score
        return found


def _subject(one: Exchange) -> tuple[str, ...]:
    """What was tried."""
    done = act(one.call)
    if done.command:
        return (one.call.name, shell.name(done.command))
    return (one.call.name, *(path for path, _ in done.files)) if done.files else (one.call.name, one.call.arguments)
