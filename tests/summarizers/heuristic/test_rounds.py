"""Summaries of summaries: facts of the first round hold in the tenth, whether the original messages
are still there or only the summary came back."""

import re

from refold.budget.budget import Budget
from refold.compactor.run import compact_if_due
from refold.core.view import View
from refold.messages import Message, Text, ToolCall, ToolResult, user
from refold.models.driver import drive
from refold.speakers import current_request, segment_messages
from refold.strategies import Summarize, SummarizeTo
from refold.summarizers.heuristic.earlier import read_amendments
from refold.summarizers.heuristic.layout import render_state
from refold.text.summary_wrapper import wrap_summary
from tests.support.messages import assistant, call
from tests.support.summaries import collect, read_summary, states_of, summarize

LOG = "\n".join(f"  {at} frame of the traceback, of no use to anybody later" for at in range(90))
"""Text that people paste."""
NAMES = ("Ada", "Grace", "Edsger", "Barbara", "Alan", "Donald", "Leslie", "Robin", "Tony")
PLACES = ("harbour", "hall", "crane", "quay", "gate", "store", "boats", "gauges", "icehouse")


def section(text, title):
    """Return the lines of one section."""
    return text.partition(f"## {title}")[2].partition("\n")[2].partition("\n## ")[0].splitlines()


def go_on(text, *turns, room=2_000):
    """Return the summary of new messages after a summary that came back as history."""
    return summarize(wrap_summary(text), *turns, room=room)


# --- rules that stay ------------------------------------------------------------------------------


def test_a_rule_from_a_truncated_request_is_kept_for_ten_rounds():
    """It was once lost with the cut request, which had no room in a later round."""
    pasted = f"Mend the error:\n{LOG}\nNever mend it yourself, tell me how."
    first = user("Read the notes of the course."), assistant("I have.")
    text = summarize(*first, user(pasted), assistant("It is the encoding."), room=600)
    assert "characters …]" in text
    for at in range(10):
        text = go_on(text, user(f"What of question {at}?\n{LOG}"), assistant("Yes."), room=600)
    assert "Never mend it yourself, tell me how." in text


def test_the_rest_of_a_truncated_sentence_is_not_a_rule():
    given = "## Earlier requests\n- Do it [… 90 characters …]  always as I told you. Never by hand."
    assert [*read_summary(given).constraints] == ["Never by hand."]


def test_requests_that_were_left_out_are_counted_in_later_rounds_too():
    text = ""
    for at in range(12):
        turn = user(f"Request {at} {'of some length ' * 12}"), assistant("Done.")
        text = go_on(text, *turn, room=500) if text else summarize(*turn, room=500)
    items = section(text, "Earlier requests") + section(text, "Last request")
    counts = [int(own) for own in re.findall(r"\[… (\d+) earlier requests", text)]
    shown = sum(item.startswith("- Request") for item in items)
    assert len(counts) == 1
    assert shown + counts[0] + text.count("## Current request") == 12


def test_a_returned_summary_keeps_its_rules_beside_a_long_tool_result():
    """A result that filled the view once left 400 tokens for it, and most rules were lost."""
    rules = [f"Never change the values in part number {at} of the settings." for at in range(20)]
    earlier = "## Rules\n" + "\n".join(f"- {rule}" for rule in rules)
    messages = [wrap_summary(earlier), user("Go on."), *call("bash", LOG, command="make")]
    messages += [assistant("Made."), user("Read the log.")]
    messages += call("bash", LOG * 4 + LOG[:1_800], command="cat log")
    done = drive(compact_if_due(View.of(messages), [SummarizeTo(6_000)], Budget(6_000, 6_000)))
    text = "\n".join(message.text for message in done.view.messages)
    assert all(rule in text for rule in rules)


def test_the_count_of_cut_characters_adds_up_over_rounds():
    words = "Sort the parts of this long list out.\n" + "one part after the other\n" * 400
    text = summarize(
        user(words), assistant("Done."), user("And now?"), assistant("No."), room=1_500
    )
    for _ in range(3):
        text = go_on(text, user("Go on."), assistant("Done."), room=500)
    (count,) = re.findall(r"\[… (\d+) characters …\]", text)
    assert int(count) > 9_000


def test_a_commit_after_a_summary_covers_files_changed_before_it():
    text = summarize(user("Go."), call("write", path="src/a.py", content="a = 1"))
    commit = call(
        "bash",
        "[main 1234567] x\n create mode 100644 src/a.py",
        command="git add -A && git commit -m x",
    )
    assert section(go_on(text, commit), "Files") == ["created, committed: src/a.py"]


def test_an_error_that_is_fixed_after_a_summary_is_no_longer_listed():
    failed = call("bash", "Error: cannot find module x", is_error=True, command="shop enable hook")
    text = summarize(user("Go."), failed, call("bash", "a", command="ls"))
    assert "last error" in text
    again = go_on(text, call("bash", "enabled", command="shop enable hook"))
    assert "last error" not in again
    assert not section(again, "Failed")


def test_a_later_error_replaces_the_last_error_of_an_earlier_summary():
    failed = [
        call("bash", f"Error: no module {name}", is_error=True, command=f"shop enable {name}")
        for name in ("hook", "skill")
    ]
    state = read_summary(go_on(summarize(user("Go."), failed[0]), failed[1]))
    assert state.failure.call == "shop enable skill"
    assert "shop enable hook" in state.actions.failed


def test_repetitions_of_a_command_are_counted_across_rounds():
    push = call("bash", "main -> main", command="git push origin main")
    text = summarize(user("Go."), push, push)
    assert section(go_on(text, push), "Done") == [
        "- git push origin main (×3) -> last: main -> main"
    ]


def test_a_background_command_does_not_stay_open_after_its_turn():
    started = "Command running in background with ID: 16772f"
    text = summarize(user("Go."), call("Bash", started, command="npm run serve"))
    again = go_on(
        text, assistant("It runs."), user("Thank you. Now explain all of the code to me.")
    )
    assert not section(again, "Open")
    assert section(again, "Done") == ["- npm run serve -> started, no end was seen"]


def test_a_finding_about_a_file_is_dropped_once_the_file_is_edited():
    text = summarize(user("Go."), assistant("The root cause is that a.py locks it twice."))
    assert section(text, "Decisions")
    assert not section(go_on(text, call("edit", path="a.py", old="x", new="y")), "Decisions")


def test_rules_given_during_work_are_kept_in_the_chat_after_it():
    """In a long chat only demands are rules, but earlier messages were about work."""
    rule = "Amounts must be in cents."
    text = summarize(user(rule), call("write", path="src/a.py", content="a = 1"), assistant("So."))
    chat = [m for at in range(11) for m in (user(f"And {at}?"), assistant(f"It is {at}."))]
    assert rule in go_on(text, *chat)


def test_statements_in_a_chat_over_many_rounds_are_not_rules():
    """A chat was once not recognised if no round had ten answers, and its statements displaced the
    rules."""
    story = "My uncle always sits by the window."
    text = summarize(
        user("Never suggest the boat."), assistant("Noted."), user(story), assistant("So.")
    )
    for at in range(3):
        chat = [m for n in range(4) for m in (user(f"And {at}-{n}?"), assistant(f"It is {n}."))]
        text = go_on(text, *chat)
    state = read_summary(text)
    assert "Never suggest the boat." in state.constraints
    assert f"- {story}" not in section(text, "Rules")


def test_a_plan_that_the_person_approved_is_the_task_in_later_rounds():
    plan = (
        "# Repair `load_pool`\n- [ ] take the lock once in src/pool.py\n- [ ] close it in drain()"
    )
    approved = call("ExitPlanMode", "User has approved your plan.", plan=plan)
    work = call("edit", path="src/pool.py", old="a", new="b")
    text = summarize(user("Plan it."), approved, assistant("I begin with `load_pool`."), work)
    for _ in range(3):
        text = go_on(text, assistant("`load_pool` in src/pool.py is next."), work)
    assert section(text, "Task, as in: the plan that the user approved") == plan.split("\n")


# --- text of Refold is not content ----------------------------------------------------------------


def test_a_truncated_request_in_a_summary_is_not_taken_for_an_amendment():
    """It was once repeated as a note in all later summaries."""
    state = collect([user("Put the external navigation on both sides. " * 9), assistant("Done.")])
    cut = "## Earlier requests\n- Put the external navigation on both sides. [… 344 characters …]"
    assert read_amendments(cut, state) == []


def test_omission_marks_are_not_quoted():
    text = (
        "## Files\nmodified: src/a.py\n"
        "## Excerpts from the conversation (single sentences; later ones may replace earlier ones)\n"
        "- user: Which ports are there for the orders service?\n"
        "- The orders service listens on port 8417.\n- [… 2017 characters …]\n"
        "[port 8417] Staging is on 8417. .. Production runs on 9417 in Frankfurt.\n"
        "## Current text of files\n### src/a.py\n@@ about line 40\ndef load_pool(size):\n"
    )
    again = go_on(text, user("Go on."), call("bash", "ok", command="make tidy"), assistant("Yes."))
    assert "characters" not in again
    assert "@@" not in again
    assert " .." not in again
    assert "def load_pool(size)" in again
    assert "Production runs on 9417 in Frankfurt." in again


def test_an_answer_with_an_omission_mark_is_quoted_without_it():
    answer = assistant(
        "The orders service listens on port 8417.\n[… 900 characters …]\nIt is in zone b7."
    )
    text = summarize(user("Which ports?"), answer, user("Go on."), call("bash", "a", command="ls"))
    assert "characters" not in text
    assert "8417" in text


def test_lines_replaced_after_a_summary_are_no_longer_quoted_from_it():
    old = "def load_pool(size): return Lock(size)"
    text = summarize(
        user("Go."), call("read", f"1\t{old}\n2\tdef drain(): ...", path="src/pool.py")
    )
    assert old in text
    edit = call("edit", path="src/pool.py", old_string=old, new_string="def load_pool(size): ...")
    again = go_on(text, edit, assistant("Changed `load_pool`."))
    assert old not in again


def test_the_modified_since_mark_of_a_quoted_file_is_kept_in_later_rounds():
    text = (
        "## Files\nmodified: src/pool.py\n## Excerpts (single lines, with gaps between them)\n"
        "### src/pool.py (modified since)\nfrom threading import RecursiveLockFactory\n"
    )
    again = go_on(go_on(text, user("Go on."), assistant("Yes.")), user("On."), assistant("Yes."))
    assert "### src/pool.py (modified since)\nfrom threading" in again


def test_answers_are_listed_below_their_requests_after_work_becomes_a_chat():
    """Answers of earlier rounds were once listed together, without their subjects."""
    asked = "Which port does the orders service have?", "Where does the ledger service run?"
    text = (
        f"## Earlier requests\n- {asked[0]}\n- {asked[1]}\n"
        "## Excerpts from the conversation (single sentences; later ones may replace earlier ones)\n"
        f"- user: {asked[0]}\n- That is 8417 in staging.\n"
        f"- user: {asked[1]}\n- In Frankfurt, in zone b7-alpha.\n"
    )
    talk = [
        message
        for name, place in zip(NAMES, PLACES, strict=True)
        for message in (
            user(f"What does {name} look after at the {place}?"),
            assistant(f"At the {place} {name} looks after the papers. In May nobody did."),
        )
    ]
    rows = section(go_on(text, *talk, room=400), "Excerpts from the conversation")
    assert rows[:2] == [f"- user: {asked[0]}", "- That is 8417 in staging."]


# --- current state --------------------------------------------------------------------------------


def test_a_slash_command_about_summaries_is_the_current_request():
    """The finished request before it was once kept beside the summary as the current one."""
    command = (
        "<command-message>daily-summary</command-message>\n<command-name>/daily-summary"
        "</command-name>\n<command-args>And with the exchange rates.</command-args>"
    )
    skill = "Base directory for this skill: /s/daily-summary\n\n# Daily summary"
    messages = [user("Add the top-ups."), assistant("Added."), user(command), user(skill)]
    messages.append(Message("assistant", (ToolCall("c1", "bash", '{"command": "ls"}'),)))
    messages.append(Message("tool", (ToolResult("c1", (Text("a"),)),)))
    assert [*current_request(messages, segment_messages(messages))] == [2]


def test_read_files_are_listed_only_if_there_is_room_for_changed_ones():
    """A summary once named two files that were read, and none of ten that were changed."""
    changed = [
        call("write", path=f"src/{'deep/' * 9}module_{at}.py", content="") for at in range(9)
    ]
    state = collect([m for own in changed for m in own] + call("read", "x", path="a.md"))
    for room in range(30, 200, 10):
        text = render_state(state, room)
        assert "read: a.md" not in text or "created" in text


def test_ten_rounds_keep_the_same_state_as_one_round():
    """For files, checks, requests and rules, if only the summary comes back each time."""
    turns = [
        [
            user(f"Add part {at}. Never touch part_{at}.lock by hand."),
            *call("write", path=f"src/part_{at}.py", content=f"n = {at}"),
            *call("bash", f"{at + 1} passed", command="pytest"),
            assistant(f"Part {at} is in src/part_{at}.py."),
        ]
        for at in range(10)
    ]
    text = summarize(turns[0], room=4_000)
    for turn in turns[1:]:
        text = go_on(text, turn, room=4_000)
    whole, last = collect([m for turn in turns for m in turn]), read_summary(text)
    assert [*last.requests] == [*whole.requests]
    assert {*last.constraints} == {*whole.constraints}
    assert states_of(last) == states_of(whole)
    assert last.checks == whole.checks


def test_a_view_that_is_compacted_ten_times_does_not_grow():
    messages = [user("Never use tabs."), assistant("Right.")]
    sizes = list[int]()
    for at in range(10):
        messages += [user(f"Part {at}"), *call("bash", LOG, command=f"make part_{at}")]
        messages += [assistant(f"Part {at} is done."), user("Next."), assistant("On it.")]
        strategies = [Summarize(keep=2, max_tokens=800)]
        done = drive(compact_if_due(View.of(messages), strategies, Budget(0, 0)))
        messages = list(done.view.messages)
        sizes.append(sum(len(message.text) for message in messages))
    assert max(sizes) < 2 * sizes[1]
    assert "Never use tabs." in messages[0].text
