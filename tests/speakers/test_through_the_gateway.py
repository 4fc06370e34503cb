"""Situations of real agents through the gateway (D1 to D5, D8, D9): what a client's model sees after compactions."""

import json
from collections.abc import Iterable
from typing import Any

import pytest

from refold import Budget, Compactor, default_strategies
from refold.gateway.pipeline.request_kind import is_added_summary_request
from refold.messages import Message, Text, ToolResult, user
from refold.strategies import ClearToolResults, SummarizeTo
from refold.tokens.model_table import Window
from tests.support.agent_requests import entries, violations
from tests.support.pipeline_driver import Driver

WORDS = "The quick brown fox jumps over the lazy dog. " * 25
MODELS = ("m", "claude-opus-5-5")
STEER = "The user sent a new message while you were working:\n{}\nThis is how it surfaces."


def reminder(text: str) -> str:
    return f"<system-reminder>\n{text}\n</system-reminder>"


def opus(steps: int, typed: dict[int, str], *, in_results: bool) -> bytes:
    """A turn of Claude Code: what is typed while it works stands in system messages, or at the end of results."""
    first = [
        reminder("As you answer the user's questions, you can use this: be polite."),
        "Rename parse to read.",
    ]
    messages: list[Any] = [
        {"role": "user", "content": [{"type": "text", "text": text} for text in first]}
    ]
    if not in_results:
        messages.append(
            {
                "role": "system",
                "content": "# Environment\ncwd: /home/mika/demo\n\nThe following skills are available: pdf",
            }
        )
    for n in range(steps):
        call = {"type": "tool_use", "id": f"t{n}", "name": "read", "input": {"path": f"f{n}.py"}}
        late = f"\n\n{reminder(STEER.format(typed[n]))}" if in_results and n in typed else ""
        result = {
            "type": "tool_result",
            "tool_use_id": f"t{n}",
            "content": f"file {n}\n{WORDS}{late}",
        }
        messages += [
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [result]},
        ]
        if not in_results and n in typed:
            messages.append({"role": "system", "content": STEER.format(typed[n])})
    return json.dumps(
        {"model": "claude-opus-5-5", "max_tokens": 1000, "messages": messages}
    ).encode()


def chat(messages: Iterable[tuple[str, str]], steps: int, size: int = 1) -> bytes:
    """A Chat Completions request whose agent is at work."""
    entries_sent: list[Any] = [{"role": role, "content": text} for role, text in messages]
    for n in range(steps):
        function = {"name": "read", "arguments": json.dumps({"path": f"f{n}.py"})}
        entries_sent.append(
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": f"c{n}", "type": "function", "function": function}],
            }
        )
        entries_sent.append(
            {"role": "tool", "tool_call_id": f"c{n}", "content": f"file {n}\n{WORDS * size}"}
        )
    return json.dumps({"model": "m", "messages": entries_sent}).encode()


def texts(body: bytes) -> list[str]:
    """Each text of a request, our summaries left out."""
    contents = list[str]()
    for entry in entries(body):
        content = entry.get("content") or []
        contents += (
            [content]
            if isinstance(content, str)
            else [part.get("text") or str(part.get("content")) for part in content]
        )
    return [text for text in contents if not text.startswith("<earlier-conversation>")]


@pytest.mark.parametrize("in_results", [False, True])
def test_d1_three_requests_of_one_turn_are_all_in_every_later_request(in_results: bool) -> None:
    """What a user types while Claude Code works was gone at the first compaction, and the agent did one of three things."""
    typed = {3: "Also write a changelog.", 7: "And use tabs, 请用制表符."}
    with Driver(windows=dict.fromkeys(MODELS, Window(6_000))) as driver:
        for steps in range(1, 40):
            body = opus(steps, typed, in_results=in_results)
            out = driver(body)
            shown = "\n".join(texts(out.body))
            for at, words in ((0, "Rename parse to read."), *typed.items()):
                assert steps <= at or words in shown, (steps, words)
            assert "be polite" in shown
            assert in_results or ("/home/mika/demo" in shown and "pdf" in shown)
            assert violations(out.body, "anthropic") == violations(body, "anthropic")
        assert out.edits and len(out.body) < len(body) / 2


@pytest.mark.parametrize("role", ["system", "developer"])
def test_d1_a_system_message_in_mid_conversation_is_never_lost(role: str) -> None:
    """An operator's order vanished at the first compaction, and stood in no summary."""
    turns = [
        ("system", "Be brief."),
        ("user", "Go."),
        ("assistant", "Gone."),
        (role, "NEVER touch PROD."),
        ("user", "On."),
    ]
    with Driver(windows=dict.fromkeys(MODELS, Window(4_000))) as driver:
        for steps in range(1, 40):
            out = driver(chat(turns, steps), "openai_chat")
            assert "NEVER touch PROD." in texts(out.body)
        assert out.edits


def test_d2_reminders_behind_a_prompt_do_not_take_its_place() -> None:
    """Kimi Code's date and permission mode were taken for the request, and the user's 120 rules were cut to 42."""
    rules = "\n".join(f"Rule {n}: name no file after number {n}." for n in range(120))
    turns = [
        ("system", "x"),
        ("user", rules),
        ("user", reminder("Today's date is 3 May.")),
        ("user", reminder("Auto permission mode is active.")),
    ]
    with Driver(windows=dict.fromkeys(MODELS, Window(9_000))) as driver:
        for steps in range(1, 50):
            out = driver(chat(turns, steps), "openai_chat")
            assert {text for _, text in turns[1:]} <= set(texts(out.body)), steps
        assert out.edits


def test_d3_a_long_request_beside_the_summary_is_not_repeated_at_length_in_it() -> None:
    """A request of 600 words took three quarters of the summary, so 11 of 40 facts were left."""
    request = (
        "Please move the parser to the new interface. "
        + "Mind what the callers expect of it here. " * 75
    )
    turns = [("system", "x"), ("user", "Hi."), ("assistant", "Hello."), ("user", request)]
    with Driver(windows=dict.fromkeys(MODELS, Window(12_000))) as driver:
        out = [driver(chat(turns, steps), "openai_chat") for steps in range(1, 90)][-1]
    assert request in texts(out.body)
    summary = next(
        entry["content"]
        for entry in entries(out.body)
        if "<earlier-conversation>" in str(entry["content"])
    )
    assert (
        len("Mind what the callers expect of it here.") * summary.count("Mind what the callers")
        < len(summary) / 2
    )
    assert "f67.py" in summary


@pytest.mark.parametrize("window", [3_000, 6_000, 9_000])
def test_d3_a_long_task_stays_whole_when_something_is_typed_later(window: int) -> None:
    """A task of 50 rules, and "Be quick." typed while the agent worked: 3 to 9 rules were left."""
    task = " ".join(
        f"Rule {n}: the module part{n} keeps its public name and its tests pass." for n in range(50)
    )
    with Driver(windows=dict.fromkeys(MODELS, Window(window * 2))) as driver:
        task_body = chat([("user", task)], 5).decode()
        for steps in range(1, 40):
            late = json.loads(task_body)
            longer = json.loads(chat([("user", "Be quick with that.")], 5 + steps))
            late["messages"] += [longer["messages"][0], *longer["messages"][11:]]
            out = driver(json.dumps(late).encode(), "openai_chat")
            assert {task, "Be quick with that."} <= set(texts(out.body)), steps
        assert out.edits


def test_d3_user_messages_take_precedence_over_the_oldest_results_of_the_tail() -> None:
    """Of two orders of 300 words typed in a turn, the first was dropped for four times as many tokens of results."""
    orders = [
        " ".join(f"For module m{k}_{n} keep the names and write a test." for n in range(28))
        for k in range(3)
    ]
    messages = json.loads(chat([("user", "Build it.")], 0))["messages"]
    for k, order in enumerate(orders):
        steps = json.loads(chat([], 8 * k + 8))["messages"][16 * k :]
        messages += [*steps, {"role": "user", "content": order}]
    messages += json.loads(chat([], 48))["messages"][48:]
    for strategies in (default_strategies(6_000), (SummarizeTo(6_000),)):
        view = Compactor(strategies, Budget(6_000, 6_000))(messages)
        assert view.tokens <= 6_000
        assert {"Build it.", *orders} <= {message.text for message in view.messages}


def test_d4_files_and_examples_that_aider_sends_are_kept() -> None:
    """aider's files, map of the repository and examples of the edit format were gone after the first compaction."""
    examples = [
        *(
            ("user", "Change get_factorial() to use math.factorial"),
            ("assistant", "<<<<<<< SEARCH\nold\n=======\nnew"),
        ),
        *(
            ("user", "I switched to a new code base. Please don't consider the above files."),
            ("assistant", "Ok."),
        ),
    ]
    files = [
        *(
            (
                "user",
                "Here are summaries of some files present in my git repository.\n\na.py:\n│def a",
            ),
            ("assistant", "Ok."),
        ),
        *(
            ("user", "I have *added these files to the chat* so you can edit them.\n\nb.py\nx = 1"),
            ("assistant", "Ok."),
        ),
    ]
    turns = [("system", "Act as a developer."), *examples, *files]
    for n in range(40):
        ran = f"I ran this command:\n\npytest -k {n}\n\nAnd got this output:\n\n{WORDS}\nE   ValueError: {n}"
        turns += [
            ("user", f"Please add function number {n}."),
            ("assistant", WORDS),
            ("user", ran),
            ("assistant", "Ok."),
        ]
    with Driver(windows=dict.fromkeys(MODELS, Window(8_000))) as driver:
        out = driver(chat([*turns, ("user", "Now mend it.")], 0), "openai_chat")
    shown = texts(out.body)
    assert out.edits and {text for _, text in (*examples[:2], files[0], files[2])} <= set(shown)
    summary = next(
        entry["content"]
        for entry in entries(out.body)
        if "<earlier-conversation>" in str(entry["content"])
    )
    assert "I ran this command" not in summary, "it is no request"
    assert "function number" in summary


def test_d5_the_newest_context_of_each_kind_beside_earlier_prompts_is_kept() -> None:
    """Qwen's skills and tree, Codex's environment went when their prompt was no longer the current one."""
    skills, startup = (
        reminder("The following skills are available: pdf"),
        reminder("We are setting up the context: /work"),
    )
    environment = "<environment_context>\n  <cwd>/work</cwd>\n</environment_context>"
    turns = [("system", "x"), ("user", skills), ("user", startup), ("user", environment)]
    for n in range(30):
        turns += [
            ("user", reminder(f"The current date is: day {n}")),
            ("user", f"Do thing {n}."),
            ("assistant", WORDS),
        ]
    with Driver(windows=dict.fromkeys(MODELS, Window(6_000))) as driver:
        out = driver(chat([*turns, ("user", "And now?")], 0), "openai_chat")
    shown = texts(out.body)
    assert out.edits and {
        skills,
        startup,
        environment,
        reminder("The current date is: day 29"),
    } <= set(shown)
    assert reminder("The current date is: day 0") not in shown, "older ones of the kind go"


class Reader:
    """An agent that works on all of its files at once: it reads, again where it must, until it sees all of them."""

    def __init__(self, files: int, size: int, note: str = "") -> None:
        """*note* stands at the end of each result, with another number each time."""
        self.note = note
        self.files, self.size, self.turns = files, size, [("user", "Compare all files.")]
        self.steps = list[int]()

    def body(self) -> bytes:
        messages: list[Any] = [{"role": role, "content": text} for role, text in self.turns]
        for n, file in enumerate(self.steps):
            function = {"name": "read", "arguments": json.dumps({"path": f"f{file}.py"})}
            call = {"id": f"c{n}", "type": "function", "function": function}
            messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
            messages.append(
                {
                    "role": "tool",
                    "tool_call_id": f"c{n}",
                    "content": f"contents of {file}:\n{WORDS * self.size}{self.note.format(900_000 - n * 37)}",
                }
            )
        return json.dumps({"model": "m", "messages": messages}).encode()

    def sees(self, sent: bytes) -> set[int]:
        """The files that a request shows in full."""
        shown = "\n".join(texts(sent))
        return {
            file
            for file in range(self.files)
            if f"contents of {file}:\n{WORDS * self.size}" in shown
        }


BUDGET = reminder("<total_tokens>{} tokens left</total_tokens>")


@pytest.mark.parametrize("note", ["", BUDGET, "\nWall time: 0.{} seconds"])
@pytest.mark.parametrize(("files", "window"), [(8, 12_000), (6, 8_000)])
def test_d3_law_an_agent_that_reads_hidden_files_again_does_not_loop(
    files: int, window: int, note: str, caplog: pytest.LogCaptureFixture
) -> None:
    """mini-swe-agent read the same files again after each of 28 compactions, and never ended. Claude Code's and Codex's
    agents did so too, since their clients put other numbers at the end of each result."""
    caplog.set_level("INFO", "refold.gateway")
    reader, compactions, edits = Reader(files, 2, note), 0, frozenset[str]()
    with Driver(windows=dict.fromkeys(MODELS, Window(window))) as driver:
        for n in range(100):
            out = driver(reader.body(), "openai_chat")
            compactions += bool(set(out.edits) - edits)
            edits = frozenset(out.edits)
            missing = sorted(set(range(files)) - reader.sees(out.body))
            if not missing and n > files:
                break
            reader.steps.append(100 + n if n % 2 or not missing else missing[0])
        assert not missing, f"{compactions} compactions in {len(reader.steps)} steps"
        assert 0 < compactions <= 5
        refetched = driver.count("refetched_kept", api="openai_chat")
    brakes = [
        record
        for record in caplog.records
        if getattr(record, "event", "") == "results that were fetched again are kept"
    ]
    assert sum(record.fields["results"] for record in brakes) == refetched > 0
    assert all(record.fields["tokens"] > 0 for record in brakes)


def test_d3_clearing_keeps_results_that_were_fetched_again() -> None:
    """Cleared once more, it would be read once more."""
    compact = Compactor([ClearToolResults(keep=1)], Budget(10**6, 10**6))
    reader = Reader(3, 4)
    reader.steps += [0, 1, 2]
    first = compact.compact_now(json.loads(reader.body())["messages"], to=1_500)
    assert reader.sees(json.dumps({"messages": first.payload}).encode()) == {2}
    reader.steps += [0, 100, 101]
    again = compact.compact_now(json.loads(reader.body())["messages"], to=first.tokens + 1_500)
    assert reader.sees(json.dumps({"messages": again.payload}).encode()) == {0}, (
        "and older ones that were read once go"
    )


def test_d3_results_fetched_again_are_hidden_once_the_work_has_moved_on() -> None:
    """A result of 6,000 tokens that an agent had fetched twice stood beside all later summaries."""
    compact = Compactor([SummarizeTo(4_000)], Budget(10**6, 10**6))
    reader, stays = Reader(3, 4), list[bool]()
    for at in range(60):
        reader.steps.append(0 if at == 20 else at % 3 if at < 3 else 100 + at)
        if at % 5 == 4:
            result = compact.compact_now(json.loads(reader.body())["messages"])
            stays.append(0 in reader.sees(json.dumps({"messages": result.payload}).encode()))
    assert stays[4] and stays[5] and not any(stays[8:]), stays


@pytest.mark.parametrize("again", ["the same", "another"])
def test_d3_a_one_line_json_result_is_recognised_again_by_its_fields(again: str) -> None:
    """JSON on one line with a time among its fields was another result each time, and was hidden each time."""

    def answer(took: int, first: int) -> str:
        rows = [{"id": n, "name": f"user number {n}"} for n in range(first, first + 20)]
        return json.dumps({"took_ms": took, "rows": rows})

    def read(at: int, text: str) -> list[Any]:
        call = {"id": f"c{at}", "type": "function", "function": {"name": "list", "arguments": "{}"}}
        return [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{at}", "content": text},
        ]

    compact = Compactor([ClearToolResults(keep=1)], Budget(10**6, 10**6))
    steps = json.loads(chat([], 4, 2))["messages"]
    history = [{"role": "user", "content": "Go."}, *read(90, answer(12, 0)), *steps[:4]]
    first = compact.compact_now(history, to=1_500)
    assert "user number 7" not in str(first.payload)
    history += [*read(91, answer(931, 0 if again == "the same" else 500)), *steps[4:]]
    shown = str(compact.compact_now(history, to=1_500).payload)
    assert ("user number 7" in shown or "user number 507" in shown) is (again == "the same")


def test_d8_a_rewound_request_is_not_taken_for_the_clients_own_compaction() -> None:
    """A rewound request has the shape of a compaction: a known result, with a text behind it."""
    result = Message("user", (ToolResult("1", (Text("x"),)),))
    before = [
        user("Go."),
        Message("assistant", (Text("I look."),)),
        result,
        Message("assistant", (Text("Done."),)),
    ]

    def with_text(text: str) -> list[Message]:
        return [*before[:2], Message("user", (*result.parts, Text(text)))]

    assert not is_added_summary_request(before, with_text("No, mend the other file instead."))
    assert not is_added_summary_request(before, with_text("不对，改另一个文件。"))
    assert is_added_summary_request(
        before, with_text("Write down a summary of all this for whoever goes on.")
    )


def test_d9_a_compaction_request_of_continue_is_passed_through() -> None:
    """It sends all tools and asks in the last user message; it was compacted as a turn of the conversation."""
    asks = "Please provide a concise summary of our conversation so far."
    with Driver(windows=dict.fromkeys(MODELS, Window(50_000))) as driver:
        turns = [("system", "x"), ("user", "Go."), ("assistant", WORDS), ("user", asks)]
        body = chat(turns, 0)
        out = driver(body, "openai_chat")
        assert (out.outcome, out.reason) == ("side", "compaction")
        assert out.body is body
