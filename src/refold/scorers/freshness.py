"""A file that was read and then written is no longer what was read."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from posixpath import normpath

from refold.arguments import fields
from refold.scorers.exchanges import Exchange, exchanges
from refold.summarizers.rules.calls import act
from refold.view import View


@dataclass(frozen=True)
class Freshness:
    """1.0 for what still holds; *written* for a read or a write of files that were all written
    again later; *repeated* for one that was repeated later: the same call, or a read of the whole
    file. What failed replaces nothing. Of several calls or results in one message the freshest
    counts. Messages that have nothing to do with files are fresh.
    """

    written: float = 0.3
    repeated: float = 0.0

    def __call__(self, view: View) -> Sequence[float]:
        """A score for each message."""
        found: dict[int, float] = {}
        later = _Later()
        for one in reversed(exchanges(view)):
            score = self._of(one, later)
            for at in (one.made, one.answered):
                found[at] = max(found.get(at, score), score)
            if not one.failed:
                later.note(one)
        return [found.get(at, 1.0) for at in range(len(view.transcript))]

    def _of(self, one: Exchange, later: "_Later") -> float:
        if (one.call.name, one.call.arguments) in later.calls:
            return self.repeated
        paths = [path for path, _ in _files(one)]
        return max((self._of_path(path, later) for path in paths), default=1.0)

    def _of_path(self, path: str, later: "_Later") -> float:
        if path in later.read:
            return self.repeated
        return self.written if path in later.written else 1.0


@dataclass(frozen=True, slots=True)
class _Later:
    """What happened after the call that is looked at."""

    calls: set[tuple[str, str]] = field(default_factory=set)
    read: set[str] = field(default_factory=set)
    """Files read whole."""
    written: set[str] = field(default_factory=set)

    def note(self, one: Exchange) -> None:
        self.calls.add((one.call.name, one.call.arguments))
        for path, state in _files(one):
            if state != "read":
                self.written.add(path)
            elif _is_whole(one):
                self.read.add(path)


def _files(one: Exchange) -> list[tuple[str, str]]:
    return [(normpath(path), state) for path, state in act(one.call).files]


def _is_whole(one: Exchange) -> bool:
    """A read by a tool that names no lines: commands, which may print a part, are none."""
    given = fields(one.call)
    return not act(one.call).command and all(isinstance(value, str) for value in given.values())
