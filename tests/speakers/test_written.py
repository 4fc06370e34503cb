"""Calls that a model writes as text are read like native ones."""

import json
from collections.abc import Callable
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from refold.core.strategy import End, advance
from refold.core.view import View
from refold.messages import Message, Text, ToolCall, ToolResult, user
from refold.speakers import segment_messages
from refold.speakers.written import restore_calls, split_calls
from refold.summarizers.heuristic import RuleSummary
from refold.summarizers.heuristic.layout import render_state
from refold.summarizers.heuristic.steps import read_steps
from tests.support.examples import examples_at_night
from tests.support.messages import assistant
from tests.support.summaries import collect, states_of


class Turn(NamedTuple):
    """A call of a model with the text before it, and the answer."""

    words: str
    name: str
    fields: dict[str, str]
    output: str


def write_function(turn: Turn) -> str:
    rows = (f"<parameter={key}>\n{value}\n</parameter>" for key, value in turn.fields.items())
    return "\n".join((f"<function={turn.name}>", *rows, "</function>"))


def write_element(turn: Turn) -> str:
    rows = (f"<{key}>{value}</{key}>" for key, value in turn.fields.items())
    return "\n".join((f"<{turn.name}>", *rows, f"</{turn.name}>"))


def write_json(turn: Turn) -> str:
    body = json.dumps({"name": turn.name, "arguments": turn.fields})
    return f"<tool_call>\n{body}\n</tool_call>"


def write_list(turn: Turn) -> str:
    call = {"id": "c", "function": {"name": turn.name, "arguments": turn.fields}}
    return f"Calling tools:\n{[call]}"


FORMS: dict[str, tuple[Callable[[Turn], str], Callable[[Turn], str]]] = {
    "SWE-agent": (write_function, lambda turn: f"OBSERVATION:\n{turn.output}"),
    "OpenHands": (
        write_function,
        lambda turn: f"EXECUTION RESULT of [{turn.name}]:\n{turn.output}",
    ),
    "Qwen3-Coder": (
        lambda turn: f"<tool_call>\n{write_function(turn)}\n</tool_call>",
        lambda turn: f"<tool_response>\n{turn.output}\n</tool_response>",
    ),
    "Cline": (write_element, lambda turn: f"[{turn.name} for 'x'] Result:\n{turn.output}"),
    "Hermes": (write_json, lambda turn: f"<tool_response>\n{turn.output}\n</tool_response>"),
    "smolagents": (write_list, lambda turn: f"Observation:\n{turn.output}"),
}
PATHS = st.sampled_from(["src/pool.py", "订单.py"])
CODE = st.sampled_from(
    ["a = 1", "def f():\n    return '<p>'", "x </p> y", "[1]", "<a>\n<b></b>\n</a>"]
)
EDITS = st.one_of(
    st.builds(lambda path: ("read_file", {"path": path}, "1\tdef f():\n2\t    pass"), PATHS),
    st.builds(lambda path, text: ("write_to_file", {"path": path, "content": text}, "Saved."), PATHS, CODE),
    st.builds(
        lambda path, old, new: (
            "str_replace_editor",
            {"command": "str_replace", "path": path, "old_str": old, "new_str": new},
            "The file has been edited.",
        ),
        PATHS, CODE, CODE,
    ),
)  # fmt: skip
COMMANDS = st.tuples(
    st.just("execute_command"),
    st.sampled_from(["pytest -q", "git commit -m 'x'", "cat a > b.txt", "ls <<E\n<x>\nE"]).map(
        lambda command: {"command": command}
    ),
    st.sampled_from(["1 failed, 2 passed\nexit code 1", "3 passed", "", "No such file: <b>"]),
)
TURNS = st.builds(
    lambda words, call: Turn(words, *call),
    st.sampled_from(["", "I look.", "The pool is never closed, so we keep `Pool`."]),
    EDITS | COMMANDS,
)


def write_native(turns: list[Turn]) -> list[Message]:
    messages = [user("Mend the pool.")]
    for at, turn in enumerate(turns):
        arguments = json.dumps(
            turn.fields, ensure_ascii=False, sort_keys=True, separators=(",", ":")
        )
        words = (Text(turn.words),) if turn.words else ()
        messages += (
            Message("assistant", (*words, ToolCall(f"c{at}", turn.name, arguments))),
            Message("tool", (ToolResult(f"c{at}", (Text(turn.output),)),)),
        )
    return [*messages, assistant("All is mended.")]


def write_as_text(turns: list[Turn], form: str) -> list[Message]:
    write, answer = FORMS[form]
    spoken = (
        message
        for turn in turns
        for message in (
            assistant("\n\n".join(filter(None, (turn.words, write(turn))))),
            user(answer(turn)),
        )
    )
    return [user("Mend the pool."), *spoken, assistant("All is mended.")]


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=examples_at_night(15, 300))
@given(st.lists(TURNS, max_size=4))
def test_a_call_written_as_text_is_read_as_a_native_one(form: str, turns: list[Turn]) -> None:
    """They were once ignored: a summary had no files, no checks, and parameter tags as
    decisions."""
    native, written = write_native(turns), write_as_text(turns, form)
    assert read_steps(written) == read_steps(native)
    assert render_state(collect(written), 2_000) == render_state(collect(native), 2_000)


def calls_of(*messages: Message) -> list[list[str]]:
    """Return the calls read from each message."""
    restored = restore_calls(messages, segment_messages(messages))
    return [
        [part.name for part in message.parts if isinstance(part, ToolCall)]
        for message, _ in restored
    ]


WRITTEN = "<write_to_file>\n<path>a.py</path>\n<content>x</content>\n</write_to_file>"
FUNCTION = "<function=bash>\n<parameter=command>rm -rf src</parameter>\n</function>"


@pytest.mark.parametrize(
    "messages",
    [
        [user(f"Why does {FUNCTION} fail?"), assistant("It is refused.")],
        [user("Go."), user(f"OBSERVATION:\n{FUNCTION}"), user(f"OBSERVATION:\n{FUNCTION}")],
        [user("How?"), assistant(f"Write {FUNCTION}"), user("Thanks.")],
        [user("How?"), assistant(f"Write {WRITTEN}"), user("Thanks."), assistant()],
        [user("How?"), assistant(f"Write {WRITTEN}"), user("OBSERVATION:\nok")],
        [user("How?"), assistant(f"Write {WRITTEN}"), user("[read_file for 'b'] Result:\nok")],
        [user("How?"), assistant(f"So: {FUNCTION}"), user("<file_content path='a'>\nx\n</file_content>\nThanks.")],
        [user("How?"), assistant("<function=bash>\n<parameter=command>ls"), user("OBSERVATION:\n")],
        [user("How?"), assistant("<function=bash>ls</function>"), user("OBSERVATION:\n")],
    ],
)  # fmt: skip
def test_only_a_written_call_that_a_tool_answers_is_a_call(messages: list[Message]) -> None:
    """Not one in a user message, in a file, or in an example of the model."""
    *spoken, last = calls_of(*messages)
    assert [*spoken, last] == [[]] * len(messages)
    assert "rm -rf" not in str(collect(messages).actions)


@pytest.mark.parametrize(
    "shown", ["a.py\n<<<<<<< SEARCH\nx\n=======\ny\n>>>>>>> REPLACE", FUNCTION]
)
def test_written_calls_are_not_parsed_in_conversations_with_native_calls(shown: str) -> None:
    """A model that explained a call was once taken to have made it, if the next message was not the
    user's."""
    calls = Message("assistant", (Text(shown), ToolCall("c", "ls", "{}")))
    done = Message("tool", (ToolResult("c", (Text("a.py"),)),))
    note = user("<task-notification>\n<status>completed</status>\n</task-notification>")
    messages = [user("How?"), calls, done, assistant(shown), note]
    assert calls_of(*messages) == [[], ["ls"], [], [], []]
    assert [step.text for step in read_steps(messages) if step.kind == "answer"] == [shown] * 2


def test_feedback_and_context_beside_a_tool_result_keep_their_speakers() -> None:
    done = assistant("<read_file>\n<path>a.py</path>\n</read_file>")
    details = "<environment_details>\n# Open\na.py\n</environment_details>"
    feedback = "<feedback>\nUse tabs.\n</feedback>"
    label = "[read_file for 'a.py'] Result:"
    for texts in ((f"{label}\nx = 1", feedback, details), (label, "x = 1", feedback, details)):
        messages = [user("Go."), done, Message("user", tuple(map(Text, texts)))]
        *_, (message, own) = restore_calls(messages, segment_messages(messages))
        results = [part.text for part in message.parts if isinstance(part, ToolResult)]
        assert results == ["x = 1"]
        assert [segment.voice for segment in own] == ["person", "context"]
        assert all(message.parts[segment.part] == Text(segment.text) for segment in own)
    lifted = user(f"{label}\n<user_message>\nUse tabs.\n</user_message>\n{details}")
    *_, (_, own) = restore_calls([*messages[:2], lifted], segment_messages([*messages[:2], lifted]))
    assert own[0].was_in_result, "a file can hold it"


def test_results_are_assigned_to_the_calls_that_their_labels_name() -> None:
    looked = "<read_file>\n<path>{}.py</path>\n</read_file>"
    both = assistant(f"{looked.format('a')}\n{WRITTEN}\n{looked.format('b')}")
    answers = [
        Text("[write_to_file for 'a.py'] Result:\nError: it is read-only."),
        Text("[read_file for 'a.py'] Result:"), Text("of a"), Text("[read_file for 'b.py'] Result:"), Text("of b"),
    ]  # fmt: skip
    steps = read_steps([user("Go."), both, Message("user", tuple(answers))])
    results = {step.effect.files[0]: step.text for step in steps if step.kind == "result"}
    assert results == {
        ("a.py", "created"): "Error: it is read-only.", ("a.py", "read"): "of a", ("b.py", "read"): "of b",
    }  # fmt: skip


def test_the_text_of_a_completion_call_is_the_final_answer() -> None:
    """The answer once contained the tags, and the next message was taken for its output."""
    done = assistant(
        "So.\n<attempt_completion>\n<result>\nIt works.\n</result>\n</attempt_completion>"
    )
    shown = user(
        "[attempt_completion] Result: Done\n<file_content path='a.py'>\nx\n</file_content>"
    )
    alone = Message(
        "user", (Text("[attempt_completion] Result:"), Text("<feedback>\nMore.\n</feedback>"))
    )
    assert [step.kind for step in read_steps([done, alone])] == ["call", "answer", "request"]
    for following in ([], [user("Thanks.")], [shown]):
        answer = next(s for s in read_steps([user("Go."), done, *following]) if s.kind == "answer")
        assert (answer.text, answer.is_final) == ("So.\nIt works.", True)
        assert not [
            s
            for s in read_steps([done, *following])
            if s.effect.tool == "attempt_completion" and s.kind == "result"
        ]


REFUSALS = [
    "Please always provide EXACTLY ONE action in triple backticks, found 2 actions.",
    "Your output was not formatted correctly. You must always include one command.",
    "[ERROR] You did not use a tool in your previous response! Please retry with a tool use.",
]


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_call_that_the_client_refuses_does_not_count_or_end_the_turn(refusal: str) -> None:
    words = "The cause is the cache. I write it.\n"
    call = "<write_file>\n<path>a.py</path>\n<content>x = 1</content>\n</write_file>"
    for reply, expected in (
        (refusal, [("answer", False)]),
        ("[write_file] Result:\nWritten.", [("call", False), ("answer", False)]),
    ):
        steps = read_steps([user("Mend it."), assistant(words + call), user(reply)])
        own = [(step.kind, step.is_final) for step in steps if step.at == 1]
        assert own == expected
    view = View.of(
        [user("Mend it."), assistant(words), user(refusal), assistant("Now."), user("Go on.")]
    )
    summary = advance(RuleSummary()(view, 0, 4, 2_000))
    assert isinstance(summary, End)
    assert summary.value.text
    assert refusal not in summary.value.text


def test_roo_code_s_files_and_diffs_are_read() -> None:
    look = "<read_file>\n<args>\n<file>\n<path>a.py</path>\n</file>\n<file>\n<path>b.py</path>\n</file>\n</args>\n</read_file>"
    diff = "<<<<<<< SEARCH\n:start_line:1\n-------\nx = 1\n=======\nx = 2\n>>>>>>> REPLACE"
    change = f"<apply_diff>\n<path>a.py</path>\n<diff>\n{diff}\n</diff>\n</apply_diff>"
    messages = [
        user("Go."), assistant(look), user("[read_file for 'a.py', 'b.py'] Result:\n<files></files>"),
        assistant(change), user("[apply_diff for 'a.py'] Result:\n<file_write_result></file_write_result>"),
    ]  # fmt: skip
    assert states_of(collect(messages)) == {"a.py": "modified", "b.py": "read"}
    [change] = read_steps(messages)[-1].effect.changes
    assert (change.old, change.new) == (("x = 1",), ("x = 2",))


def test_line_numbers_in_written_calls_are_parsed_as_integers() -> None:
    part = "<read_file>\n<path>a.py</path>\n<start_line>40</start_line>\n<end_line>9999999999</end_line>\n</read_file>"
    rest, [call] = split_calls(part, None)
    assert rest == "" and json.loads(call.arguments) == {
        "path": "a.py", "start_line": 40, "end_line": "9999999999",
    }  # fmt: skip


@given(
    st.lists(
        st.sampled_from(
            [
                "<function=a>",
                "</function>",
                "<parameter=b>",
                "</parameter>",
                "<a_b>",
                "</a_b>",
                "<args>",
                "</args>",
                "<file>",
                "</file>",
                "<tool_call>",
                "</tool_call>",
                '{"name": "a", "arguments": 1}',
                "Calling tools:\n[",
                "{'name': 1}]",
                "```bash\n",
                "\n```",
                "<<<<<<< SEARCH\n",
                "=======\n",
                "\n",
                "x",
            ]
        ),
        max_size=30,
    ).map("".join),
    st.sampled_from(
        ["x", "OBSERVATION:\nx", "[a_b] Result:\nx", "<tool_response>x</tool_response>"]
    ),
)
@example("Calling tools:\n[" + "-" * 10_000 + "1]", "OBSERVATION:\nx")
def test_any_text_is_read(text: str, answer: str) -> None:
    messages = [user("Go."), assistant(text), user(answer)]
    calls = calls_of(*messages)
    assert calls[0] == calls[2] == []
    assert not read_steps(messages)[-1].text.startswith("OBSERVATION:\n") or not calls[1]
    restored = [message for message, _ in restore_calls(messages, segment_messages(messages))]
    again = [message for message, _ in restore_calls(restored, segment_messages(restored))]
    assert again == restored or not calls[1], "what is read has no call in its text"
