"""What of a model's answer is its summary."""

import pytest

from refold.summarizers.model import Prompt
from refold.summarizers.model.accept import Headings, without_reasoning


@pytest.mark.parametrize(
    "text",
    [
        "## Goal\nThe user wants `</think>` to be stripped.",
        "## Goal\nParse `<think>` blocks.\n## Done\n- the parser",
    ],
)
def test_a_summary_about_tags_of_reasoning_is_kept_whole(text) -> None:
    assert without_reasoning(text) == text
    assert without_reasoning(f"<think>hm</think>\n{text}") == text
    assert without_reasoning(f"hm\n</think>\n{text}") == text


@pytest.mark.parametrize("title", ["What next?", "Rules (standing)", "C++"])
def test_a_required_heading_may_end_with_any_character(title) -> None:
    text = f"## Goal\n- a\n## {title}\n- b"
    assert Headings(("Goal", title)).parse(text) == text
    assert Headings(("Goal",)).list_missing("## Goals\n- a") == ["Goal"]


def test_a_value_in_a_prompt_may_hold_the_name_of_another() -> None:
    filled = Prompt("p", "{question} in {part}: {other}").fill(question="What is {part}?", part=2)
    assert filled.text == "What is {part}? in 2: {other}"
    assert Prompt("p", "{a}").fill().text == "{a}"
