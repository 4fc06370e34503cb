"""Descriptions of a view for people: one line, text, a diff, and HTML for notebooks."""

import json
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

import refold
from refold.compactor import late_edits
from refold.compactor.by_hand import SHOWN_ORIGINAL_BY
from refold.core.view_lines import (
    break_down,
    describe_strategy,
    diff_lines,
    first_words,
    html_of,
    html_page,
    path_of,
    savings_by_strategy,
    tokens_saved,
    view_lines,
)
from refold.gateway.conversations.persistence import DECIDED
from refold.messages import Message, Text, ToolCall, ToolResult, user
from refold.session_files import demo_session
from refold.strategies import ClearToolResults, Summarize
from refold.summarizers.model import ModelSummary
from refold.testing import transcripts


@pytest.fixture(scope="module")
def view():
    strategies = [ClearToolResults(keep=12), Summarize(keep=12)]
    return refold.Compactor(strategies, refold.Budget(12_000, 12_000), model="claude-haiku-4-5")(
        demo_session(30)
    )


def test_the_repr_of_a_view_states_messages_tokens_and_edits(view):
    assert re.fullmatch(r"<View: \d+ messages, [\d,]+ of [\d,]+ tokens, \d+ edits?>", repr(view))
    assert repr(refold.View.of([user("Hi.")])) == "<View: 1 messages, 5 of 5 tokens, 0 edits>"


def test_b12_parts_of_a_view_add_up_to_its_tokens(view):
    """In the same unit as the total."""
    text = "\n".join(line.text for line in view_lines(view))
    parts = re.findall(r"^(?:#\d+|instead:) \w+ · ([\d,]+) tokens$", text, re.MULTILINE)
    assert view.tokens > 1.2 * view.tokens_uncalibrated
    assert abs(sum(int(part.replace(",", "")) for part in parts) - view.tokens) <= len(parts)
    hidden = sum(view.base.tokens(edit.start, edit.stop) for edit, _ in view.visible_edits)
    assert view.tokens_unedited - view.count_part(hidden) <= view.tokens


def test_a_view_over_its_goal_does_not_fit(view):
    assert view.fits
    assert view.goal == 12_000
    compact = refold.Compactor([Summarize(keep=6)], refold.Budget(50, 50), model="claude-haiku-4-5")
    history = demo_session(12)
    stuck = compact(history)
    assert not stuck.fits
    assert "over its goal of 50" in repr(stuck)
    assert not compact(history).fits  # also while it is not retried
    assert refold.Compactor(model="claude-haiku-4-5")(history[:1]).fits


def test_the_repr_of_losses_states_only_their_numbers(view):
    losses = view.losses()
    assert re.fullmatch(r"<Losses: (\d+ [a-z ]+, )*\d+ [a-z ]+>", repr(losses))
    assert f"{len(losses.identifiers)} identifiers" in repr(losses)
    assert repr(refold.View.of([user("Hi.")]).losses()) == "<Losses: none>"


def test_the_savings_in_the_report_add_up(view):
    head, *rows = view.report().split("\n")
    before, after = (int(number.replace(",", "")) for number in re.findall(r"[\d,]{4,}", head)[:2])
    assert (before, after) == (view.tokens_unedited, view.tokens)
    saved = [
        int(match[1].replace(",", ""))
        for row in rows
        if (match := re.search(r", ([\d,]+) tokens saved", row))
    ]
    assert sum(saved) == pytest.approx(before - after, abs=len(saved))
    assert "summary by rules" in view.report()


def test_strategies_are_described_in_words():
    assert describe_strategy("ClearThinking(keep=2)") == "old thinking cleared"
    assert describe_strategy(repr(Summarize(summarizer=ModelSummary()))) == "summary by a model"
    assert describe_strategy("Mine(x=1)") == "Mine"
    assert describe_strategy("") == "edited by hand"


def test_edits_that_no_strategy_made_are_described_in_words():
    """A preview once listed `settle` and `decided`, and called an original message a summary."""
    assert describe_strategy(late_edits.STRIP_THINKING_BY) == "signed thinking dropped"
    assert describe_strategy(f"{DECIDED} (ClipResults(most=5))") == "long tool results clipped"
    by = f"{SHOWN_ORIGINAL_BY} (SummarizeTo(tokens=9, summarizer=RuleSummary()))"
    assert describe_strategy(by) == "sent unchanged"
    assert describe_strategy("Restore(3)") == "message restored"


def test_a_result_belongs_to_the_latest_call_of_its_id_before_it():
    """Some servers reuse call ids in every turn: all results were once shown with the last call's
    name."""
    messages = [user("start")]
    for name in ("read", "bash"):
        messages.append(Message("assistant", (ToolCall("call_0", name, "{}"),)))
        messages.append(Message("tool", (ToolResult("call_0", (Text(f"of {name} " * 50),)),)))
    view = refold.View.of(messages)
    results = [line.text for line in view_lines(view) if line.kind == "result"]
    assert results == ["← read", "← bash"]
    names = break_down(view).names
    assert names["read"] > 50 and names["bash"] > 50


def test_results_are_headed_by_the_call_that_they_answer():
    call = ToolCall("c1", "Read", '{"path": "src/app.py"}')
    result = Message("user", (ToolResult("c1", (Text("x = 1"),)),))
    lines = [
        line.text
        for line in view_lines(
            refold.View.of([user("Look."), Message("assistant", (call,)), result])
        )
    ]
    assert "← Read src/app.py" in lines
    assert any(line.startswith("#2 tool · ") for line in lines)


class _Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.seen, self.texts = [], [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def test_the_notebook_view_has_a_fold_for_each_edit_and_notes_truncation(view):
    page = _Tags()
    page.feed(view._repr_html_())
    assert page.open == []
    folds = [attrs for tag, attrs in page.seen if tag == "details" and attrs.get("class") == "edit"]
    assert len(folds) == len(view.visible_edits)
    assert "more characters" in html_of(view, 200)
    long = refold.View.of([user(f"word {n} " * 50) for n in range(99)])
    assert "more messages" in html_of(long, 100)
    assert refold.View.of([user("half \ud83d")])._repr_html_().encode()
    whole = _Tags()
    whole.feed(html_page(view, "<b>"))
    assert not any("more characters" in text for text in whole.texts)
    assert all(tag not in ("b", "script", "link", "img") for tag, _ in whole.seen)


@given(transcripts())
def test_an_html_page_escapes_and_shows_all_message_text(messages):
    """Law: no text becomes markup, and none is lost."""
    shown_view = refold.View.of([*messages, user("<script>alert(1)</script> & more")])
    page = _Tags()
    page.feed(html_page(shown_view))
    assert all(tag != "script" for tag, _ in page.seen)
    shown = " ".join("".join(page.texts).split())
    for message in shown_view.messages:
        for part in message.parts:
            if isinstance(part, Text):
                assert " ".join(part.text.replace("\r\n", "\n").split()) in shown


@given(transcripts())
def test_savings_by_strategy_add_up_to_the_savings_of_visible_edits(messages):
    view = refold.View.of(messages)
    stop = max(view.cuts)
    if stop:
        view = view.apply_valid([view.fold(0, stop, user("Gone."), by="mine")])
    assert sum(saving.saved for saving in savings_by_strategy(view)) == sum(
        tokens_saved(view, placed.edit) for placed in view.visible_edits
    )
    text = "\n".join(line.text for line in diff_lines(view))
    assert ("Gone." in text) == bool(view.visible_edits)
    assert view.diff() == text


@given(st.text("abc  购物车的税率🙂", max_size=80), st.integers(1, 40))
def test_the_first_words_of_a_message_fit_a_terminal(text: str, width: int) -> None:
    line = first_words(user(text), width)
    assert cell_len(line) <= width
    whole = " ".join(text.split())
    assert line == whole or not whole or (line.endswith("…") and whole.startswith(line[:-1]))


def test_a_hidden_message_is_shown_in_a_line_that_fits_the_terminal(view) -> None:
    lines = [line.text for line in diff_lines(view, width=60) if line.text.startswith("- #")]
    assert lines and max(map(cell_len, lines)) == 60


def test_the_path_of_a_call_is_in_the_first_argument_that_is_not_empty():
    arguments = {"file_path": "", "path": "a.py", "filePath": 3}
    assert path_of(ToolCall("c1", "read", json.dumps(arguments))) == "a.py"
    assert path_of(ToolCall("c1", "read", '{"file_path": "", "path": null}')) == ""
