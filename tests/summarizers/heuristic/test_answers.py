"""A summary attributes the user's answers to a question tool to the user."""

import json

import pytest

from refold.messages import user
from refold.speakers.carriers import IN_RESULT
from refold.summarizers.heuristic.layout import render_state
from refold.summarizers.heuristic.state import State
from tests.support.messages import assistant, call
from tests.support.summaries import collect, read_summary, section

ASKED = [
    {"id": "push", "question": 'Shall I push "main"?', "options": [{"label": "Yes"}]},
    {"id": "log", "question": "Which log?", "options": []},
]
PUSH = "push, and never without a checkpoint, please"


@pytest.mark.parametrize(
    ("tool", "text"),
    [
        (
            "AskUserQuestion",
            f'Your questions have been answered: "Shall I push "main"?"="{PUSH}", "Which log?"="A, B".',
        ),
        (
            "request_user_input",
            json.dumps({"answers": {"push": {"answers": [PUSH]}, "log": {"answers": ["A", "B"]}}}),
        ),
        ("AskQuestions", f'Shall I push "main"? -> {PUSH}\nWhich log? -> A, B'),
        ("mcp__tools__AskQuestions", json.dumps({"answers": {"push": PUSH, "log": ["A", "B"]}})),
    ],
)
def test_the_users_answers_to_questions_are_decisions_and_may_be_rules(tool, text):
    """The user once told the agent to push, and no summary said so."""
    state = collect([user("Make a branch."), *call(tool, text, questions=ASKED)])
    source = f" (so {tool} says)" if tool.startswith("mcp_") else ""
    assert list(state.decisions) == [
        f'user: Shall I push "main"? -> {PUSH}{source}',
        f"user: Which log? -> A, B{source}",
    ]
    assert list(state.constraints) == [IN_RESULT + PUSH]
    assert not state.actions.done


def test_the_users_answers_are_kept_beside_many_requests_and_rules():
    """These once took all the room, so that no answer was listed."""
    asked = [user(f"{n}. Never show page {n} to guests." + " It has bills." * 9) for n in range(40)]
    answers = '"Shall I push?"="to main alone, tagged", "Which log of the two that the server writes?"="the long one"'
    questions = [{"question": "Shall I push?", "options": []}, {"question": "Which?"}]
    state = collect([*asked, *call("AskUser", answers, questions=questions), user("Go on with 9.")])
    text = render_state(state, 300)
    assert "user: Shall I push? -> to main alone, tagged\n" in text
    assert text.endswith("writes? -> the long one")


@pytest.mark.parametrize("field", [{"answers": []}, {"answers": [""]}, None, ""])
def test_a_question_that_was_skipped_has_no_answer(field):
    answers = {"push": {"answers": ["Yes"]}, "log": field}
    asked = call("request_user_input", json.dumps({"answers": answers}), questions=ASKED)
    assert list(collect([user("Go."), *asked]).decisions) == ['user: Shall I push "main"? -> Yes']


def test_a_free_form_answer_is_listed_after_its_question():
    state = collect([user("Go."), *call("ask_user", "**Repo path**: C:\\Work", question="Where?")])
    assert list(state.decisions) == ["user: Where? -> **Repo path**: C:\\Work"]
    reply = call("ask_followup_question", "<answer>\nNot yet\n</answer>", question="Push?")
    assert list(collect([user("Go."), *reply]).decisions) == ["user: Push? -> Not yet"]


def test_a_decision_of_the_model_cannot_pass_for_an_answer_of_the_user():
    state = collect([user("Go."), assistant("user: The root cause is `main`.")])
    assert all(decision.startswith('"user: ') for decision in state.decisions)
    assert state.decisions


@pytest.mark.parametrize(
    ("tool", "text", "arguments"),
    [
        ("AskUserQuestion", "No such tool available", {"question": "Where?"}),
        ("ask_docs", "Pools hold 8.", {"query": "pools"}),
        ("mcp__wiki__ask_question", 'Use `size="="8`.', {"repo": "a/b", "question": "Where?"}),
        ("search", '"Where?"="Here"', {"question": "Where?"}),
        ("ask_user", "", {"question": "Where?"}),
        ("request_user_input", "request_user_input is unavailable", {"question": "Where?"}),
    ],
)
def test_results_that_are_not_the_users_answers_are_not_decisions(tool, text, arguments):
    failed = text.startswith("No such")
    state = collect([user("Go."), *call(tool, text, is_error=failed, **arguments)])
    assert not state.decisions


def test_a_long_answer_keeps_its_beginning_and_end():
    words = "First do this. " + "And then do more of it. " * 60 + "Last do that."
    state = collect([user("Go."), *call("ask_user", words, question="What?")])
    (decision,) = state.decisions
    assert "First do this." in decision and decision.endswith("Last do that.")
    assert len(decision) < 800


def test_a_short_answer_is_not_listed_as_a_rule():
    """`暂时不要` ("not for now") was once a rule without a subject."""
    asked = call(
        "AskUserQuestion",
        '"vila 要纳入吗？"="暂时不要"',
        questions=[{"question": "vila 要纳入吗？"}],
    )
    state = collect([user("Go."), *asked])
    assert (list(state.decisions), list(state.constraints)) == (
        ["user: vila 要纳入吗？ -> 暂时不要"],
        [],
    )


def test_user_notes_beside_a_choice_belong_to_its_question():
    """The next question was once part of the answer, and the answers before it were lost."""
    answers = (
        'User has answered your questions: "どのDB？"="SQLite" user notes: WALで, "並列？"="はい", '
        '"名前？"="Other" user notes: Other. You can now continue with the user\'s answers in mind.'
    )
    questions = [{"question": text} for text in ("どのDB？", "並列？", "名前？")]
    state = collect([user("Go."), *call("AskUserQuestion", answers, questions=questions)])
    assert list(state.decisions) == [
        "user: どのDB？ -> SQLite: WALで",
        "user: 並列？ -> はい",
        "user: 名前？ -> Other",
    ]


def test_the_preview_of_a_choice_is_not_part_of_the_answer():
    """It was once taken for the next question, and that question for the answer."""
    answers = (
        'Your questions have been answered: "Icon?"="Round" selected preview:\n( o ), "Tabs?"='
        '"Bar" selected preview:\n[a] [b] user notes: in blue, "Links?"="A list", "Font?"='
        '"Serif" selected preview:\nfont: "Times";. You can now continue with these answers.'
    )
    questions = [{"question": text} for text in ("Icon?", "Tabs?", "Links?", "Font?")]
    state = collect([user("Go."), *call("AskUserQuestion", answers, questions=questions)])
    assert list(state.decisions) == [
        "user: Icon? -> Round",
        "user: Tabs? -> Bar: in blue",
        "user: Links? -> A list",
        "user: Font? -> Serif",
    ]


def test_an_option_that_the_model_offered_is_not_a_rule_when_chosen():
    """`Zero required` was once a rule without a subject."""
    options = [{"label": "Zero capital required (Recommended)"}]
    asked = {"questions": [{"id": "a", "question": "How much?", "options": options}]}
    answer = json.dumps({"answers": {"a": {"answers": [options[0]["label"]]}}})
    state = collect([user("Go."), *call("request_user_input", answer, **asked)])
    assert list(state.decisions) == ["user: How much? -> Zero capital required (Recommended)"]
    assert not state.constraints


def test_a_short_answer_stands_with_both_of_two_questions():
    """A yes to the first question once stood as one to the second."""
    asked = "I can empty it.\n\nShould I make the list empty now? Or is there another link to use?"
    state = collect([user("Mend it."), assistant(asked), user("yes")])
    question = "Should I make the list empty now? Or is there another link to use?"
    assert state.questions == {"yes": (question,)}


def test_decisions_under_a_heading_show_it_once_and_are_read_back():
    heads = ["What must stay (invariants)"] * 3
    rows = ["An id has no IDENTITY.", "Use `merchant_id`, never the code.", "A card is not merged."]
    decisions = [f"{head}: {row}" for head, row in zip(heads, rows, strict=True)]
    reply = "user: Which first? -> F1", "user: Which last? -> F2"
    state = State(decisions=dict.fromkeys([*decisions, *reply], 3.0))
    text = render_state(state, 2_000)
    assert section(text, "Decisions") == [
        f"- {heads[0]}:", *(f"  - {row}" for row in rows), *(f"- {row}" for row in reply),
    ]  # fmt: skip
    assert [*read_summary(text).decisions] == [*decisions, *reply]
