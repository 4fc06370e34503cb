"""ClearToolResults: stubs for old results. The pruning cases are in conformance/test_pruning.py."""

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.compactor.loading import make_local_edits
from refold.core.view import View
from refold.messages import Media, Message, Opaque, Text, Thinking, ToolCall, ToolResult, user
from refold.rules import anthropic, openai_chat
from refold.rules.rule import Rules
from refold.strategies.clear import ClearToolResults
from refold.strategies.first_sight import ClipResults, DropDuplicates
from refold.testing import check_strategy, proposals, transcripts

ANTHROPIC = Rules(anthropic.RULES, alternate=True, thinking="loop")
LONG = "line of output\n" * 100


def exchange(
    n: int, text: str = LONG, name: str = "bash", arguments: str = '{"command":"make test"}'
) -> list[Message]:
    call = ToolCall(f"c{n}", name, arguments)
    return [Message("assistant", (call,)), Message("tool", (ToolResult(call.id, (Text(text),)),))]


def session(*exchanges: list[Message]) -> View:
    return View.of(
        [
            user("x"),
            *(message for pair in exchanges for message in pair),
            Message("assistant", (Text("so"),)),
        ]
    )


def list_cleared(view: View, strategy: ClearToolResults) -> list[int]:
    return [edit.start for edit in proposals(view, strategy).edits]


@given(
    transcripts(),
    st.integers(0, 4),
    st.integers(0, 300),
    st.integers(0, 100),
    st.sampled_from(["drop", "keep"]),
)
def test_it_keeps_the_laws(
    messages: tuple[Message, ...], keep: int, zone: int, least: int, media: str
) -> None:
    strategy = ClearToolResults(keep, zone, 0, least, ("Skill",), media)
    check_strategy(strategy, ANTHROPIC, examples=[messages])
    check_strategy(strategy, Rules(openai_chat.RULES), examples=[messages])


@given(transcripts(tidy=False))
def test_it_keeps_the_laws_for_invalid_histories_too(messages: tuple[Message, ...]) -> None:
    check_strategy(ClearToolResults(0, min_tokens=0), examples=[messages])


@given(transcripts(), st.integers(0, 2))
def test_it_is_idempotent(messages: tuple[Message, ...], keep: int) -> None:
    strategy = ClearToolResults(keep, min_tokens=0)
    once = proposals(View.of(messages), strategy)
    assert list(strategy(once)) == []


@given(transcripts(), st.integers(0, 2))
def test_clearing_over_clipped_results_keeps_calls_and_order(
    messages: tuple[Message, ...], keep: int
) -> None:
    clipped = proposals(View.of(messages), ClipResults(400))
    view = proposals(clipped, ClearToolResults(keep))
    assert view.estimate <= clipped.estimate
    assert [(m.role, m.calls, m.results) for m in view.messages] == [
        (m.role, m.calls, m.results) for m in messages
    ]


def test_the_stub_names_the_call_the_size_and_the_edit_to_unfold() -> None:
    bare = session(exchange(0), exchange(1))
    view = proposals(bare, ClearToolResults(keep=1))
    (edit,) = view.edits
    assert (
        view.messages[2].parts[0].text
        == f"[bash make test: result of 1,500 characters cleared (edit {edit.id[:8]})]"
    )
    assert view.unfold(edit.id[:8]) == [bare.messages[2]]
    assert view.revert(edit.id[:8]).messages == bare.messages


def test_the_oldest_results_are_cleared_and_the_newest_are_kept() -> None:
    assert list_cleared(session(*map(exchange, range(5))), ClearToolResults(keep=2)) == [2, 4, 6]


def test_the_stub_of_a_clipped_result_gives_the_size_of_the_original() -> None:
    bare = session(exchange(0, "x" * 170_000), exchange(1))
    clipped = proposals(bare, ClipResults())
    view = proposals(clipped, ClearToolResults(keep=1))
    assert "result of 170,000 characters cleared" in view.messages[2].parts[0].text


def test_other_parts_of_the_message_stay() -> None:
    call, skill_call = ToolCall("a", "read", '{"path":"a.py"}'), ToolCall("b", "Skill", "{}")
    answer = Message(
        "user", (ToolResult("a", (Text(LONG),)), ToolResult("b", (Text(LONG),)), Text("and hurry"))
    )
    messages = [
        user("x"),
        Message("assistant", (call, skill_call)),
        answer,
        Message("assistant", (Text("so"),)),
    ]
    view = proposals(View.of(messages), ClearToolResults(keep=0, protect={"Skill"}))
    stub, skill_result, text = view.messages[2].parts
    assert (stub.id, skill_result, text) == ("a", answer.parts[1], Text("and hurry"))
    assert stub.text.startswith("[read a.py: ")


def test_keep_tokens_protects_the_newest_output() -> None:
    view = session(*map(exchange, range(6)))
    size = view.base.tokens(2, 3)
    assert list_cleared(view, ClearToolResults(keep=0, keep_tokens=3 * size)) == [2, 4, 6]
    assert list_cleared(view, ClearToolResults(keep=0, keep_tokens=3 * size - 1)) == [2, 4, 6, 8]
    assert list_cleared(view, ClearToolResults(keep=4, keep_tokens=size)) == [2, 4]


def test_output_of_protected_tools_does_not_count_towards_keep_tokens() -> None:
    view = session(exchange(0), exchange(1), exchange(2, name="Skill"))
    size = view.base.tokens(2, 3)
    assert list_cleared(view, ClearToolResults(keep=0, keep_tokens=size, protect=["Skill"])) == [2]


def test_results_are_not_cleared_while_a_parallel_call_is_open() -> None:
    calls = Message("assistant", (ToolCall("a", "bash", "{}"), ToolCall("b", "bash", "{}")))
    messages = [
        user("x"),
        calls,
        Message("tool", (ToolResult("a", (Text(LONG),)),)),
        Message("assistant", (Text("so"),)),
    ]
    assert list_cleared(View.of(messages), ClearToolResults(keep=0)) == []


def test_an_error_result_without_recognised_error_lines_keeps_its_beginning() -> None:
    call = ToolCall("a", "fetch", '{"url":"https://example.com"}')
    answer = Message("tool", (ToolResult("a", (Text("timed out " * 100),), error=True),))
    view = proposals(
        View.of([user("x"), Message("assistant", (call,)), answer, user("y"), calm()]),
        ClearToolResults(keep=0),
    )
    stub = view.messages[2].parts[0]
    assert stub.error
    assert stub.text.split("\n")[1].startswith("timed out timed out")
    assert len(stub.text) < 300


def test_unknown_parts_of_a_result_are_cleared_and_named_in_the_stub() -> None:
    call = ToolCall("a", "search", '{"query":"压缩"}')
    search_results = tuple(Opaque("search_result", f'{{"n":{n}}}') for n in range(40))
    messages = [
        user("x"),
        Message("assistant", (call,)),
        Message("tool", (ToolResult("a", search_results),)),
        calm(),
    ]
    view = proposals(View.of(messages), ClearToolResults(keep=0))
    assert (
        view.messages[2]
        .parts[0]
        .text.startswith("[search 压缩: result of 40 search_results cleared (edit ")
    )


def test_signed_thinking_beside_the_calls_is_left_as_it_is() -> None:
    thought = Message("assistant", (Thinking("hm", "sig"), ToolCall("a", "bash", "{}")))
    messages = [user("x"), thought, Message("tool", (ToolResult("a", (Text(LONG),)),)), calm()]
    view = proposals(View.of(messages), ClearToolResults(keep=0))
    assert view.messages[1] == thought


def test_the_repr_does_not_depend_on_the_order_of_a_set() -> None:
    names = [f"tool{n}" for n in range(9)]
    assert repr(ClearToolResults(protect=set(names))) == repr(
        ClearToolResults(protect=reversed(names))
    )
    code = (
        f"from refold.strategies.clear import ClearToolResults as C; print(C(protect=set({names})))"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(seen) == 1


def test_protect_accepts_a_single_tool_name() -> None:
    assert ClearToolResults(protect="Skill") == ClearToolResults(protect=["Skill"])


@pytest.mark.parametrize("names", [None, 5, [None], [["Skill"]], [{"name": "Skill"}]])
def test_protect_refuses_anything_but_names(names: object) -> None:
    with pytest.raises(ValueError, match="protect must be a list of names"):
        ClearToolResults(protect=names)


@pytest.mark.parametrize("name", ["keep", "keep_tokens", "at_least", "min_tokens"])
def test_negative_settings_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="at least 0"):
        ClearToolResults(**{name: -1})


def calm() -> Message:
    return Message("assistant", (Text("so"),))


def test_media_are_kept_if_the_media_setting_is_keep() -> None:
    image = Media("image", "image/png", "blake2b:00", 640, 480)
    call = ToolCall("a", "screenshot", "{}")
    messages = [
        user("x"),
        Message("assistant", (call,)),
        Message("tool", (ToolResult("a", (Text(LONG), image)),)),
        calm(),
    ]
    dropped = proposals(View.of(messages), ClearToolResults(keep=0)).messages[2].parts[0]
    with_image = (
        proposals(View.of(messages), ClearToolResults(keep=0, media="keep")).messages[2].parts[0]
    )
    assert "1,500 characters, 1 image cleared" in dropped.text
    assert image not in dropped.content
    assert with_image.content[1:] == (image,)
    assert "1,500 characters cleared" in with_image.text


def test_a_duplicate_is_cleared_with_its_original_and_does_not_come_back() -> None:
    again = [exchange(n, name="read", arguments='{"path":"a.py"}') for n in range(4)]
    bare = session(*again, exchange(9))
    view = bare.apply_valid(make_local_edits(bare, [DropDuplicates()]))
    edits = list(ClearToolResults(keep=1)(view))
    assert [edit.start for edit in edits] == [4, 6, 8, 2]
    stored = bare.apply(*edits)
    assert (
        stored.apply_valid(make_local_edits(stored, [DropDuplicates()])).estimate
        == view.apply(*edits).estimate
    )
    text = (
        stored.messages[4].parts[0].text
    )  # the shorter stub only if the other would not be smaller
    assert text.startswith("[read a.py: ")
    assert text.endswith(f"cleared (edit {edits[0].id[:8]})]")


def test_a_result_that_loads_tools_stays() -> None:
    """The model may call the referenced tools only as long as it sees it."""
    names = [f"mcp__crm__list_all_orders_of_a_customer_{n}" for n in range(40)]
    references = tuple(
        Opaque("tool_reference", f'{{"tool_name":"{name}","type":"tool_reference"}}')
        for name in names
    )
    search = exchange(0, name="tool_search")
    search[1] = Message("tool", (ToolResult("c0", references),))
    assert list_cleared(session(search, exchange(1)), ClearToolResults(keep=0)) == [4]
