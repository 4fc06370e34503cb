"""Details that a seed's user sees (F26): titles, the snapshot's token limit, truncated answers,
importable names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold import Budget, Message, Text
from refold.compactor.run import compact_if_due
from refold.core.strategy import Answer, Ask
from refold.core.view import View
from refold.models.driver import drive
from refold.presets import gemini, prune_compact, soft_hard, two_layer
from refold.presets import measures as formulas
from refold.presets.gemini import Settings, compactor
from refold.presets.soft_hard import CompactionConfig, SoftHardCompactor
from refold.presets.two_layer import ContextCompactor, ContextPolicy
from refold.strategies import Summarize
from refold.summarizers.model import ModelSummary
from refold.testing import ScriptedModel
from refold.text.summary_wrapper import (
    OPEN,
    TITLES,
    is_only_summary,
    summary_in,
    without_summary,
    wrap_summary,
)

SMALL = CompactionConfig(300, 600, 100, keep_recent_messages=2, summary_max_tokens=300)


def history(text: str = "用户问题") -> list[dict]:
    return [
        {
            "role": ("user", "assistant")[n % 2],
            "content": f"{text}{n}。" + "请检查数据库连接。" * 20,
        }
        for n in range(20)
    ]


def test_f26_a_summary_starts_with_the_documented_title():
    """S1-29 S2-26: the English wrapper used to precede 【历史摘要】 and [以下是之前对话的摘要]."""
    messages = history()
    ContextCompactor(ContextPolicy(token_threshold=700, summary_max_tokens=400)).compact(messages)
    assert messages[0]["content"].startswith("【历史摘要】\n")
    result = SoftHardCompactor(SMALL).compact(history())
    assert result.compacted_messages[0]["content"].startswith(result.summary)
    assert result.summary.startswith("[以下是之前对话的摘要]\n讨论主题: ")
    asked = [
        message | {"content": f"How do I check database {n}? " + "filler " * 40}
        for n, message in enumerate(history())
    ]
    assert (
        SoftHardCompactor(SMALL)
        .compact(asked)
        .compacted_messages[0]["content"]
        .startswith(f"{TITLES[2]}\nTopics: ")
    )
    assert summary_in(Message("user", (Text("【历史摘要】\n是什么意思？"),))) is None


@given(
    st.sampled_from(["", *(f"{title}\n" for title in TITLES), TITLES[0], "[Obey]\n"]),
    st.text(max_size=60),
)
def test_f26_a_summary_with_a_title_is_recognised_again(title, text):
    """Law (C0-9): any summary text survives the round trip, and only a known title opens a
    summary."""
    text = title + text.strip()
    message = wrap_summary(text)
    assert summary_in(message) == text.strip()
    assert is_only_summary(message)
    assert message.text.startswith((OPEN, *(f"{title}\n" for title in TITLES)))
    continued = Message("user", (*message.parts, Text("Go on.")))
    assert without_summary(continued).text == "Go on."


SNAPSHOT = (
    "<state_snapshot><overall_goal>g</overall_goal><key_knowledge>- k</key_knowledge><file_system_state>none"
    "</file_system_state><recent_actions>- a</recent_actions><current_plan>- [TODO] p</current_plan></state_snapshot>"
)


def test_f26_the_snapshot_gets_the_full_number_of_summary_tokens():
    """It used to get 1,035 of 2,000 tokens, and the record beside it took the rest."""
    rich = [
        {
            "role": ("user", "assistant")[n % 2],
            "content": f"Never touch src/part{n}.py. Use port {n}. " + "why " * 90,
        }
        for n in range(200)
    ]
    model = ScriptedModel([SNAPSHOT])
    compactor(Settings(20_000), model, format="openai_chat")(rich)
    assert model.asked[0].max_tokens >= 2_000
    alone = ScriptedModel([SNAPSHOT])
    compactor(Settings(20_000, record=False), alone, format="openai_chat")(rich)
    assert 1_900 < alone.asked[0].max_tokens <= 2_000


def ask_for_summary(*answers: Answer | str) -> tuple[list[Ask], str, str]:
    """Return the prompt for a summary of plain text, the outcome, and the resulting text."""
    model = ScriptedModel(answers)
    view = View.of(
        [
            Message(("user", "assistant")[n % 2], (Text(f"Step {n}. " + "words " * 60),))
            for n in range(20)
        ]
    )
    done = drive(
        compact_if_due(
            view, [Summarize(keep=2, summarizer=ModelSummary(headings=()))], Budget(0, 0)
        ),
        model,
    )
    return list(model.asked), done.attempts[0].outcome, done.view.messages[0].text


def test_f26_an_answer_that_is_cut_off_is_requested_once_more():
    """If a model reached its output cap, the whole summary used to be discarded at once."""
    asked, outcome, shown = ask_for_summary(
        Answer("They take many st", "length"), "They take twenty steps."
    )
    assert outcome == "applied"
    assert "They take twenty steps." in shown
    assert "They take many st" not in shown
    assert asked[1].prompt.startswith(asked[0].prompt)
    assert f"within {asked[0].max_tokens // 2} tokens" in asked[1].prompt


@pytest.mark.parametrize(
    "second", [Answer("They take m", "length"), Answer("", "error", "down"), ""]
)
def test_f26_rules_summarise_if_the_retry_of_a_cut_off_answer_fails_too(second):
    """Conformance 33: a truncated answer is never used, and the rule summary replaces it."""
    asked, outcome, shown = ask_for_summary(Answer("They take many st", "length"), second)
    assert (len(asked), outcome) == (2, "degraded")
    assert "They take" not in shown


def test_f26_constants_and_token_counters_can_be_imported_from_their_preset():
    """S1-07 S1-08 S1-09 S1-10 S1-15 S2-24 S4-17 S0-34: from the preset that they belong to."""
    assert two_layer.DEFAULT_TOKEN_THRESHOLD == 60_000
    assert (two_layer.DEFAULT_KEEP_RECENT_TOOLS, two_layer.DEFAULT_MAX_TOOL_LENGTH) == (4, 200)
    assert {"Skill"} == two_layer.BUILTIN_PROTECTED_TOOLS
    assert two_layer.two_ratios is formulas.two_ratios
    assert prune_compact.chinese_and_ascii is formulas.chinese_and_ascii
    assert soft_hard.rather_over is formulas.rather_over
    assert gemini.quarter is formulas.quarter
