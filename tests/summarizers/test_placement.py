"""The return value of a summarizer for the strategies that call it."""

import pytest

from refold.budget.budget import Budget
from refold.compactor.run import compact_if_due
from refold.core.strategy import Summary
from refold.core.view import View
from refold.messages import Message, Text, user
from refold.models.driver import drive
from refold.strategies import Summarize, SummarizeTo
from refold.summarizers.model import ModelSummary
from refold.summarizers.placement import MemoryContaining, TaggedOrBeginning, set_field
from refold.testing import ScriptedModel

TALK = View.of(
    [
        message
        for number in range(20)
        for message in (
            user(f"Never touch module_{number}.py when you change the others. " * 20),
            Message("assistant", (Text(f"I decided to keep module_{number}.py. " * 20),)),
        )
    ]
)


@pytest.mark.parametrize("strategy", [Summarize, SummarizeTo])
@pytest.mark.parametrize("value", ["a text", None, Summary])
def test_a_summarizer_that_returns_no_summary_raises_a_clear_type_error(strategy, value):
    """It once raised "too many values to unpack" and "'str' object has no attribute 'send'"."""

    def summarize(view, start, stop, max_tokens):
        yield from ()
        return value

    for summarizer in (summarize, lambda *_: value):
        with pytest.raises(TypeError, match=r"returns a Summary of a text, not "):
            list(strategy(summarizer=summarizer)(TALK))


@pytest.mark.parametrize("strategy", [Summarize, SummarizeTo])
def test_the_reason_names_a_window_too_small_to_ask_the_model(strategy):
    """`SummarizeTo` once did not say that the model was not asked, nor why."""
    strategies = [strategy(summarizer=ModelSummary(window=500))]
    run = compact_if_due(TALK, strategies, Budget(2_000, 1_500))
    (attempt,) = drive(run, ScriptedModel(["never asked"])).attempts
    assert attempt.outcome == "degraded" and "a window of 500 tokens" in attempt.reason


@pytest.mark.parametrize("kind", [MemoryContaining, TaggedOrBeginning])
def test_texts_of_memory_are_one_text_or_several(kind):
    """A single text was read letter by letter, so nearly every message was memory, and a list
    raised TypeError at the first message."""
    for texts in ("tea", ["tea"], iter(["tea", "milk"])):
        is_memory = kind(texts)
        assert is_memory(user("tea is good")) and not is_memory(user("a rate"))
    for wrong in (None, 3, ["tea", None]):
        with pytest.raises(ValueError, match=r"^texts must be a list of names"):
            kind(wrong)


def test_a_summarizer_that_is_no_dataclass_keeps_an_attribute_called_beside():
    """It was taken for the field, and `replace` raised TypeError."""

    class Plain:
        beside = "a file"

    summarizer = Plain()
    assert (
        set_field(summarizer, "beside", (user("x"),)) is summarizer
        and summarizer.beside == "a file"
    )
    assert set_field(ModelSummary(), "beside", (user("x"),)).beside == (user("x"),)
