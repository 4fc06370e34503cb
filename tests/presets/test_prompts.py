"""Every preset with a model accepts a prompt (F11)."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from refold.presets.gemini import Settings
from refold.presets.gemini import compactor as gemini
from refold.presets.koog import (
    LLM,
    Chunked,
    Concept,
    FromLastNMessages,
    RetrieveFactsFromHistory,
    WholeHistory,
    tldr,
)
from refold.presets.prune_compact import (
    SUMMARY_SYSTEM_PROMPT,
    Limits,
    PruneAndCompact,
    generate_summary,
)
from refold.presets.soft_hard import CompactionConfig, SoftHardCompactor
from refold.presets.two_layer import ContextCompactor, ContextPolicy
from refold.summarizers.model import Prompt
from refold.testing import ScriptedModel

SMALL = CompactionConfig(
    300, 600, 100, keep_recent_messages=2, summary_max_tokens=300, use_llm=True
)
LIMITS = Limits(model_limit=1_000, reserved_output=200, summary_max_tokens=300)
POLICY = ContextPolicy(token_threshold=700, summary_max_tokens=300)
OURS = Prompt("house", "Write as this house writes.")


def history() -> list[dict]:
    return [
        {"role": ("user", "assistant")[n % 2], "content": f"Step {n}. " + "words " * 60}
        for n in range(20)
    ]


def koog(strategy: Any, model: ScriptedModel) -> None:
    async def main() -> None:
        async with LLM(history(), ask=model).write_session() as session:
            await session.replace_history_with_tldr(strategy)

    asyncio.run(main())


CONCEPT = Concept("steps", "what was done")
WAYS: dict[str, Callable[[Prompt | str, ScriptedModel], Any]] = {
    "gemini": lambda prompt, model: gemini(
        Settings(1_500, prompt=prompt), model, format="openai_chat"
    )(history()),
    "two_layer": lambda prompt, model: ContextCompactor(POLICY, model, prompt=prompt).compact(
        history()
    ),
    "prune_compact": lambda prompt, model: PruneAndCompact(
        model, LIMITS, prompt=prompt
    ).finish_step(history()),
    "generate_summary": lambda prompt, model: generate_summary(history(), model, prompt=prompt),
    "soft_hard": lambda prompt, model: SoftHardCompactor(SMALL, model=model, prompt=prompt).compact(
        history()
    ),
    "koog, whole": lambda prompt, model: koog(WholeHistory(prompt=prompt), model),
    "koog, last": lambda prompt, model: koog(FromLastNMessages(5, prompt=prompt), model),
    "koog, chunks": lambda prompt, model: koog(Chunked(10, prompt=prompt), model),
    "koog, facts": lambda prompt, model: koog(
        RetrieveFactsFromHistory(CONCEPT, prompt=prompt), model
    ),
}


@pytest.mark.parametrize("prompt", [OURS, OURS.text], ids=["a prompt", "a text"])
@pytest.mark.parametrize("way", WAYS)
def test_f11_every_preset_with_a_model_takes_a_prompt(way, prompt):
    """Only gemini did. The others summarised with their own prompts, whatever rules a company had
    for summaries."""
    model = ScriptedModel(["…"] * 9)
    WAYS[way](prompt, model)
    assert model.asked[0].system.startswith(OURS.text)
    assert model.asked[0].prompt_id.startswith("house@" if prompt is OURS else "custom@")


def test_f11_the_instruction_at_the_end_of_the_request_can_be_replaced_too():
    """The token limit and the current question are inserted into it."""
    ways: tuple[Callable[[ScriptedModel], Any], ...] = (
        lambda model: gemini(
            Settings(1_500, instruction="In {tokens}."), model, format="openai_chat"
        )(history()),
        lambda model: ContextCompactor(POLICY, model, instruction="In {tokens}.").compact(
            history()
        ),
        lambda model: PruneAndCompact(model, LIMITS, instruction="In {tokens}.").finish_step(
            history()
        ),
        lambda model: SoftHardCompactor(SMALL, model=model, instruction="In {tokens}.").compact(
            history()
        ),
        lambda model: koog(WholeHistory(summarizer=tldr(instruction="In {tokens}.")), model),
    )
    for way in ways:
        model = ScriptedModel(["…"] * 9)
        way(model)
        room = model.asked[0].max_tokens * 4 // 5
        assert model.asked[0].prompt == f"In {room}."


def test_f11_the_prompt_of_prune_and_compact_is_the_one_in_the_article():
    """S4-10 S4-21: word for word, including its five points."""
    assert SUMMARY_SYSTEM_PROMPT.text.startswith(
        "You are a helpful AI assistant tasked with summarizing conversations.\n"
        "Focus on information helpful for continuing the conversation:\n"
        "- What was done\n"
        "- What is currently being worked on\n"
        "- Which files are being modified\n"
        "- What needs to be done next\n"
        "- Key user preferences that should persist\n"
    )


def test_f11_a_prompt_given_beside_a_summarizer_is_refused():
    """A custom summarizer has its own prompt."""
    with pytest.raises(ValueError, match="give a prompt, or a summarizer"):
        koog(WholeHistory(summarizer=tldr(), prompt="Short."), ScriptedModel([]))
