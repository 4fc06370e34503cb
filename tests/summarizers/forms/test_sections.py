"""Markdown summaries: required headings, typed sections, merging by each heading's kind."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.summarizers.forms import HANDOVER, TLDR, Form, Heading, Sections, SectionsForm
from refold.summarizers.forms.sections import comparison_key

HOSTILE = st.sampled_from([
    "## Next", "Next", "**Done:** x", "```\n## Done\n```", "- a\n- b", "a\n\n  b\nc", "# 标题\n不要修改", "none", "", "\x00\x85\u2028x",
    "</state_snapshot>", "<scratchpad>", "1. Done", "Key Findings:", "Done\nNext\n## Files modified", "~~~", "### Done",
])  # fmt: skip
ENTRIES = st.lists(st.one_of(st.text(), HOSTILE), max_size=4).map(tuple)
FORMS = st.sampled_from([HANDOVER, TLDR])


@st.composite
def values(draw, form):
    return Sections(tuple((h.title, draw(ENTRIES)) for h in form.headings))


WITH_VALUE = FORMS.flatmap(lambda form: st.tuples(st.just(form), values(form), values(form)))


def test_the_handover_has_the_five_sections():
    """S4-10: done, in progress, files modified, next, persistent user preferences."""
    assert [h.title for h in HANDOVER.headings] == [
        "Done",
        "In progress",
        "Files modified",
        "Next",
        "User preferences",
    ]
    assert all(f"## {h.title}\n" in HANDOVER.template for h in HANDOVER.headings)


def test_the_tldr_has_its_five_sections():
    """S3-14: objectives, tools, findings, status, next steps."""
    answer = (
        "Sure!\n\n```markdown\n# 1. Key Objectives\n- Book a flight\n\n**Tools Used & Results:** search: 3 flights\n- pay: refused\n"
        "### Key Findings\nThe card is expired.\n```python\n## Next Steps\n```\n## Current status:\n1. waiting\n## NEXT STEPS\n- none\n```"
    )
    sections = TLDR.parse(answer)
    assert sections["Key Objectives"] == ("Book a flight",)
    assert sections["Tools Used & Results"] == ("search: 3 flights", "pay: refused")
    assert sections["Key Findings"] == ("The card is expired.\n```python\n## Next Steps\n```",)
    assert sections["Current Status"] == ("waiting",)
    assert sections["Next Steps"] == ()


@given(WITH_VALUE)
def test_rendered_sections_are_parsed_back_unchanged(drawn):
    form, value, _ = drawn
    assert form.parse(form.render(value)) == (value if value.entries else None)


@given(WITH_VALUE, st.text("ab .\n", max_size=20))
def test_a_code_fence_and_text_before_it_are_ignored(drawn, before):
    form, value, _ = drawn
    answer = f"<think>\n## {form.headings[0].title}\n- draft\n</think>\n{before}\n```md\n{form.render(value)}\n```"
    assert form.parse(answer) == (value if value.entries else None)


@given(
    FORMS,
    st.one_of(
        st.text(),
        st.lists(st.sampled_from(["## Done", "\n", "```", "**Next**", "- x", " ", "Next: y"])).map(
            "".join
        ),
    ),
)
def test_reading_never_raises(form, text):
    sections = form.parse(text)
    assert sections is None or form.parse(form.render(sections)) == sections


def test_the_missing_headings_are_listed() -> None:
    whole = HANDOVER.template
    first, *_, last = (heading.title for heading in HANDOVER.headings if heading.required)
    assert HANDOVER.list_missing(whole) == []
    lacking = whole.replace(f"## {first}\n", "").replace(f"## {last}\n", "")
    assert HANDOVER.list_missing(lacking) == [first, last]


@pytest.mark.parametrize("title", [h.title for h in HANDOVER.headings])
def test_conformance_34_an_answer_without_a_required_heading_is_not_read(title):
    """S4-10: all five are required, even if one only says none."""
    whole = "\n".join(f"## {h.title}\n- something" for h in HANDOVER.headings)
    assert HANDOVER.parse(whole) is not None
    assert HANDOVER.parse(whole.replace(f"## {title}\n", "")) is None


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "  \n",
        "I will continue.",
        "## Done\n## In progress\n## Files modified\n## Next\n## User preferences\n- 无",
    ],
)
def test_conformance_32_an_empty_answer_is_not_read(answer):
    assert HANDOVER.parse(answer) is None


def test_a_heading_that_is_not_required_may_be_missing_and_chinese_titles_are_known():
    form = SectionsForm(
        "mine", (Heading("Done", "x", aliases=("已完成",)), Heading("Notes", "y", required=False))
    )
    assert form.parse("## 已完成\n- 写了测试") == Sections((("Done", ("写了测试",)),))


@given(WITH_VALUE)
def test_merging_depends_on_the_kind_of_each_heading(drawn):
    form, old, new = drawn
    both = form.merge(old, new)
    for heading in form.headings:
        if heading.kind == "state":
            assert both[heading.title] == new[heading.title]
        else:
            entries = (*old[heading.title], *new[heading.title])
            assert {comparison_key(text) for text in both[heading.title]} == {
                comparison_key(text) for text in entries
            }
    assert form.merge(None, new) == new
    assert form.merge(both, new) == form.merge(form.merge(both, new), new)


def test_ten_rounds_of_forgetful_updates_lose_nothing():
    now = None
    for n in range(10):
        update = Sections((("Done", (f"did {n}",)), ("In progress", (f"doing {n}",)), ("Files modified", (f"{n}.py",)),
                         ("User preferences", (f"never {n}",) if n < 2 else ())))  # fmt: skip
        now = HANDOVER.merge(now, HANDOVER.parse(HANDOVER.render(update)))
        now = HANDOVER.parse(HANDOVER.render(now))
    assert [len(now[h.title]) for h in HANDOVER.headings] == [10, 1, 10, 0, 2]
    assert now["In progress"] == ("doing 9",)


@given(WITH_VALUE)
def test_shortening_keeps_standing_entries(drawn):
    form, value, _ = drawn
    now = value
    while (less := form.shorten(now)) is not None:
        assert len(form.render(less)) < len(form.render(now))
        now = less
    assert all(now[h.title] == (() if h.kind == "log" else value[h.title]) for h in form.headings)


def test_handover_and_tldr_are_forms():
    forms: list[Form] = [HANDOVER, TLDR]
    assert [form.name for form in forms] == ["handover", "tldr"]


@pytest.mark.parametrize("heading", ["İn progress", "ın progress"])
def test_a_heading_in_letters_that_only_a_pattern_takes_for_the_same_is_text(heading) -> None:
    text = HANDOVER.render(
        HANDOVER.parse("\n".join(f"## {h.title}\n- a" for h in HANDOVER.headings))
    )
    assert HANDOVER.parse(f"## {heading}\n- b") is None
    assert f"## {heading}" in "\n".join(HANDOVER.parse(f"{text}\n## {heading}")["User preferences"])


def test_a_repeated_entry_of_a_log_stands_where_it_was_repeated():
    """It stayed at its first place, and was dropped before older news."""
    first = Sections((("Done", ("Tests run.", "Docs written.")),))
    merged = HANDOVER.merge(first, Sections((("Done", ("tests run", "Tag set.")),)))
    assert merged["Done"] == ("Docs written.", "tests run", "Tag set.")
    assert HANDOVER.shorten(merged)["Done"] == ("tests run", "Tag set.")
