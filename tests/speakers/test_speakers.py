"""Who the speaker is (D1 to D5, F4): segments of messages in the shapes of real clients, with new
texts."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import refold
from refold.codecs.detect import open_payload
from refold.core.view import View
from refold.errors import FormatError
from refold.gateway.exchange import Incoming
from refold.gateway.pipeline.request_kind import request_kind
from refold.messages import Media, Message, Text, ToolCall, ToolResult, user
from refold.speakers import (
    current_request,
    find_verbatim,
    is_request,
    request_text,
    segment_messages,
    segments,
)
from refold.speakers.carriers import IN_RESULT, INSIDE_PREFIXES, TAGS, TEXT_PREFIXES
from refold.speakers.request import has_person
from refold.speakers.segments import own_words
from refold.summarizers.heuristic.steps import read_steps
from refold.text.summary_wrapper import wrap_summary
from tests.support.examples import examples_at_night
from tests.support.messages import assistant
from tests.support.summaries import collect


def reminder(text: str) -> str:
    return f"<system-reminder>\n{text}\n</system-reminder>"


def system(text: str) -> Message:
    return Message("system", (Text(text),))


def call(id: str) -> Message:
    return Message("assistant", (ToolCall(id, "read", "{}"),))


def result(id: str, text: str = "ok", *texts: Text) -> Message:
    return Message("user", (ToolResult(id, (Text(text),)), *texts))


def parts(*texts: str) -> Message:
    return Message("user", tuple(map(Text, texts)))


STEER = (
    "The user sent a new message while you were at work:\n{}\nThis is how Claude Code surfaces it."
)


def voices(message: Message) -> list[str]:
    return [segment.voice for segment in segments(message)]


def list_asked(messages: list[Message]) -> list[str]:
    segments_at = current_request(messages, segment_messages(messages))
    return [segment.text for at in sorted(segments_at) for segment in segments_at[at]]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (user("Fix the parser."), ["person"]),
        (user("把解析器修好。"), ["person"]),
        (user("Today's date is 3 May, so put that into the changelog."), ["person"]),
        (user("# Environment\nPlease set it up like this."), ["person"]),
        (user(reminder("Today's date is 2026-01-02.")), ["context"]),
        (user(reminder("Something new that nobody knows")), ["context"]),
        (user(f"Fix it.\n{reminder('The current date is: Monday')}\nSoon."), ["person", "context", "person"]),
        (user(reminder("The user sent the following message:\nStop that.")), ["person"]),
        (user(reminder("用户在你工作时发送了新消息：\n先别改数据库。")), ["person"]),
        (parts(reminder("# Environment\nx"), reminder("As you answer the user's questions, you can"), "Go"), ["context", "context", "person"]),
        (user("<permissions instructions>\nread only\n</permissions instructions>"), ["context"]),
        (user("<environment_context>\n  <cwd>/a</cwd>\n</environment_context>"), ["context"]),
        (user("# AGENTS.md instructions for /a\n\n<INSTRUCTIONS>\nUse tabs.\n</INSTRUCTIONS>"), ["context"]),
        (user("Base directory for this skill: /s/pdf\n\nNever use colour."), ["context"]),
        (user("<ide_selection>line 3 of a.py</ide_selection>\nWhy?"), ["tool", "person"]),
        (user("# Context from my IDE setup:\n\n## Open tabs:\n- a.py: a.py\n\n## My request for Codex:\nWhy?"), ["tool", "person"]),
        (parts("Why?", '<image name=[Image #1] path="/a.png">', "</image>"), ["person", "tool", "tool"]),
        (user("<cwd>/a</cwd>\n<UserPrompt>\nWhy?\n</UserPrompt>"), ["context", "person"]),
        (user("# Files mentioned by the user:\n\n## a.png: /a.png\n\n## My request:\nWhy?\n"), ["tool", "person"]),
        (user('<in-app-browser-context source="x">\nURL: /a\n</in-app-browser-context>\n\n## My request:\nWhy?'), ["tool", "person"]),
        (user('<skill-context name="greet">\nSay ahoy.\n</skill-context>'), ["context"]),
        (user('<system_notification>\nShell command "bg" has completed.\n</system_notification>'), ["tool"]),
        (user("<current_datetime>3 May</current_datetime>\n\nWhy?\n\n<reminder>\n<sql_tables>none</sql_tables>\n</reminder>"), ["tool", "person", "tool"]),
        (user("<agent_instructions>\nPlan first.\n</agent_instructions>\n\nWhy?"), ["person", "person"]),
        (user("Note: The previous agent run was aborted by the user. Resume carefully."), ["tool"]),
        (user("[System] Your previous turn was interrupted by a gateway restart. Continue."), ["tool"]),
        (user("Note: The previous agent run was aborted by the user. Resume carefully.\n\nWhy?"), ["tool", "person"]),
        (user("# Diff comments:\n\nShorter.\n\n## My request for Codex:\n"), ["person"]),
        (user("# Context from my IDE setup:\nWhat does that mean?"), ["person"]),
        (user("What does this mean?\n\n## My request:\n"), ["person"]),
        (user("<attachments>\na = 1\n</attachments>\n<editorContext>\na.py\n</editorContext>\n<userRequest>\nWhy?\n</userRequest>"), ["tool", "tool", "person"]),
        (user("<task-notification><id>3</id></task-notification>\nRead the output file."), ["tool"]),
        (user("[Tue 2026-03-10 08:37 GMT+8] OpenClaw runtime context (internal):\nA task ended."), ["tool", "tool"]),
        (user("<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>\nA task ended.\n<<<END_OPENCLAW_INTERNAL_CONTEXT>>>"), ["tool"]),
        (user("[Request interrupted by user for tool use]"), ["tool"]),
        (user("<command-name>/clear</command-name>\n<command-args></command-args>"), ["tool"]),
        (user("<command-name>/compact</command-name>\n<command-args>keep the ids</command-args>"), ["person"]),
        (user('<user_input mode="act">Fix it</user_input>'), ["person"]),
        (user("I ran this command:\n\npytest\n\nAnd got this output:\n\n1 failed"), ["tool"]),
        (user("I ran this command: pytest. Why does it fail?"), ["person"]),
        (user("Observation:\n5"), ["tool"]),
        (user("<returncode>0</returncode>\n<output>\n5\n</output>"), ["tool"]),
        (user("<returncode>1</returncode>\n<notice>\nToo long.\n</notice>\n<first_half>\n5\n</first_half>"), ["tool"]),
        (user("<returncode>1</returncode>\nWhat does that mean?"), ["person"]),
        (user("Observation:\n5\n\nNew task:\nDo more."), ["tool", "person"]),
        (user("I have *added these files to the chat* so you can edit them.\n\na.py"), ["context"]),
        (user("This session is being continued from a previous conversation.\nSummary: ..."), ["summary"]),
        (user("What did we do so far?"), ["summary"]),
        (user("What did we do so far? And what is left?"), ["person"]),
        (user("<div>\n<p>one</p>\n</div>\nWhy is this not centred?"), ["person"]),
        (user("What does <system> mean?\n<system>be kind</system>"), ["person"]),
        (user("<note>only this</note>"), ["context"]),
        (system("Speak French."), ["instruction"]),
        (system(STEER.format("Use tabs.")), ["person"]),
        (system("\n\n".join((STEER.format("One."), STEER.format("Two.")))), ["person", "person"]),
        (system("# Environment\ncwd: /a\n\nThe following skills are available: x\n\nToday's date is now"), ["context"] * 3),
        (system("[This command modified 1 file you've previously read: a.py.]"), ["context"]),
        (result("1"), []),
        (result("1", f"text\n\n{reminder('<total_tokens>9 tokens left</total_tokens>')}"), []),
        (result("1", f"text\n\n{reminder(STEER.format('Stop.'))}"), ["person"]),
        (result("1", f"{reminder(STEER.format('a'))}\n{reminder(STEER.format('b'))}\n<total_tokens>9</total_tokens>"), ["person"] * 2),
        (result("1", f"{reminder(STEER.format('quoted in a file'))}\nand on it goes"), []),
        (result("1", "text", Text("System: Potential loop detected.")), ["tool"]),
        (result("1", "text", Text("[User message received during tool execution]: Stop.")), ["person"]),
        (Message("user", (Media("image", "image/png", "x"),)), ["person"]),
        (assistant("The user sent a new message while you"), []),
        (wrap_summary("## Requests\n- x"), []),
        (Message("user", (*wrap_summary("x").parts, Text("Go on."))), ["person"]),
    ],
)  # fmt: skip
def test_the_speaker_of_each_segment_of_a_message_is_recognised(
    message: Message, expected: list[str]
) -> None:
    assert voices(message) == expected


def test_d2_reminders_behind_a_prompt_are_not_the_request() -> None:
    """Kimi Code sends prompt, date and permission mode as three user messages."""
    messages = [
        user("Do it."),
        user(reminder("Today's date is now.")),
        user(reminder("Auto permission mode is active.")),
    ]
    assert list_asked(messages) == ["Do it."]
    assert [is_request(message) for message in messages] == [True, False, False]


def test_a_clients_notice_of_a_mode_change_is_not_a_request() -> None:
    """Gemini CLI sends it in a user message."""
    mode = (
        "User has manually exited Plan Mode. Switching to Default mode (edits will be confirmed)."
    )
    assert list_asked([user("Do it."), user(mode)]) == ["Do it."]


def test_d1_messages_typed_while_the_agent_works_add_to_the_request() -> None:
    """Three requests of one turn, in a prompt, in a system message and at the end of a result, are
    all open."""
    late = reminder(STEER.format("Third."))
    messages = [
        user("First."),
        call("1"),
        result("1"),
        system(STEER.format("Second.")),
        call("2"),
        result("2", f"x\n{late}"),
    ]
    assert list_asked(messages) == ["First.", STEER.format("Second."), late]
    assert list_asked([*messages, call("3"), result("3")])[0] == "First."
    assert list_asked([*messages, assistant("Done."), user("Fourth.")]) == ["Fourth."]


def test_a_turn_is_not_over_if_tool_calls_follow_its_text() -> None:
    messages = [user("First."), assistant("I look."), call("1"), result("1"), user("Second.")]
    assert list_asked(messages) == ["First.", "Second."]


def test_a_text_answered_by_an_observation_does_not_end_the_turn() -> None:
    """mini-swe-agent and smolagents: commands and their outputs are texts."""
    messages = [
        user("New task:\nDo it."),
        assistant("ls"),
        user("Observation:\na"),
        assistant("cat a"),
        user("Observation:\nb"),
    ]
    assert list_asked(messages) == ["New task:\nDo it."]


def test_a_label_that_occurs_twice_marks_tool_output() -> None:
    messages = [
        user("Do it."),
        assistant("ls"),
        user("Output of the shell:\na"),
        assistant("cat"),
        user("Output of the shell:\nb"),
    ]
    assert list_asked(messages) == ["Do it."]
    assert list_asked(messages[:3]) == ["Output of the shell:\na"], "once it may be a person's"


def test_requests_with_the_same_first_line_are_the_users() -> None:
    """All but the first request from an editor once counted as tool output: the client starts each
    with the same line, and so do people."""
    for head in ("I get this error:", "## My request for Codex:", "翻译："):
        asking = [user(f"{head}\n{n}") for n in range(3)]
        chat = [message for request in asking for message in (request, assistant("Done."))]
        assert list_asked(chat[:-1]) == [f"{head}\n2"]
        work = [user("Do it."), call("1"), result("1"), assistant("Done."), *chat]
        assert list_asked(work[:-1]) == [f"{head}\n2"]
    wrapped = user("# Context from my IDE setup:\n\n## Open tabs:\n- a: a\n\n## My request:\nWhy?")
    assert request_text(wrapped) == "Why?"
    assert list_asked([wrapped, assistant("So."), wrapped]) == ["## My request:\nWhy?"]


def test_a_text_about_summaries_is_the_request_only_if_there_is_no_other() -> None:
    handoff = user("Handoff summary: we were at the parser.")
    assert list_asked([user("Do it."), handoff]) == ["Do it."]
    assert list_asked([handoff]) == [handoff.text]
    assert list_asked([user("<note>Fix it</note>"), user(reminder("Today's date is now."))]) == [
        "<note>Fix it</note>"
    ]


def test_d2_a_document_pasted_as_elements_is_kept_word_for_word() -> None:
    """A document pasted after an answer was once ignored because an older request existed."""
    document = "<project>\n<a>1</a>\n</project>\n<project>\n<a>2</a>\n</project>"
    messages = [user("Do it."), assistant("Done."), user(document), call("1"), result("1")]
    assert list_asked(messages)[0] == "Do it."
    assert user(document) in [
        message for _, message in find_verbatim(View.of(messages), 4, 10**9).messages
    ], "word for word, blanks included"
    assert list_asked([messages[0], call("1"), result("1"), user("<acme>1</acme>"), call("2")]) == [
        "Do it."
    ]
    assert list_asked([*messages[:2], user(reminder("Today's date is now.")), call("1")]) == [
        "Do it."
    ]


def test_f4_an_error_that_smolagents_reports_is_not_a_request() -> None:
    """smolagents' first "Error:" once replaced the task, which was then cut."""
    error = "Error:\nNo JSON blob.\nNow let's retry: take care not to repeat previous errors!"
    assert list_asked([user("New task:\nDo it."), assistant("ls"), user(error)]) == [
        "New task:\nDo it."
    ]
    assert list_asked([user(error + "\n\nNew task:\nDo it.")]) == ["\nNew task:\nDo it."]
    assert list_asked([user("Go."), assistant("Gone."), user("Error:\nx is undefined")]) == [
        "Error:\nx is undefined"
    ]
    command = "I ran the following shell command: make, and it fails. Repair it."
    assert list_asked([user("Go."), assistant("Gone."), user(command)]) == [command]


def test_a_notice_that_a_command_printed_nothing_is_not_a_request() -> None:
    """SWE-agent sends it in the user role: the first such command once ended the task."""
    quiet = user("Your command ran successfully and did not produce any output.")
    assert list_asked([user("Do it."), assistant("mkdir a"), quiet]) == ["Do it."]


def test_the_task_after_an_example_of_tool_calls_is_the_request() -> None:
    """OpenHands shows models without native calls how to write them: rules of the example were once
    the user's."""
    line = "-" * 21
    shown = "USER: Never deploy it.\n\nASSISTANT: <function=finish>\n</function>"
    whole = user(
        "Here's a running example of how to perform a task with the provided tools.\n\n"
        f"{shown}\n\n{line} NEW TASK DESCRIPTION {line}\nMend `a.py`.\nIt fails.\n"
        f"{line} END OF NEW TASK DESCRIPTION {line}\n\nFollow the format."
    )
    assert [segment.voice for segment in segment_messages([whole])[0]] == [
        "instruction", "person", "instruction",
    ]  # fmt: skip
    assert request_text(whole) == "Mend `a.py`.\nIt fails."
    assert texts_of([whole, assistant("ls"), user("OBSERVATION:\na")], 1) == [whole.text]


def test_text_on_the_same_line_as_observation_is_the_users() -> None:
    """`Observation: it is slow` was once tool output."""
    voices = {
        "Observation: use tabs.": "person",
        "Observation:\nx": "tool",
        "OBSERVATION:\n": "tool",
    }
    assert {text: segments(user(text))[0].voice for text in voices} == voices


def test_request_text_returns_the_users_own_words() -> None:
    assert request_text(parts(reminder("x"), "Go on.")) == "Go on."
    assert request_text(user("<user_input>Go on.</user_input>")) == "Go on."
    typed = "<command-name>/x</command-name>\n<command-args>Go on.</command-args>"
    assert request_text(user(typed)) == "/x Go on."  # as the person typed it
    assert request_text(user("Go on.\n\n# *SEARCH/REPLACE block* Rules:\n\nEvery one")) == "Go on."
    assert request_text(user(reminder("x"))) == request_text(result("1")) == ""


@pytest.mark.parametrize("wrap", [system, lambda text: result("1", f"ok\n\n{reminder(text)}")])
def test_d1_the_clients_explanation_around_typed_words_is_not_the_users(wrap) -> None:
    """A summary once quoted Claude Code's explanation as the user's request."""
    steering = wrap(STEER.format("Use tabs.\n\nAnd no blanks."))
    place = IN_RESULT if steering.results else ""
    assert request_text(steering) == f"{place}Use tabs.\n\nAnd no blanks."
    report = "The user sent a new message:\nit crashed. Why?"
    assert request_text(user(report)) == report  # a person may report so


def texts_of(messages: list[Message], stop: int) -> list[str]:
    return [message.text for _, message in find_verbatim(View.of(messages), stop, 10**9).messages]


def test_d5_the_newest_context_of_each_kind_stays() -> None:
    first = parts(
        reminder("The following skills are available: a"),
        reminder("The current date is: Mon"),
        "One.",
    )
    second = parts(reminder("The current date is: Tue"), "Two.")
    messages = [first, assistant("Done."), second, assistant("Done."), user("Three.")]
    assert texts_of(messages, 4) == [
        reminder("The following skills are available: a"),
        reminder("The current date is: Tue"),
    ]
    assert texts_of(messages, 2) == [reminder("The following skills are available: a")], (
        "the newer date is behind it"
    )


def test_an_editor_selection_is_kept_only_with_the_current_request() -> None:
    """A selection of 10,000 tokens beside the first request was once kept beside every later
    summary."""
    selection = "<ide_selection>lines 1 to 900 of a.py: total = 7</ide_selection>"
    opened_file = "<ide_opened_file>The user opened a.py</ide_opened_file>"
    first = parts(opened_file, selection, "Why is it 7?")
    asking = [first, call("1"), result("1")]
    assert texts_of(asking, 1) == [first.text]
    answered = [*asking, assistant("It adds them."), user("And b.py?"), call("2"), result("2")]
    assert texts_of(answered, 5) == ["And b.py?"]
    assert [(step.kind, step.text) for step in read_steps(answered)][:2] == [
        ("result", selection),
        ("request", "Why is it 7?"),
    ]
    [(_, small)] = find_verbatim(View.of(asking), 1, 5).messages
    assert small.text == "Why is it 7?"


def test_context_deltas_are_kept_with_the_state_that_they_change() -> None:
    state = user("<environment_context><cwd>/a</cwd></environment_context>")
    delta = user("<environment_context><date>2</date></environment_context>")
    skills = [
        user(reminder(f"Skill {name} became available after startup.")) for name in ("x", "y")
    ]
    messages = [state, delta, *skills, user("Go."), assistant("Done."), user("More.")]
    assert texts_of(messages, 6) == [message.text for message in messages[:4]]
    newer = user("<environment_context><cwd>/b</cwd></environment_context>")
    assert texts_of([*messages, newer], 6) == [skill.text for skill in skills], "older ones go"


def test_system_messages_that_differ_only_in_a_number_are_all_kept() -> None:
    messages = [
        system("Never touch PROD-1."),
        system("Never touch PROD-2."),
        system("Never touch PROD-1."),
        user("Go."),
        assistant("x"),
        user("y"),
    ]
    assert texts_of(messages, 4) == ["Never touch PROD-2.", "Never touch PROD-1."]


def test_user_text_lifted_out_of_a_result_is_marked_and_recognised_again() -> None:
    late = reminder(STEER.format("Use tabs."))
    messages = [user("Go."), call("1"), result("1", f"long\n{late}"), call("2"), result("2")]
    lifted = find_verbatim(View.of(messages), 3, 10**9).messages[-1][1]
    assert lifted.role == "user" and late in lifted.text and lifted.text != late
    assert voices(lifted) == ["person"] and list_asked([user("Go."), lifted, call("2")]) == [
        "Go.",
        lifted.text,
    ]


def test_images_of_a_request_stay_with_it() -> None:
    image = Media("image", "image/png", "x")
    messages = [
        Message("user", (Text(reminder("note")), image, Text("What is this?"))),
        call("1"),
        result("1"),
    ]
    assert find_verbatim(View.of(messages), 1, 10**9).messages == ((0, messages[0]),)


@given(
    st.lists(
        st.sampled_from(
            [
                "<a>",
                "</a>",
                "<system-reminder>",
                "</system-reminder>",
                "x",
                "\n",
                " ",
                *[f"<{tag}>" for tag in TAGS],
            ]
        )
    )
)
def test_no_word_is_lost_when_a_message_is_segmented(pieces: list[str]) -> None:
    """Only blank text is in no segment."""
    text = "".join(pieces)
    for role in ("user", "system"):
        pieces_read = segments(Message(role, (Text(text),)))
        assert re.sub(r"\s", "", "".join(segment.text for segment in pieces_read)) == re.sub(
            r"\s", "", text
        )


@pytest.mark.parametrize(
    "piece",
    [
        "<a>",
        "<system-reminder>",
        "</system-reminder>",
        "<skill>\n",
        "The user sent ",
        "<a></a>",
        "\n\n",
        "用户",
    ],
)
def test_work_is_bounded_for_hostile_texts(piece: str) -> None:
    """Doubling the text at most doubles the work. Quadratic work would not end here."""
    text = piece * (examples_at_night(200_000, 1_000_000) // len(piece))
    for message in (user(text), system(text), result("1", text)):
        assert len(segments(message)) <= 2_000_000


PERSON = re.compile(
    r"calc\.py|tests cover|sub-agent|SUBTASK|other files|one line|bug in add|sub function",
    re.IGNORECASE,
)


CUT = re.compile(r"…\[\d+ chars, sha \w+\]\Z")
"""Mark of the recordings at the end of a shortened text."""


def close_elements(message: Message) -> Message:
    """Return *message* with closing tags for the elements that the recordings cut."""

    def close(text: str) -> str:
        tag = re.match(r"\s*<([\w-]+)", text)
        return f"{text}</{tag[1]}>" if tag and CUT.search(text) else text

    return Message(
        message.role,
        tuple(Text(close(p.text)) if isinstance(p, Text) else p for p in message.parts),
    )


def test_the_current_request_is_found_in_recorded_requests(shared: Path) -> None:
    """In recordings except Claude Code's, whose texts are filler, the current request is a user's
    in 98 of 100."""
    right, wrong = 0, list[str]()
    for path in sorted((shared / "fixtures" / "requests").glob("*.jsonl")):
        if path.name.startswith("claude"):
            continue
        for line in path.read_text().splitlines():
            row = json.loads(line)
            try:
                payload = open_payload(row["body"])
            except (FormatError, TypeError):
                continue
            messages = list(map(close_elements, payload.decode()))
            if not messages or request_kind(
                Incoming(payload.codec.NAME, "", row["path"], (), b""), payload
            ):
                continue
            asked = list_asked(messages)
            if not any(
                map(PERSON.search, (message.text for message in messages if message.role == "user"))
            ):
                continue
            ok = bool(asked) and all(map(PERSON.search, asked))
            right += ok
            wrong += [] if ok else [f"{path.name}: {asked}"]
    assert right > 250
    assert len(wrong) <= right // 50, wrong


SOURCE = Path(refold.__file__).parent
BY_ROLE = {"messages.py", "core", "rules", "text"}
"""Modules that only use the role, as providers do to find turns and refuse requests."""
BY_WORDS = {
    "speakers",
    "session_files",
    "testing",
    "gateway/pipeline/request_kind.py",
    "text/summary_wrapper.py",
}
"""Modules that know texts of clients: speakers, files, duplicates, requests outside the
conversation, and titles of summaries."""


def room(path: Path) -> set[str]:
    relative = path.relative_to(SOURCE)
    return {relative.parts[0], relative.as_posix()}


def test_no_other_module_decides_who_the_speaker_is() -> None:
    """Six modules once defined what a request is, and each lost some user text (D1 to D5)."""
    words = [word for word, _ in (*TEXT_PREFIXES, *INSIDE_PREFIXES) if len(word) >= 12]
    words += ["<system-reminder>", "<environment_context>", "<user_instructions>", "AGENTS.md"]
    for path in SOURCE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert room(path) & BY_ROLE or ".is_request" not in text, path
        code = re.sub(r'""".*?"""|#[^\n]*', "", text, flags=re.DOTALL)
        assert room(path) & BY_WORDS or not [word for word in words if word in code], path


@pytest.mark.parametrize("is_apart", [True, False])
def test_the_text_of_a_launched_skill_is_not_the_users(is_apart):
    call = Message("assistant", (ToolCall("c1", "Skill", '{"skill": "update-config"}'),))
    result = ToolResult("c1", (Text("Launching skill: update-config"),))
    text = Text("# Update Config Skill\n\nAlways read the file before you write it.")
    behind = (
        [Message("user", (result,)), Message("user", (text,))]
        if is_apart
        else [Message("user", (result, text))]
    )
    stopped = [*behind, user("[Request interrupted by user]"), user("No. Never touch the schema.")]
    assert has_person(segment_messages([user("Allow npm."), call, *stopped])[-1])
    shell_call = Message("assistant", (ToolCall("c1", "Bash", '{"command": "cat log"}'),))
    assert has_person(segment_messages([user("Allow npm."), shell_call, *behind])[-1])
    messages = [
        user("Allow npm."),
        call,
        *behind,
        Message("assistant", (Text("Done."),)),
        user("Thanks."),
    ]
    spoken = segment_messages(messages)
    assert [has_person(own) for own in spoken] == [True, *[False] * (len(messages) - 2), True]


@pytest.mark.parametrize("text", [
    "[Image: original 2940x1642, displayed at 2000x1117. Multiply coordinates by 1.47 to map to original image.]",
    "Unknown skill: btw",
])  # fmt: skip
def test_client_notes_about_an_image_or_a_command_are_not_the_users(text):
    assert not any(map(has_person, segment_messages([user("Look at it."), user(text)])[1:]))


# --- gateways of chats --------------------------------------------------------------------------

INFO = 'Conversation info (untrusted metadata):\n```json\n{\n  "sender_id": "ou_1"\n}\n```\n\n'
EVENT = "System: [2026-03-02 11:51:40 GMT+8] "


@pytest.mark.parametrize(
    ("before", "words"),
    [
        (f"{EVENT}WhatsApp gateway connected.\n\n", "Send me the slides."),
        ("System (untrusted): [2026-04-20 19:35:03 GMT+7] Exec completed\n\n", "Well?"),
        (f"{EVENT}Feishu[main] DM from ou_1: 装一个 skill\n\n", "装一个 skill"),
        (f"{EVENT}Restarted\nReason: update\n{EVENT}Connected.\n\n{INFO}", "看看日志"),
        (f"{INFO}[message_id: om_1]\n", "ou_1: open the shop"),
        ("[media attached: /a.ogg (audio/ogg)]\nTo send an image back, prefer it.\n", "What is it?"),
        (f"[Queued messages while agent was busy]\n\n---\nQueued #1\n{INFO}", "Stop."),
        ("<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>\nA task ended.\n<<<END_OPENCLAW_INTERNAL_CONTEXT>>>\n\n", "Stop."),
    ],
)  # fmt: skip
def test_the_prefix_that_a_chat_gateway_adds_is_not_the_users(before, words) -> None:
    """OpenClaw adds one: each request was once in summaries twice, with ids and events of the
    gateway."""
    envelope, request = segments(user(before + words))
    assert (envelope.voice, request.voice, request.text) == ("tool", "person", words)
    assert envelope.text == before
    messages = [user(before + words), Message("assistant", (Text("Done."),)), user("Go on.")]
    assert next(step.text for step in read_steps(messages)) == words


def test_each_message_queued_by_a_chat_gateway_is_a_segment_of_its_own() -> None:
    """The second was once in a request with all the gateway's additions."""
    queued = f"[Queued messages while agent was busy]\n\n---\nQueued #1\n{INFO}Stop."
    text = f"{queued}\n\n---\nQueued #2\n{INFO}Go on.\n\n---\nQueued #3 is no mark."
    spoken = [(segment.voice, segment.text.strip()) for segment in segments(user(text))]
    assert spoken[1::2] == [("person", "Stop."), ("person", "Go on.\n\n---\nQueued #3 is no mark.")]
    assert [voice for voice, _ in spoken] == ["tool", "person", "tool", "person"]
    bare = "Stop.\n\n---\nQueued #1\nA.\n\n---\nQueued #2\nB."
    assert [segment.text for segment in segments(user(bare))] == [bare]


@pytest.mark.parametrize(
    "stamp",
    [
        "[message_id: om_{}]",
        "Current time: 3 May, 1{}:00",
        "Current time: 3 May, 1{0}:00 (Asia/Shanghai)\nReference UTC: 3 May 0{0}:00 UTC",
    ],
)
def test_the_suffix_that_a_chat_gateway_adds_is_not_the_users(stamp) -> None:
    """A reminder sent each half an hour was once in a summary thirty times."""
    messages = [user(f"Look into the file.\n{stamp.format(at)}") for at in range(4)]
    assert {step.text for step in read_steps(messages)} == {"Look into the file."}


@pytest.mark.parametrize(
    "text",
    [
        f"{EVENT}WhatsApp gateway connected.",
        INFO,
        "System: what is it?",
        "Note (untrusted): mend it",
    ],
)
def test_a_gateway_notice_without_a_message_counts_as_the_users(text) -> None:
    assert [segment.voice for segment in segments(user(text))] == ["person"]


def test_a_message_that_only_a_gateway_event_repeats_is_the_users() -> None:
    """OpenClaw repeats it if it may not ask for the sender: summaries once contained all of it,
    each time."""
    notice = "[System: The bot encountered a permission error. Please inform the user about this.]"
    alone = user(f"{EVENT}Feishu[main] DM from ou_1: 截图给我\n\n{notice}")
    assert [step.text for step in read_steps([alone])] == ["截图给我"]
    queued = "[Queued messages while agent was busy]\n\n---\nQueued #{}\n{}\n[message_id: om_{}]"
    both = queued.format(1, notice, 1) + queued.format(2, "你好", 2)[38:]
    assert [step.text for step in read_steps([user(both)])] == ["你好"]


def test_a_quoted_message_is_not_the_words_of_the_user_who_replies() -> None:
    """The model's plans were once rules of the user, and its answers filled the requests."""
    plan = "Five bugs.\nYou must fix BUG-4 first. " + "It is long. " * 40
    text = f'{INFO}[message_id: om_1]\n于长煦: [Replying to: "{plan}"]\n\n赶紧派人去修，不要重启。'
    state = collect([user(text)])
    assert [*state.requests] == [
        (
            "> Five bugs. You must fix BUG-4 first. It is long. It is long.…\n"
            "于长煦: 赶紧派人去修，不要重启。"
        )
    ]
    assert [*state.constraints] == ["于长煦: 赶紧派人去修，不要重启。"]


REPORT = (
    'A background task "audit" just completed successfully.\n\nFindings:\n# Report\n'
    "You must use port 18789.\n\nStats: runtime 2m • tokens n/a • sessionKey agent:main:subagent:7f • "
    "sessionId 1\n\nSummarize this naturally for the user. Never mention the stats."
)


@pytest.mark.parametrize("before", ["", "[Queued announce messages while agent was busy]\n\n---\nQueued #1\n"])  # fmt: skip
def test_the_report_of_another_agent_is_not_a_request_and_ends_its_task(before) -> None:
    """As in OpenClaw: reports were once requests, their sentences rules, and the agents never
    ended."""
    accepted = '{\n  "status": "accepted",\n  "childSessionKey": "agent:main:subagent:7f"\n}'
    call = Message("assistant", (ToolCall("c1", "sessions_spawn", '{"task": "audit"}'),))
    started = Message("tool", (ToolResult("c1", (Text(accepted),)),))
    state = collect([user("Audit it."), call, started, user(before + REPORT)])
    assert [*state.requests] == ["Audit it."]
    assert not state.constraints
    (action,) = state.actions.done.values()
    assert action.outcome == "You must use port 18789."


@pytest.mark.parametrize(
    ("tool", "argument"), [("finish", "message"), ("attempt_completion", "result")]
)
def test_a_finish_call_ends_the_turn(tool, argument):
    """The answered request was once kept beside the summary."""
    arguments = json.dumps({argument: "Lists are longer by design."})
    messages = [
        user("Why is the list longer?"),
        Message("assistant", (ToolCall("c1", tool, arguments),)),
        Message("tool", (ToolResult("c1", (Text("ok"),)),)),
        user("Now shorten it."),
    ]
    working = [*messages, Message("assistant", (ToolCall("c2", "read", "{}"),))]
    shown = find_verbatim(View.of(working), 4, 1_000, with_answer=True)
    assert [message.text for _, message in shown.messages] == [
        "Lists are longer by design.",
        "Now shorten it.",
    ]


@pytest.mark.parametrize(
    "write",
    [
        "Base directory for this skill: /s/{}\n\n{}".format,
        '<skill name="{0}">\nReferences are relative to /s/{0}.\n\n{1}\n</skill>'.format,
        "<skill>\n<name>{}</name>\n{}\n</skill>".format,
    ],
)
def test_the_current_skill_is_kept_and_earlier_ones_as_far_as_they_fit(write):
    """Skills of finished turns once took more tokens than the summary beside them."""
    texts = [write(name, "Do it. " * 50) for name in "abc"]
    turns = [
        message for text in texts for message in (user("Go."), user(text), assistant("Well done."))
    ]

    def show(messages, stop, room):
        texts = [m.text for _, m in find_verbatim(View.of(messages), stop, room).messages]
        return [text for text in texts if text != "Go."]

    over = [*turns, user("And now?")]
    assert show(over, len(turns), 10**9) == texts
    assert show(over, len(turns), 1_000) == texts[2:]
    assert not show(over, len(turns), 0)
    assert show(turns[:-1], len(turns) - 1, 0) == texts[2:]


@pytest.mark.parametrize("is_native", [True, False])
def test_text_below_the_label_of_the_preceding_call_is_tool_output(is_native):
    """Files that an agent had read were once the user's requests and rules."""
    call = ToolCall("c1", "read_file", '{"path": "a.py"}')
    before = call if is_native else Text("<read_file>\n<path>a.py</path>\n</read_file>")
    label = "[read_file for 'a.py'] Result:"
    output = Message("user", (Text(label), Text("never = 1"), Text("Now stop.")))
    messages = [user("Read."), Message("assistant", (before,)), output]
    voices = [[segment.voice for segment in own] for own in segment_messages(messages)]
    assert voices == [["person"], [], ["tool", "tool", "person"]]
    assert segment_messages([messages[0], assistant("Well?"), user(f"{label}\nx = 1")])[2][
        0
    ].voice == ("person"), "nobody read anything"


def test_the_clients_introduction_of_a_user_message_is_not_the_users():
    text = "New instructions:\n<user_message>\nUse tabs.\n</user_message>"
    assert [segment.voice for segment in segments(user(text))] == ["context", "person"]
    assert request_text(user("<task>\nRead a.py.\n</task>")) == "Read a.py."


def test_a_pasted_piece_of_html_is_the_users() -> None:
    """Eight alerts to translate were once kept after each summary as context from a client."""
    pasted = '<div class="alert" role="alert">\n  Check it!\n</div>\n<a href="/b">b</a>'
    (segment,) = segment_messages([user(pasted)])[0]
    assert (segment.voice, segment.text) == ("person", pasted)
    whole = '<div class="a">\n<b>x</b>\n</div>'
    assert [own_words(s) for s in segment_messages([user(whole)])[0]] == [whole]
    assert segment_messages([user("<div>\nCheck it!\n</div>")])[0][0].voice == "context"


def test_a_feishu_sender_id_is_not_part_of_the_message() -> None:
    """It once took the place of a request's first words."""
    envelope, request = segments(user(f"{INFO}[message_id: om_1]\nou_{'1f9f28e3' * 4}: 重新测试"))
    assert (envelope.voice, request.text) == ("tool", "重新测试")
