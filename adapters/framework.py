"""What a framework's module provides, and what it gets."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from adapters.session import TARGET, TRIGGER, Turn
from refold import Budget, Compactor, SQLiteStore
from refold.strategies import Summarize

MODEL = "gpt-5.2"
"""Name of the model in OpenAI's APIs."""


@dataclass(frozen=True, slots=True)
class Job:
    """Some turns of the script, to be run in one process."""

    url: str
    """Base URL of the model, without a path."""
    place: Path
    """Directory for the framework's persistence, shared with the next process."""
    turns: tuple[Turn, ...]

    @property
    def options(self) -> dict[str, Any]:
        """Settings of a compactor for the model's window, with a store on disk."""
        store = SQLiteStore(self.place / "refold.db")
        return {"budget": Budget(TRIGGER, TARGET), "store": store}

    def compactor(self, **settings: Any) -> Compactor:
        """Return a compactor with `options` and further settings."""
        return Compactor(**self.options, **settings)


class Talk(NamedTuple):
    """The result of a job."""

    history: Any
    """The framework's whole history, as values or objects that hold their texts."""
    deltas: Sequence[str]
    """Pieces of text of the streamed turns, in order."""
    reports: int
    """Number of usage reports in the compactor (`len(compactor.settings.reports.newest)`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Regression:
    """A fault of the framework's own compaction that Refold must not have."""

    case: str
    settings: Sequence[Any]
    """Settings, each tried with both compactions."""
    own: Callable[[Any], Any]
    """Runs the framework's own compaction at a setting."""
    ours: Callable[[Any], Any]
    find_fault: Callable[[Any], Any]
    """Returns what is wrong with a result of either compaction, or something falsy."""
    broken: int
    """Number of settings that break the pinned release. Another number means that it was fixed."""
    thread: str = ""
    """Link to the bug report."""


class Timing(NamedTuple):
    """Something to be timed that runs before each model call."""

    name: str
    history: Callable[[int], Sequence[Any]]
    """Return a history of the given number of messages."""
    run: Callable[[Sequence[Any]], object]
    """Do the work before a call with this history."""


IDLE: dict[str, Any] = {"budget": Budget(10**6, 10**5)}
"""Settings of a compactor that has nothing to do in a timed history."""
BUSY: dict[str, Any] = {"strategies": [Summarize(4, 500)], "budget": Budget(5_500, 1_000)}
"""Settings of a compactor that shortens a timed history once and shows it so from then on."""


class Framework(Protocol):
    """The interface of a framework's module."""

    PACKAGE: str
    """Distribution whose version the table shows."""
    REGRESSIONS: Sequence[Regression]
    TIMINGS: Sequence[Timing]
    CHECKS: Sequence[Callable[[], None]]
    """Optional. Functions that raise AssertionError if the adapter breaks what it promises."""

    def talk(self, job: Job) -> Talk:
        """Run the turns of *job*."""
        ...
