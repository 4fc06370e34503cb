"""The two-layer preset: placeholders every round, and a summary above a threshold (seed system
S1)."""

import asyncio
import copy
import json
import logging
from math import exp, hypot

import pytest
from hypothesis import given
from hypothesis import strategies as st

import refold
from refold import Message, Text, View
from refold.core.strategy import Answer
from refold.presets.measures import two_ratios
from refold.presets.two_layer import ContextCompactor, ContextPolicy, estimate_tokens
from refold.scorers import Attention, Emphasis
from refold.summarizers.forms import StateForm
from refold.testing import ScriptedModel
from refold.text.summary_wrapper import summary_in
from refold.tokens.count import counter
from refold.tokens.model_table import Window

SYSTEM = {"role": "system", "content": "你是豆豆，一个会使用工具的助手。"}
WORDS = "alpha beta gamma delta "
SUMMARY = "用户想修复解析器，已经读过相关文件。"


def user(text: str) -> dict:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict:
    return {"role": "assistant", "content": text}


def ran(id: str, name: str, result: str, **arguments) -> list[dict]:
    function = {
        "name": name,
        "arguments": json.dumps(arguments or {"path": f"src/{id}.py"}, ensure_ascii=False),
    }
    call = {"id": id, "type": "function", "function": function}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": id, "content": result},
    ]


def rounds(count: int, size: int = 1_000, name: str = "bash") -> list[dict]:
    return [message for n in range(count) for message in ran(f"c{n}", name, (WORDS * size)[:size])]


def turns(count: int, size: int = 600) -> list[dict]:
    """Return turns of a question, a call with its result, and an answer."""
    out = [SYSTEM]
    for n in range(count):
        out += [
            user(f"用户问题{n}"),
            *ran(f"t{n}", "search", (WORDS * size)[:size]),
            assistant(f"答案{n}。" + WORDS * 20),
        ]
    return out


def results(messages: list[dict]) -> list[str]:
    return [message["content"] for message in messages if message["role"] == "tool"]


def small(**settings) -> ContextPolicy:
    return ContextPolicy(
        **{"token_threshold": 1_000, "keep_recent_tools": 2, "summary_max_tokens": 400} | settings
    )


# --- the policy --------------------------------------------------------------------------------


def test_the_policy_has_the_documented_defaults():
    """S1-06 S1-07 S1-08 S1-09 S1-10 S1-11 S1-12: 60,000 tokens, 4 rounds, 200 characters, Skill."""
    policy = ContextPolicy.defaults()
    assert policy == ContextPolicy()
    assert (policy.token_threshold, policy.keep_recent_tools, policy.max_tool_length) == (
        60_000,
        4,
        200,
    )
    assert policy.protected_tools == {"Skill"}


def test_the_builder_always_protects_skill_beside_the_given_tools():
    """S1-10 S1-13"""
    builder = (
        ContextPolicy.builder().token_threshold(80_000).keep_recent_tools(6).max_tool_length(300)
    )
    policy = builder.protected_tools("Skill", "bash").build()
    assert policy == ContextPolicy(80_000, 6, 300, {"Skill", "bash"})
    assert builder.protected_tools("bash").build() == policy
    assert builder.build().protected_tools == {"Skill"}
    assert ContextPolicy(protected_tools="bash").protected_tools == {"Skill", "bash"}
    assert builder.also(incremental=True).build().incremental


def test_invalid_settings_are_refused():
    """S1-06"""
    with pytest.raises(ValueError, match="negative"):
        ContextPolicy(token_threshold=-1)
    with pytest.raises(TypeError):
        ContextPolicy.builder().also(tokens=3)


def test_the_threshold_can_be_a_share_of_the_models_window():
    """S1-39: from the table or from a custom window. An unknown model is reported."""
    assert ContextPolicy.for_model("mine", 0.5, Window(100_000)).token_threshold == 50_000
    policy = ContextPolicy.for_model("gpt-4o", 0.5, keep_recent_tools=6)
    assert (policy.token_threshold, policy.keep_recent_tools) == (64_000, 6)
    with pytest.raises(ValueError, match="no window is known"):
        ContextPolicy.for_model("nobody-knows-this")
    with pytest.raises(ValueError, match="no share"):
        ContextPolicy.for_model("gpt-4o", 1.5)


# --- the estimate ------------------------------------------------------------------------------


def test_every_role_is_counted_and_a_call_counts_its_name_and_arguments():
    """S1-14 S1-16: user and assistant messages and results by the formula, the system prompt by the
    default estimate. Nothing counts 0, and one Chinese character no longer counts 0 tokens
    (C1-12)."""
    count = counter(two_ratios)
    assert estimate_tokens(None) == estimate_tokens([]) == 0
    frame = estimate_tokens([user("")], count)
    assert estimate_tokens([user("你")], count) == frame + 1
    assert estimate_tokens([user("你" * 30 + "a" * 40)], count) == frame + 30
    call, long = ran("c", "b", "")[0], "你好" * 30
    for before, message in (([], user("")), ([], assistant("")), ([call], ran("c", "b", "")[1])):
        grown = estimate_tokens([*before, {**message, "content": long}], count)
        assert grown == estimate_tokens([*before, message], count) + 40
    assert estimate_tokens([{**SYSTEM, "content": long}, call]) > estimate_tokens([call]) + 20
    bare = estimate_tokens([SYSTEM, user("a"), *ran("c1", "bash", "ok", command="ls")], count)
    assert (
        estimate_tokens([SYSTEM, user("a"), *ran("c1", "bash", "ok", command="ls" * 40)], count)
        > bare + 15
    )
    assert (
        estimate_tokens([SYSTEM, user("a"), *ran("c1", "bash" * 10, "ok", command="ls")], count)
        > bare + 5
    )


# --- the first layer ---------------------------------------------------------------------------


def test_results_of_older_groups_become_placeholders_every_round():
    """S1-01 S1-02 S1-03 S1-20 S1-21 S1-22: far below the threshold, and only for the older
    groups."""
    messages = [SYSTEM, user("修复解析器"), *rounds(7)]
    before = copy.deepcopy(messages)
    view = ContextCompactor(ContextPolicy.defaults()).compact(messages)
    assert results(messages)[:3] == ["[truncated: 1000 chars]"] * 3
    assert messages[8:] == before[8:]
    assert [m["role"] for m in messages] == [m["role"] for m in before]
    assert view is not None
    assert view.payload == messages
    assert not refold.check(messages)


def test_nothing_is_replaced_if_there_are_no_more_groups_than_are_kept():
    """S1-22: min(keep, n)."""
    messages = [SYSTEM, user("修复解析器"), *rounds(4)]
    before = copy.deepcopy(messages)
    ContextCompactor(ContextPolicy.defaults()).compact(messages)
    assert messages == before


def test_arguments_and_results_of_the_same_old_groups_are_shortened():
    """S1-04 S1-23: parallel calls are one group (C1-5). Shortened arguments are valid JSON (C1-2)."""
    long = {"path": "a.py", "content": "x = 1\n" * 100}
    calls = [ran(f"p{n}", "write", WORDS * 30, **long) for n in range(2)]
    together = {**calls[0][0], "tool_calls": [call["tool_calls"][0] for call, _ in calls]}
    group = [together, *(result for _, result in calls)]
    messages = [
        SYSTEM,
        user("写文件"),
        *copy.deepcopy(group),
        *ran("c1", "write", WORDS * 30, **long),
        user("继续"),
    ]
    ContextCompactor(ContextPolicy(keep_recent_tools=1)).compact(messages)
    assert results(messages) == ["[truncated: 690 chars]", "[truncated: 690 chars]", WORDS * 30]
    old, recent = messages[2]["tool_calls"], messages[5]["tool_calls"]
    for call in old:
        arguments = json.loads(call["function"]["arguments"])
        assert arguments["path"] == "a.py"
        assert "600 characters in all" in arguments["content"]
    assert json.loads(recent[0]["function"]["arguments"]) == long
    newest = [
        SYSTEM,
        user("写文件"),
        *ran("c1", "write", WORDS * 30, **long),
        *group,
        assistant("写好了。"),
    ]
    ContextCompactor(ContextPolicy(keep_recent_tools=1)).compact(newest)
    assert results(newest) == ["[truncated: 690 chars]", WORDS * 30, WORDS * 30]
    assert newest[4:7] == group


def test_long_arguments_that_are_not_json_become_an_object():
    """S1-23 (C1-2)"""
    messages = [SYSTEM, user("补丁"), *ran("c0", "patch", "ok"), *rounds(1)]
    messages[2]["tool_calls"][0]["function"]["arguments"] = "*** Begin Patch\n" + "+ line\n" * 80
    ContextCompactor(ContextPolicy(keep_recent_tools=1)).compact(messages)
    assert list(json.loads(messages[2]["tool_calls"][0]["function"]["arguments"])) == ["input"]


@pytest.mark.parametrize("size", [2, 30, 200, 201, 5_000])
def test_only_results_longer_than_the_limit_and_the_placeholder_are_replaced(size):
    """S1-09 S1-22 (C1-4)"""
    messages = [SYSTEM, user("q"), *rounds(2, size)]
    ContextCompactor(ContextPolicy(keep_recent_tools=1)).compact(messages)
    assert results(messages)[0].startswith("[truncated: ") == (size > 200)
    tight = [SYSTEM, user("q"), *rounds(2, size)]
    ContextCompactor(ContextPolicy(keep_recent_tools=1, max_tool_length=0)).compact(tight)
    assert results(tight)[0].startswith("[truncated: ") == (size > 2)


def test_max_tool_length_applies_to_results_and_arguments():
    """S1-09 S1-13"""
    messages = [SYSTEM, user("q"), *ran("c0", "write", "ok", content="y" * 250), *rounds(2, 250)]
    before = copy.deepcopy(messages)
    ContextCompactor(ContextPolicy(keep_recent_tools=1, max_tool_length=300)).compact(messages)
    assert messages == before
    ContextCompactor(ContextPolicy(keep_recent_tools=1, max_tool_length=100)).compact(messages)
    assert results(messages)[1] == "[truncated: 250 chars]"
    assert "250 characters in all" in messages[2]["tool_calls"][0]["function"]["arguments"]


def test_a_json_placeholder_is_valid_json_and_a_failure_keeps_its_error():
    """S1-22: the form of the real code (C1-1)."""
    failed = "Traceback\n" * 80 + "ValueError: bad port 8080\nexit code: 1"
    messages = [
        SYSTEM,
        user("q"),
        *ran("c0", "bash", failed),
        *ran("c1", "bash", WORDS * 30),
        *rounds(1),
    ]
    ContextCompactor(ContextPolicy(keep_recent_tools=1, placeholder="json")).compact(messages)
    first, second = map(json.loads, results(messages)[:2])
    assert second == {
        "compacted": True,
        "tool": "bash",
        "originalLength": 690,
        "message": "content compressed",
    }
    assert "ValueError: bad port 8080" in first["error"]
    plain = [SYSTEM, user("q"), *ran("c0", "bash", failed), *rounds(1)]
    ContextCompactor(ContextPolicy(keep_recent_tools=1)).compact(plain)
    assert results(plain)[0].startswith(f"[truncated: {len(failed)} chars]\n")
    assert "ValueError: bad port 8080" in results(plain)[0]


def test_protected_tools_are_left_alone():
    """S1-10 S1-20 S1-25: both results and arguments, recognised by the tool names of their calls.
    `Skill` is always protected."""
    long = {"content": "x = 1\n" * 100}
    tools = ("Skill", "notes", "write")
    protected = [message for name in tools for message in ran(name, name, WORDS * 50, **long)]
    messages = [SYSTEM, user("q"), *copy.deepcopy(protected), *rounds(1)]
    policy = ContextPolicy.builder().keep_recent_tools(1).protected_tools("notes").build()
    ContextCompactor(policy).compact(messages)
    assert messages[2:6] == protected[:4]
    assert results(messages)[2].startswith("[truncated: ")
    assert messages[6]["tool_calls"] != protected[4]["tool_calls"]


def test_only_old_assistant_texts_are_shortened_and_only_with_max_text_length():
    """S1-24 (C1-3): only assistant texts before the newest groups. Both ends stay, and a note gives
    the omitted length."""
    long = WORDS * 300
    start = [
        {**SYSTEM, "content": long},
        user(long),
        assistant(long),
        user("next"),
        *rounds(2, 50),
        assistant(long),
    ]
    untouched = copy.deepcopy(start)
    ContextCompactor(ContextPolicy(keep_recent_tools=1)).compact(untouched)
    assert untouched == start
    cut = copy.deepcopy(start)
    compactor = ContextCompactor(ContextPolicy(keep_recent_tools=1, max_text_length=1_000))
    compactor.compact(cut)
    assert len(cut[2]["content"]) < 1_100
    assert "[truncated: " in cut[2]["content"]
    assert cut[:2] + cut[3:] == start[:2] + start[3:]
    gone = int(cut[2]["content"].partition("[truncated: ")[2].partition(" ")[0])
    assert len(long) - gone == len(cut[2]["content"]) - len(f"\n[truncated: {gone} chars]\n") >= 950
    assert cut[2]["content"].startswith(long[:400])
    assert cut[2]["content"].endswith(long[-400:])
    again = copy.deepcopy(cut)
    compactor.compact(again)
    assert again == cut


@pytest.mark.parametrize(("keep", "cut"), [(0, [0, 1]), (1, [0, 1]), (2, [0]), (3, [])])
def test_texts_between_the_newest_groups_are_not_shortened(keep, cut):
    """S1-24: `keep_recent_tools` is the number of recent groups, at least one."""
    long = WORDS * 300
    texts = [f"{n}: {long}" for n in range(3)]
    messages = [SYSTEM, user("q")]
    for n, text in enumerate(texts):
        messages += [*ran(f"c{n}", "bash", "ok"), assistant(text), user("go on")]
    ContextCompactor(ContextPolicy(keep_recent_tools=keep, max_text_length=1_000)).compact(messages)
    assert [n for n, text in enumerate(texts) if assistant(text) not in messages] == cut


@given(
    st.lists(st.tuples(st.integers(1, 2_000), st.sampled_from(["bash", "Skill"])), max_size=8),
    st.integers(0, 4),
)
def test_the_first_layer_is_idempotent_and_valid(calls, keep):
    """S1-03 S1-25"""
    messages = [SYSTEM, user("q")]
    for n, (size, name) in enumerate(calls):
        messages += ran(f"c{n}", name, (WORDS * size)[:size])
    compactor = ContextCompactor(ContextPolicy(keep_recent_tools=keep))
    compactor.compact(messages)
    once = copy.deepcopy(messages)
    compactor.compact(messages)
    ContextCompactor(ContextPolicy(keep_recent_tools=keep)).compact(messages)
    assert messages == once
    assert not refold.check(messages)


# --- the second layer --------------------------------------------------------------------------


def test_beyond_the_threshold_old_messages_become_a_summary_in_place():
    """S1-02 S1-05 S1-17 S1-18 S1-26 S1-27 S1-28 S1-29: system prompt and the last turns stay."""
    messages, model = turns(8), ScriptedModel([SUMMARY])
    last = copy.deepcopy(messages[-8:])
    same = messages
    ContextCompactor(small(), model).compact(messages, "用户问题7")
    assert same is messages
    assert messages[0] == SYSTEM
    assert "【历史摘要】\n" + SUMMARY in messages[1]["content"]
    assert (messages[1]["role"], messages[2:]) == ("user", last)
    assert len(model.asked) == 1
    assert not refold.check(messages)


def test_the_summary_may_have_the_role_system():
    """S1-29 (C1-8)"""
    messages = turns(8)
    ContextCompactor(small(summary_role="system"), ScriptedModel([SUMMARY])).compact(messages)
    assert [message["role"] for message in messages[:3]] == ["system", "system", "user"]
    assert "【历史摘要】" in messages[1]["content"]


def test_a_history_may_have_no_system_prompt_or_several():
    """S1-29 (C1-6)"""
    bare, two = turns(8)[1:], [SYSTEM, {**SYSTEM, "content": "今天是星期六。"}, *turns(8)[1:]]
    model = ScriptedModel([SUMMARY] * 2)
    ContextCompactor(small(), model).compact(bare)
    assert "【历史摘要】" in bare[0]["content"]
    ContextCompactor(small(), model).compact(two)
    assert [m["content"] for m in two[:2]] == [SYSTEM["content"], "今天是星期六。"]
    assert "豆豆" not in "".join(message.text for ask in model.asked for message in ask.messages)


def test_the_threshold_is_exclusive_and_the_log_states_the_trigger(caplog):
    """S1-19: exactly at the threshold nothing happens."""
    tokens = estimate_tokens(turns(3))
    with caplog.at_level(logging.INFO, "refold"):
        at = turns(3)
        ContextCompactor(
            small(token_threshold=tokens, keep_recent_turns=1, keep_recent_tools=9)
        ).compact(at)
        assert at == turns(3)
        assert caplog.messages == []
        over = turns(3)
        ContextCompactor(
            small(token_threshold=tokens - 1, keep_recent_turns=1, keep_recent_tools=9)
        ).compact(over)
    assert over != turns(3)
    assert (
        f"Context auto_compact triggered: estimated tokens={tokens} > threshold={tokens - 1}"
        in caplog.messages
    )


def test_a_list_of_at_most_two_messages_is_not_summarised():
    """S1-18: nor in async code. The system prompt counts as a message. Long results are cleared in
    short lists too (C1-11)."""
    model = ScriptedModel([SUMMARY] * 9)
    compactor = ContextCompactor(small(token_threshold=10, keep_recent_turns=0), model)
    assert compactor.compact(None) is None
    assert asyncio.run(compactor.acompact(None)) is None
    question, answer = user("word " * 500), assistant("word " * 500)
    for unchanged in ([question, answer], [SYSTEM, question], [question], []):
        for messages in (list(unchanged), list(unchanged)):
            compactor.compact(messages)
            assert messages == unchanged
            asyncio.run(compactor.acompact(messages))
            assert messages == unchanged
    assert model.asked == []
    three = [SYSTEM, question, answer]
    compactor.compact(three)
    assert len(model.asked) == 1
    assert "【历史摘要】" in three[1]["content"]
    call, result = ran("c1", "bash", WORDS * 100)
    both = [{**call, "content": "reading"}, result]
    ContextCompactor(small(keep_recent_tools=0)).compact(both)
    assert both[1]["content"] == WORDS * 100
    read = [*both, assistant("done")]
    ContextCompactor(small(keep_recent_tools=0, token_threshold=10_000)).compact(read)
    assert read[1]["content"] == "[truncated: 2300 chars]"


def test_no_model_is_asked_if_no_message_is_older_than_the_kept_ones():
    """S1-27: there is no summary of an empty list, even above the threshold."""
    start = [SYSTEM, {**SYSTEM, "content": "今天是星期六。"}, user(WORDS * 100)]
    messages, model = copy.deepcopy(start), ScriptedModel([SUMMARY])
    ContextCompactor(small(token_threshold=10), model).compact(messages)
    assert estimate_tokens(messages) > 100
    assert (messages, model.asked) == (start, [])


def test_the_summary_request_contains_the_current_question():
    """S1-28 S1-30 S1-31: the history as a record, the question, and what to keep."""
    model = ScriptedModel([SUMMARY] * 2)
    ContextCompactor(small(), model).compact(turns(8), "解析器为什么慢？")
    (ask,) = model.asked
    assert "保留关键信息（用户意图、决策、工具结果等）" in ask.system
    assert all(
        rule in ask.system
        for rule in ("保留所有关键事实和数据", "压缩冗余描述", "突出与当前问题相关的内容")
    )
    assert "<user>\n用户问题0\n</user>" in ask.messages[0].text
    assert "解析器为什么慢？" in ask.prompt
    assert "当前用户问题：" in ask.prompt
    ContextCompactor(small(), model).compact(turns(8))
    assert "当前用户问题：<request>\n用户问题7\n</request>" in model.asked[1].prompt


def test_one_long_turn_keeps_its_question():
    """S1-05 S1-26: forty rounds on one question (C1-9), cut between rounds and never inside a pair
    (C1-7)."""
    messages = [SYSTEM, user("修复解析器，不要修改 tests/。"), *rounds(40, 190)]
    ContextCompactor(small(), ScriptedModel([SUMMARY])).compact(messages)
    assert len(messages) < 45
    assert "【历史摘要】" in messages[1]["content"]
    assert "".join(m["content"] or "" for m in messages).count("不要修改 tests/。") == 1
    assert messages[-1]["role"] == "tool"
    assert not refold.check(messages)


@pytest.mark.parametrize(
    "answers", [[], [Answer("", "error", "no")], ["<think>嗯</think>"], [Answer(SUMMARY, "length")]]
)
def test_the_rule_summary_is_used_if_the_model_fails(answers):
    """S1-28 (C1-13): thinking is never taken for a summary."""
    messages = turns(8)
    view = ContextCompactor(small(), ScriptedModel(answers)).compact(messages)
    assert [attempt.outcome for attempt in view.attempts] == ["degraded"]
    assert "【历史摘要】" in messages[1]["content"]
    assert "用户问题0" in messages[1]["content"]
    assert "嗯" not in messages[1]["content"]


def test_a_second_compaction_updates_the_summary():
    """S1-29: a compacted list is compacted again, by the same compactor and by another."""
    for same in (True, False):
        messages, model = turns(8), ScriptedModel([SUMMARY, "新的摘要。"])
        compactor = ContextCompactor(small(), model)
        compactor.compact(messages)
        messages += turns(16)[33:]
        (compactor if same else ContextCompactor(small(), model)).compact(messages)
        assert SUMMARY in model.asked[1].messages[0].text.partition("</previous-summary>")[0]
        text = messages[1]["content"]
        assert "新的摘要。" in text
        assert text.count("【历史摘要】") == 1
        assert SUMMARY not in text


def test_nothing_is_compacted_without_a_policy():
    """S1-32"""
    messages = turns(8)
    compactor = ContextCompactor(None, ScriptedModel([SUMMARY]))
    assert compactor.compact(messages) is None
    assert compactor.view(turns(400)).edits == ()
    assert messages == turns(8)


def test_compacted_messages_can_be_restored():
    """S1-34: the example shows a restored result, so the originals are kept (C1-10)."""
    messages = turns(8)
    compactor = ContextCompactor(small(), ScriptedModel([SUMMARY]))
    view = compactor.compact(messages)
    assert compactor.originals(messages) == turns(8)
    summary = next(edit for edit in view.edits if summary_in(edit.insert[0]))
    assert view.unfold(summary.id) == turns(8)[1 : 1 + summary.stop]
    messages.append(user("还有一个问题"))
    compactor.revert(messages, summary.id)
    assert [m["content"] for m in messages if m["role"] == "user"] == [
        *(f"用户问题{n}" for n in range(8)),
        "还有一个问题",
    ]


def test_view_does_not_change_the_history():
    """S1-18 (X-5): the pure form of the same call."""
    history = turns(8)
    compactor = ContextCompactor(small(), ScriptedModel([SUMMARY]))
    view = compactor.view(history)
    assert history == turns(8)
    assert SUMMARY in view.payload[1]["content"]
    assert compactor.view(history).payload == view.payload
    assert view.revert().payload == history


def test_acompact_gives_the_same_result_as_compact():
    """S1-28 S1-33"""
    asked = []

    async def model(ask):
        asked.append(ask.prompt)
        return Answer(SUMMARY)

    ours, theirs = turns(8), turns(8)
    asyncio.run(ContextCompactor(small()).acompact(ours, "为什么？", model))
    ContextCompactor(small(), ScriptedModel([SUMMARY])).compact(theirs, "为什么？")
    assert ours == theirs
    assert "为什么？" in asked[0]
    assert asyncio.run(ContextCompactor(None).acompact(ours)) is None


# --- extensions --------------------------------------------------------------------------------


def test_incremental_summaries_form_a_chain_that_only_grows():
    """S1-36: the chain grows at its end, and nothing is summarised twice."""
    messages = turns(9, 1_800)
    model = ScriptedModel([f"摘要{n}" for n in range(20)])
    compactor = ContextCompactor(
        small(incremental=True, keep_recent_tools=20, token_threshold=3_000), model
    )
    compactor.compact(messages)
    chain = [m["content"] for m in messages if "【历史摘要】" in (m["content"] or "")]
    assert len(chain) == len(model.asked) >= 3
    assert all(f"【历史摘要】\n摘要{n}" in text for n, text in enumerate(chain))
    asked = len(model.asked)
    messages += turns(20, 1_800)[-16:]
    compactor.compact(messages)
    assert [m["content"] for m in messages if "【历史摘要】" in (m["content"] or "")][
        : len(chain)
    ] == chain
    assert len(model.asked) > asked
    assert all("用户问题0" not in ask.messages[0].text for ask in model.asked[asked:])
    assert not refold.check(messages)


def test_the_summary_can_be_json():
    """S1-37: topics, entities and action items, updated by deltas."""
    delta = {
        "goal": "修复解析器",
        "add": {
            "topics": [{"text": "解析器的性能"}],
            "entities": [{"text": "src/t0.py"}],
            "action_items": [{"text": "运行测试", "status": "todo"}],
        },
    }
    update = {"update": [{"id": "a1", "status": "done"}]}
    model = ScriptedModel([json.dumps(delta, ensure_ascii=False), json.dumps(update)])
    messages, compactor = (
        turns(8),
        ContextCompactor(small(form=StateForm(), summary_max_tokens=800), model),
    )
    compactor.compact(messages)
    messages += turns(16)[33:]
    compactor.compact(messages)
    text = messages[1]["content"]
    state = StateForm().parse(text[text.index("{") : text.index("<record>")])
    assert state is not None
    assert '"topics"' in text
    assert "解析器的性能" in text
    assert '"done"' in text


def test_a_message_that_the_scorer_rates_high_is_kept_word_for_word():
    """S1-38: importance decides whether a message is compacted."""
    messages = turns(8)
    messages[3]["content"] = messages[3]["content"][:300]
    messages.insert(1, user("记住：端口永远是 8443。"))
    messages.insert(2, assistant("好。"))
    ContextCompactor(small(scorer=Emphasis()), ScriptedModel([SUMMARY])).compact(messages)
    assert user("记住：端口永远是 8443。") in messages
    assert user("用户问题0") not in messages


def attend(texts):
    """Return dot-product attention of the last text to each text, over character counts as vectors
    of length 3."""
    axes = sorted(set("".join(texts)))
    counts = [[text.count(axis) for axis in axes] for text in texts]
    vectors = [[3 * n / (hypot(*row) or 1) for n in row] for row in counts]
    weights = [
        exp(sum(q * k for q, k in zip(vectors[-1], vector, strict=True))) for vector in vectors
    ]
    return [weight / sum(weights) for weight in weights]


def test_messages_that_the_last_one_attends_to_are_kept_word_for_word():
    """S1-38: such messages are not compacted, whatever their text is."""
    messages = turns(8)
    messages.insert(1, user("port port port 8443 8443"))
    messages.insert(2, assistant("ok"))
    messages.append(user("port port port 8443 8443 port"))
    ContextCompactor(small(scorer=Attention(attend, "counts")), ScriptedModel([SUMMARY])).compact(
        messages
    )
    assert user("port port port 8443 8443") in messages
    assert user("用户问题0") not in messages


@pytest.mark.parametrize("weights", [[1.0], [-1.0] * 40, [float("nan")] * 40, [float("inf")] * 40])
def test_attention_weights_that_are_too_few_negative_or_nan_are_refused(weights):
    """S1-38: one weight of at least 0 for each message."""
    view = View.of([Message("user", (Text("x"),))] * 40)
    with pytest.raises(ValueError, match="each of 40 texts"):
        Attention(lambda texts: weights, "odd")(view)
    assert Attention()(view) == [0.0] * 40
    assert Attention(lambda texts: [0.0] * 39 + [0.5])(view) == [0.0] * 39 + [1.0]


# --- the example -------------------------------------------------------------------------------


def test_each_layer_lowers_the_token_count_of_the_documented_example():
    """S1-34: each layer lowers the token count, and the newest results are unchanged. The
    document's figures are not measured (C1-10). `make bench` prints measured ones."""
    start = [
        SYSTEM,
        user("用户问题1"),
        assistant("思考1"),
        *ran("a", "loadContent", "内容" * 2_500),
    ]
    start += [
        assistant("思考2"),
        *ran("b", "search", "结果" * 1_000),
        user("用户问题2"),
        *rounds(3, 8_000),
    ]
    start += [*ran("d", "bash", "输出" * 1_500), user("当前问题")]
    first = copy.deepcopy(start)
    ContextCompactor(ContextPolicy.defaults()).compact(first)
    assert results(first)[:2] == ["[truncated: 5000 chars]", "[truncated: 2000 chars]"]
    assert results(first)[2:] == results(start)[2:]
    second = copy.deepcopy(start)
    policy = ContextPolicy(token_threshold=6_000)
    ContextCompactor(
        policy, ScriptedModel(["用户最初询问了…AI 调用了 loadContent 和 search…"])
    ).compact(second)
    assert second[0] == SYSTEM
    assert "【历史摘要】\n用户最初询问了" in second[1]["content"]
    assert second[-1] == user("当前问题")
    before, after_first, after_second = map(estimate_tokens, (start, first, second))
    assert before > after_first > after_second
