"""Retention by importance: what matters stays as it is beside the summary."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.budget.budget import Budget
from refold.compactor.compactor import Compactor
from refold.compactor.settings import parse_strategy as named
from refold.core.view import View
from refold.messages import Message, user
from refold.rules import anthropic, openai_chat
from refold.rules.rule import Rules
from refold.scorers import Emphasis, Errors, Freshness, Recency, References, Roles, Weighted
from refold.scorers.scorer import Scorer, choose_important
from refold.strategies import ClearToolResults, KeepImportant, Summarize
from refold.testing import check_strategy, proposals, transcripts
from refold.text.summary_wrapper import is_only_summary
from tests.support.messages import assistant

ANTHROPIC = Rules(anthropic.RULES, alternate=True, thinking="loop")
FILLER = "We looked at one thing and then at another. " * 20


def talk(*answers: str) -> View:
    """A request before each answer, and two exchanges of no weight at the end."""
    pairs = (
        (user(f"question {n} {FILLER}"), assistant(text))
        for n, text in enumerate((*answers, FILLER, "done"))
    )
    return View.of([message for pair in pairs for message in pair])


def texts(view: View) -> str:
    return "\n".join(message.text for message in view.messages if not is_only_summary(message))


@given(
    transcripts(),
    st.sampled_from([Emphasis(("assistant", "user")), Roles(), Errors(), References()]),
    st.integers(0, 400),
)
def test_it_keeps_the_laws(messages: tuple[Message, ...], scorer: Scorer, cap: int) -> None:
    strategy = KeepImportant(Summarize(2, 400), scorer, 0.5, cap)
    check_strategy(strategy, ANTHROPIC, examples=[messages])
    check_strategy(strategy, Rules(openai_chat.RULES), examples=[messages])


def test_answers_with_the_word_important_are_kept_word_for_word() -> None:
    """S3-25 S2-52 S1-38: a strategy of one's own that keeps the responses containing "important"."""
    rule = "It is important that the port stays 8081. " + "So it must be said at length. " * 9
    view = talk(FILLER, rule, FILLER)
    view_with_rule = proposals(
        view, KeepImportant(Summarize(keep=2), Emphasis(("assistant",), ("important",)))
    )
    assert assistant(rule) in view_with_rule.messages
    assert FILLER.strip() not in texts(proposals(view, Summarize(keep=2))).replace(
        view.messages[-2].text, ""
    )
    assert assistant(rule) not in proposals(view, Summarize(keep=2)).messages
    assert view_with_rule.estimate < view.estimate


def test_a_chinese_message_with_words_of_emphasis_is_kept() -> None:
    """S2-52: importance-based retention."""
    rule = "请记住:发布前务必先备份数据库。" * 8
    view = View.of(
        [
            user(FILLER),
            assistant(FILLER),
            user(rule),
            assistant(FILLER),
            user(FILLER),
            assistant("ok"),
            user("next"),
        ]
    )
    assert user(rule) in proposals(view, KeepImportant(Summarize(keep=2), Emphasis())).messages


def test_a_kept_message_is_still_kept_once_after_later_compactions() -> None:
    rule = assistant("Important: the port stays 8081. " * 9)
    strategy = KeepImportant(Summarize(keep=2), Emphasis(("assistant",)))
    compact = Compactor([strategy], Budget(600, 300))
    history = [
        {"role": m.role, "content": m.text} for m in talk(FILLER, rule.text, FILLER).messages
    ]
    for n in range(3):
        history += [
            {"role": "user", "content": f"more {n} {FILLER}"},
            {"role": "assistant", "content": FILLER},
        ]
        view = compact(history)
        assert [m.text for m in view.messages].count(rule.text) == 1


def test_max_tokens_limits_the_kept_messages_and_prefers_the_newest_of_equals() -> None:
    old, new = (f"Important {n}. " * 40 for n in "ab")
    view = talk(old, new, FILLER)
    room = view.base.tokens(3, 4)
    shown = proposals(
        view, KeepImportant(Summarize(keep=2), Emphasis(("assistant",)), max_tokens=room)
    )
    assert assistant(new) in shown.messages
    assert assistant(old) not in shown.messages
    assert (
        assistant(new)
        not in proposals(
            view, KeepImportant(Summarize(keep=2), Emphasis(("assistant",)), max_tokens=room - 1)
        ).messages
    )


def test_messages_that_the_strategy_pins_are_kept_whatever_their_score() -> None:
    view = talk("The code word is heron. " * 30, FILLER)
    pinned = Summarize(keep=2, pin=lambda message: "heron" in message.text)
    assert "heron" in texts(proposals(view, KeepImportant(pinned, Emphasis(), max_tokens=0)))


def test_choose_important_returns_a_predicate_of_messages() -> None:
    view = talk("Important: one. ", "two")
    pin = choose_important(Emphasis(("assistant",)), view, 0.5, 100)
    assert [pin(message) for message in view.messages[1:4:2]] == [True, False]


def test_the_edit_names_every_setting_but_contains_no_message_text() -> None:
    (edit,) = proposals(
        talk("Important: " + FILLER, FILLER), KeepImportant(Summarize(keep=2), Emphasis())
    ).edits
    assert (
        "Important(scorer=Emphasis(roles=('user',), words=()), over=0.5, max_tokens=4000" in edit.by
    )
    assert "We looked" not in edit.by


def test_invalid_settings_are_refused() -> None:
    with pytest.raises(TypeError, match="no setting `pin`"):
        KeepImportant(ClearToolResults(), Emphasis())
    with pytest.raises(ValueError, match="at least 0"):
        KeepImportant(Summarize(), Emphasis(), max_tokens=-1)


# --- by name ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "strategy",
    [
        ClearToolResults(keep=3, scorer=Freshness()),
        ClearToolResults(scorer=Weighted(((1.0, Recency()), (0.5, Errors(resolved=0.2))))),
    ],
)
def test_a_strategy_with_a_scorer_can_be_parsed_from_its_repr(strategy: ClearToolResults) -> None:
    assert named(repr(strategy)) == strategy


def test_the_setting_of_a_strategy_may_contain_scorers_and_strategies() -> None:
    assert named("keep_important(Summarize(keep=4), Emphasis('assistant'))") == KeepImportant(
        Summarize(keep=4), Emphasis("assistant")
    )
    with pytest.raises(ValueError, match="cannot read the setting"):
        named("ClearToolResults(scorer=open('x'))")
    with pytest.raises(ValueError, match=r"positive|settings"):
        named("ClearToolResults(scorer=Recency(half=0))")
