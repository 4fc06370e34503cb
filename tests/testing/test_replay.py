"""What a replay counts: which identifiers a call needs, and whether the request still holds them."""

import json
import re
from dataclasses import dataclass

import pytest
from benchmarks.replay import STRUCTURED, Recording, Replay, expand_groups, names, places

from refold.budget.budget import Budget
from refold.compactor.compactor import Compactor
from refold.core.tool_groups import map_parts
from refold.core.view import View
from refold.messages import Text, ToolCall, ToolResult, user
from refold.strategies import DropDuplicates

EVERYTHING = Compactor([], Budget(10**9, 10**9))


def question(text):
    return {"role": "user", "content": text}


def answer(text):
    return {"role": "assistant", "content": text}


def bash_call(id, text="", **arguments):
    function = {"name": "bash", "arguments": json.dumps(arguments)}
    return {
        "role": "assistant",
        "content": text,
        "tool_calls": [{"id": id, "type": "function", "function": function}],
    }


def bash_result(id, text):
    return {"role": "tool", "tool_call_id": id, "content": text}


def recording(*messages, system="Be brief."):
    return Recording(
        {"model": "gpt-4o", "messages": [{"role": "system", "content": system}, *messages]}
    )


def list_needs(*messages, **kwargs):
    return [(need.at, need.name) for need in recording(*messages, **kwargs).needs]


LISTED = [question("Go."), bash_call("c1", command="ls"), bash_result("c1", "src/pool.py")]


# --- what is needed ------------------------------------------------------------------------------


def test_an_identifier_from_a_result_that_a_later_call_uses_is_needed():
    assert list_needs(*LISTED, bash_call("c2", path="src/pool.py")) == [(3, "src/pool.py")]


def test_only_the_first_use_of_an_identifier_counts():
    uses = bash_call("c2", path="src/pool.py", also="src/pool.py"), bash_result("c2", "src/pool.py")
    assert list_needs(*LISTED, *uses, bash_call("c3", path="src/pool.py")) == [(3, "src/pool.py")]


@pytest.mark.parametrize(
    "before",
    [
        [question("Open src/pool.py.")],
        [question("Go."), answer("I shall open src/pool.py."), question("Do.")],
        [question("Go."), bash_call("c0", command="touch src/pool.py"), bash_result("c0", "")],
    ],
    ids=["user", "assistant", "call"],
)
def test_an_identifier_that_was_mentioned_before_the_result_is_not_needed(before):
    assert list_needs(*before, *LISTED[1:], bash_call("c2", path="src/pool.py")) == []


def test_an_identifier_in_the_system_prompt_is_not_needed():
    assert (
        list_needs(*LISTED, bash_call("c2", path="src/pool.py"), system="Never touch src/pool.py.")
        == []
    )


def test_an_identifier_that_is_repeated_after_the_result_is_still_needed():
    talk = answer("There is src/pool.py."), question("Open src/pool.py.")
    assert list_needs(*LISTED, *talk, bash_call("c2", path="src/pool.py")) == [(5, "src/pool.py")]


def test_a_call_with_text_still_needs_the_identifiers_in_its_arguments():
    assert list_needs(*LISTED, bash_call("c2", "Opening src/pool.py.", path="src/pool.py")) == [
        (3, "src/pool.py")
    ]


def test_an_identifier_from_a_later_result_is_not_needed():
    assert (
        list_needs(
            question("Go."), bash_call("c1", path="src/pool.py"), bash_result("c1", "src/pool.py")
        )
        == []
    )


def test_an_identifier_that_no_call_uses_is_not_needed():
    assert list_needs(*LISTED, answer("There is src/pool.py.")) == []


@pytest.mark.parametrize(
    "name",
    [
        "src/pool.py",
        "os.path",
        "kebab-case",
        "snake_case",
        "MAX_SIZE",
        "camelCase",
        "PascalCase",
        "deadbeef",
    ],
)
def test_words_with_structure_are_identifiers(name):
    assert STRUCTURED.findall(f"see {name} there") == [name]


def test_ordinary_words_and_numbers_are_not_identifiers():
    assert STRUCTURED.findall("The Pool holds 42 slots, see README") == []


def test_argument_values_at_any_depth_are_searched_but_field_names_are_not():
    arguments = {"file_path": ["a_b", {"old_text": "c_d e_f"}], "count": 3}
    call = ToolCall("c1", "edit", json.dumps(arguments))
    assert list(names(call, STRUCTURED)) == ["a_b", "c_d", "e_f"]


def test_arguments_that_are_not_json_are_searched_as_text():
    assert list(names(ToolCall("c1", "edit", "{open a_b"), STRUCTURED)) == ["a_b"]


def test_a_custom_pattern_finds_other_identifiers():
    words = recording(
        question("Go."),
        bash_call("c1", q="x"),
        bash_result("c1", "HAT030"),
        bash_call("c2", flight="HAT030"),
    )
    assert words.needs == ()
    flights = Recording(words.payload, re.compile(r"HAT\d+"))
    assert [need.name for need in flights.needs] == ["HAT030"]


# --- what is sent --------------------------------------------------------------------------------

LONG = [
    *LISTED,
    bash_call("c2", command="wc"),
    bash_result("c2", "lines " * 50),
    bash_call("c3", path="src/pool.py"),
    bash_result("c3", "fine"),
    answer("Done."),
]


@dataclass(frozen=True)
class Fold:
    """Folds everything before the latest call once there are five messages; the request stays."""

    text: str

    def __call__(self, view):
        if len(view.transcript) == 5:
            yield view.fold(0, 3, user(self.text), view.transcript.messages[0])


@dataclass(frozen=True)
class Clear:
    """Shows *text* instead of the result at position 2 once there are five messages."""

    text: str

    def __call__(self, view):
        def change(part):
            return ToolResult(part.id, (Text(self.text),)) if isinstance(part, ToolResult) else part

        if len(view.transcript) == 5:
            yield view.replace(2, map_parts(view.transcript.messages[2], change))


def replay(strategy, messages=LONG):
    return recording(*messages).replay(Compactor([strategy], Budget(0, 0)))


def test_each_answer_is_one_call_with_everything_before_it():
    record = recording(*LONG)
    assert record.calls == (1, 3, 5, 7)
    sums = View.of(record.messages).base.token_sums
    assert record.replay(EVERYTHING) == Replay(
        4, sum(sums[at] for at in record.calls), 0, 1, {"tail": 1}
    )


def test_consecutive_calls_of_one_answer_are_one_call():
    items = [
        {"role": "user", "content": "Go."},
        {"type": "function_call", "call_id": "c1", "name": "ls", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "src/pool.py src/slot.py"},
        {
            "type": "function_call",
            "call_id": "c2",
            "name": "cat",
            "arguments": '{"path":"src/pool.py"}',
        },
        {
            "type": "function_call",
            "call_id": "c3",
            "name": "cat",
            "arguments": '{"path":"src/slot.py"}',
        },
    ]
    record = Recording({"model": "gpt-5", "input": items})
    assert record.calls == (1, 3)
    assert record.wanted == {3: ["src/pool.py", "src/slot.py"]}
    assert record.replay(EVERYTHING).survived == {"tail": 2}


def test_the_system_prompt_is_counted_separately_from_the_messages():
    brief, wordy = recording(*LONG), recording(*LONG, system="Be brief. " * 100)
    assert wordy.size == brief.size
    assert wordy.fixed > brief.fixed
    assert wordy.replay(EVERYTHING).tokens == brief.replay(EVERYTHING).tokens


def test_an_identifier_that_an_edit_hides_is_lost():
    result = replay(Clear("-"), [*LISTED[:2], bash_result("c1", "src/pool.py " * 50), *LONG[3:]])
    assert result.recall == 0
    assert result.survived == {}
    assert result.needed == 1


def test_an_identifier_that_a_stub_contains_survives():
    result = replay(
        Clear("cleared; had src/pool.py"),
        [*LISTED[:2], bash_result("c1", "src/pool.py " * 50), *LONG[3:]],
    )
    assert result.survived == {"stub": 1}
    assert result.recall == 1


def test_an_identifier_that_a_summary_contains_survives():
    result = replay(
        Fold("had src/pool.py"), [*LISTED[:2], bash_result("c1", "src/pool.py " * 50), *LONG[3:]]
    )
    assert result.survived == {"summary": 1}


def test_a_brace_group_of_paths_is_expanded():
    result = replay(
        Fold("had src/{slot.py,pool.py}"),
        [*LISTED[:2], bash_result("c1", "src/pool.py " * 50), *LONG[3:]],
    )
    assert result.survived == {"summary": 1}
    assert expand_groups("a {b,c} d/{e}") == "a {b,c} d/{e}\nd/e"


def test_an_identifier_is_found_inside_a_longer_word():
    messages = (
        *LISTED[:2],
        bash_result("c1", "pool.py"),
        question("In src/pool.py."),
        bash_call("c2", path="pool.py"),
    )
    view = View.of(recording(*messages).messages)
    assert places(view, ["pool.py", "slot.py"], {"pool.py": [3], "slot.py": []}) == ["tail", None]


def test_an_identifier_that_occurs_only_after_the_call_is_not_found():
    view = View.of(recording(*LISTED).messages)
    assert places(view, ["src/pool.py"], {"src/pool.py": [3]}) == [None]


def test_a_compaction_breaks_the_cache_once():
    messages = [*LISTED[:2], bash_result("c1", "src/pool.py " * 50), *LONG[3:]]
    assert replay(Fold("earlier"), messages).breaks == 1
    assert replay(DropDuplicates(), messages).breaks == 0


def test_the_tokens_of_a_summary_are_counted():
    messages = [*LISTED[:2], bash_result("c1", "src/pool.py " * 50), *LONG[3:]]
    assert replay(Fold("earlier"), messages).tokens < replay(Fold("earlier " * 20), messages).tokens


def test_replays_add_up():
    first, second = Replay(1, 10, 0, 2, {"tail": 1}), Replay(2, 20, 1, 2, {"tail": 1, "stub": 1})
    assert first + second == Replay(3, 30, 1, 4, {"tail": 2, "stub": 1})
    assert (first + second).recall == 0.75


def test_a_replay_in_which_nothing_is_needed_has_a_recall_of_1():
    assert recording(question("Hello.")).replay(EVERYTHING) == Replay()
    assert Replay().recall == 1
