"""What people ask again and again stands once: the lines that a request in sight has are left out of
those before it."""

from hypothesis import given
from hypothesis import strategies as st

from refold.core.view import View
from refold.messages import Message, Text, user
from refold.models.driver import drive
from refold.summarizers.heuristic import RuleSummary, read_material, write_summary
from refold.summarizers.heuristic.earlier import read_amendments
from refold.summarizers.heuristic.layout import REPEATED, render_state
from refold.summarizers.heuristic.source import read_source
from refold.summarizers.heuristic.state import State
from refold.text.summary_wrapper import wrap_summary
from tests.support.summaries import collect

STEPS = "\n".join(
    f"{n}. Look at part {n} of the ticket and say in a sentence what is missing." for n in range(9)
)


def ask(ticket, more=""):
    """A request as people write it who work through tickets with a template."""
    return user(
        f"Work on the ticket {ticket}.\n\n{STEPS}\nDo NOT:\n- touch the migrations\n{more}"
        "- merge anything\n"
    )


def says(text):
    return Message("assistant", (Text(text),))


def summarize(messages, stop, beside=(), room=2_000):
    return drive(RuleSummary(beside=beside)(View.of(messages), 0, stop, room)).text


def test_of_a_template_only_what_is_different_stands_in_a_summary():
    talk = [ask("T-17"), says("T-17 is done."), ask("T-18"), says("T-18 is done.")]
    for later in (talk[2:], [*talk[2:], ask("T-19"), says("I look at T-19 now.")]):
        messages = [*talk[:2], *later]
        text = summarize(messages, len(messages) - 2)
        assert "Work on the ticket T-17." in text
        assert "Look at part 3" not in text
        assert REPEATED in text
        assert "touch the migrations" not in text, "it stands in the request behind the summary"


def test_the_same_request_behind_a_summary_is_not_in_it():
    talk = [ask("T-17"), says("Half of T-17 is done."), ask("T-17"), says("I go on with T-17.")]
    text = summarize(talk, 2)
    assert "Look at part" not in text
    assert "ticket" not in text


def test_what_is_left_of_a_list_stands_with_what_turns_it():
    talk = [ask("T-17", "- rename the table\n"), says("T-17 is done."), ask("T-18"), says("Now.")]
    text = summarize(talk, 2)
    assert "Do NOT: rename the table" in text
    assert text.count("rename the table") == text.count("Do NOT: rename the table")


def test_a_shortened_request_is_no_amendment_of_a_later_summary():
    talk = [ask("T-17"), says("T-17 is done."), ask("T-18"), says("T-18 is done.")]
    text = summarize(talk, 2)
    assert REPEATED in text
    assert read_amendments(text, collect(talk[:2])) == []
    later = summarize([*talk[:2], wrap_summary(text), *talk[2:]], 3)
    assert "Notes" not in later


@given(
    st.lists(
        st.lists(st.sampled_from([f"line {n} of a template for tickets" for n in range(9)])),
        min_size=2,
        max_size=4,
    )
)
def test_each_line_of_a_request_stands_in_the_summary_or_in_a_request_in_sight(requests):
    texts = ["\n".join([f"Ticket {at}.", *lines]) for at, lines in enumerate(requests)]
    *hidden, latest = texts
    state = State(requests=dict.fromkeys(hidden, 1), in_sight=frozenset({latest}))
    written = render_state(state, 10_000)
    for line in {line for text in hidden for line in text.split("\n")}:
        assert line in written or line in latest


def test_the_lines_of_a_request_that_has_to_be_cut_are_not_called_shown():
    long = "\n".join(f"{n}. Compare table {n} of the report with the ledger." for n in range(200))
    talk = [user(f"First.\n{long}"), says("Done."), user(f"Second.\n{long}"), says("Done.")]
    material = read_material(read_source(View.of(talk), 0, 4))
    text = write_summary(material, 800, lambda text: len(text) // 3)
    shown = text.partition("## Current request")[2]
    for line in text.partition("## Current request")[0].split("\n"):
        count = int(line.partition("[… ")[2].partition(" ")[0]) if REPEATED in line else 0
        assert count <= shown.count("Compare table")
