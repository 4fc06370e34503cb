"""Files that were read and not changed since: what the next edits will most likely need."""

from collections.abc import Sequence

from refold.core.view import View
from refold.summarizers.heuristic.calls import is_vendored
from refold.summarizers.heuristic.steps import read_steps
from refold.summarizers.placement import whole_groups


def find_hot_reads(view: View) -> list[int]:
    """Return the positions of the last read of each file that nothing changed later, the newest
    first. In linear time."""
    reads = dict[str, int]()
    for step in read_steps(view.transcript.messages):
        if step.kind != "result" or step.outcome != "ok":
            continue
        for path, state in step.effect.files:
            reads.pop(path, None)
            if state == "read" and len(step.effect.files) == 1 and not is_vendored(path):
                reads[path] = step.at
    return sorted(set(reads.values()), reverse=True)


def choose_reads(view: View, reads: Sequence[int], stop: int, tokens: int) -> list[int]:
    """Return those of *reads* before *stop*, each with its call, that have *tokens* together."""
    messages, chosen = view.transcript.messages, set[int]()
    for at in reads:
        if at < stop and at not in chosen and view.profile.count(messages[at]) <= tokens:
            group = set(whole_groups(view, [at])) - chosen
            price = sum(view.profile.count(messages[place]) for place in group)
            if price <= tokens:
                tokens -= price
                chosen |= group
    return sorted(chosen)
