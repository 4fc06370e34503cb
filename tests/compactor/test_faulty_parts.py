"""A part of a user's own that does not do what it should ends in an error that names it."""

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import refold
from refold import Budget, Compactor, Edit, MemoryStore, Message, Text, View, gateway
from refold.budget.triggers import Fraction, Predicate, Tokens, Trigger, TriggerResult
from refold.core.strategy import Answer, Ending, Summary
from refold.errors import FormatError
from refold.messages import Media, ToolCall, ToolResult, user
from refold.models import as_model
from refold.scorers.scorer import order_least_first, score_messages
from refold.stores import SQLiteStore
from refold.strategies import ClearToolResults, Summarize
from refold.tokens.count import counter

TALK = [
    {"role": ("user", "assistant")[n % 2], "content": f"{n}: " + "words " * 40} for n in range(12)
]
BUDGET = Budget(100, 50)


class Mine:
    """A strategy that does what a function does."""

    def __init__(self, run: Callable[[View], Any], **attributes: Any) -> None:
        self.run = run
        self.__dict__.update(attributes)

    def __repr__(self) -> str:
        return "Mine()"

    def __call__(self, view: View, since: int = 0) -> Any:
        return (yield from self.run(view))


# --- strategies -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "insert",
    [
        "a text",
        ({"role": "user", "content": "a text"},),
        [user("in a list")],
        (Message("user", ("a text",)),),
        (Message("user", [Text("in a list")]),),
        (Message("user", (Text(None),)),),
        (Message("assistant", (ToolCall("c", "read", {"path": "a.py"}),)),),
        (Message("tool", (ToolResult("c", "a text"),)),),
        (Message("tool", (ToolResult("c", (Text(5),)),)),),
        (Message("tool", (ToolResult("c", error=1),)),),
        (Message("tool", (ToolResult("c", name=None),)),),
        (Message("tool", (ToolResult("c", (ToolCall("d", "read", "{}"),)),)),),
        (Message("user", (Media("image", mime=None),)),),
        (Message("user", (Media("image", width=1.5),)),),
        (Message(None, (Text("a text"),)),),
    ],
    ids=repr,
)
@pytest.mark.parametrize("local", [False, True])
def test_an_edit_of_anything_but_messages_is_refused_where_it_is_made(insert: Any, local: bool):
    strategy = Mine(lambda view: iter([Edit(0, 2, insert, view.transcript.tips[2])]), local=local)
    with pytest.raises(TypeError, match="an edit shows a tuple of messages"):
        Compactor([strategy], BUDGET)(TALK)


@pytest.mark.parametrize(
    "places", [{"start": 0.0}, {"start": False}, {"stop": 2.0}, {"tip": b"tip"}, {"by": object()}]
)
def test_an_edit_of_anything_but_positions_is_refused_before_a_store_has_it(
    places: dict[str, Any], tmp_path: Path
):
    store = SQLiteStore(tmp_path / "edits.db")

    def run(view):
        yield Edit(**{"start": 0, "stop": 2, "insert": (user("s"),), "tip": "t", **places})

    with pytest.raises(TypeError, match="an edit hides whole positions and has texts as tip and"):
        Compactor([Mine(run)], BUDGET, store)(TALK)
    assert Compactor([], BUDGET, store)(TALK).payload == TALK


@pytest.mark.parametrize(
    "ending", ["done", ("noop", "why"), Ending("great", ""), Ending("noop", 7)]
)
def test_a_strategy_that_returns_no_ending_is_named(ending: Any, tmp_path: Path):
    store = SQLiteStore(tmp_path / "edits.db")

    def run(view):
        yield from ()
        return ending

    with pytest.raises(TypeError, match=r"a strategy returns an Ending or nothing, and Mine\(\)"):
        Compactor([Mine(run)], BUDGET, store)(TALK)
    assert store.ledger() == ()


def test_a_strategy_that_waits_for_its_view_to_change_is_stopped():
    def spin(view):
        while view.tokens > 50:
            yield view.fold(0, 2, user("short"))

    for local in (False, True):
        with pytest.raises(TypeError, match=r"Mine\(\) proposes edit .* again: its view stays"):
            Compactor([Mine(spin, local=local)], BUDGET)(TALK)


def test_a_strategy_may_propose_an_edit_a_few_times():
    def clamp(view):
        for stop in range(2, 10):
            yield view.fold(0, min(stop, 2), user("short"))

    assert len(Compactor([Mine(clamp)], BUDGET)(TALK).edits) == 1


def test_aim_at_returns_a_strategy():
    strategy = Mine(lambda view: iter(()), aim_at=lambda goal: None)
    with pytest.raises(TypeError, match=r"aim_at returns a strategy, and that of Mine\(\) None"):
        Compactor([strategy], BUDGET)(TALK)


# --- scorers, summarizers, models -----------------------------------------------------------------


@pytest.mark.parametrize(
    "scores", [None, ["high"] * 12, [None] * 12, [1j] * 12, [math.nan] * 12, [0.5] * 3], ids=repr
)
def test_a_scorer_of_anything_but_a_number_for_each_message_is_named(scores: Any):
    view = Compactor([], BUDGET)(TALK)

    def score(view):
        return scores

    with pytest.raises(ValueError, match=r"^<function .*score at .* 12 messages"):
        order_least_first(score, view, range(12))


def test_a_score_is_anything_that_a_float_can_be_made_of():
    """Decimals, and the numbers of NumPy and PyTorch, are none to `numbers.Real`."""
    view, scores = Compactor([], BUDGET)(TALK), [Decimal(n) for n in range(12)]
    assert order_least_first(lambda view: scores[::-1], view, range(3)) == [2, 1, 0]


def test_a_scorer_may_be_a_generator_and_must_not_be_async():
    async def score(view):
        return [0.5] * 12

    view = Compactor([], BUDGET)(TALK)
    assert score_messages(lambda view: (n for n in range(12)), view) == list(range(12))
    with pytest.raises(ValueError, match="must be a plain function, not the async"):
        ClearToolResults(scorer=score)


@pytest.mark.parametrize("text", [None, 5, b"bytes"])
def test_a_summary_of_anything_but_text_names_its_summarizer(text: Any):
    strategy = Summarize(keep=1, summarizer=lambda *_: Summary(text))
    with pytest.raises(TypeError, match=r"returns a Summary of a text, not Summary.*<lambda"):
        Compactor([strategy], BUDGET)(TALK)


def test_a_summary_of_too_many_tokens_makes_no_edit():
    talk = [
        {"role": ("user", "assistant")[n % 2], "content": f"{n}: " + "words " * 400}
        for n in range(12)
    ]
    strategy = Summarize(keep=1, max_tokens=500, summarizer=lambda *_: Summary("long " * 1_000))
    view = Compactor([strategy], BUDGET)(talk)
    assert view.payload == talk
    assert view.attempts[0].outcome == "rejected"
    assert view.attempts[0].reason.endswith("tokens, and may take 500")


@pytest.mark.parametrize(
    "answer",
    [
        *(Answer(None), Answer(b"bytes"), Answer("text", calls=None)),
        *(Answer("text", cost=cost) for cost in ("free", True, 10**400, Decimal("sNaN"))),
    ],
)
def test_an_answer_of_a_model_that_is_none_is_a_failed_answer(answer: Answer):
    for reply in (
        as_model(lambda ask: answer)(None),
        asyncio.run(as_model(lambda ask: answer).acall(None)),
    ):
        assert reply.finish == "error"
        assert "an Answer of a text, with numbers as calls and cost" in reply.error


def test_the_cost_of_an_answer_is_anything_that_a_float_can_be_made_of():
    reply = as_model(lambda ask: Answer("text", cost=Decimal("0.25")))(None)
    assert (reply.text, reply.cost, type(reply.cost)) == ("text", 0.25, float)


# --- stores, triggers, windows, counters, formats -------------------------------------------------


class Loading(MemoryStore):
    """A store with a `load` that returns anything."""

    def __init__(self, edits: Any) -> None:
        super().__init__()
        self.edits = edits

    def __repr__(self) -> str:
        return "Loading()"

    def load(self, tips: Sequence[str]) -> Any:
        return self.edits


@pytest.mark.parametrize("edits", [None, iter(())])
def test_a_store_that_loads_no_sequence_is_named(edits: Any):
    """Edits of a generator were dropped without a word."""
    with pytest.raises(TypeError, match=r"load must return a sequence of edits: Loading\(\)"):
        Compactor([], BUDGET, Loading(edits))(TALK)


class Due(Trigger):
    """A trigger with a result of any type."""

    def __init__(self, result: Any) -> None:
        self.result = result

    def __repr__(self) -> str:
        return "Due()"

    def __call__(self, moment: Any) -> Any:
        return self.result


@pytest.mark.parametrize("result", [None, True, "due", (True, "due")])
@pytest.mark.parametrize(
    "combine", [lambda due: due, lambda due: due | Tokens(9), lambda due: due & Tokens(9)]
)
def test_a_trigger_without_a_result_is_named(result: Any, combine: Callable[[Trigger], Trigger]):
    with pytest.raises(TypeError, match=r"a trigger returns a TriggerResult, not .*: Due"):
        Compactor([], Budget(combine(Due(result)), 50))(TALK)
    with pytest.raises(TypeError, match="a trigger returns a TriggerResult"):
        Compactor([], Budget(1_000_000, 50, soft=Due(result)))(TALK)
    assert Compactor([], Budget(combine(Due(TriggerResult(False, ""))), 50))(TALK).payload == TALK


def test_a_predicate_is_a_plain_function():
    async def is_due(view):
        return False

    for test in ("due", is_due):
        with pytest.raises(ValueError, match="test must be"):
            Predicate(test)


@pytest.mark.parametrize("window", [{"m": 9_000}, "9k", lambda model: "9k", lambda model: 9_000.5])
def test_a_window_is_a_number_a_window_or_a_function(window: Any):
    with pytest.raises(ValueError, match="a window is a number of tokens, a Window or a function"):
        Compactor([], Budget(Fraction(0.5), Fraction(0.1), window=window), model="m")(TALK)


@pytest.mark.parametrize(
    "count",
    [
        lambda message: -100,
        lambda message: math.nan,
        lambda message: "5",
        lambda message: None,
        counter(lambda text: len(text) / 4),
        counter(lambda text: -9),
    ],
)
def test_a_counter_counts_whole_tokens_so_that_the_ledger_can_be_read(count: Any):
    with pytest.raises(ValueError, match="the tokens that `count` gives for a message must be a"):
        Compactor([], BUDGET, count=count)(TALK)


@pytest.mark.parametrize("format", [5, object(), dict])
def test_a_format_that_is_no_codec_is_told_what_it_lacks(format: Any):
    with pytest.raises(FormatError, match="is no codec: it has no NAME, FIELD, "):
        Compactor([], BUDGET, format=format)(TALK)
    with pytest.raises(FormatError, match="is no codec"):
        refold.check(TALK, format)


def test_a_ledger_and_reports_have_their_methods():
    for name in ("ledger", "reports"):
        with pytest.raises(ValueError, match=f"the {name}'?s? .* must be something to call"):
            Compactor([], BUDGET, **{name: "x"})
    assert replace(Compactor([], BUDGET).settings, ledger=None).store
    assert Compactor([], BUDGET, MemoryStore())(TALK).payload == TALK


def test_a_gateway_refuses_faulty_parts_when_its_settings_are_made():
    for strategies in (["Summarize"], Summarize(), [Summarize]):
        with pytest.raises(ValueError, match=r"a strategy is given with|are given in a list"):
            gateway.Settings(strategies=strategies)
    with pytest.raises(ValueError, match="windows must map names of models to a Window, not"):
        gateway.Settings(windows={"m": 9_000}.get)
    strategies = [Summarize()]
    assert gateway.Settings(strategies=iter(strategies)).strategies == (Summarize(),)
