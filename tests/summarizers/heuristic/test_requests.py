"""Repeated requests are listed once: lines of a visible request are left out of earlier ones."""

import re

from hypothesis import given
from hypothesis import strategies as st

from refold.core.view import View
from refold.messages import user
from refold.models.driver import drive
from refold.summarizers.heuristic import RuleSummary, read_material, write_summary
from refold.summarizers.heuristic.earlier import read_amendments, read_earlier_summaries
from refold.summarizers.heuristic.layout import (
    REPEATED,
    render_state,
    split_request,
    write_request,
)
from refold.summarizers.heuristic.state import Request, State
from refold.summarizers.heuristic.steps import read_source
from refold.text.summary_wrapper import wrap_summary
from tests.support.messages import assistant
from tests.support.summaries import collect, read_summary

STEPS = "\n".join(
    f"{n}. Look at part {n} of the ticket and say in a sentence what is missing." for n in range(9)
)


def ask(ticket, last_lines=""):
    """Return a request like those of people who process tickets with a template."""
    return user(
        f"Work on the ticket {ticket}.\n\n{STEPS}\nDo NOT:\n- touch the migrations\n{last_lines}"
        "- merge anything\n"
    )


def summarize(messages, stop, beside=(), room=2_000):
    return drive(RuleSummary(beside=beside)(View.of(messages), 0, stop, room)).text


def test_lines_that_a_later_request_repeats_are_left_out_of_earlier_ones():
    talk = [ask("T-17"), assistant("T-17 is done."), ask("T-18"), assistant("T-18 is done.")]
    for later in (talk[2:], [*talk[2:], ask("T-19"), assistant("I look at T-19 now.")]):
        messages = [*talk[:2], *later]
        text = summarize(messages, len(messages) - 2)
        assert "Work on the ticket T-17." in text
        assert "Look at part 3" not in text
        assert REPEATED in text
        assert "touch the migrations" not in text, "it stands in the request behind the summary"


def test_a_pasted_log_does_not_take_the_place_of_all_earlier_requests():
    """The user's prohibitions before it were once lost without a mark."""
    wants = [f"Part {n}: keep the old rate of bonds in year {n}." for n in range(90)]
    log = "It fails:\n" + "\n".join(f"at step_{n} (app_{n}.ts:{n})" for n in range(400))
    state = State(requests=dict.fromkeys(["Migrate it.", *wants, log, "Go on."], Request()))
    text = render_state(state, 1_200)
    requests = [item for item in text.split("\n- ") if item.startswith(("Part", "It fails"))]
    assert len(requests) > 10
    assert requests[-1].startswith("It fails:") and " characters …] " in requests[-1]
    assert f"- [… {91 - len(requests)} earlier requests left out …]" in text
    again = read_earlier_summaries([text]).state
    assert not any("left out" in request for request in again.requests)
    assert not read_amendments(text, state)


def test_a_request_that_is_repeated_after_the_summary_is_not_in_it():
    talk = [
        ask("T-17"),
        assistant("Half of T-17 is done."),
        ask("T-17"),
        assistant("I go on with T-17."),
    ]
    text = summarize(talk, 2)
    assert "Look at part" not in text
    assert "ticket" not in text


def test_a_remaining_list_item_is_shown_with_its_negating_heading():
    talk = [
        ask("T-17", "- rename the table\n"),
        assistant("T-17 is done."),
        ask("T-18"),
        assistant("Now."),
    ]
    text = summarize(talk, 2)
    assert "Do NOT: rename the table" in text
    assert text.count("rename the table") == text.count("Do NOT: rename the table")


def test_a_shortened_request_is_no_amendment_of_a_later_summary():
    talk = [ask("T-17"), assistant("T-17 is done."), ask("T-18"), assistant("T-18 is done.")]
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
def test_each_line_of_a_request_is_in_the_summary_or_in_a_visible_request(requests):
    texts = ["\n".join([f"Ticket {at}.", *lines]) for at, lines in enumerate(requests)]
    *hidden, latest = texts
    state = State(requests=dict.fromkeys(hidden, Request()), in_sight=frozenset({latest}))
    written = render_state(state, 10_000)
    for line in {line for text in hidden for line in text.split("\n")}:
        assert line in written or line in latest


def test_lines_cut_from_a_request_are_not_counted_as_shown_elsewhere():
    long = "\n".join(f"{n}. Compare table {n} of the report with the ledger." for n in range(200))
    talk = [
        user(f"First.\n{long}"),
        assistant("Done."),
        user(f"Second.\n{long}"),
        assistant("Done."),
    ]
    material = read_material(read_source(View.of(talk), 0, 4))
    text = write_summary(material, 800, lambda text: len(text) // 3)
    earlier, _, shown = text.partition("## Current request")
    counts = re.findall(rf"\[… (\d+){re.escape(REPEATED)}", earlier)
    assert counts
    assert all(int(count) <= shown.count("Compare table") for count in counts)


WAYS = """Three ways come to mind:

| Way | Effect |
|---|---|
| **A. Drop the cache** | slow |
| **B. Share it** | must be locked |
| **C. One for each worker** | takes memory |

I lean to C. Which of the three shall it be?"""
KEEP = assistant("The pool is ready. Shall I keep the old name, too?")


def list_requests(text):
    """Return the lines of the requests of a summary."""
    asked = text.partition("\n## Open")[0].partition("\n## Decisions")[0]
    return [line for line in asked.split("\n") if line.startswith("- ")]


def test_a_short_answer_is_listed_with_its_question_or_chosen_option():
    talk = [user("Plan the cache."), assistant(WAYS), user("C"), KEEP, user("yes")]
    talk += [
        assistant("Done. Is `pool_b` to go as well?"),
        user("yes"),
        assistant("It is gone."),
        user("So?"),
    ]
    asked = list_requests(summarize(talk, len(talk) - 1))
    assert asked == [
        "- Plan the cache.",
        "- C (to: C. One for each worker / takes memory)",
        "- yes (×2) (to: Shall I keep the old name, too? | Is `pool_b` to go as well?)",
    ]


def test_the_summary_names_the_question_of_an_answer_beside_it():
    talk = [user("Plan the cache."), assistant(WAYS), user("the second one"), assistant("I begin.")]
    line = '- the answer "the second one" is to: B. Share it / must be locked'
    for beside in ((), (talk[2],)):
        assert line in summarize(talk, 2 + len(beside), beside).splitlines()


def test_a_self_contained_request_is_not_paired_with_a_question():
    for words in ("Now write the docs of the importer.", "Which one is faster?", "x\ny"):
        assert not collect([user("Plan."), assistant(WAYS), user(words)]).questions
    assert not collect([user("Plan."), assistant("All is well."), user("Test it now.")]).questions
    assert collect(
        [user("Plan."), assistant("Next comes the lock of the pool."), user("继续")]
    ).questions
    again = [
        user("Plan."),
        assistant(WAYS),
        user("C"),
        *[assistant("A. Stop here\nC. Go on to the end"), user("C")] * 5,
    ]
    assert len(collect(again).questions["C"]) == 2


def test_options_are_recognised_by_any_marker_and_answers_by_any_name_of_one():
    listed = "1. Keep the pool\n2. Drop the pool\n3. Share the pool"
    named = "方案一：保留连接池\n\n方案二：共享连接池"
    for reply, text, way in (
        ("2", listed, "2. Drop the pool"),
        ("２", listed, "2. Drop the pool"),
        ("option B please", "- Option A: keep it\n- Option B: drop it", "Option B: drop it"),
        ("the third", listed, "3. Share the pool"),
        ("第二个", listed, "2. Drop the pool"),
        ("方案二吧", named, "方案二：共享连接池"),
        ("a", "A) Keep\nB) Drop", "A) Keep"),
    ):
        assert collect([user("Plan."), assistant(text), user(reply)]).questions == {reply: (way,)}


def test_an_answer_is_read_back_with_its_questions_and_is_no_amendment():
    talk = [
        user("Plan the cache."),
        assistant(WAYS),
        user("C"),
        KEEP,
        user("yes"),
        assistant("So be it."),
    ]
    text, state = summarize(talk, len(talk)), collect(talk)
    assert read_amendments(text, state) == []
    again = read_summary(text)
    assert again.requests == state.requests and again.questions == state.questions
    later = summarize([wrap_summary(text), *talk[3:5], assistant("So be it.")], 4)
    assert "- C (to: C. One for each worker / takes memory)" in later
    assert "- yes (×2) (to: Shall I keep the old name, too?)" in later
    sight = summarize(talk, 4)
    assert read_amendments(sight, collect(talk[:4])) == []
    assert "is to:" not in read_summary(sight).next_step


@given(st.text(max_size=20), st.integers(1, 99), st.lists(st.sampled_from(["Why?", "a) b"])))
def test_a_request_is_read_back_whatever_it_ends_with(words, times, questions):
    for text in (words, f"{words} (to: x)", f"{words} (×3)", f"{words} (to: x | y) (×2)"):
        item = write_request(text, times, questions)
        assert split_request(item) == (text, times, tuple(questions))


def test_a_pasted_error_does_not_crowd_out_other_requests():
    """It once took all the room of the earlier requests, and seven were left out."""
    error = "\n".join(f"src/part_{n}.ts:{n}:9 - error TS2769: no overload fits" for n in range(40))
    orders = [f"Order {n}: keep the ring buffer of part {n} as it is, please." for n in range(12)]
    asked = [
        "Please build all of it.",
        *orders,
        f"I get this now:\n{error}",
        "Go on with the docs.",
    ]
    state = State(requests=dict.fromkeys(asked, Request()))
    text = render_state(state, 1_400, 1.0)
    assert all(order in text for order in orders)
    assert "I get this now:" in text and "earlier requests left out" not in text
    longer = f"I get this now:\n{error}\n{error}\n{error}"
    alone = State(requests=dict.fromkeys((asked[0], longer, asked[-1]), Request()))
    cut = re.search(r"\[… (\d+) characters …\]", render_state(alone, 1_400, 1.0))
    assert cut and int(cut[1]) < len(longer) * 0.7, "what is left goes to what was cut"


def test_a_short_request_is_whole_or_left_out():
    """A request of 85 characters was once shortened to `work [… 70 characters …] how 2 moths`."""
    words = "The workspace indicator is still bad, can we show the day in red and show two months?"
    asked = ["Please build all of it.", *[f"{words} ({n})" for n in range(9)], "Go on."]
    for room in range(60, 600, 20):
        assert "characters …]" not in render_state(
            State(requests=dict.fromkeys(asked, Request())), room
        )


def test_no_request_is_cut_while_there_is_room():
    """2,700 characters of a request of 1,200 tokens were once cut while half of the room was
    free."""
    order = "Audit it.\n" + "\n".join(f"- check part {n} for broken links" for n in range(110))
    first = "Build it.\n" + "\n".join(f"- page {n} shows the events of week {n}" for n in range(60))
    for asked in ((order,), (first, order), (first, order, "Go on.")):
        text = render_state(State(requests=dict.fromkeys(asked, Request())), 2_700)
        assert all(line in text for request in asked for line in request.split("\n"))


def test_pasted_text_between_requests_does_not_take_the_room_left_over():
    """A stack trace of a thousand tokens was once quoted in full instead of text about the work."""
    trace = "It fails:\n" + "\n".join(f"at step_{n} (app_{n}.ts:{n})" for n in range(100))
    order = "Then:\n" + "\n".join(f"- check part {n} for broken links" for n in range(60))
    asked = ("Build it.", trace, "It works now.", order, "Go on.")
    text = render_state(State(requests=dict.fromkeys(asked, Request())), 2_200)
    assert len(re.findall(r"characters …\]", text)) == 1 and "at step_50 " not in text
    assert all(line in text for line in (asked[0], asked[2], *order.split("\n")))


def test_a_long_request_is_cut_in_a_chat_to_leave_room_for_the_dialogue():
    order = "Audit it.\n" + "\n".join(f"- check part {n} for broken links" for n in range(110))
    state = State(requests=dict.fromkeys([order], Request()))
    assert "characters …]" in render_state(state, 2_700, work=0.5)
    assert "characters …]" not in render_state(state, 2_700, work=1.0)
