"""System messages in mid-history stay in every preset (F10)."""

import asyncio
import copy
import json

import pytest

import refold
from refold.presets.gemini import Settings
from refold.presets.gemini import compactor as gemini
from refold.presets.koog import LLM
from refold.presets.prune_compact import Limits, PruneAndCompact, rebuild_messages
from refold.presets.soft_hard import CompactionConfig, SoftHardCompactor
from refold.presets.two_layer import ContextCompactor, ContextPolicy
from refold.scorers import Emphasis
from refold.testing import ScriptedModel

SMALL = CompactionConfig(300, 600, 100, keep_recent_messages=2, summary_max_tokens=300)
LIMITS = Limits(model_limit=1_000, reserved_output=200, summary_max_tokens=300)
POLICY = ContextPolicy(token_threshold=700, summary_max_tokens=300)
NOTES = [
    {"role": "system", "content": "NEVER touch PROD."},
    {"role": "developer", "content": "Write commit messages in English, whatever the user writes."},
]


def history(turns: int = 9) -> list[dict]:
    """Return turns with an operator's notes after the second and the fourth."""
    messages = [{"role": "system", "content": "You are an agent."}]
    for n in range(turns):
        messages += [
            {"role": "user", "content": f"Step {n}. " + "words " * 60},
            {"role": "assistant", "content": f"Done {n}. " + "words " * 60},
        ]
    return [*messages[:5], NOTES[0], *messages[5:9], NOTES[1], *messages[9:]]


def in_place(compact) -> list[dict]:
    messages = history()
    compact(messages)
    return messages


async def koog() -> list[dict]:
    llm = LLM(history(), ask=ScriptedModel([]))
    async with llm.write_session() as session:
        await session.replace_history_with_tldr()
    return llm.history


SNAPSHOT = "<state_snapshot><overall_goal>g</overall_goal><key_knowledge>- k</key_knowledge><file_system_state>none</file_system_state><recent_actions>- a</recent_actions><current_plan>- [TODO] p</current_plan></state_snapshot>"
WAYS = {
    "gemini": lambda: (
        gemini(Settings(1_500), ScriptedModel([SNAPSHOT]), format="openai_chat")(history()).payload
    ),
    "two_layer": lambda: in_place(ContextCompactor(POLICY).compact),
    "two_layer, a chain": lambda: in_place(
        ContextCompactor(
            ContextPolicy(token_threshold=700, summary_max_tokens=300, incremental=True)
        ).compact
    ),
    "two_layer, with a scorer": lambda: in_place(
        ContextCompactor(
            ContextPolicy(token_threshold=700, summary_max_tokens=300, scorer=Emphasis())
        ).compact
    ),
    "prune_compact": lambda: in_place(PruneAndCompact(None, LIMITS).finish_step),
    "rebuild_messages": lambda: rebuild_messages(history(), "All is well."),
    "soft_hard": lambda: SoftHardCompactor(SMALL).compact(history()).compacted_messages,
    "soft_hard, with a scorer": lambda: (
        SoftHardCompactor(SMALL, scorer=Emphasis()).compact(history()).compacted_messages
    ),
    "koog": lambda: asyncio.run(koog()),
}


@pytest.mark.parametrize("way", WAYS)
def test_f10_system_messages_in_mid_history_are_kept(way):
    """C0-13 C1-6 C4-8 S0-42: gemini, two_layer, soft_hard and prune_compact used to fold an
    operator's "NEVER touch PROD" and a developer's rules away."""
    shown = WAYS[way]()
    assert len(shown) < len(history())
    assert [message for message in shown if message in NOTES] == NOTES
    assert refold.check(shown) == ()


def test_f10_system_messages_are_kept_however_often_the_list_is_compacted():
    """This also holds if the compacted list replaces the history."""
    context, messages = ContextCompactor(POLICY), history()
    for n in range(6):
        messages = json.loads(json.dumps(messages))
        messages += [copy.deepcopy(entry) for entry in history(6) if entry not in NOTES][1:]
        context.compact(messages, f"round {n}")
        assert [message for message in messages if message in NOTES] == NOTES
