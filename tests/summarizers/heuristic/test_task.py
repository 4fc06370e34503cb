"""A plan that the user approved is in the summary as the text of the task."""

import pytest

from refold.core.view import View
from refold.messages import Message, user
from refold.models.driver import drive
from refold.summarizers.heuristic import RuleSummary
from tests.support.messages import assistant, call
from tests.support.summaries import section, summarize

STEPS = "\n".join(f"{n}. Move `pool_{n}` into `src/pools/part_{n}.py` first." for n in range(6))
PLAN = f"# Pools by parts\n\n{STEPS}\n"
APPROVED = "User has approved your plan. You can now start coding.\n\n"
WORK = [
    assistant("Next I move `pool_3`."),
    *call("Bash", "pool_3 moved", command="sh move.sh 3"),
]


def read_task(*messages: Message) -> str:
    """Return the part of a summary of *messages* with the text of the task."""
    view = View.of([*messages, user("Go on."), assistant("On it.")])
    summary = drive(RuleSummary()(view, 0, len(view.messages) - 2, 4_000))
    return summary.text.partition("## Task, as in: ")[2].partition("\n## ")[0]


@pytest.mark.parametrize(
    ("result", "arguments"),
    [
        (f"{APPROVED}## Approved Plan (edited by user):\n{PLAN}", {"plan": "# Another\n\nNo."}),
        (APPROVED, {"plan": PLAN}),
    ],
)
def test_a_plan_that_a_person_approves_is_the_text_of_the_task(result, arguments):
    shown = call("ExitPlanMode", result, **arguments)
    text = read_task(user("Plan it."), *shown, *WORK)
    assert text == f"the plan that the user approved\n# Pools by parts\n{STEPS}"


def test_a_plan_is_approved_by_a_request_to_implement_it():
    proposed = assistant(f"I propose:\n<proposed_plan>\n{PLAN}</proposed_plan>")
    text = read_task(user("Plan it."), proposed, user("Implement the plan."), *WORK)
    assert text.endswith(f"# Pools by parts\n{STEPS}")


def test_of_a_plan_in_a_request_only_what_was_cut_from_the_request_is_the_task():
    """A plan of 3,000 tokens once stood twice in a summary, twice without its middle."""
    request = user(f"Implement the following plan:\n\n{PLAN}")
    assert read_task(request, assistant("I begin."), *WORK) == ""
    rows = [f"- Move `pool_{n}` into `src/pools/part_{n}.py`, first of all." for n in range(90)]
    text = summarize(
        user("Implement the following plan:\n\n# Pools by parts\n" + "\n".join(rows)),
        assistant("I begin with `pool_45`."),
        call("Bash", "pool_45 moved", command="sh move.sh 45"),
        room=4_000,
    )
    assert "characters …]" in text
    task = section(text, "Task, as in: the plan that the user approved (in parts)")
    assert [row in task for row in (rows[0], rows[45], rows[89])] == [False, True, False]


@pytest.mark.parametrize(
    ("tool", "result", "is_error"),
    [
        ("ExitPlanMode", "The user doesn't want to proceed. Approved by nobody.", True),
        ("exit_plan_mode", "Plan execution was not approved. Remaining in plan mode.", False),
        ("exit_plan_mode", "Plan rejected. User feedback: it was approved by you alone", False),
        ("mcp__pages__exit_plan_mode", f"{APPROVED}{PLAN}", False),
    ],
)
def test_a_plan_that_nobody_approved_is_no_task(tool, result, is_error):
    shown = call(tool, result, is_error=is_error, plan=PLAN)
    assert "the plan that the user approved" not in read_task(user("Plan it."), *shown, *WORK)


def test_a_plan_is_replaced_by_a_text_named_later_and_dropped_after_other_work():
    shown = call("ExitPlanMode", APPROVED, plan=PLAN)
    issue = "# The ring buffer\n\nThe `ring_buffer` drops its oldest entry.\nIt must not drop any."
    named = call("Read", issue, path="docs/issue-7.md")
    text = read_task(user("Plan it."), *shown, *WORK, user("Now docs/issue-7.md."), *named)
    assert text.startswith("docs/issue-7.md\n# The ring buffer")
    elsewhere = [message for n in range(6) for message in (user(f"Page {n}."), assistant("Done."))]
    assert read_task(user("Plan it."), *shown, *WORK, *elsewhere) == ""


def test_a_plan_that_stays_beside_the_summary_is_not_repeated_in_it():
    shown = call("ExitPlanMode", APPROVED + PLAN)
    view = View.of([user("Plan it."), assistant("I look at `pool_1`."), *WORK, *shown, *WORK])
    summary = drive(RuleSummary()(view, 0, 5, 4_000))
    assert "I look at `pool_1`." in summary.text and "## Task" not in summary.text


def test_an_approved_plan_takes_precedence_over_a_text_named_before_it():
    issue = "# The ring buffer\n\nThe `ring_buffer` drops its oldest entry.\nIt must not drop any."
    named = call("Read", issue, path="docs/issue-7.md")
    shown = call("ExitPlanMode", APPROVED, plan=PLAN)
    text = read_task(user("Plan docs/issue-7.md."), *named, *shown, *WORK)
    assert text.startswith("the plan that the user approved")


def test_a_negating_heading_in_a_plan_is_shown_once_above_its_items():
    plan = f"{PLAN}\nDo NOT in any case:\n- touch `pool_8` of it\n- touch `pool_9` of it\n"
    shown = call("ExitPlanMode", APPROVED, plan=plan)
    text = read_task(user("Plan it."), *shown, *WORK)
    assert text.endswith("\nDo NOT in any case:\n- touch `pool_8` of it\n- touch `pool_9` of it")
    assert text.count("Do NOT") == 1


def test_an_error_on_reading_a_task_file_is_not_the_text_of_the_task():
    """A PowerShell error was once shown as the task."""
    where = "In line:1 char:1\n+ Get-Content specs/master/spec.md\n+ CategoryInfo : ObjectNotFound: spec.md"
    error = f"Get-Content : the path spec.md was not found, for it is not there.\n{where}"
    missing = f"Exit code: 1\nWall time: 0.3 seconds\nOutput:\n{error}"
    shown = call("shell_command", missing, command="Get-Content specs/master/spec.md")
    assert read_task(user("Do specs/master/spec.md."), *shown, *WORK) == ""


def test_a_wrapped_list_item_of_a_task_does_not_repeat_its_beginning():
    """Every line of a specification was once repeated before its continuation."""
    items = "- **FR-1**: The system MUST begin the flow of the\n  account at once.\n- It asks the owner\n  and nobody else."
    spec = f"# The mailer\n\n## Parts of it *(mandatory)*\n\n{items}"
    named = call("Read", spec, path="docs/issue-7.md")
    text = read_task(user("Do docs/issue-7.md."), *named, *WORK)
    assert text.endswith(f" ## Parts of it *(mandatory)*\n{items}")


def test_a_plan_is_dropped_after_four_unrelated_requests():
    """A message template was once listed as planned seven requests after it was replaced."""
    shown = call("ExitPlanMode", APPROVED, plan=PLAN)

    def repeat(text, times):
        return [
            m for n in range(times) for m in (user(f"{text} {n}."), assistant("`pool_3` is done."))
        ]

    assert read_task(
        user("Plan it."), *shown, *repeat("I want another template of messages for mails", 3)
    )
    assert not read_task(
        user("Plan it."), *shown, *repeat("I want another template of messages for mails", 4)
    )
    assert read_task(
        user("Plan it."), *shown, *repeat("Now begin with the next phase of all that", 4)
    )


@pytest.mark.parametrize("close", [
    call("bash", "", command="gh issue close 37 --comment done"),
    call("bash", "✓ Closed issue me/app#37 (The ring buffer)", command="./close.sh"),
])  # fmt: skip
def test_an_issue_that_was_closed_is_no_task(close):
    issue = "# The ring buffer\n\nThe `ring_buffer` drops its oldest entry.\nIt must not drop any."
    shown = call("bash", issue, command="gh issue view 37")
    work = [*shown, assistant("I mend the issue of the `ring_buffer`.")]
    assert read_task(user("Do the issue: view 37 of gh."), *work).startswith("gh issue view 37")
    assert read_task(user("Do the issue: view 37 of gh."), *work, *close) == ""


def test_a_task_list_whose_items_are_all_done_is_not_the_task():
    def boxes(mark):
        return "\n".join(f"- [{mark}] T00{n} Write `part_{n}` of it" for n in range(4))

    done, due = (call("Read", boxes(mark), path="docs/tasks.md") for mark in "x ")
    assert read_task(user("Do docs/tasks.md."), *due, *WORK).startswith("docs/tasks.md")
    assert read_task(user("Do docs/tasks.md."), *done, *WORK) == ""
    merged = call("bash", "Fast-forward", command="git pull")
    assert read_task(user("Do docs/tasks.md."), *due, *merged).startswith(
        "docs/tasks.md (may differ: something else changed it since)"
    )


def test_a_document_that_the_first_request_names_is_the_task():
    asks = "Analyse the repository.\nHand in a dashboard of one page within two hours."
    later = [
        m for n in range(6) for m in (user(f"And what of point {n}?"), assistant("Of that: no."))
    ]
    named = call("Read", asks, path="/home/me/work/doc.md")
    text = read_task(user("Please read /home/me/work/doc.md, it is my take-home."), *named, *later)
    assert text == f"/home/me/work/doc.md\n{asks}"
    readme = call("Read", asks, path="README.md")
    assert read_task(user("Please read README.md and correct it."), *readme, *later) == ""


def test_short_lines_of_code_in_a_plan_stay_in_their_place():
    code = "```python\ndef reflow(server):\n    if repair:\n        apply_hierarchy(server)\n```\n"
    shown = call("ExitPlanMode", APPROVED, plan=f"{PLAN}\n{code}")
    text = read_task(user("Plan it."), *shown, *WORK)
    assert "def reflow(server):\n    if repair:\n        apply_hierarchy(server)" in text


def test_a_plan_that_is_approved_by_its_file_name_is_the_text_of_the_task():
    """Gemini CLI's message about the approval was once shown instead."""
    path = "/tmp/plans/pools.md"
    approved = f"Plan approved. Switching to Default mode.\n\nThe plan is stored at: {path}"
    messages = [
        user("Plan it."),
        *call("write_file", "Successfully created.", file_path=path, content=PLAN),
        *call("exit_plan_mode", approved, plan_filename="pools.md"),
    ]
    text = read_task(*messages, *WORK)
    assert text == f"the plan that the user approved\n# Pools by parts\n{STEPS}"
    changed = call("replace", "Done.", file_path=path, old_string="first", new_string="last")
    assert not read_task(*messages[:3], *changed, *messages[3:], *WORK)


def test_a_log_of_tasks_is_no_task():
    """A client's board with hundreds of tasks once took a fifth of a summary."""
    task = '{{"taskId": "f{}", "label": "probe of pool {}", "result_summary": "done at once"}}'
    board = f"[{', '.join(task.format(n, n) for n in range(4))}]"
    shown = call("bash", board, command="cat logs/task-board.json")
    assert read_task(user("What is in task-board.json?"), *shown, *WORK) == ""


READ = "The pool grows by `pool_size` connections.\nIt shrinks after `idle_minutes`.\n"


@pytest.mark.parametrize(
    ("path", "is_task"),
    [
        ("/home/me/todo-app/config/pool.yaml", False),
        ("/home/me/TASK-15/repo/README.md", False),
        (r"C:\work\TASK-15\repo\docker-compose.yml", False),
        ("/home/me/plan/settings.toml", False),
        ("/home/me/app/specs/pools.md", True),
        ("/home/me/app/.specs/2026-11/pools.md", True),
        (r"C:\work\TASK-15\repo\docs\plan.md", True),
        ("/home/me/todo-app/tickets/17.txt", True),
    ],
)
def test_a_file_is_the_task_by_its_name_or_as_a_document_in_a_folder_for_tasks(path, is_task):
    """Issue 12: in a project in `TASK-15` each configuration file was the text of the task."""
    name = path.replace("\\", "/").rpartition("/")[2]
    request = user(f"See {name} and mend `pool_size`.")
    text = read_task(request, *call("Read", READ, file_path=path), *WORK)
    assert ("pool_size" in text) == is_task


def test_a_document_that_the_agent_edits_is_shown_once_as_current_text():
    """Issue 12: its text stood in parts under three headings."""
    path = "/home/me/app/ROADMAP.md"
    rows = [f"{n}. Phase {n} moves `pool_{n}` to release {n}.0." for n in range(1, 30)]
    old, new = rows[3], "4. Phase 4 drops `pool_4` from release 4.0."
    messages = [
        user("Have it in the ROADMAP.md, please."),
        *call("Read", "\n".join(f"{n}\t{row}" for n, row in enumerate(rows, 1)), file_path=path),
        *call("Edit", "Updated.", file_path=path, old_string=old, new_string=new),
        *WORK,
    ]
    view = View.of([*messages, user("Go on."), assistant("On it.")])
    text = drive(RuleSummary()(view, 0, len(view.messages) - 2, 6_000)).text
    assert "## Task" not in text
    assert text.count(path) == 2  # among the files, and above its text
    assert f"{rows[2]}\n{new}\n{rows[4]}" in text.partition("## Current text of files")[2]
