"""Which strategies a preview tries, and on which messages."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from msgspec import UNSET

from refold.compactor.pins import Pins, keep_pinned
from refold.compactor.run import add_instructions
from refold.core.strategy import Steps, Strategy, change_edits, is_local, with_goal
from refold.core.view import View
from refold.edits import Edit
from refold.gateway.api.arguments import PreviewArguments
from refold.gateway.api.context import ApiContext, Problem
from refold.gateway.pipeline.limits import strategies_for
from refold.messages import Message
from refold.models.driver import Asker
from refold.models.endpoint import HTTPModel
from refold.models.fallback import Fallback
from refold.models.model import Model
from refold.strategies.summarize import Summarize, SummarizeTo
from refold.strategies.whole_history import HistorySummary
from refold.summarizers.memory_messages import MessageFilter
from refold.tokens.model_table import find_rates

KINDS: Mapping[str, str] = {
    "ClearThinking": "thinking",
    "ClearToolResults": "results",
    "ClearToolInputs": "results",
}
"""What strategies do, as `preview` is asked for it; all others summarise."""


def read_range(arguments: PreviewArguments, view: View) -> tuple[int, int]:
    """Return which messages are meant, from the first to the one behind the last."""
    length = len(view.transcript)
    start = 0 if arguments.start is UNSET else min(arguments.start, length)
    return start, length if arguments.stop is UNSET else min(arguments.stop, length)


def choose_strategies(
    context: ApiContext, arguments: PreviewArguments, view: View, target: int, pins: Pins | None
) -> tuple[Strategy, ...]:
    """Return the strategies that are wanted, as they keep *pins* and other messages than those that
    were chosen. For a file, which has no *pins*, local ones are among the others."""
    settings, (start, stop) = context.pipeline.settings, read_range(arguments, view)
    is_whole = (start, stop) == (0, len(view.transcript))
    if arguments.summary == "rules":
        settings = replace(settings, ask=None)
    kinds = None if arguments.strategies is UNSET else arguments.strategies
    by_name = dict[str, Strategy]()  # of one range there is one summary
    for strategy in strategies_for(settings, target):
        if is_local(strategy):
            if pins is not None or (is_whole and (kinds is None or "results" in kinds)):
                by_name[repr(strategy)] = strategy
        elif kinds is None or KINDS.get(type(strategy).__name__, "summary") in kinds:
            ranged = _for_range(strategy, start, stop, len(view.transcript))
            (keeping,) = keep_pinned((ranged,), pins)
            by_name.setdefault(repr(ranged), Within(keeping, start, stop, arguments.instructions))
    return tuple(by_name.values())


def list_writers(context: ApiContext) -> Sequence[Model]:
    """Return the models that the gateway asks for summaries, as far as they are known."""
    ask = context.pipeline.settings.ask
    return ask.models if isinstance(ask, Fallback) else ()


def find_endpoint(context: ApiContext) -> HTTPModel | None:
    """Return the first of them that is asked at an address, where there may be others."""
    return next((model for model in list_writers(context) if isinstance(model, HTTPModel)), None)


def choose_asker(context: ApiContext, arguments: PreviewArguments) -> Asker | None:
    """Return what answers strategies that ask a model: the gateway's own, or the one that is named,
    at the same address with the same key and its own price. Raises `Problem` 422."""
    workers, settings = context.pipeline.workers, context.pipeline.settings
    name = arguments.summary_model.strip()
    if not name or arguments.summary == "rules":
        return workers.ask if settings.ask is not None else None
    endpoint = find_endpoint(context)
    if endpoint is None:
        raise Problem(422, "no_endpoint", "The gateway has no address where models are asked.")
    rates = find_rates(name, settings.prices)
    price = (rates.input, rates.output, rates.read, rates.write) if rates else None
    model = replace(endpoint, model=name, price=price, same_model=False, window=None)
    return partial(workers.ask, other=Fallback(model).acall)


def _for_range(strategy: Strategy, start: int, stop: int, length: int) -> Strategy:
    """Return the strategy for `messages[start:stop]`: a summary of these instead of one of the
    whole beginning."""
    if (start, stop) == (0, length) or not isinstance(strategy, Summarize | SummarizeTo):
        return strategy
    most = strategy.max_tokens if isinstance(strategy, Summarize) else strategy.most
    return SummarizeRange(
        HistorySummary(max_tokens=most, summarizer=strategy.summarizer), start, stop
    )


@dataclass(frozen=True)
class SummarizeRange:
    """Fold the messages between two legal cuts within `messages[start:stop]` into one summary."""

    history: HistorySummary
    start: int
    stop: int
    pin: Callable[[Message], bool] | None = None
    """Which messages stay, before the summary."""

    def __repr__(self) -> str:
        return f"Summarize(start={self.start}, stop={self.stop})"

    def __call__(self, view: View) -> Steps:
        """Propose one edit, or none."""
        cuts = sorted(cut for cut in view.cuts if self.start <= cut <= self.stop)
        if len(cuts) < 2:
            return None
        history, pin = self.history, self.pin
        if pin is not None:
            history = replace(history, memory=IsPinnedOrMemory(pin, history.memory))
        return (yield from history.replace_span(view, cuts[0], cuts[-1], cuts[0]))


@dataclass(frozen=True)
class IsPinnedOrMemory:
    """Does a message stay beside a summary?"""

    pin: Callable[[Message], bool]
    memory: MessageFilter

    def __repr__(self) -> str:
        return repr(self.memory)  # what is pinned is no part of what an edit is by

    def __call__(self, message: Message) -> bool:
        """Is *message* pinned, or memory?"""
        return self.pin(message) or self.memory(message)


@dataclass(frozen=True)
class Within:
    """Run *strategy* and leave out its edits that reach beyond `messages[start:stop]`;
    *instructions* are added to the prompts of the model that it asks."""

    strategy: Any
    start: int
    stop: int
    instructions: str = ""

    def __repr__(self) -> str:
        return repr(self.strategy)

    def aim_at(self, goal: int) -> "Within":
        """Return the same with a strategy that comes down to *goal* tokens, if it can."""
        return replace(self, strategy=with_goal(self.strategy, goal))

    def __call__(self, view: View) -> Steps:
        """Propose what the strategy does."""
        run = change_edits(self.strategy(view), self._select)
        return add_instructions(run, self.instructions) if self.instructions else run

    def _select(self, edit: Edit) -> Edit | None:
        return edit if self.start <= edit.start and edit.stop <= self.stop else None
