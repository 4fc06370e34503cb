"""Contents of rule summaries as values."""

from collections.abc import Iterable, Sequence

from refold.core.view import View
from refold.messages import Message
from refold.models.driver import drive
from refold.summarizers.heuristic import RuleSummary
from refold.summarizers.heuristic.blocks import Rarity
from refold.summarizers.heuristic.earlier import read_earlier_summaries
from refold.summarizers.heuristic.state import State, drop_superseded, read_state
from refold.summarizers.heuristic.steps import read_steps


def read_summary(text: str | None) -> State:
    """Return the state that a summary contains."""
    return read_earlier_summaries([text or ""]).state


def collect(messages: Sequence[Message], earlier: State | None = None) -> State:
    """Return the state of the work after *messages*, starting from *earlier*."""
    return read_state(read_steps(messages), earlier)


def rate_words(turns: Iterable[Sequence[str]]) -> Rarity:
    """Return the rare words of turns, the person's and the model's by turns."""
    return Rarity((number % 2 == 1, clauses) for number, clauses in enumerate(turns))


def drop_shown(state: State, after: Sequence[Message]) -> None:
    """Remove from *state* what the messages *after* the summary show again."""
    steps = read_steps(after)
    drop_superseded(state, steps, read_state(steps, State(todos=state.todos)))


def states_of(state: State) -> dict[str, str]:
    """Return the state of each known file, by path."""
    return {path: file.state for path, file in state.files.items()}


def summarize(*turns, room=2_000):
    """Return the summary of all messages."""
    messages = [
        message for turn in turns for message in (turn if isinstance(turn, list) else [turn])
    ]
    return drive(RuleSummary()(View.of(messages), 0, len(messages), room)).text


def section(text, title):
    """Return the lines of one section."""
    return text.partition(f"## {title}\n")[2].partition("\n## ")[0].splitlines()
