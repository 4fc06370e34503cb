"""Decisions, wishes and open items in a summary are current: no reports, no offers, no plans that
are overtaken."""

import json

import pytest

from refold.messages import Message, Text, ToolCall, ToolResult, user
from refold.speakers import request_text
from refold.summarizers.heuristic.answers import find_question
from refold.summarizers.heuristic.current_files import read_files
from refold.summarizers.heuristic.layout import render_state
from refold.summarizers.heuristic.lexicon import find_conclusions, find_constraints
from refold.summarizers.heuristic.steps import read_steps
from refold.text.failures import find_error_line
from tests.support.messages import assistant
from tests.support.summaries import collect, drop_shown, read_summary, section, summarize


def call(name, result="ok", *, say="", is_error=False, **arguments):
    """Return a call with the model's text beside it, and its result."""
    beside = (Text(say),) if say else ()
    return [
        Message("assistant", (*beside, ToolCall("c1", name, json.dumps(arguments)))),
        Message("tool", (ToolResult("c1", (Text(result),), is_error),)),
    ]


def list_open(messages):
    """Return the open items of a summary."""
    text = render_state(collect(messages), 500)
    return text.partition("## Open\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize(
    "text",
    """\
Fixed the leak in `pool_a` successfully.
`pool_a` is now defined in `src/pool.py`.
Implemented `pool_a` and renamed `pool_b`.
已成功修改 `pool_a`，`pool_b` 已完成。
确认 `pool_a` 的状态正常，注意 `pool_b`。
最终由 `pool_a` 决定是按名字匹配。
潜在原因：`pool_a` 被锁。
Possible cause: the problem is `pool_a`.
I’m reading `pool_a` next because its types matter.
I'm also checking `pool_a` because its types matter.
I’ll start with `pool_a` because its types matter.
Wait, the root cause is not `pool_a`.""".splitlines(),
)
def test_a_report_or_a_guess_is_no_decision(text):
    assert not list(find_conclusions(text, final=True))


def test_a_reason_is_a_decision_only_at_the_end_of_a_turn_with_tool_calls():
    reason = "`pool_a` is slow because `pool_b` holds its lock."
    asked = [user("How does it work?")]
    assert not collect([*asked, assistant(reason)]).decisions
    worked = call("bash", command="make")
    assert reason in collect([*asked, *worked, assistant(reason)]).decisions
    step = "Using `pool_b` because this changes `pool_a`."  # about the next call
    assert not collect([*asked, *call("bash", say=step, command="make"), *worked]).decisions


@pytest.mark.parametrize(
    "head", ["决策路径", "How the decision tree works", "選ぶ解決策", "Conclusion", "由谁决定"]
)
def test_a_heading_that_only_resembles_decisions_makes_no_conclusion(head):
    text = f"## {head}\n\n- `pool_a` stays in memory"
    assert not list(find_conclusions(text, final=True))
    settled = text.replace(head, "Decisions made")
    assert list(find_conclusions(settled, final=True))


def test_a_conclusion_that_the_next_request_denies_is_dropped():
    cause = "The problem is the desktop program."
    exchange = [user("Why?"), assistant(cause)]
    assert cause in collect([*exchange, user("Then mend that in the program, please.")]).decisions
    assert not collect(
        [*exchange, user("There is no desktop program, I said that before.")]
    ).decisions
    assert collect([*exchange, user("Do not touch the desktop program any more.")]).decisions


def test_a_cause_of_a_failure_is_dropped_if_the_command_works_unchanged():
    cause = "The problem is that the pond is missing here, it answers with code 503."
    refused = call("bash", "Error: refused\nExit code: 1", command="make pond")
    exchange = [user("Fill it."), *refused, assistant(cause), user("Try again.")]
    again = call("bash", command="make pond")
    assert cause in collect([*exchange, *refused]).decisions
    assert cause in collect([*exchange, *call("bash", command="make net"), *again]).decisions
    assert cause not in collect([*exchange, *again]).decisions


def test_an_open_plan_shows_how_many_turns_ago_it_was_made():
    plan = call("TodoWrite", todos=[{"content": "Write it up", "status": "pending"}])
    planned = [user("Do it."), *plan, assistant("I have read all of it. Shall I go on?")]
    assert list_open([*planned, user("yes")]) == "- [ ] Write it up"
    later = [*planned, user("Now tell me in detail how the other command walks the heap.")]
    assert list_open(later) == "- turns since this plan: 1\n- [ ] Write it up"
    for n in range(3):
        later += [assistant("So."), user(f"And what does the command number {n} of the list do?")]
    assert list_open(later) == "- turns since this plan: 4\n- [ ] Write it up"


@pytest.mark.parametrize("items", [[], [{"sku": "A-7", "status": "shipped"}]])
def test_a_list_of_an_order_is_no_plan(items):
    plan = call("TodoWrite", todos=[{"content": "Write it up", "status": "pending"}])
    order = call("update_order", "Order 17 is updated.", items=items)
    assert list_open([user("Do it."), *plan, *order]) == "- [ ] Write it up"
    assert section(summarize(user("Do it."), order), "Done")[0].endswith("Order 17 is updated.")
    cleared = call("TodoWrite", todos=[])
    assert not list_open([user("Do it."), *plan, *cleared])


def test_the_age_of_a_plan_is_read_from_a_summary_however_old_it_is():
    state = read_summary("## Open\n- turns since this plan: 1200\n- [ ] Write it up")
    assert (state.plan_age, state.next_step) == (1200, "")


def test_an_error_after_which_work_continued_is_dropped_at_the_end_of_the_turn():
    failed = [user("Go."), *call("bash", "error: no way\nExit code: 1", command="install x")]
    question = user("Now tell me in detail what the other program does.")
    assert "no way" in list_open([*failed, assistant("It fails."), question])
    assert "no way" in list_open([*failed, *call("bash", command="make y")])
    assert "no way" not in list_open(
        [*failed, *call("bash", command="make y"), assistant("Well."), question]
    )
    rejected = "The user doesn't want to proceed with this tool use. It was rejected."
    assert not list_open([user("Go."), *call("bash", rejected, is_error=True, command="make")])


def test_a_step_announced_before_a_later_request_is_not_open():
    messages = [user("Go."), *call("Read", say="Let me read the pool.", file_path="/a/pool.py")]
    assert "announced last: Let me read the pool." in list_open(messages)
    assert not list_open([*messages, user("Stop, do something else with the other file.")])
    state = collect(messages)
    drop_shown(state, [user("Stop, do something else with the other file.")])
    assert not state.next_step


def test_a_file_that_is_changed_and_tested_behind_the_summary_is_tested():
    state = collect([user("Go."), *call("Edit", file_path="a.py", old="x", new="y")])
    edit = call("Edit", file_path="a.py", old="y", new="z")
    drop_shown(state, edit)
    assert not state.files["a.py"].is_checked
    drop_shown(state, [*edit, *call("bash", "1 passed", command="pytest")])
    assert state.files["a.py"].is_checked


def test_the_error_line_is_one_with_words_and_not_a_stack_frame():
    output = 'it broke in the pool\n    at drain (pool.js:1:2)\n  File "pool.py", line 3\n  ^^^\n}'
    assert find_error_line(output) == "it broke in the pool"


def test_a_reply_is_paired_with_the_question_above_a_list_or_the_options_chosen():
    ways = "".join(f"- way number {n} of the pool\n" for n in range(9))
    assert (
        find_question(f"I read it.\n\nWhich do you want?\n\n{ways}", "ok") == "Which do you want?"
    )
    text = "1. Write it\n2. Test it\n3. Ship it\nWhat next?"
    assert find_question(text, "1,3") == "1. Write it; 3. Ship it"
    assert find_question(text, "1 e faça tudo sem perguntar") == "1. Write it"


@pytest.mark.parametrize("reply", ["(b)", "[B]", "（b）", "option (b), please", "(2)"])
def test_a_reply_in_brackets_is_paired_with_its_option(reply):
    """Such a reply was paired with nothing."""
    assert find_question("Pick:\n(a) write it\n(b) test it", reply) == "(b) test it"
    assert find_question("Pick:\n(a) write it\n(b) test it", "(a) and (b)").count(";") == 1


def test_a_reply_to_several_questions_is_paired_with_each_chosen_option():
    table = "|Option|Answer|\n|---|---|\n|A      |{0} kept|\n|B      |{0} cut|\n"
    text = "".join(f"## Question {n}\nWhich?\n\n" + table.format(f"pool {n}") for n in (1, 2, 3))
    chosen = "A      /pool 1 kept; B      /pool 2 cut; A      /pool 3 kept".replace("      ", " ")
    assert (
        find_question(text, "Q1:A, Q2:B, Q3:A") == find_question(text, "1. a 2. b 3. a") == chosen
    )


@pytest.mark.parametrize(
    "reply", ["có, làm tất cả và kiểm tra lại", "Yes, do all of it and look twice"]
)
def test_a_reply_that_begins_with_yes_is_paired_with_the_question(reply):
    text = "Shall I write the log of the pool into `pond.md`?"
    assert find_question(text, reply) == text
    assert not find_question(text, reply.partition(", ")[2])


def test_a_question_that_names_nothing_is_quoted_with_its_line():
    text = "I read it.\n\nThe **pool** is to be drained. Shall I?"
    assert find_question(text, "yes") == "The pool is to be drained. Shall I?"
    assert not find_question(text, "启动网关了吗")


@pytest.mark.parametrize(
    "text",
    [
        "[Telegram Al (@al) id:2 +41m 2026-02-08 16:05 GMT+8] Look.",
        "[Sun 2026-03-15 19:59 GMT+8] Look.",
        "[media attached 1/2: a.jpg (image/jpeg)]\n[media attached 2/2: b.jpg]\nTo send an image back, never use paths.\nLook.",
        'Note: Reference memory below; avoid others.\n\nSender (untrusted metadata):\n```json\n{"a": 1}\n```\n\nLook.',
    ],
)
def test_the_prefix_that_a_chat_bridge_adds_is_not_part_of_the_request(text):
    assert request_text(user(text)) == "Look."
    assert not collect([user(text)]).constraints


def test_a_log_line_in_a_request_keeps_its_timestamp():
    text = "[2026-02-08 16:05:11] it stopped"
    assert request_text(user(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        '<file name="a.csv" mime="text/csv"> 1,"Never use it."\nYou must not. </file>',
        'Required shape:\n{"reply": "never"}',
        'Input JSON: {"message": "you must not use it"}',
        "405 Method Not Allowed",
        "Install the required packages.",
        "这些文件不应该放在这里么",
        "Must have been hard for you.",
        "It must've never stopped!",
        "必ず私と組んでくれてた方も組んでくれなくなりました",
    ],
)
def test_data_and_questions_are_no_rules(text):
    assert not list(find_constraints(text))


def test_cue_words_after_a_dash_make_rules_but_those_in_paths_and_options_do_not():
    for rule in ("-never push to main", "Do/don't: touch main", "X is required for each call."):
        assert list(find_constraints(rule)), rule
    for text in (
        "See docs/never of it.",
        "find . -not of x",
        "git push --only x",
        "9:1  error  Prefer default export",
    ):
        assert not list(find_constraints(text)), text


def test_only_the_first_line_of_an_earlier_commands_text_is_shown():
    template = "Pre-compaction memory flush. " + "Store what matters in the memory. " * 40
    for stop, most in ((". ", 11), (".\n", 0)):
        messages = [
            user("Go."),
            assistant("Yes."),
            user(template.replace(". ", stop)),
            assistant("NO_REPLY"),
            user("Next."),
            assistant("So."),
        ]
        text = render_state(collect(messages), 2_000)
        assert "characters …]" in text and text.count("Store what matters") <= most
    rule = user("Pre-compaction memory flush. Never overwrite it.")
    assert collect([rule]).constraints
    assert not collect([rule, assistant("NO_REPLY"), user("Next.")]).constraints


def test_files_named_by_an_explore_agent_are_not_stale():
    read = call("Read", "     1\tlimit = 3", file_path="/a/pool.py")
    for kind, is_stale in (("Explore", False), ("general-purpose", True)):
        task = call("Task", "/a/pool.py holds it", subagent_type=kind, prompt="See /a/pool.py")
        assert (
            read_files(read_steps([user("Go."), *read, *task]))["/a/pool.py"].is_stale is is_stale
        )


@pytest.mark.parametrize(
    ("reply", "question"),
    [("x", "x: Proceed / No Further Actions"), ("A", "A: Advanced Elicitation"), ("q", "")],
)
def test_a_one_letter_reply_is_paired_with_its_menu_item(reply, question):
    """It was once paired with the nearest question, which it did not answer."""
    text = (
        "2. **Pre-mortem** - it has failed, why?\n**x.** Proceed / No Further Actions\n\n"
        "Does this capture it?\n\n**Select:** [A] Advanced Elicitation [C] Continue"
    )
    assert find_question(text, reply) == question
    assert find_question(text, "y") == "Does this capture it?"
