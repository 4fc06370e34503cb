"""Tool groups, and what the model has not seen."""

from hypothesis import given

from refold.core.tool_groups import Pair, answered, call_of, groups, latest_turn, settled, unseen
from refold.messages import Message, Text, ToolCall, ToolResult, user
from refold.testing import transcripts


def calls(*ids: str) -> Message:
    return Message("assistant", tuple(ToolCall(one, "read", "{}") for one in ids))


def results(*ids: str, role: str = "tool") -> Message:
    return Message(role, tuple(ToolResult(one, (Text("ok"),)) for one in ids))


def test_parallel_calls_and_their_results_in_one_or_several_messages_are_one_group() -> None:
    for answers in ([results("a", "b", role="user")], [results("a"), results("b")], [results("b"), results("a")]):
        (group,) = groups([user("x"), calls("a", "b"), *answers])
        assert [pair.call.id for pair in group] == ["a", "b"]
        assert {pair.answered for pair in group} <= {2, 3}


def test_calls_in_neighbouring_entries_are_one_group() -> None:
    found = groups([user("x"), calls("a"), calls("b"), results("a"), results("b"), calls("c"), results("c")])
    assert [[pair.call.id for pair in group] for group in found] == [["a", "b"], ["c"]]


def test_an_id_used_again_belongs_to_the_latest_call() -> None:
    found = groups([calls("a"), results("a"), calls("a"), results("a")])
    assert [(pair.made, pair.answered) for (pair,) in found] == [(0, 1), (2, 3)]


def test_a_result_without_a_call_is_in_no_group_and_an_open_call_has_no_result() -> None:
    found = groups([results("z"), calls("a")], start=10)
    assert found == [(Pair(ToolCall("a", "read", "{}"), 11, None),)]
    assert answered(found) == []


def test_what_follows_the_models_latest_message_is_unseen() -> None:
    assert unseen([]) == 0
    assert unseen([user("x")]) == 0
    assert unseen([user("x"), calls("a"), results("a")]) == 2
    assert unseen([user("x"), calls("a"), results("a"), Message("assistant", (Text("done"),))]) == 4


def test_the_latest_turn_begins_after_the_last_request_not_after_a_result_in_the_users_role() -> None:
    assert latest_turn([]) == 0
    assert latest_turn([user("x"), calls("a"), results("a", role="user")]) == 1


def test_settled_groups_are_old_seen_and_answered() -> None:
    said = [user("x"), calls("a"), results("a"), calls("b", "c"), results("b"), calls("d"), results("d")]
    found = groups(said)
    assert settled(found, 0, unseen(said)) == found[:1]
    assert settled(found, 1, 7) == found[:1]
    assert settled(found, 3, 7) == []


def test_a_call_is_looked_for_no_further_than_told() -> None:
    said = [calls("a"), user("x"), user("y"), results("a")]
    assert call_of(said, 3, "a", 3) == ToolCall("a", "read", "{}")
    assert call_of(said, 3, "a", 2) is None


@given(transcripts(tidy=False))
def test_every_call_is_in_one_group_and_every_result_in_at_most_one(messages: tuple[Message, ...]) -> None:
    pairs = [pair for group in groups(messages) for pair in group]
    made = [part for message in messages for part in message.parts if isinstance(part, ToolCall)]
    assert [pair.call for pair in pairs] == made
    for pair in pairs:
        assert pair.answered is None or (pair.made <= pair.answered and pair.call.id in messages[pair.answered].results)
