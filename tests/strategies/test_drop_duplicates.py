"""DropDuplicates shows repeated output of calls once."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.core.view import View
from refold.messages import Content, Media, Message, Text, ToolCall, ToolResult, user
from refold.strategies.first_sight import DropDuplicates
from refold.testing import check_strategy, proposals, transcripts

LONG = "def main():\n    return 1\n" * 20


def exchange(
    id: str, name: str, arguments: dict[str, object], *content: Content | str, error: bool = False
) -> list[Message]:
    parts = tuple(Text(c) if isinstance(c, str) else c for c in content)
    call = ToolCall(
        id, name, json.dumps(arguments, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    )
    return [Message("assistant", (call,)), Message("tool", (ToolResult(id, parts, error),))]


def read(id: str, path: str = "src/a.py", text: str = LONG, **arguments: object) -> list[Message]:
    return exchange(id, "read", {"path": path, **arguments}, text)


def list_edited(*exchanges: list[Message], strategy: DropDuplicates | None = None) -> list[int]:
    messages = [user("x"), *(message for pair in exchanges for message in pair)]
    return [edit.start for edit in proposals(View.of(messages), strategy or DropDuplicates()).edits]


@given(transcripts(), st.integers(1, 50), st.integers(1, 12))
def test_it_keeps_the_laws(messages: tuple[Message, ...], min_chars: int, within: int) -> None:
    check_strategy(DropDuplicates(min_chars, within), examples=[messages])


@given(
    st.lists(
        st.tuples(st.sampled_from(["read", "bash"]), st.sampled_from("ab"), st.sampled_from("xyz")),
        max_size=40,
    ),
    st.integers(1, 9),
    st.sets(st.integers(0, 80), max_size=5),
)
def test_edits_made_turn_by_turn_equal_those_made_at_once_beside_stored_edits(
    script: list[tuple[str, str, str]], within: int, hidden: set[int]
) -> None:
    messages = [user("x")]
    for n, (name, path, text) in enumerate(script):
        messages += exchange(f"c{n}", name, {"path": path}, text * 300)
    strategy = DropDuplicates(within=within)
    bare = View.of(messages)
    stored = bare.apply(
        *(
            bare.replace(at, messages[at], by="as said")
            for at in sorted(hidden)
            if at < len(messages)
        )
    )
    at_once = list(strategy(stored))
    for since in range(len(messages) + 1):
        assert list(strategy(stored, since)) == [edit for edit in at_once if edit.start >= since]


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xy")), max_size=40),
    st.integers(1, 9),
)
def test_every_stub_names_a_result_that_is_shown_in_full(
    script: list[tuple[str, str]], within: int
) -> None:
    messages = [user("x")]
    for n, (path, text) in enumerate(script):
        messages += read(f"c{n}", path, text * 300)
    view = proposals(View.of(messages), DropDuplicates(within=within))
    by_id = {
        message.results[0]: (at, message)
        for at, message in enumerate(view.messages)
        if message.results
    }
    for edit in view.edits:
        stub = edit.insert[0].parts[0]
        twin = stub.text.partition("(call ")[2].partition(",")[0]
        at, shown = by_id[twin]
        assert shown == messages[at]
        assert shown.parts[0].text == messages[edit.start].parts[0].text
        assert 0 < edit.start - at <= within


def test_the_stub_names_the_call_its_earlier_duplicate_and_the_edit() -> None:
    view = proposals(View.of([user("x"), *read("c1"), *read("c2")]), DropDuplicates())
    (edit,) = view.edits
    assert (
        view.messages[4].parts[0].text
        == f"[read src/a.py: the same result as before (call c1, edit {edit.id[:8]})]"
    )


def test_the_same_call_with_the_same_result_is_shown_once() -> None:
    assert list_edited(read("c1"), read("c2"), read("c3")) == [4, 6]


def test_reads_of_one_file_with_equal_results_are_duplicates_whatever_the_range() -> None:
    assert list_edited(read("c1"), read("c2", limit=2_000)) == [4]
    assert list_edited(read("c1"), read("c2", text=LONG + "x")) == []


def test_equal_results_of_another_file_tool_or_command_are_not_duplicates() -> None:
    assert list_edited(read("c1"), read("c2", path="src/b.py")) == []
    assert list_edited(read("c1"), exchange("c2", "view", {"path": "src/a.py"}, LONG)) == []
    shell = [
        exchange(f"c{n}", "bash", {"command": command}, LONG)
        for n, command in enumerate(["cat a", "cat b"])
    ]
    assert list_edited(*shell) == []


def test_short_results_and_failures_are_left_alone() -> None:
    assert list_edited(read("c1", text="short"), read("c2", text="short")) == []
    failed = [exchange(id, "bash", {"command": "make"}, LONG, error=True) for id in ("c1", "c2")]
    assert list_edited(*failed) == []
    exits = [
        exchange(id, "bash", {"command": "make"}, f"{LONG}\nexit code 2") for id in ("c1", "c2")
    ]
    assert list_edited(*exits) == []


def test_an_equal_result_more_than_within_messages_back_is_ignored() -> None:
    apart = [exchange(f"n{n}", "bash", {"command": f"run {n}"}, "ok") for n in range(5)]
    assert list_edited(read("c1"), *apart, read("c2"), strategy=DropDuplicates(within=12)) == [14]
    assert list_edited(read("c1"), *apart, read("c2"), strategy=DropDuplicates(within=11)) == []


def test_a_duplicate_is_shown_in_full_if_the_earlier_result_is_cleared() -> None:
    bare = View.of([user("x"), *read("c1"), *read("c2"), *read("c3")])
    stub = Message("tool", (ToolResult("c1", (Text("[cleared]"),)),))
    stored = bare.apply(bare.replace(2, stub, by="ClearToolResults()"))
    view = proposals(stored, DropDuplicates())
    assert view.messages[4] == bare.messages[4]
    assert "call c2" in view.messages[6].parts[0].text


def test_parallel_results_in_one_message_are_compared_one_by_one() -> None:
    calls = tuple(
        ToolCall(id, "read", f'{{"path":"{path}"}}')
        for id, path in (("p1", "a"), ("p2", "a"), ("p3", "b"))
    )
    answers = tuple(ToolResult(call.id, (Text(LONG),)) for call in calls)
    view = proposals(
        View.of([user("x"), Message("assistant", calls), Message("user", answers)]),
        DropDuplicates(),
    )
    first, second, third = view.messages[2].parts
    assert (first, third) == (answers[0], answers[2])
    assert "call p1" in second.text


def test_results_with_an_image_are_duplicates_only_if_the_image_has_a_hash() -> None:
    hashed, unhashed = Media("image", "image/png", "blake2b:aa"), Media("image", "image/png")
    for media, positions in ((hashed, [4]), (unhashed, [])):
        shots = [exchange(id, "screenshot", {"page": 1}, LONG, media) for id in ("c1", "c2")]
        assert list_edited(*shots) == positions


def test_chinese_paths_and_contents_are_deduplicated() -> None:
    view = proposals(
        View.of(
            [
                user("x"),
                *read("c1", "文档/说明.md", "内容" * 200),
                *read("c2", "文档/说明.md", "内容" * 200),
            ]
        ),
        DropDuplicates(),
    )
    assert view.messages[4].parts[0].text.startswith("[read 文档/说明.md: ")


@pytest.mark.parametrize("settings", [{"min_chars": 0}, {"within": 0}])
def test_invalid_settings_are_refused(settings: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        DropDuplicates(**settings)
