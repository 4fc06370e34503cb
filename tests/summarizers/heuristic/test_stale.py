"""A summary does not present as current what no longer holds or never did."""

import json

import pytest

from refold.core.view import View
from refold.messages import Message, Text, ToolCall, ToolResult, user
from refold.models.driver import drive
from refold.summarizers.heuristic import RuleSummary
from refold.summarizers.heuristic.lexicon import find_conclusions, find_notes
from refold.text.plain import first_content_line
from tests.support.messages import assistant
from tests.support.summaries import collect, rate_words

FILE = "\n".join(f"{n:6d}\t    limit_{n} = compute_limit({n})" for n in range(1, 9))


def summarize(messages, stop=None, beside=()):
    """Return the summary of the messages before *stop*."""
    view, stop = View.of(messages), len(messages) if stop is None else stop
    return drive(RuleSummary(beside=beside)(view, 0, stop, 2_000)).text


def call(name, result="", say="", *, is_error=False, **arguments):
    """Return a call with the model's text beside it, and its result."""
    texts = (Text(say),) if say else ()
    request = ToolCall("c1", name, json.dumps(arguments))
    return [
        Message("assistant", (*texts, request)),
        Message("tool", (ToolResult("c1", (Text(result),), is_error),)),
    ]


def edit(old, new, result="Done.", **options):
    return call("Edit", result, file_path="/a/pool.py", old_string=old, new_string=new, **options)


def test_a_line_that_an_edit_replaced_is_not_quoted_however_the_tool_indents():
    read = call("Read", FILE, file_path="/a/pool.py")
    later = edit("    limit_3 = compute_limit(3)", "    limit_3 = read_limit('three')")
    text = summarize([user("Go."), *read, *later, *call("bash", "x" * 9_000, command="cat big")])
    assert "read_limit('three')" in text
    assert "compute_limit(3)" not in text


def test_an_edit_of_a_part_of_a_line_changes_the_line_that_is_shown():
    messages = [
        user("Go."),
        *call("Read", f"{FILE}\n     9\t    total = sum_of(limit_3)", file_path="/a/pool.py"),
        *edit("limit_3", "limit_drei", replace_all=True),
        *edit("limit_5 =", "# the fifth limit\n    limit_5 ="),
        *call("Read", "     1\tplain_name = 1", file_path="/a/other.py"),
    ]
    text = summarize(messages)
    assert "limit_drei = compute_limit(3)\n    limit_4" in text
    assert "total = sum_of(limit_drei)" in text
    assert "limit_4 = compute_limit(4)\n    # the fifth limit\n    limit_5 =" in text
    assert "limit_3" not in text
    small = summarize([*messages, user("x " * 9_000)], beside=())
    assert "limit_3" not in small


def test_files_that_were_touched_long_ago_do_not_fill_a_summary_with_their_text():
    source = "\n".join(f"def handler_{n}(value):\n    return value + {n}\n" for n in range(90))
    work = [user("Go."), *call("Write", "Done.", file_path="/a/pool.py", content=source)]
    talk = [m for n in range(9) for m in call("bash", f"log_{n} " * 9_000, command=f"tail {n}")]
    near, far = (
        text.split("## Current text of files")[1].split("## Excerpts")[0].count("def handler_")
        for text in (summarize(work), summarize([*work, *talk]))
    )
    assert near > 2 * far > 0


@pytest.mark.parametrize("result", [
    "ERROR:\nNo replacement was performed, old_str `limit_3` did not appear verbatim.",
    "Failed to edit, 0 occurrences found for old_string.",
])  # fmt: skip
def test_a_file_is_not_modified_by_an_edit_that_returns_an_error(result):
    read = call("Read", FILE, file_path="/a/pool.py")
    text = summarize([user("Go."), *read, *edit("limit_3", "never_written = 1", result)])
    assert "read: /a/pool.py" in text
    assert "modified" not in text
    assert "never_written" not in text
    assert result[-30:] not in text
    assert "limit_3 = compute_limit(3)" in text


def test_a_file_changed_before_a_failing_test_in_one_command_is_listed():
    command = "sed -i s/a/b/ pool.py && pytest -q"
    denied = "The user does not want to take this action."
    assert (
        "pool.py"
        in collect(call("Bash", "Exit code 1\n1 failed", is_error=True, command=command)).files
    )
    assert not collect(call("Bash", denied, is_error=True, command=command)).files


def test_the_files_of_a_deleted_folder_are_deleted_with_it():
    messages = [
        *call("bash", command="touch app/models.py app2.py"),
        *call("bash", command="rm -r app"),
    ]
    assert {path: file.state for path, file in collect(messages).files.items()} == {
        "app2.py": "created",
        "app": "deleted",
    }


def test_a_heredoc_written_to_a_file_is_the_files_text():
    write = "cat > run.py <<'EOF'\nprint(first_limit, 1)\nEOF\npython run.py"
    again = "cat > run.py <<'EOF'\nprint(second_limit, 2)\nEOF"
    text = summarize([user("Go."), *call("bash", command=write), *call("bash", command=again)])
    assert "### run.py" in text
    assert "second_limit" in text
    assert "first_limit" not in text
    gone = [user("Go."), *call("bash", command=write), *call("bash", command="rm run.py")]
    assert "first_limit" not in summarize(gone)


def test_output_of_a_command_is_not_quoted_once_it_ran_again():
    messages = [
        user("Go."),
        *call(
            "bash", "FAILED tests/test_pool.py::test_drain - no_slot\n1 failed", command="pytest"
        ),
        *call("bash", "12 passed in 3.1s", command="pytest"),
    ]
    text = summarize(messages)
    assert "- pytest -> ok: 12 passed" in text
    assert "FAILED" not in text


def test_an_announced_step_is_listed_until_the_next_text_of_the_model():
    first = call("bash", "ok", "Let me look at pool_size first.", command="make")
    silent = call("bash", "ok", command="make")
    speaking = call("bash", "ok", "It holds 8 connections at most.", command="make")
    assert "announced last: Let me look" in summarize([user("Go."), *first, *silent])
    assert "announced" not in summarize([user("Go."), *first, *speaking])
    curly = call("bash", "ok", "I’ll look at pool_size first.", command="make")
    assert "announced last: I’ll look" in summarize([user("Go."), *curly, *silent])
    earlier = user(
        "<earlier-conversation>\n## Open\n- announced last: Let me look.\n</earlier-conversation>"
    )
    assert "announced last: Let me look." in summarize([earlier, *silent])


def test_a_request_that_stays_beside_the_summary_is_not_repeated_in_it():
    task, later = user("Repair the pool. Never restart it."), user("And write the changelog.")
    messages = [
        task,
        *call("bash", "ok", command="make"),
        later,
        *call("bash", "ok", command="make lint"),
    ]
    text = summarize(messages, beside=(task, later))
    assert "Repair" not in text
    assert "Never" not in text
    assert "- make lint -> ok" in text


def test_only_the_newest_two_conclusions_before_a_call_are_kept():
    thoughts = " ".join(f"The issue is `name_{n}` because it is unset." for n in range(9))
    messages = [user("Go."), *call("bash", "ok", thoughts, command="ls")]
    assert len(collect(messages).decisions) == 2
    assert len(collect([user("Go."), Message("assistant", (Text(thoughts),))]).decisions) == 9


def test_words_shared_with_chinese_do_not_make_conclusions_in_japanese():
    assert not list(find_conclusions("まず構成を確認します。", final=False))
    assert list(find_conclusions("已确认原因是锁被获取两次。", final=False))


def test_a_note_is_a_finding_only_if_it_states_something_about_a_name():
    text = "`mysql_is_mariadb`. `ensure_connection()`. See `pool.py`."
    assert list(find_notes(text)) == ["See `pool.py`."]
    messages = [
        user("Go."),
        *call("bash", "ok", "It seems the configuration is very strict here.", command="make"),
        *call("bash", "ok", "The limit of all stands in `src/limits.py`.", command="make lint"),
        *call("Read", "x", file_path="src/limits.py"),
    ]
    text = summarize(messages)
    assert "The limit of all" in text
    assert "very strict" not in text


def test_tool_output_that_repeats_the_heading_is_not_quoted():
    listing = "Here's the result of running `cat -n` on /a/pool.py:\n" + FILE
    messages = [
        user("Go."),
        *call("Read", listing, file_path="/a/pool.py"),
        *call("bash", "total_lines 12 of it", command="wc -l a_file.py"),
    ]
    text = summarize(messages)
    assert "Here's the result" not in text
    assert "### commands" not in text


def test_questions_and_intentions_are_not_conclusions():
    for text in ("Please confirm whether I may.", "I need to decide which to choose, so I run it."):
        assert not list(find_conclusions(text, final=True))
    for text in ("The root cause: two locks are taken.", "I chose the second way for its speed."):
        assert list(find_conclusions(text, final=True))


def test_code_in_a_chat_answer_is_quoted_in_whole_lines():
    """A model that is asked to write down a design needs it."""
    answer = "The pool of Kiel holds nine.\n```\nexpect(pool_size).not.toEqual(limit_9);\n```\nIt is red."
    chat = [
        user("How many does Kiel hold?"),
        Message("assistant", (Text(answer),)),
        user("And Bonn?"),
    ]
    text = summarize(chat, stop=2)
    assert "holds nine" in text
    assert "expect(pool_size).not.toEqual(limit_9);" in text


def test_only_output_of_a_single_command_is_the_text_of_a_file():
    listed = call(
        "bash", '"vue": "^3.4.21"\nen.json  ja.json', command="cd web && cat package.json && ls"
    )
    shown = call(
        "bash", '"pinia_store": "^2.1.7 of it"', command="cd web && cat pinia.json | head -50"
    )
    text = summarize([user("Go."), *listed, *shown])
    assert "### cat package.json && ls" in text
    assert "### web/pinia.json" in text


def test_output_of_a_command_is_not_quoted_if_the_newest_messages_run_it_again():
    first = call(
        "bash", "FAILED tests/test_pool.py::test_drain - no_slot\n1 failed", command="make"
    )
    again = call("bash", "12 passed", command="make")
    messages = [user("Go."), *first, *again]
    assert "test_drain" in summarize(messages[:3], stop=3)
    assert "test_drain - no_slot" not in summarize(messages, stop=3)


def test_only_short_notes_that_name_something_are_quoted_before_a_call():
    read = call("Read", "x", file_path="src/clock.py")
    brief = "Rows written before have no zone; `src/clock.py` takes them for local."
    thoughts = " ".join(f"Perhaps {word} in `src/clock.py` is odd." for word in "abcde")
    wrong = "Line 317 is wrong and 318 too."
    messages = [user("Go."), *call("bash", "ok", f"{brief} {wrong}", command="make"), *read]
    assert "takes them for local" in summarize(messages)
    assert "Line 317" not in summarize(messages)
    messages = [user("Go."), *call("bash", "ok", f"{brief} {thoughts}", command="make"), *read]
    assert "takes them for local" not in summarize(messages)


def test_the_label_of_an_exchange_does_not_cross_a_sentence():
    asked = ["You're right. Military history is profound.", "What is military history?"]
    answers = [
        "All right.",
        "Military history is profound.",
        *(f"I was in place{n} on day{n}." for n in range(99)),
    ]
    assert rate_words([asked, answers]).find_label(0) == "Military history is profound"


def test_a_line_keeps_its_indentation_by_tabs():
    text = summarize(
        [user("Go."), *call("Read", "     7\t\tdefer release_all(p.mu)", file_path="a.go")]
    )
    assert "\n\tdefer release_all(p.mu)" in text


def test_a_commit_that_prints_nothing_is_listed_with_its_message():
    commit = call("bash", "", command="git add -A && git commit -qm 'web: Orders page' && git push")
    assert collect(commit).checks == {"git commit": "ok: web: Orders page"}
    commit = call("bash", "", command='git commit -m "$(cat <<EOF\nLong.\nEOF\n)"')
    assert collect(commit).checks == {"git commit": "ok"}
    commit = call("bash", "31 passed in 2s", command="pytest -q && git commit -qm 'Mend it'")
    assert collect(commit).checks == {
        "pytest -q": "ok: 31 passed in 2s",
        "git commit": "ok: Mend it",
    }


@pytest.mark.parametrize(("command", "text", "outcome"), [
    ("npm run build && npm start & sleep 3; curl -s localhost; pkill -f npm", "[build] Complete!", None),
    ("npm run build; ls dist | grep missing", "[build] Complete!", None),
    ("npm run build; ls dist | grep missing", "[build] 3 tests passed", "[build] 3 tests passed"),
    ("npm run build && ls dist/missing", "src/a.ts: error TS2304", "exit 1"),
    ("npm run build && git push", "[build] 3 tests passed", "[build] 3 tests passed"),
    ("npm run build", "[build] Complete!", "exit 1"),
])  # fmt: skip
def test_the_exit_code_of_a_compound_command_is_not_that_of_its_check(command, text, outcome):
    state = collect(call("Bash", f"Exit code 1\n{text}", is_error=True, command=command))
    assert state.checks.get("npm run build", None) == outcome or (
        outcome and state.checks["npm run build"].startswith(outcome)
    )
    assert bool(state.failure.call) == bool(outcome and outcome.startswith("exit"))


def test_an_omitted_result_gives_no_outcome():
    gone = "[Compacted history content evicted to cold storage]"
    assert not collect(call("Bash", gone, command="npm test 2>&1 | tail -40")).checks
    failed = call("Bash", "<error: 3 tests failed>", is_error=True, command="npm test")
    assert collect(failed).checks["npm test"].startswith("error")


@pytest.mark.parametrize(("command", "is_deleted"), [
    ("rm -rf app && mkdir -p app/src", False),
    ("rm -rf app && ./build_all.sh", False),
    ("rm -rf app; git checkout -- app", False),
    ("rm -rf app && npm install", False),
    ("rm app/models.py && npm run build", None),
    ("rm -rf app && pytest -q && git add -A && git commit -m x", True),
    ("cd /repo && rm -rf app && ls", True),
])  # fmt: skip
def test_a_folder_that_the_command_may_create_again_is_not_deleted(command, is_deleted):
    creation = f"{'cd /repo && ' * command.startswith('cd')}touch app/models.py"
    messages = [*call("bash", command=creation), *call("bash", command=command)]
    files = {path.split("/repo/")[-1]: file.state for path, file in collect(messages).files.items()}
    if is_deleted is None:
        assert files == {"app/models.py": "deleted"}
    else:
        assert files.get("app") == ("deleted" if is_deleted else None)
        assert files.get("app/models.py") == (None if is_deleted else "created")


def test_a_step_that_was_announced_and_done_is_not_next():
    write = call("Write", "Done.", "Now let me write the adapter.", file_path="/a.py", content="x")
    look = call("Read", FILE, "Now let me look at the adapter.", file_path="/a.py")
    assert collect(write).next_step == ""
    assert collect(look).next_step == "Now let me look at the adapter."
    for out in ("test.log", "/tmp/out.txt"):
        log = call("bash", "", "Now let me write the adapter.", command=f"pytest > {out} 2>&1")
        assert collect(log).next_step == "Now let me write the adapter."


def test_a_failure_is_no_longer_open_after_many_later_changes():
    failed = call("Bash", "Exit code 127\ntimeout: not found", is_error=True, command="timeout 3 x")
    looks = [m for n in range(30) for m in call("bash", f"row {n} is there", command=f"cat {n}")]
    work = [m for n in range(30) for m in edit(f"limit_{n}", f"bound_{n}")]
    assert collect([*failed, *looks]).failure.error
    assert collect([*failed, *work[:20]]).failure.error
    assert not collect([*failed, *work]).failure.error


def test_a_line_that_introduces_a_list_is_not_a_rule_by_itself():
    """Nor are the items below it alone: see test_heads.py."""
    state = collect([user("Do NOT:\n- touch the schema\nEnsure:\nNever delete the old rows.")])
    rules = ["Do NOT: touch the schema", "Ensure: Never delete the old rows."]
    assert list(state.constraints) == rules
    assert not collect([user("Never:"), user("不要：")]).constraints
    for rule in ("Always use pnpm:\nnpm breaks it.", "请务必用中文回答：\n谢谢"):
        assert len(collect([user(rule)]).constraints) == 1


def test_a_fault_is_no_longer_listed_once_its_file_was_changed():
    fault = "The root cause is that `pool.py` never frees a slot."
    line = "The fix is missing: `drain_all()` ignores the limit."
    unchanged = "The problem is that `clock.py` never stops."
    asked = [user("Review it."), assistant(f"{fault} {line} {unchanged}")]
    assert set(collect(asked).decisions) == {fault, line, unchanged}
    assert (
        fault
        in collect(
            [*asked, user("Mend it."), *call("Read", FILE, file_path="/a/pool.py")]
        ).decisions
    )
    done = "Fixed: `pool.py` never freed a slot because `drain_all` was not called."
    changed = [
        *asked,
        user("Mend it."),
        *edit("drain_all(pool)", "drain_some(pool)"),
        assistant(done),
    ]
    assert set(collect(changed).decisions) == {unchanged, done}
    assert (
        done
        in collect([*changed, user("Go on."), *edit("x_1", "x_2", "Error: not found")]).decisions
    )
    text = summarize(changed, stop=2)
    assert "never frees" not in text.partition("## Decisions")[2].partition("##")[0]


def test_a_fault_that_names_no_file_stays_when_a_folder_is_deleted():
    """`rm -r build/` once removed all decisions that name no file."""
    fault = "The root cause is the clock, which runs too fast."
    asked = [user("Review it."), assistant(fault), user("Clean up.")]
    assert set(collect([*asked, *call("bash", command="rm -rf build/")]).decisions) == {fault}


def test_a_cause_assumed_during_a_turn_with_edits_is_dropped_after_it():
    """It was once listed as current beside the files with the fix, or beside another cause."""
    cause, choice = "The root cause is the clock, it is broken.", "We use SQLite here."
    asked = [user("Mend the pool."), *call("bash", "ok", f"{cause} {choice}", command="make")]
    changed, answer = [*asked, *edit("a_1", "a_2")], assistant("All of it runs.")
    following = user("Now write down in the changelog what was changed.")
    assert set(collect([*changed, answer, following]).decisions) == {choice}
    for messages in (
        [*changed, answer],
        [*changed, answer, user("Go on.")],
        [*changed, following],
        [*changed, assistant(cause), following],
        [*asked, answer, following],
        [*asked, answer, following, *edit("a_1", "a_2"), answer, user("Now tidy up the tests.")],
    ):
        assert set(collect(messages).decisions) == {choice, cause}
    text = summarize([*changed, answer, following], stop=3)
    assert choice in text
    assert cause not in text.partition("## Decisions")[2].partition("##")[0]


@pytest.mark.parametrize("lines", ["## Agreed\n\n### Storage\n\n", "Agreed:\n\n- Storage:\n  - "])
def test_an_agreement_below_a_subheading_is_a_conclusion(lines):
    agreed = "SQLite stays for the cache of all sessions."
    assert [text for _, text in find_conclusions(lines + agreed, final=True)] == [agreed]


@pytest.mark.parametrize(
    "decision",
    [
        "I decided not to use Redis in `pool.py` because it is slow.",
        "We use SQLite in `pool.py` because there is no server.",
        "The decision: `pool.py` is wrong to lock, so it never writes.",
        "决定 `pool.py` 不使用 Redis，因为没有服务器。",
    ],
)
def test_a_decision_about_a_file_holds_when_the_file_is_changed(decision):
    messages = [user("Review it."), assistant(decision), user("Do it."), *edit("a_1", "a_2")]
    assert set(collect(messages).decisions) == {decision}


def task_of(messages, stop=None):
    """Return the part of a summary with the text of the task."""
    return summarize(messages, stop).partition("## Task, as in: ")[2].partition("\n## ")[0]


def document(title, count=6):
    return f"# {title}\n\n" + "\n".join(f"{n}. {title} needs step {n} of it." for n in range(count))


def test_the_task_is_the_document_that_the_user_names():
    page = document("How plans come about")
    skill = call(
        "Read",
        document("Design specs"),
        file_path="/h/.agents/skills/deck/references/design-specs.md",
    )
    chosen = call("Read", document("Port the importer"), file_path="/w/.impl/plan.md")
    roadmap = call("Read", document("Rename the exporter"), file_path="/w/roadmap.md")
    read = call("Read", page, file_path="/w/docs/planning/plan-patterns.md")
    change = call(
        "Edit", "Done.", file_path="/w/docs/planning/plan-patterns.md",
        old_string="needs step 2", new_string="wants step 2",
    )  # fmt: skip
    asked = user("Do what .impl/plan.md says.")
    assert task_of([asked, *chosen, *roadmap, *read, *change, *skill]).startswith(
        "/w/.impl/plan.md\n"
    )
    asked = user("Go on with 'Port the importer'.")
    assert task_of([asked, *chosen, *roadmap]).startswith("/w/.impl/plan.md\n")
    asked = user("Go on with the roadmap.")
    assert task_of([asked, *chosen, *roadmap, *read, *change, *skill]).startswith("/w/roadmap.md\n")
    assert not task_of([user("Go on."), *skill])
    assert not task_of([user("Draw the folders."), *roadmap]), "it was read on the way"


def test_the_task_is_whole_though_a_part_of_it_was_read_again():
    whole = document("Port the importer", 9)
    numbered = "\n".join(f"{n:6d}\t{line}" for n, line in enumerate(whole.split("\n"), 1))
    part = "\n".join(numbered.split("\n")[4:7])
    read = [call("Read", text, file_path="/w/plan.md") for text in (numbered, part)]
    text = task_of([user("Do the plan."), *read[0], *read[1]])
    assert [line[:2] for line in text.split("\n")[2:]] == [f"{n}." for n in range(9)]


def test_the_error_of_a_failed_edit_is_cleared_by_another_write_to_its_file():
    failed = edit("a", "b", "String to replace not found in file.", is_error=True)
    assert collect(
        [user("Go."), *failed, *call("Write", path="/a/other.py", content="x")]
    ).failure.error
    assert not collect(
        [user("Go."), *failed, *call("Write", path="/a/pool.py", content="x")]
    ).failure.error


def test_a_failure_is_not_listed_if_its_command_ran_again_after_the_summary():
    ran = "PYTHONPATH=src python3 test_pool.py"
    messages = [
        user("Go."),
        *call(
            "bash", "ModuleNotFoundError: No module named 'yaml'\nexit code: 1", command=ran[15:]
        ),
        *call("bash", "ok", command="make install"),
        *call("bash", "ValueError: no slot\nexit code: 1", command=ran),
    ]
    assert "No module named 'yaml'" in summarize(messages[:3])
    assert "No module named 'yaml'" not in summarize(messages, 5)


def test_a_repeated_answer_is_not_paired_with_the_question_of_an_earlier_one():
    def ask(question):
        return [Message("assistant", (Text(question),)), user("yes")]

    asked = [user("Go on."), *ask("Shall I save the screen?"), *ask("Shall I bind a key?")]
    work = [*call("bash", "ok", command="make"), *call("bash", "ok", command="make")]
    assert 'the answer "yes" is to' not in summarize([*asked, *work], 3)
    assert 'the answer "yes" is to: Shall I bind a key?' in summarize([*asked, *work], 4)


def test_a_file_whose_read_returned_an_error_is_not_listed():
    answer = '{\n  "status": "error",\n  "tool": "read",\n  "error": "ENOENT: no such file"\n}'
    messages = [user("Go."), *call("read", answer, path="/a/memory.md")]
    assert not collect(messages).files
    assert "memory.md" not in summarize(messages)


def test_a_checklist_of_questions_is_not_a_plan():
    checked = "Check by:\n- [ ] Is the key unique?\n- [ ] Nothing is written twice"
    assert "- [ ]" not in summarize([user("Go."), Message("assistant", (Text(checked),))])


def test_only_source_files_are_listed_as_not_tested():
    """Logs, ignore files and temporary scripts once were, too."""
    paths = ("/a/README.md", "/a/.gitignore", "/a/run.log", "/tmp/probe.py", "/a/b.py")
    written = [message for path in paths for message in call("Write", path=path, content="x")]
    text = summarize([user("Go."), *written])
    assert "created, not tested since: /a/b.py\n" in text


def test_all_headings_and_open_items_of_a_long_plan_are_shown():
    """One change of ten was once listed, with everything done."""
    details = "\n".join(f"It touches the module in place {n} of many." for n in range(40))
    parts = "\n".join(f"## Change number {n} of the plan\n\n{details}" for n in range(10))
    boxes = "- [x] Rename the first exporter\n- [ ] Rename the second exporter"
    plan = call("Read", f"# Port the importer\n\n{boxes}\n\n{parts}", file_path="/w/plan.md")
    text = task_of([user("Do plan.md."), *plan, *call("bash", "ok", command="make")])
    assert all(f"## Change number {n} of" in text for n in range(10))
    assert "- [ ] Rename the second exporter" in text and "Rename the first" not in text
    assert " (in parts)\n" in text
    short = call("Read", f"# Port the importer\n\n{boxes}", file_path="/w/plan.md")
    text = task_of([user("Do plan.md."), *short, *call("bash", "ok", command="make")])
    assert "Rename the first" in text and "(in parts)" not in text


def test_the_text_of_a_command_is_not_quoted_as_the_users_request():
    """The example in a command's manual once looked like the user's task."""
    manual = "Pre-compaction memory flush.\n" + "\n".join(
        f"Example {n}: add `user_login_{n}` to `page_{n}`." for n in range(80)
    )
    asked = [user(manual), Message("assistant", (Text("Done."),)), user("Now the next part.")]
    text = summarize([*asked, *call("bash", "ok", command="make")])
    assert "### from a command's text" in text and "from the user's request" not in text
    asked[0] = user(f"Pre-compaction memory flush. {'Store all of it. ' * 90}\n{manual}")
    text = summarize([*asked, *call("bash", "ok", command="make")])
    line = next(row for row in text.split("\n") if row.startswith("- Pre-compaction"))
    assert line.endswith(" characters …] …") and line.count(" characters …]") == 1


def test_arguments_of_a_command_are_shown_in_full_and_its_template_in_one_line():
    """A requested application was once reduced to `## User Input [… 17872 characters …]`."""

    def call_spec_kit(given, path):
        head = f"## User Input\n\n```text\n{given}```\n\nYou **MUST** consider the user input.\n"
        steps = "\n".join(f"{n}. Do part {n} of `{path}` as its own rules say." for n in range(9))
        return user(f"{head}\n## Outline\n\nThis writes `{path}`, step by step.\n\n{steps}\n")

    asked = "We write an application that reads mail.\n它必须支持 Gmail。"
    work = [turn for n in range(9) for turn in call("bash", f"part {n}", command=f"cat {n}.md")]
    text = summarize(
        [
            call_spec_kit(f"{asked}\n", "spec.md"),
            *work,
            Message("assistant", (Text("The `spec.md` is written, with nine stories."),)),
            call_spec_kit("\n", "plan.md"),
            *work,
            Message("assistant", (Text("The `plan.md` is written, with nine parts."),)),
            call_spec_kit("", "tasks.md"),
            *work,
        ]
    )
    requests = text.partition("## Earlier requests\n")[2].partition("## Current")[0].split("\n- ")
    assert requests[0] == "- We write an application that reads mail.\n  它必须支持 Gmail。"
    assert [request[:36] for request in requests[1:]] == [
        "This writes `spec.md`, step by step.",
        "This writes `plan.md`, step by step.",
    ]
    assert (
        "- user: We write an application that reads mail. 它必须支持 Gmail。\n- The `spec" in text
    )
    assert "- user: You **MUST** consider the user input.\n- The `plan" in text
    behind = summarize([call_spec_kit("", "spec.md"), *work, user("Now push it, please.")], 19)
    assert "This writes `spec.md`, step by step." in behind and "Do part 3 of" not in behind


@pytest.mark.parametrize(
    ("text", "opening"),
    [
        ("# A\n\n```text\n[… 3 lines …]\n  It is so.\nOr not.", "It is so."),
        ("\n# A\n## B", "# A"),
        ("", ""),
    ],
)
def test_the_opening_of_a_text_is_its_first_line_with_content(text, opening):
    assert first_content_line(text) == opening


def test_instructions_of_a_chosen_agent_are_not_the_users_request():
    """GitHub Copilot CLI puts them before the user's message."""
    manual = "## User Input\n\n```text\n$ARGUMENTS\n```\n\nWrite nothing but the plan.\n" * 2
    asked = f"<agent_instructions>\n{manual}</agent_instructions>\n\nSell `cart_a` first."
    text = summarize([user(asked), *call("bash", "ok", command="make"), user("Go on.")], 3)
    requests = text.partition("## Last request of this part\n")
    assert requests[2].startswith("- Sell `cart_a` first.\n")
    assert "$ARGUMENTS\n" not in requests[0] and "[… " in requests[0]


def test_a_programs_configuration_folder_is_not_the_root():
    reads = [
        message
        for name in ("skills/a.md", "skills/b.md", "memory/c.md")
        for message in call("Read", "1\tx", file_path=f"/home/me/.agent/{name}")
    ]
    assert "root:" not in summarize([user("Go."), *reads])


@pytest.mark.parametrize(
    ("command", "path", "is_stale"),
    [
        ("npm install react-router-dom", "package.json", True),
        ("cd web && pnpm add -D vite 2>&1 | tail -3", "web/package.json", True),
        ("uv remove flask", "pyproject.toml", True),
        ("go get example.com/pool", "go.mod", True),
        ("npm install", "package.json", False),
        ("npm run add users", "package.json", False),
        ("cargo install ripgrep", "pyproject.toml", False),
    ],
)
def test_a_package_manifest_is_stale_after_a_command_that_adds_a_package(command, path, is_stale):
    """`package.json` was once shown without the installed package."""
    read = call("Read", '{\n  "name": "shop_of_pools",\n  "scripts": {}\n}', file_path=path)
    text = summarize([user("Go."), *read, *call("Bash", "added 4 packages", command=command)])
    assert f"### {path}" in text
    assert (f"### {path} (may differ" in text) == is_stale


@pytest.mark.parametrize(
    "waiting", ["Waiting for the `pool_scan` agent.", "等待 `pool_scan` 完成。"]
)
def test_a_statement_of_waiting_is_not_quoted_in_a_later_turn(waiting):
    """Agents that had long ended once seemed to run on."""
    later = [user("Go on with the report."), assistant("It is written to `report_of_pools.md`.")]
    answer = assistant(f"`pool_read` has 71 rows. {waiting}")
    text = summarize([user("Scan all."), *edit("limit", "bound") * 9, answer, *later])
    assert "71 rows" in text and "pool_scan" not in text
