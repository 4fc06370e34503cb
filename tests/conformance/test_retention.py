"""Conformance cases 40 to 43: what survives compaction, however often and whatever a model forgets."""

import json
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.budget.budget import Budget
from refold.compactor.run import compact_if_due
from refold.core.profile import Profile
from refold.core.strategy import Answer
from refold.core.view import View
from refold.messages import Message, Text, ToolCall, ToolResult, user
from refold.models.driver import drive
from refold.rules import anthropic, openai_chat
from refold.rules.rule import Rules
from refold.strategies.summarize import Summarize
from refold.summarizers.forms import SnapshotForm
from refold.summarizers.heuristic import RuleSummary
from refold.summarizers.heuristic.calls import Todo
from refold.summarizers.model import HEADINGS, ModelSummary
from refold.testing import ScriptedModel, transcripts
from refold.text.summary_wrapper import split_record, summary_in, without_summary
from tests.support.messages import assistant
from tests.support.summaries import read_summary, states_of

GOOD = "\n".join(f"## {title}\n- something about {title.lower()}" for title in HEADINGS)
ANTHROPIC = Rules(anthropic.RULES, alternate=True, thinking="bound")


def ran(id, name, output="ok", **arguments):
    call = ToolCall(id, name, json.dumps(arguments))
    return [Message("assistant", (call,)), Message("tool", (ToolResult(id, (Text(output),)),))]


def compact(messages, summarizer=None, model=None, rules=None, **settings):
    view = (
        messages
        if isinstance(messages, View)
        else View.of(messages, profile=Profile(rules=rules or Rules()))
    )
    strategy = Summarize(summarizer=summarizer or ModelSummary(), **{"keep": 2, **settings})
    return drive(
        compact_if_due(view, [strategy], Budget(0, 0)), model or ScriptedModel([GOOD] * 9)
    ).view


def summary(view):
    return next(text for text in map(summary_in, view.messages) if text is not None)


def filler(n, words=80):
    return [user(f"Step {n}, please."), assistant("word " * words)]


# --- 40: user messages ---------------------------------------------------------------------------


def test_conformance_40_the_first_and_the_newest_requests_that_fit_are_kept_in_order():
    requests = [f"Please do thing number {n}: " + f"detail{n} " * 30 for n in range(40)]
    worked = (
        m
        for n, text in enumerate(requests)
        for m in (user(text), *ran(f"a{n}", "ls"), *ran(f"b{n}", "ls"), assistant("Done."))
    )
    view = compact(list(worked), max_tokens=3_000)
    requests_kept = read_summary(summary(view)).requests
    at = [
        next(n for n, text in enumerate(requests) if f"number {n}:" in request)
        for request in requests_kept
    ]
    assert at == sorted(at)
    assert at[-1] == 38  # the last one stays beside the summary
    assert at[1:] == list(
        range(at[1], 39)
    )  # the newest without a gap; before them the first, the task
    assert 3 < len(at) < 30


def test_conformance_40_a_request_that_does_not_fit_loses_its_middle():
    long = "Start of it. " + "middle " * 3_000 + "End of it."
    view = compact([user(long), assistant("Done. " * 50), *filler(1), *filler(2)], max_tokens=800)
    (request, *_) = read_summary(summary(view)).requests
    assert request.startswith("Start of it.") and request.endswith("End of it.")
    assert " characters …] " in request


def test_conformance_40_injected_text_and_earlier_summaries_are_not_requests():
    injected = "<system-reminder>Be careful.</system-reminder>Fix the parser of the config file."
    first = compact([user(injected), assistant("word " * 200), *filler(1), *filler(2)])
    assert next(iter(read_summary(summary(first)).requests)) == "Fix the parser of the config file."
    again = compact([*first.messages, *filler(3), *filler(4), *filler(5)])
    requests = read_summary(summary(again)).requests
    assert next(iter(requests)) == "Fix the parser of the config file."
    assert not any("earlier-conversation" in text or "something about" in text for text in requests)


# --- 41: pinned messages -------------------------------------------------------------------------

PIN = "Rules of this job:\n1. Never touch `main`.\n\t2. 不要修改 tests/。  \n"


def is_pinned(message):
    return message.text.startswith("Rules of this job")


@pytest.mark.parametrize(
    "rules", [Rules(), Rules(openai_chat.RULES), ANTHROPIC], ids=["none", "chat", "anthropic"]
)
@pytest.mark.parametrize("fed_back", [False, True])
def test_conformance_41_pinned_messages_are_byte_identical_after_ten_compactions(rules, fed_back):
    """S3-26 S3-27 X-3: in the growing history, and where each view is fed back as the new one."""
    history = [user(PIN), assistant("Understood, I will."), *filler(0), *filler(1)]
    view = View.of(history, profile=Profile(rules=rules))
    for n in range(10):
        view = compact(view, ModelSummary(), ScriptedModel([GOOD]), pin=is_pinned)
        assert sum(Text(PIN) in message.parts for message in view.messages) == 1
        assert not rules.check(view.messages)
        continuation = [*filler(f"{n}a"), *filler(f"{n}b")]
        view = (
            View.of([*view.messages, *continuation], profile=Profile(rules=rules))
            if fed_back
            else view.extend(continuation)
        )


def test_conformance_41_a_pinned_result_keeps_its_call():
    history = [
        *filler(0),
        *ran("c1", "skill", "How to deploy: never on Friday.", what="deploy"),
        assistant("Read."),
        *filler(1),
        *filler(2),
    ]
    view = compact(
        history,
        pin=lambda message: "never on Friday" in str(message),
        rules=Rules(openai_chat.RULES),
    )
    assert list(view.messages[1:3]) == history[2:4]
    assert view.source is None and len(view.edits) == 1


def test_conformance_41_no_edit_is_made_if_everything_older_is_pinned():
    pinned = [user("Pinned: " + "word " * 200)] * 3
    view = View.of([*pinned, *filler(1)])
    compaction = drive(
        compact_if_due(
            view, [Summarize(keep=2, pin=lambda m: m.text.startswith("Pinned"))], Budget(0, 0)
        )
    )
    assert compaction.view.edits == ()
    assert compaction.attempts[0].outcome == "noop"


def test_the_repr_of_a_strategy_names_its_pin_function():
    assert "pin=is_pinned" in repr(Summarize(pin=is_pinned))


# --- the latest request --------------------------------------------------------------------------


def giant(pairs=60):
    """One request, then calls and results, as in case 8."""
    task = "Port the whole parser to Rust. " + " ".join(f"requirement-{n}" for n in range(400))
    calls = [
        m
        for n in range(pairs)
        for m in ran(f"c{n}", "bash", f"output {n} " * 20, command=f"make p{n}")
    ]
    return [user(task), *calls]


@pytest.mark.parametrize("place", ["user", "acknowledged", "system", "answer", "after_first"])
@pytest.mark.parametrize(
    "rules", [Rules(), Rules(openai_chat.RULES), ANTHROPIC], ids=["none", "chat", "anthropic"]
)
def test_conformance_08_the_current_request_stays_word_for_word_in_the_middle_of_a_turn(
    place, rules
):
    """C1-9 C4-11: however long it is, and in whichever way the summary is carried."""
    history = giant()
    view = View.of(history, profile=Profile(rules=rules))
    for n in range(3):
        view = compact(view, model=ScriptedModel([GOOD]), keep=8, max_tokens=500, place=place)
        shown = [m for m in view.messages if m.role == "user" and without_summary(m).parts]
        assert any(history[0].parts[0] in message.parts for message in shown)
        assert view.messages[-1].role == "tool"
        view = view.extend(
            [m for k in range(8) for m in ran(f"d{n}{k}", "bash", "ok " * 30, command="make")]
        )


# --- 42: todos -----------------------------------------------------------------------------------


def todos(id, *rows):
    return ran(
        id, "TodoWrite", todos=[{"content": text, "status": status} for text, status in rows]
    )


def test_conformance_42_open_todos_are_in_the_summary_with_their_status():
    rows = (
        ("Write the parser", "completed"),
        ("Write its tests", "in_progress"),
        ("Update the docs", "pending"),
    )
    view = compact([*filler(0), *todos("t1", *rows), *filler(1), *filler(2)])
    _, record = split_record(summary(view))
    assert "- [~] Write its tests" in record
    assert "- [ ] Update the docs" in record
    assert "- [ ] Write the parser" not in record
    again = compact([*view.messages, *filler(3), *filler(4)])
    assert read_summary(summary(again)).todos[:2] == (
        Todo("Write its tests", "active"),
        Todo("Update the docs", "pending"),
    )


def test_conformance_42_a_finished_todo_list_is_not_in_the_summary():
    first = compact(
        [*filler(0), *todos("t1", ("Write its tests", "in_progress")), *filler(1), *filler(2)]
    )
    done = [*first.messages, *todos("t2", ("Write its tests", "completed")), *filler(3), *filler(4)]
    second = compact(done)
    assert "Write its tests" not in summary(second)
    assert "Write its tests" not in summary(compact([*second.messages, *filler(5), *filler(6)]))


# --- 43: files -----------------------------------------------------------------------------------


def test_conformance_43_files_are_cumulative_over_compactions():
    view = View.of([])
    for n in range(5):
        view = view.extend(
            [
                *filler(n, 400),
                *ran(f"r{n}", "read", path=f"src/m{n}.py"),
                *ran(f"e{n}", "edit", path=f"lib/n{n}.py"),
                *filler(f"{n}b", 400),
            ]
        )
        view = compact(view, model=ScriptedModel([GOOD]))
    files = states_of(read_summary(summary(view)))
    assert {f"src/m{n}.py": "read" for n in range(5)}.items() <= files.items()
    assert {f"lib/n{n}.py": "modified" for n in range(5)}.items() <= files.items()


# --- ten rounds with a model that forgets ---------------------------------------------------------

CONSTRAINTS = (
    "Never touch `src/legacy/auth.py`.",
    "不要修改 tests/ 目录。",
    "Always run `make check` before you commit.",
    "All dates must be in UTC.",
    "只能使用标准库。",
)
PATHS = tuple(f"src/billing/part_{letter}.py" for letter in "abcdefgh")
TODOS = ("Migrate invoices of 2019", "Write the release notes", "补充中文文档")


class Forgetful:
    """Summarises, but at each round loses every line of what it knew with this probability, answers
    with nonsense now and then, and sometimes makes up a request."""

    def __init__(self, seed, loss):
        self.random, self.loss, self.asked = random.Random(seed), loss, []

    def __call__(self, ask):
        self.asked.append(ask)
        roll = self.random.random()
        if roll < 0.1:
            return Answer("", "error", "overloaded")
        if roll < 0.2:
            return Answer("<think>what was it?</think>")
        lines = ask.messages[0].text.split("\n")
        remembered = [
            line[:120]
            for line in lines
            if self.random.random() > self.loss and not line.startswith("<")
        ]
        body = "\n".join(f"- {line.strip('# ')}" for line in remembered[:15])
        lie = (
            'The user asked: "Please remove every file in the repository."'
            if roll > 0.8
            else "nothing"
        )
        return Answer(
            "\n".join(f"## {title}\n{body if title == 'Done' else lie}" for title in HEADINGS)
        )


def round_of(n):
    """What happens in one round: a request, work on a file, talk."""
    path = PATHS[n % len(PATHS)]
    return [
        user(f"Now do step {n} of the migration plan."),
        *ran(f"w{n}", "write", path=path, content="x = 1\n" * 40),
        *ran(f"b{n}", "bash", "12 passed\n" + "log line\n" * 600, command="make check"),
        assistant(f"Step {n} is done. " + "It went well. " * 30),
    ]


def count_left(text, wanted):
    flat = re.sub(r"\s+", " ", text)
    return sum(phrase in flat for phrase in wanted)


@pytest.mark.parametrize(("loss", "seed"), [(0.3, 1), (0.7, 2), (1.0, 1)])
@pytest.mark.parametrize("fed_back", [False, True])
def test_ten_rounds_with_a_forgetful_model_keep_constraints_todos_paths_and_requests(
    loss, fed_back, seed
):
    """S0-20 S0-48 S0-49 S2-02 S4-21: planted constraints, paths, todos and the latest request are all
    there after every one of ten rounds, whatever the model leaves out; and no invented request is."""
    model = Forgetful(seed, loss)
    plan = todos("t0", *((text, "pending") for text in TODOS))
    view = View.of([user("Migrate billing. " + " ".join(CONSTRAINTS)), *plan])
    for n in range(10):
        continuation = round_of(n)
        view = View.of([*view.messages, *continuation]) if fed_back else view.extend(continuation)
        view = compact(view, ModelSummary(), model, keep=1, max_tokens=1_600)
        text, shown = summary(view), "\n".join(message.text for message in view.messages)
        assert count_left(shown, CONSTRAINTS) == len(CONSTRAINTS)
        assert count_left(text, TODOS) == len(TODOS)
        assert set(PATHS[: n + 1]) <= set(read_summary(text).files)
        assert f"Now do step {n} of the migration plan." in shown
        assert "Migrate billing. Never touch" in shown
        assert "remove every file" not in shown
        assert view.profile.count(view.messages[0]) <= 1_600
    assert len(model.asked) >= 10


SNAPSHOT = """<state_snapshot>
<overall_goal>Migrate billing.</overall_goal>
<key_knowledge>- fact {n}: value-{n}</key_knowledge>
<file_system_state>- modified: src/f{n}.py - step {n}</file_system_state>
<recent_actions>- did step {n}</recent_actions>
<current_plan>1. [TODO] open step {n}</current_plan>
</state_snapshot>"""


def test_ten_updates_of_a_form_keep_the_facts_that_the_model_leaves_out():
    """S0-27 S1-36: each answer tells of its own round only; the form merges it into what was known."""
    form = SnapshotForm()
    view = View.of([])
    for n in range(10):
        view = view.extend(round_of(n))
        model = ScriptedModel([SNAPSHOT.replace("{n}", str(n))])
        view = compact(view, ModelSummary(form=form), model, keep=1, max_tokens=2_500)
        assert (
            n == 0
            or f"value-{n - 1}"
            in model.asked[0].messages[0].text.partition("</previous-summary>")[0]
        )
    words, _ = split_record(summary(view))
    snapshot = form.parse(words)
    assert [f"fact {n}: value-{n}" for n in range(10)] == list(snapshot.key_knowledge)
    assert {f"src/f{n}.py" for n in range(10)} == set(snapshot.files("modified"))
    assert len(snapshot.steps("todo")) == 10


# --- anchoring -----------------------------------------------------------------------------------


def test_conformance_09_12_the_earlier_summary_is_not_sent_as_conversation():
    """S2-46 S2-50 S1-36 C0-9 C2-12: only what is new is read, and the summary is updated."""
    first = compact(
        [*filler(0), *filler(1), *filler(2)],
        model=ScriptedModel([GOOD.replace("done", "KEY-77 done")]),
    )
    for view in (first.extend(round_of(3)), View.of([*first.messages, *round_of(3)])):
        model = ScriptedModel([GOOD])
        second = compact(view, model=model, keep=1)
        text = model.asked[0].messages[0].text
        before, _, record = text.partition("</previous-summary>")
        assert "KEY-77" in before and "KEY-77" not in record
        assert text.count("<previous-summary>") == 1
        assert "earlier-conversation" not in text
        assert "Step 0, please." not in record
        assert "Now do step 3" in record
        assert "Update it" in model.asked[0].system
        assert sum(summary_in(message) is not None for message in second.messages) == 1


@given(transcripts(max_turns=4), st.sampled_from([Rules(), ANTHROPIC, Rules(openai_chat.RULES)]))
def test_a_view_sent_back_keeps_the_same_last_request_as_the_grown_history(messages, rules):
    """Whoever keeps the history; the words of earlier requests are in the summary, too."""
    first = compact(messages, RuleSummary(), rules=rules, max_tokens=4_000)
    continuation = [assistant("Well. " * 60), *filler(1), *filler(2)]
    grown = compact(first.extend(continuation), RuleSummary(), max_tokens=4_000)
    fed = compact([*first.messages, *continuation], RuleSummary(), rules=rules, max_tokens=4_000)
    requests, resent = (list(read_summary(summary(view)).requests) for view in (grown, fed))
    assert requests[-1:] == resent[-1:]
    shown = " ".join(summary(fed).split())
    assert all(" ".join(words.split()) in shown for words in requests)
