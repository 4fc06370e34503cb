"""Tool groups, and what the model has not read yet."""

from hypothesis import given

from refold.core.tool_groups import (
    PairedCall,
    clearable_calls,
    find_call,
    first_unseen,
    group_calls,
    latest_turn_start,
    with_results,
)
from refold.messages import Message, Text, ToolCall, ToolResult, user
from refold.testing import transcripts


def calls(*ids: str) -> Message:
    return Message("assistant", tuple(ToolCall(id, "read", "{}") for id in ids))


def results(*ids: str, role: str = "tool") -> Message:
    return Message(role, tuple(ToolResult(id, (Text("ok"),)) for id in ids))


def test_parallel_calls_and_their_results_in_one_or_several_messages_are_one_group() -> None:
    for answers in (
        [results("a", "b", role="user")],
        [results("a"), results("b")],
        [results("b"), results("a")],
    ):
        (group,) = group_calls([user("x"), calls("a", "b"), *answers])
        assert [pair.call.id for pair in group] == ["a", "b"]
        assert {pair.result_at for pair in group} <= {2, 3}


def test_calls_in_neighbouring_entries_are_one_group() -> None:
    groups = group_calls(
        [user("x"), calls("a"), calls("b"), results("a"), results("b"), calls("c"), results("c")]
    )
    assert [[pair.call.id for pair in group] for group in groups] == [["a", "b"], ["c"]]


def test_a_result_of_a_reused_id_belongs_to_the_latest_call() -> None:
    groups = group_calls([calls("a"), results("a"), calls("a"), results("a")])
    assert [(pair.call_at, pair.result_at) for (pair,) in groups] == [(0, 1), (2, 3)]


def test_a_result_without_a_call_is_in_no_group_and_an_open_call_has_no_result() -> None:
    groups = group_calls([results("z"), calls("a")], start=10)
    assert groups == [(PairedCall(ToolCall("a", "read", "{}"), 11, None),)]
    assert with_results(groups) == []


def test_messages_after_the_latest_assistant_message_are_unseen() -> None:
    assert first_unseen([]) == 0
    assert first_unseen([user("x")]) == 0
    assert first_unseen([user("x"), calls("a"), results("a")]) == 2
    assert (
        first_unseen([user("x"), calls("a"), results("a"), Message("assistant", (Text("done"),))])
        == 4
    )


def test_the_latest_turn_begins_after_the_last_request_not_after_a_result_in_the_users_role() -> (
    None
):
    assert latest_turn_start([]) == 0
    assert latest_turn_start([user("x"), calls("a"), results("a", role="user")]) == 1


def test_calls_are_clearable_if_they_are_old_answered_read_and_not_protected() -> None:
    messages = [
        user("x"),
        calls("a"),
        results("a"),
        calls("b", "c"),
        results("b"),
        calls("d"),
        results("d"),
    ]
    groups = group_calls(messages)
    assert list(clearable_calls(messages, groups, 0, ())) == list(groups[0])
    messages.append(Message("assistant", (Text("done"),)))
    assert list(clearable_calls(messages, groups, 0, ())) == [*groups[0], *groups[2]]
    assert list(clearable_calls(messages, groups, 1, ())) == list(groups[0])
    assert list(clearable_calls(messages, groups, 3, ())) == []
    assert list(clearable_calls(messages, groups, 0, ("read",))) == []


def test_find_call_searches_only_the_given_number_of_messages() -> None:
    messages = [calls("a"), user("x"), user("y"), results("a")]
    assert find_call(messages, 3, "a", 3) == ToolCall("a", "read", "{}")
    assert find_call(messages, 3, "a", 2) is None


@given(transcripts(tidy=False))
def test_every_call_is_in_one_group_and_every_result_in_at_most_one(
    messages: tuple[Message, ...],
) -> None:
    pairs = [pair for group in group_calls(messages) for pair in group]
    calls_in_order = [
        part for message in messages for part in message.parts if isinstance(part, ToolCall)
    ]
    assert [pair.call for pair in pairs] == calls_in_order
    for pair in pairs:
        assert pair.result_at is None or (
            pair.call_at <= pair.result_at and pair.call.id in messages[pair.result_at].results
        )
