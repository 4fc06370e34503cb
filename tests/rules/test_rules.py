"""The rules as cuts: hiding what may be hidden never makes a request worse."""

from collections.abc import Sequence
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.codecs.detect import CODECS
from refold.core.profile import Profile
from refold.core.view import View
from refold.messages import Message, Opaque, Text, Thinking, ToolCall, ToolResult, user
from refold.rules import anthropic, bedrock, gemini, openai_chat, openai_responses
from refold.rules.pairing import client_ids, find_open_turn, pair_calls, server_ids
from refold.rules.rule import Rules, Violation
from tests.support.examples import examples_at_night
from tests.support.messages import assistant

RULES = {codec.NAME: codec.rules({}) for codec in CODECS}
ALL = pytest.mark.parametrize("rules", RULES.values(), ids=RULES)


def call(*ids: str, text: str = "") -> Message:
    texts = (Text(text),) if text else ()
    return Message("assistant", (*texts, *(ToolCall(id, f"tool_{id}", "{}") for id in ids)))


def result(*ids: str, role: str = "user", text: str = "") -> Message:
    texts = (Text(text),) if text else ()
    return Message(role, (*(ToolResult(id, (Text("done"),)) for id in ids), *texts))


def opens(id: str) -> Opaque:
    return Opaque("server_tool_use", f'{{"id":"{id}"}}', opens=id)


def closes(id: str) -> Opaque:
    return Opaque("web_search_tool_result", f'{{"tool_use_id":"{id}"}}', closes=id)


def names(violations: Sequence[Violation]) -> set[tuple[str, str]]:
    return {(violation.rule, violation.subject) for violation in violations}


# --- any two legal cuts may be folded --------------------------------------------------------

IDS = st.sampled_from(["a", "b", "c", ""])
ANSWERS = st.builds(lambda id: ToolResult(id, (Text("done"),)), IDS)
CALLS = st.builds(lambda id: ToolCall(id, "tool", "{}"), IDS)
SERVER = st.sampled_from([opens("s"), closes("s"), opens("t"), closes("t")])
ASKS = Message("user", (Opaque("compaction_trigger", '{"type":"compaction_trigger"}'),))
TEXTS = st.sampled_from([Text("one"), Text("two"), Text(""), Text(" \n")])
THOUGHT = st.sampled_from([Thinking("hm"), Thinking("so", "sig")])
MESSAGES = st.one_of(
    st.builds(
        Message,
        st.just("assistant"),
        st.lists(CALLS | TEXTS | THOUGHT | SERVER, max_size=3).map(tuple),
    ),
    st.builds(Message, st.just("user"), st.lists(ANSWERS | TEXTS, max_size=3).map(tuple)),
    st.builds(Message, st.just("tool"), ANSWERS.map(lambda part: (part,))),
    st.builds(Message, st.just("assistant"), THOUGHT.map(lambda part: (part,))),
    st.builds(Message, st.just("assistant"), CALLS.map(lambda part: (part,))),
    st.builds(Message, st.just("system"), TEXTS.map(lambda part: (part,))),
    st.builds(user, st.sampled_from(["go on", "and now?"])),
    st.just(ASKS),
)
CONVERSATIONS = st.lists(MESSAGES, max_size=9)


@ALL
@given(messages=CONVERSATIONS)
def test_hiding_the_messages_between_two_cuts_adds_no_violation(
    rules: Rules, messages: list[Message]
) -> None:
    before, view = names(rules.check(messages)), View.of(messages, profile=Profile(rules=rules))
    for start, stop in combinations(sorted(view.cuts), 2):
        after = view.apply(view.fold(start, stop, user("summary"))).messages
        assert names(rules.check(after)) <= before, (start, stop)


@ALL
@given(messages=CONVERSATIONS, data=st.data())
def test_hiding_several_ranges_between_cuts_adds_no_violation(
    rules: Rules, messages: list[Message], data: st.DataObject
) -> None:
    view = View.of(messages, profile=Profile(rules=rules))
    cuts = sorted(view.cuts)
    chosen = sorted(data.draw(st.sets(st.sampled_from(cuts)))) if cuts else []
    pairs = zip(chosen[::2], chosen[1::2], strict=False)
    after = view.apply(*(view.fold(start, stop, user("summary")) for start, stop in pairs)).messages
    assert names(rules.check(after)) <= names(rules.check(messages))


@ALL
@given(messages=CONVERSATIONS)
def test_every_pair_is_on_one_side_of_every_cut(rules: Rules, messages: list[Message]) -> None:
    cuts = rules.cuts(messages)
    assert cuts <= set(range(len(messages) + 1))
    for kind in (client_ids, server_ids):
        pairing = pair_calls(messages, kind)
        for asking, answering in (*pairing.pairs, *pairing.again):
            assert not cuts & set(range(asking.at + 1, answering.at + 1))


@given(CONVERSATIONS)
def test_every_call_and_result_is_classified_exactly_once(messages: list[Message]) -> None:
    pairing = pair_calls(messages)
    spots = [spot for pair in pairing.pairs for spot in pair]
    spots += (pair.result for pair in pairing.again)
    spots += (*pairing.orphans, *pairing.unanswered, *pairing.pending)
    assert len(set(spots)) == len(spots) == sum(len(m.calls) + len(m.results) for m in messages)


@given(CONVERSATIONS)
def test_appending_messages_removes_no_violation_and_adds_only_pending_calls(
    messages: list[Message],
) -> None:
    """Faults of a finished exchange remain: only calls at the very end can still be answered."""
    rules = RULES["openai_chat"]
    longer = [*messages, user("and?"), assistant("well")]
    pending = {spot.id for spot in pair_calls(messages, turns=False).pending}
    assert names(rules.check(messages)) <= names(rules.check(longer))
    assert {
        subject for _, subject in names(rules.check(longer)) - names(rules.check(messages))
    } <= pending


# --- cases of conformance.md -----------------------------------------------------------------


@ALL
def test_conformance_05_an_open_call_at_the_end_stays_with_its_turn(rules: Rules) -> None:
    messages = [user("1"), assistant("well"), user("2"), call("a")]
    assert rules.check(messages) == ()
    assert rules.cuts(messages) == {0, 1, 2, 3}


@ALL
def test_conformance_06_a_result_is_never_parted_from_its_call(rules: Rules) -> None:
    role = "user" if rules.alternate else "tool"
    messages = [user("1"), call("a"), result("a", role=role), assistant("well")]
    assert rules.check(messages) == ()
    assert rules.cuts(messages) == {0, 1, 3, 4}


@ALL
@pytest.mark.parametrize("together", [True, False])
def test_conformance_07_parallel_calls_are_atomic(rules: Rules, *, together: bool) -> None:
    role = "user" if rules.alternate else "tool"
    answers = (
        [result("a", "b", "c", role=role)] if together else [result(id, role=role) for id in "abc"]
    )
    messages = [user("1"), call("a", "b", "c"), *answers, assistant("well"), user("2")]
    end = 2 + len(answers)
    assert rules.cuts(messages) == {0, 1, end, end + 1, end + 2}


@ALL
def test_conformance_20_a_pending_result_keeps_its_call_in_the_conversation(rules: Rules) -> None:
    role = "user" if rules.alternate else "tool"
    messages = [user("1"), call("a", "b"), result("a", role=role)]
    assert rules.check(messages) == ()
    assert rules.cuts(messages) == {0, 1}
    assert 4 in rules.cuts([*messages[:2], result("a", "b", role=role), assistant("well")])


@ALL
def test_conformance_08_one_giant_turn_can_be_cut_before_every_call(rules: Rules) -> None:
    role = "user" if rules.alternate else "tool"
    pairs = [m for n in range(200) for m in (call(f"c{n}"), result(f"c{n}", role=role))]
    assert rules.cuts([user("go"), *pairs]) == {0, *range(1, 402, 2)}


# --- pairing ----------------------------------------------------------------------------------


def test_a_second_result_stays_with_the_call_and_the_first() -> None:
    messages = [
        user("1"),
        call("a"),
        result("a"),
        assistant("well"),
        result("a"),
        assistant("well"),
    ]
    assert RULES["anthropic"].cuts(messages) == {0, 1, 5, 6}
    assert names(RULES["anthropic"].check(messages)) == {("AN-2", "a")}


def test_a_result_answers_the_latest_open_call_of_its_id() -> None:
    pairing = pair_calls([call("a"), call("a"), result("a"), result("a"), result("a")])
    assert [(asking.at, answer.at) for asking, answer in pairing.pairs] == [(1, 2), (0, 3)]
    assert [(asking.at, answer.at) for asking, answer in pairing.again] == [(1, 4)]


def test_an_unanswered_call_in_mid_conversation_prevents_no_cut() -> None:
    messages = [user("1"), call("a"), user("2"), assistant("well")]
    for rules in RULES.values():
        assert rules.cuts(messages) == set(range(5))
        assert any(
            violation.subject == "a" and violation.at == 1 for violation in rules.check(messages)
        )


def test_a_result_before_its_call_is_an_orphan_and_the_call_waits() -> None:
    pairing = pair_calls([result("a"), call("a")])
    assert [spot.at for spot in pairing.orphans] == [0]
    assert [spot.at for spot in pairing.pending] == [1]


def test_calls_without_an_id_pair_like_any_other() -> None:
    messages = [user("1"), call(""), result("", role="tool")]
    assert names(RULES["openai_chat"].check(messages)) == {("DS-2", "")}
    assert RULES["openai_chat"].cuts(messages) == {0, 1, 3}


@pytest.mark.parametrize(
    ("messages", "at"),
    [
        ([], 0),
        ([user("1")], 1),
        ([assistant("well"), call("a"), result("b")], 0),
        ([assistant("well"), user("1"), call("a")], 2),
    ],
)
def test_the_open_turn_is_the_last_assistant_turn_and_its_results(
    messages: list[Message], at: int
) -> None:
    assert find_open_turn(messages) == at


# --- one rule at a time -----------------------------------------------------------------------


def broken(
    rules: tuple, messages: Sequence[Message], body: dict | None = None
) -> list[tuple[str, int, str]]:
    return [(v.rule, v.at, v.subject) for v in Rules(rules).check(messages, body)]


def test_an_1_results_must_come_first_and_directly_after_their_calls() -> None:
    behind = [user("1"), call("a"), Message("user", (Text("wait"), ToolResult("a")))]
    assert broken(anthropic.RULES, behind) == [("AN-1", 2, "a")]
    late = [user("1"), call("a"), user("wait"), assistant("well"), result("a")]
    assert broken(anthropic.RULES, late) == [("AN-1", 1, "a"), ("AN-2", 4, "a")]
    assert broken(anthropic.RULES, [user("1"), call("a", "a"), result("a", "a")]) == [
        ("AN-1", 1, "a")
    ]


def test_an_1_two_assistant_messages_are_one_turn() -> None:
    assert (
        broken(anthropic.RULES, [user("1"), call("a"), call("b"), result("a", "b", text="go on")])
        == []
    )


def test_an_2_in_a_continued_thread_the_server_holds_the_calls() -> None:
    body = {"thread": {"type": "continue", "previous_message_id": "msg_1"}}
    assert broken(anthropic.RULES, [result("a")]) == [("AN-2", 0, "a")]
    assert broken(anthropic.RULES, [result("a")], body) == []


def test_an_3_a_server_tool_call_and_its_result_must_be_in_one_turn() -> None:
    def turn(*parts: Opaque) -> Message:
        return Message("assistant", parts)

    assert broken(anthropic.RULES, [user("1"), turn(opens("s"), closes("s")), user("2")]) == []
    assert broken(anthropic.RULES, [user("1"), turn(opens("s"))]) == []
    assert broken(anthropic.RULES, [user("1"), turn(opens("s")), turn(closes("s"))]) == []
    assert broken(anthropic.RULES, [user("1"), turn(opens("s")), user("2")]) == [("AN-3", 1, "s")]
    assert broken(anthropic.RULES, [user("1"), turn(closes("s"))]) == [("AN-3", 1, "s")]
    parted = [user("1"), turn(opens("s")), user("2"), turn(closes("s"))]
    assert broken(anthropic.RULES, parted) == [("AN-3", 1, "s")]
    assert Rules(anthropic.RULES).cuts(parted) == {0, 1, 4}


def test_an_3_a_server_tool_may_wait_for_the_clients_tools() -> None:
    calling = Message("assistant", (opens("s"), ToolCall("a", "ls", "{}")))
    assert (
        broken(
            anthropic.RULES, [user("1"), calling, result("a"), Message("assistant", (closes("s"),))]
        )
        == []
    )


@pytest.mark.parametrize(
    ("model", "refused"),
    [
        ("claude-opus-4-8", False),
        ("claude-opus-5-5", False),
        ("claude-sonnet-5-5-20261101", False),
        ("some-proxy", False),
        (None, False),
        ("claude-sonnet-5-20260630", True),
        ("claude-sonnet-4-5-20250929", True),
        ("claude-opus-4-20250514", True),
        ("claude-3-5-haiku-20241022", True),
        ("us.anthropic.claude-opus-4-7-v1:0", True),
        ("anthropic/claude-opus-4.5", True),
    ],
)
def test_an_4_system_messages_in_the_middle_need_a_model_that_knows_them(
    model: str | None, *, refused: bool
) -> None:
    messages = [user("1"), Message("system", (Text("be brief"),)), assistant("well"), user("2")]
    assert broken(anthropic.RULES, messages, {"model": model}) == (
        [("AN-4", 1, "system")] if refused else []
    )


BRIEF, DIRECTIVE = (
    Message("system", (part,)) for part in (Text("be brief"), Opaque("output_config", "{}"))
)


@pytest.mark.parametrize(
    ("messages", "at"),
    [
        ([user("1"), BRIEF], []),
        ([user("1"), BRIEF, BRIEF, assistant("well"), user("2")], []),
        ([user("1"), Message("assistant", (opens("s"), closes("s"))), BRIEF], []),
        ([user("1"), assistant("well"), DIRECTIVE, user("2")], []),
        ([user("1"), BRIEF, DIRECTIVE, user("2")], [1]),
        ([user("1"), BRIEF, BRIEF, user("2")], [1, 2]),
        ([user("1"), assistant("well"), BRIEF, user("2")], [2]),
        ([user("1"), assistant("well"), BRIEF, assistant("so")], [2]),
        ([user("1"), assistant("well"), BRIEF], [2]),
    ],
)
def test_an_4_system_messages_must_be_between_a_user_and_an_assistant_message(messages, at) -> None:
    assert broken(anthropic.RULES, messages) == [("AN-4", n, "system") for n in at]
    assert broken(anthropic.RULES, messages, {"model": "deepseek-chat"}) == []


def test_an_4_the_first_message_must_be_a_user_message() -> None:
    assert broken(anthropic.RULES, [assistant("well"), user("1")]) == [("AN-4", 0, "first")]
    compacted = Message("assistant", (Opaque("compaction", '{"content":"It was so."}'),))
    assert broken(anthropic.RULES, [compacted, assistant("well"), user("1")]) == []
    assert broken(anthropic.RULES, [user("1"), user("2")]) == []
    assert broken(anthropic.RULES, [user("1"), Message("tool", (Text("x"),))]) == [
        ("AN-4", 1, "tool")
    ]


def test_an_5_only_a_prefill_may_be_empty() -> None:
    empty, blank = Message("user"), Message("assistant", (Text(" \n"), ToolCall("a", "ls", "{}")))
    assert broken(anthropic.RULES, [empty, blank, result("a")]) == [
        ("AN-5", 0, "message"),
        ("AN-5", 1, "text"),
    ]
    assert broken(anthropic.RULES, [user("1"), Message("assistant")]) == []


def test_oa_1_tool_messages_must_directly_follow_the_message_that_calls() -> None:
    a, b = result("a", role="tool"), result("b", role="tool")
    assert broken(openai_chat.RULES, [user("1"), call("a", "b"), b, a, assistant("well")]) == []
    assert broken(openai_chat.RULES, [user("1"), call("a"), assistant("well"), a]) == [
        ("OA-1", 1, "a")
    ]
    assert broken(openai_chat.RULES, [user("1"), call("a"), call("b"), a, b]) == [("OA-1", 1, "a")]
    assert broken(openai_chat.RULES, [user("1"), call("a"), assistant("well")]) == [
        ("OA-1", 1, "a")
    ]
    assert broken(openai_chat.RULES, [a, user("1")]) == [("OA-1", 0, "a")]
    assert broken(openai_chat.RULES, [user("1"), call("a"), a, a]) == [("OA-1", 3, "a")]


def test_oa_2_outputs_may_come_in_any_order_after_their_calls() -> None:
    a, b = result("a", role="tool"), result("b", role="tool")
    assert broken(openai_responses.RULES, [call("a"), call("b"), b, a, assistant("well")]) == []
    assert broken(openai_responses.RULES, [call("a"), user("2"), a]) == []
    assert broken(openai_responses.RULES, [call("a"), user("2")]) == [("OA-2", 0, "a")]
    assert broken(openai_responses.RULES, [a, user("2")]) == [("OA-2", 0, "a")]


@pytest.mark.parametrize("field", ["previous_response_id", "conversation"])
def test_oa_2_calls_that_the_server_holds_need_not_be_sent(field: str) -> None:
    assert broken(openai_responses.RULES, [result("a", role="tool")], {field: "r_1"}) == []
    reference = Message("assistant", (Opaque("item_reference", '{"id":"fc_1"}'),))
    assert broken(openai_responses.RULES, [reference, result("a", role="tool")]) == []


def test_oa_2_a_tool_loop_of_references_may_be_cut_between_its_steps() -> None:
    """It was once one piece until the next user message: nothing could be cut after a context
    error."""
    reference = Message("assistant", (Opaque("item_reference", '{"id":"fc_1"}'),))
    step = [reference, reference, result("a", role="tool"), result("b", role="tool")]
    cuts = Rules(openai_responses.RULES).cuts([user("1"), *step, *step, *step])
    assert {0, 1, 5, 9} == cuts - {13}


def test_oa_3_and_4_reasoning_is_not_separated_from_the_calls_after_it() -> None:
    thought = Message("assistant", (Thinking("hm", "sealed"),))
    messages = [
        user("1"),
        thought,
        call("a"),
        call("b"),
        result("a", role="tool"),
        result("b", role="tool"),
        assistant("well"),
    ]
    assert broken(openai_responses.RULES, messages) == []
    assert Rules(openai_responses.RULES).cuts(messages) == {0, 1, 6, 7}
    alone = [user("1"), thought, user("2")]
    assert [rule for rule, _, _ in broken(openai_responses.RULES, alone)] == ["OA-3"]
    assert Rules(openai_responses.RULES).cuts(alone) == {0, 1, 2, 3}
    assert Rules(openai_responses.RULES).cuts([user("1"), thought]) == {0, 1}


def test_oa_5_reasoning_must_be_encrypted_if_store_is_false() -> None:
    def think(signature: str) -> list[Message]:
        return [user("1"), Message("assistant", (Thinking("hm", signature),)), assistant("well")]

    assert broken(openai_responses.RULES, think("sealed"), {"store": False}) == []
    assert broken(openai_responses.RULES, think(""), {"store": True}) == []
    assert [v[:2] for v in broken(openai_responses.RULES, think(""), {"store": False})] == [
        ("OA-5", 1)
    ]


def test_ge_1_a_call_must_follow_a_user_turn() -> None:
    assert broken(gemini.RULES, [user("1"), assistant("well"), call("a"), result("a")]) == [
        ("GE-1", 2, "a")
    ]
    assert broken(gemini.RULES, [user("1"), call("a"), result("a"), call("b"), result("b")]) == []


def test_ge_2_responses_must_match_the_calls_in_number_and_order() -> None:
    assert broken(gemini.RULES, [user("1"), call("a", "b"), result("b", "a")]) == [("GE-2", 2, "b")]
    assert broken(gemini.RULES, [user("1"), call("a", "b"), result("a"), result("b")]) == [
        ("GE-2", 1, "b")
    ]
    assert broken(gemini.RULES, [user("1"), call("a"), result("a", "?")]) == [("GE-2", 2, "?")]
    assert broken(gemini.RULES, [user("1"), call("a"), user("2")]) == [("GE-2", 1, "a")]


def test_ge_4_contents_must_start_with_a_user_turn() -> None:
    assert broken(gemini.RULES, [assistant("well"), user("1")]) == [("GE-4", 0, "first")]
    assert broken(gemini.RULES, [user("1"), Message("system", (Text("x"),))]) == [
        ("GE-4", 1, "system")
    ]


# --- the ids, and the size --------------------------------------------------------------------


def test_every_rule_has_its_expected_id() -> None:
    ids = [
        rule.id
        for module in (anthropic, openai_chat, openai_responses, gemini, bedrock)
        for rule in module.RULES
    ]
    assert ids == [
        *("AN-1", "AN-2", "AN-3", "AN-4", "AN-5", "AN-9", "AN-CB", "AN-CC", "AN-CE", "AN-WS"),
        *(
            "DS-2",
            "OA-1",
            "OA-2",
            "OA-3",
            "OA-4",
            "OA-5",
            "OA-6",
            "OA-9",
            "OA-10",
            "GE-EP",
            "GE-1",
            "GE-2",
            "GE-4",
        ),
        *("BR-1", "BR-2", "BR-3", "BR-4", "BR-5", "BR-6", "BR-7", "BR-8"),
    ]
    grown = {rule.id for rules in RULES.values() for rule in rules.continuity}
    assert sorted(grown) == ["AN-10", "AN-6", "AN-7", "DS-1", "GE-3", "OA-4"]


@ALL
def test_thousands_of_calls_of_one_turn_are_judged_in_one_pass(rules: Rules) -> None:
    """Quadratic work would take minutes."""
    count = examples_at_night(4_000, 20_000)
    many = [
        user("1"),
        *(call(f"c{n}") for n in range(count)),
        *(result(f"c{n}", role="tool") for n in range(count)),
    ]
    assert rules.cuts([*many, assistant("well")]) == {0, 1, 2 * count + 1, 2 * count + 2}
