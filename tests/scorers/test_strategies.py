"""Clearing and clipping by importance (issue 3, section 4)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.budget.budget import Budget
from refold.compactor.run import compact_if_due
from refold.core.view import View
from refold.messages import Message, Text, ToolCall, ToolResult, user
from refold.models.driver import drive
from refold.rules import anthropic, openai_chat
from refold.rules.rule import Rules
from refold.scorers import Emphasis, Errors, Freshness, Recency, References, Roles, Weighted
from refold.scorers.scorer import Scorer
from refold.strategies.clear import ClearToolInputs, ClearToolResults
from refold.strategies.first_sight import ClipResults, DropDuplicates
from refold.testing import check_strategy, proposals, transcripts

ANTHROPIC = Rules(anthropic.RULES, alternate=True, thinking="loop")
SCORERS = [
    Errors(),
    Freshness(),
    References(),
    Weighted(((1.0, Recency()), (1.0, Freshness()), (0.5, References()), (0.5, Errors()))),
]
LONG = "line of output\n" * 100


def exchange(n: int, name: str, arguments: str, text: str) -> list[Message]:
    call = ToolCall(f"c{n}", name, arguments)
    return [Message("assistant", (call,)), Message("tool", (ToolResult(call.id, (Text(text),)),))]


def session(*exchanges: tuple[str, str, str]) -> View:
    """Calls and results: those of exchange n stand at 2 n + 1 and 2 n + 2."""
    pairs = (m for n, step in enumerate(exchanges) for m in exchange(n, *step))
    return View.of([user("x"), *pairs, Message("assistant", (Text("so"),))])


def read(path: str) -> tuple[str, str, str]:
    return ("read", f'{{"path":"{path}"}}', LONG)


def write(path: str) -> tuple[str, str, str]:
    return ("write", f'{{"content":"{"x = 1 " * 200}","path":"{path}"}}', "ok")


def down_to(view: View, tokens: int, strategy: ClearToolResults | ClearToolInputs) -> list[int]:
    """Where *strategy* edits a view that has to get down to *tokens* tokens."""
    return [
        edit.start
        for edit in drive(compact_if_due(view, [strategy], Budget(tokens, tokens))).view.edits
    ]


# --- clearing -----------------------------------------------------------------------------------


@pytest.mark.parametrize("scorer", SCORERS, ids=lambda scorer: type(scorer).__name__)
@given(messages=transcripts(), keep=st.integers(0, 3))
def test_clearing_by_importance_keeps_the_laws(
    scorer: Scorer, messages: tuple[Message, ...], keep: int
) -> None:
    for rules in (ANTHROPIC, Rules(openai_chat.RULES)):
        check_strategy(
            ClearToolResults(keep, min_tokens=0, scorer=scorer), rules, examples=[messages]
        )
        check_strategy(
            ClearToolInputs(keep, min_tokens=0, scorer=scorer), rules, examples=[messages]
        )


@pytest.mark.parametrize("scorer", SCORERS, ids=lambda scorer: type(scorer).__name__)
@given(messages=transcripts(tidy=False))
def test_clearing_by_importance_is_idempotent(
    scorer: Scorer, messages: tuple[Message, ...]
) -> None:
    strategy = ClearToolResults(1, min_tokens=0, scorer=scorer)
    once = proposals(View.of(messages), strategy)
    assert list(strategy(once)) == []


@given(transcripts(), st.integers(0, 2_000), st.integers(0, 2_000))
def test_a_smaller_target_clears_at_least_the_same_results(
    messages: tuple[Message, ...], some_target: int, second_target: int
) -> None:
    """What is cleared for a target is cleared for a smaller one too."""
    strategy = ClearToolResults(0, min_tokens=0, scorer=SCORERS[-1])
    cleared_high, cleared_low = (
        set(down_to(View.of(messages), target, strategy))
        for target in (max(some_target, second_target), min(some_target, second_target))
    )
    assert cleared_high <= cleared_low


def test_the_least_important_result_is_cleared_first_and_no_more_than_needed() -> None:
    view = session(read("a.py"), read("b.py"), write("b.py"), read("c.py"), read("d.py"))
    assert down_to(view, view.tokens - 1, ClearToolResults(1)) == [2]
    assert down_to(view, view.tokens - 1, ClearToolResults(1, scorer=Freshness())) == [4]


def test_an_unfixed_error_is_kept_while_a_later_result_is_cleared() -> None:
    failed = ("bash", '{"command":"make"}', LONG + "\nexit code: 2")
    view = session(failed, read("a.py"), read("b.py"))
    assert down_to(view, view.tokens - 1, ClearToolResults(1, scorer=Errors())) == [4]


def test_the_newest_groups_are_kept_whatever_their_score() -> None:
    view = session(read("a.py"), read("b.py"), read("b.py"))
    worst_last: Scorer = lambda view: [-float(at) for at in range(len(view.transcript))]  # noqa: E731 - a scorer
    assert down_to(view, 0, ClearToolResults(2, scorer=worst_last)) == [2]
    assert down_to(view, 0, ClearToolResults(0, scorer=worst_last)) == [6, 4, 2]


def test_a_duplicate_is_cleared_before_the_result_that_it_refers_to() -> None:
    view = session(read("a.py"), read("a.py"), read("b.py"), read("c.py"))
    shown = proposals(view, DropDuplicates())
    oldest_first = ClearToolResults(1, min_tokens=50, scorer=Recency())
    assert [edit.start for edit in proposals(shown, oldest_first).edits][1:] == [4, 2, 6]


def test_inputs_of_overwritten_files_are_cleared_first() -> None:
    view = session(write("a.py"), write("b.py"), write("b.py"), write("c.py"))
    assert down_to(view, view.tokens - 1, ClearToolInputs(1)) == [1]
    assert down_to(view, view.tokens - 1, ClearToolInputs(1, scorer=Freshness())) == [3]


# --- clipping -----------------------------------------------------------------------------------


@given(transcripts())
def test_clipping_by_importance_keeps_the_laws(messages: tuple[Message, ...]) -> None:
    check_strategy(ClipResults(400, scorer=SCORERS[-1]), ANTHROPIC, examples=[messages])


def test_results_with_a_higher_score_are_clipped_less() -> None:
    view = session(("bash", "{}", "x\n" * 9_000), ("bash", "{}", "x\n" * 9_000 + "exit code: 1"))
    shown = proposals(view, ClipResults(1_000, scorer=Weighted(((1, Errors()),))))
    plain, failed = (len(shown.messages[at].parts[0].text) for at in (2, 4))
    assert 1_300 < plain <= 1_500
    assert 1_800 < failed <= 2_000


def test_a_score_of_0_clips_as_if_there_were_no_scorer() -> None:
    view = session(("bash", "{}", "x\n" * 9_000))
    bare, scored = (
        proposals(view, ClipResults(1_000, scorer=scorer)) for scorer in (None, Roles(tool=0.0))
    )
    (plain,), (weighted,) = bare.edits, scored.edits
    assert len(plain.insert[0].parts[0].text) == len(weighted.insert[0].parts[0].text)


def test_emphasis_in_a_user_message_makes_no_result_longer() -> None:
    view = View.of(
        [user("remember everything"), *session(("bash", "{}", "x" * 9_000)).transcript.messages]
    )
    shown = proposals(view, ClipResults(1_000, scorer=Emphasis()))
    assert len(shown.messages[3].parts[0].text) <= 1_000
