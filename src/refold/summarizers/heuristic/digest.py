"""What a rule summary knows, as values, and how two of them become one."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import NamedTuple

from refold.summarizers.heuristic.chat import Line
from refold.summarizers.heuristic.names import Entry, interleave

LONG = 24
"""Characters of a request that is not said twice by chance."""
UNANSWERED = "unanswered: "
"""Before an open item that is a request."""


class Todo(NamedTuple):
    """One item of a plan."""

    text: str
    status: str = "pending"
    """`pending`, `active` or `done`."""


@dataclass(frozen=True, slots=True)
class Digest:
    """What is kept of a stretch of conversation. Sequences are oldest first, except where noted."""

    requests: tuple[str, ...] = ()
    """What the user asked, verbatim; what was asked in the same words several times once, where it was asked last."""
    repeats: Mapping[str, int] = field(default_factory=dict)
    """How often, of requests that were made more than once."""
    constraints: tuple[str, ...] = ()
    """Standing rules out of the user's own words."""
    decisions: tuple[str, ...] = ()
    """Sentences in which something was decided, found or concluded."""
    todos: tuple[Todo, ...] | None = None
    """The latest plan; None where none was written down."""
    open: tuple[str, ...] = ()
    """Requests nobody has answered yet, and the last error."""
    answers_earlier: bool = False
    """Did this stretch answer what was open before it? Not rendered: it says how to merge."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Path to last state (`read`, `created`, `modified`, `deleted`), last touched last."""
    commands: Mapping[str, str] = field(default_factory=dict)
    """Command to its last outcome (`ok`, `exit 1`, `error`), last run last."""
    index: tuple[Entry, ...] = ()
    """Identifiers, most useful first."""
    messages: int = 0
    """Messages of the transcript."""
    calls: Mapping[str, int] = field(default_factory=dict)
    """Tool calls by tool name."""
    talk: tuple[Line, ...] = ()
    """What was said where nothing but talk was; of earlier talk what was kept."""
    notes: tuple[str, ...] = ()
    """What an earlier summary said in no form of ours: a model's words, or the user's amendments."""


def merge(old: Digest, new: Digest) -> Digest:
    """One digest of two stretches that follow each other; the later wins where they disagree.

    Deterministic, and nothing is summarised twice: values are joined, and the rankings of the two indexes interleaved.
    """
    files = merge_files(old.files, new.files)
    requests = _merge_requests(old, new)
    return Digest(
        requests=tuple(requests),
        repeats=count_repeats(requests),
        constraints=unique(old.constraints + new.constraints),
        decisions=unique(old.decisions + new.decisions),
        todos=old.todos if new.todos is None else new.todos,
        open=unique((() if new.answers_earlier else old.open) + new.open),
        answers_earlier=old.answers_earlier or new.answers_earlier,
        files=files,
        commands=merge_latest(old.commands, new.commands),
        index=tuple(entry for entry in interleave(new.index, old.index) if entry.text not in files),
        messages=old.messages + new.messages,
        calls={
            tool: old.calls.get(tool, 0) + new.calls.get(tool, 0)
            for tool in unique((*old.calls, *new.calls))
        },
        talk=(*old.talk, *(line._replace(at=line.at + old.messages) for line in new.talk)),
        notes=unique(old.notes + new.notes),
    )


def merge_all(digests: Sequence[Digest]) -> Digest:
    """One digest of many stretches that follow each other; of n log n work, though a history may hold thousands of summaries."""
    if len(digests) < 2:
        return merge(Digest(), digests[0]) if digests else Digest()
    half = (len(digests) + 1) // 2
    return merge(merge_all(digests[:half]), merge_all(digests[half:]))


def _merge_requests(old: Digest, new: Digest) -> dict[str, int]:
    """How often each request of both was made, in the order of the latest. A long one that is told of again was
    not made again: a caller who feeds a view back as history shows what stands beside the summary a second time."""
    requests = {text: old.repeats.get(text, 1) for text in old.requests}
    for text in new.requests:
        before, now = requests.pop(text, 0), new.repeats.get(text, 1)
        requests[text] = max(before, now) if len(text) >= LONG else before + now
    return requests


def count_repeats(requests: Mapping[str, int]) -> dict[str, int]:
    """The requests that were made more than once."""
    return {text: count for text, count in requests.items() if count > 1}


def without_answered(digest: Digest) -> Digest:
    """*digest* without its unanswered requests: the answer stands behind it."""
    return replace(
        digest, open=tuple(text for text in digest.open if not text.startswith(UNANSWERED))
    )


def state_after(before: str | None, now: str) -> str:
    """The state of a file that was *before* and to which *now* happened."""
    match before, now:
        case "created" | "modified", "read":
            return str(before)
        case "created", "modified" | "created":
            return "created"
        case "read" | "modified", "created":
            return "modified"
        case _:
            return now


def merge_files(old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, str]:
    """File states after both, the last touched last (cumulative: conformance 43)."""
    return merge_latest(
        old, {path: state_after(old.get(path), state) for path, state in new.items()}
    )


def merge_latest(old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, str]:
    """Both mappings, the new one's values and order last."""
    return dict(chain(((k, v) for k, v in old.items() if k not in new), new.items()))


def unique(items: Iterable[str]) -> tuple[str, ...]:
    """Each item once, where it stands first."""
    return tuple(dict.fromkeys(items))
