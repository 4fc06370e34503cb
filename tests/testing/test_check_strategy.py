"""`check_strategy` says when a strategy has no effect because all its edits are refused."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from refold.core.strategy import Strategy
from refold.core.view import View
from refold.edits import Edit
from refold.messages import Message, Text
from refold.rules import anthropic
from refold.rules.rule import Rules
from refold.strategies import (
    Chunked,
    ClearThinking,
    ClearToolInputs,
    ClearToolResults,
    ClipResults,
    DropDuplicates,
    FromLastN,
    OutlineResults,
    Summarize,
    SummarizeTo,
    WholeHistory,
)
from refold.testing import check_strategy

ANTHROPIC = Rules(anthropic.RULES, alternate=True, thinking="loop")
SO = Message("user", (Text("So."),))
TINY = (Message("user", (Text("Hi."),)),)


def hide_calls(view: View) -> Iterator[Edit]:
    """Propose to hide each call without its result."""
    for at, message in enumerate(view.messages):
        if message.calls:
            yield Edit(at, at + 1, (SO,), view.transcript.tips[at + 1], "hide_calls()")


def hide_first(view: View) -> Iterator[Edit]:
    """Propose an edit of another history."""
    if len(view.messages) > 1:
        yield Edit(0, 1, (SO,), "another", "hide_first()")


@dataclass(frozen=True)
class Shorten:
    """Propose an edit for each long message; with a *tip*, one of another history."""

    tip: str = ""
    local = True

    def __call__(self, view: View, since: int = 0) -> Iterator[Edit]:
        for at in range(since, len(view.messages)):
            if len(view.messages[at].text) > 400:
                edit = view.replace(
                    at, replace(view.messages[at], parts=(Text("So."),)), "Shorten()"
                )
                yield replace(edit, tip=self.tip or edit.tip)


@pytest.mark.parametrize(
    ("strategy", "reason"),
    [
        (hide_calls, "parts what belongs together"),
        (hide_first, "was made for another history"),
        (Shorten("another"), "was made for another history"),
    ],
)
def test_a_strategy_whose_edits_are_all_refused_fails(strategy: Strategy, reason: str) -> None:
    """It kept all laws, since it did nothing."""
    with pytest.raises(AssertionError, match=f"effect: every edit is refused: .*{reason}"):
        check_strategy(strategy, ANTHROPIC, examples=[TINY])


@pytest.mark.parametrize(
    "strategy",
    [
        Shorten(),
        Chunked(),
        ClearThinking(),
        ClearToolInputs(),
        ClearToolResults(),
        ClipResults(400),
        DropDuplicates(),
        FromLastN(1),
        OutlineResults(),
        Summarize(),
        Summarize(max_tokens=1),
        SummarizeTo(),
        WholeHistory(),
    ],
)
def test_a_strategy_with_nothing_to_do_in_the_examples_passes(strategy: Strategy) -> None:
    check_strategy(strategy, ANTHROPIC, examples=[TINY])
    check_strategy(strategy, examples=[])
