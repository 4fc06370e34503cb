"""What a framework brings along, and what it is given."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from adapters.session import TARGET, TRIGGER, Turn
from refold import Budget, Compactor, SQLiteStore
from refold.strategies import Summarize

MODEL = "gpt-5.2"
"""The model's name in OpenAI's APIs."""


@dataclass(frozen=True, slots=True)
class Job:
    """Some turns of the script, to be held in one process."""

    url: str
    """Where the model listens, without a path."""
    place: Path
    """A directory that the next process has, too: for the framework's persistence."""
    turns: tuple[Turn, ...]

    @property
    def options(self) -> dict[str, Any]:
        """The settings of a compactor for the model's window, whose edits outlive the process."""
        store = SQLiteStore(self.place / "refold.db")
        return {"budget": Budget(TRIGGER, TARGET), "store": store}

    def compactor(self, **settings: Any) -> Compactor:
        """Return a compactor with `options`, and more."""
        return Compactor(**self.options, **settings)


class Talk(NamedTuple):
    """What came of a job."""

    history: Any
    """All that the framework keeps of the conversation, as values or objects that hold their texts."""
    deltas: Sequence[str]
    """The text of the turns that stream, as it came."""
    reports: int
    """How many figures of usage reached the compactor (`len(compactor.settings.reports.newest)`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Regression:
    """Something that breaks in the framework's own compaction, and must not in ours."""

    case: str
    settings: Sequence[Any]
    """Each is tried with both."""
    own: Callable[[Any], Any]
    """What the framework's own compaction makes of the history at a setting."""
    ours: Callable[[Any], Any]
    find_fault: Callable[[Any], Any]
    """What is wrong with a result of either; something empty if nothing is."""
    broken: int
    """At how many settings the pinned release breaks: another number means that it was mended."""
    thread: str = ""
    """Where it was reported."""


class Timing(NamedTuple):
    """Something that runs before each call of the model, to be timed."""

    name: str
    history: Callable[[int], Sequence[Any]]
    """Return a history of so many messages."""
    run: Callable[[Sequence[Any]], object]
    """Do what is done before a call with this history."""


IDLE: dict[str, Any] = {"budget": Budget(10**6, 10**5)}
"""Settings of a compactor that finds nothing to do in a history that is timed."""
BUSY: dict[str, Any] = {"strategies": [Summarize(4, 500)], "budget": Budget(5_500, 1_000)}
"""Of one that shortens it when it sees it first, and shows that from then on."""


class Framework(Protocol):
    """A module of a framework."""

    PACKAGE: str
    """The distribution whose version the table shows."""
    REGRESSIONS: Sequence[Regression]
    TIMINGS: Sequence[Timing]

    def talk(self, job: Job) -> Talk:
        """Hold the turns of *job*."""
        ...
