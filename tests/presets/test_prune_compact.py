"""Prune and compact: old tool output in batches first, a summary only if that is not enough (seed system S4)."""

import copy
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import refold
from refold.core.strategy import Answer
from refold.core.view import View
from refold.core.view_lines import break_down
from refold.messages import user as summary
from refold.presets.measures import chinese_and_ascii
from refold.presets.prune_compact import (
    MODEL_LIMIT,
    PRUNE_MINIMUM,
    PRUNE_PROTECT,
    RESERVED_OUTPUT,
    SUMMARY_SYSTEM_PROMPT,
    UPSTREAM,
    Limits,
    PruneAndCompact,
    generate_summary,
    is_overflow,
    prune,
    rebuild_messages,
    tool_compact,
)
from refold.testing import ScriptedModel, proposals
from refold.text.summary_wrapper import QUESTION
from refold.tokens.count import count_message, counter

SYSTEM = {"role": "system", "content": "You are a careful engineer. " * 40}
SUMMARY = "到目前为止，我们完成了：1. 读取文件。"
PAPER = Limits()
CLEARED = "[Old tool result content cleared]"
COUNT = counter(chinese_and_ascii)
"""What the system counts by: a quarter of a token for each character of ASCII (S4-17)."""


def user(text: str) -> dict:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict:
    return {"role": "assistant", "content": text}


def ran(id: str, tokens: int, name: str = "read") -> list[dict]:
    """A call and a result of so many tokens by the system's own count."""
    function = {"name": name, "arguments": f'{{"path":"src/{id}.ts"}}'}
    return [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": id, "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": id, "content": ("// app.ts\n" * tokens)[: tokens * 4]},
    ]


def work(*sizes: int, name: str = "read") -> list[dict]:
    calls = [message for n, size in enumerate(sizes) for message in ran(f"c{n}", size, name)]
    return [SYSTEM, user("第一个任务"), *calls]


def list_cleared(messages: list[dict]) -> list[int]:
    """Which of the results are cleared, by number."""
    results = [message["content"] for message in messages if message["role"] == "tool"]
    return [n for n, content in enumerate(results) if content == CLEARED]


def prune_and_list(messages: list[dict], limits: Limits = PAPER) -> list[int]:
    tool_compact(messages, limits, count=COUNT)
    return list_cleared(messages)


# --- prune -------------------------------------------------------------------------------------


def test_big_old_outputs_are_cleared_and_the_calls_stay():
    """S4-03 S4-04 S4-05 S4-06 S4-08: the newest 20,000 tokens of output are protected; the number of messages stays."""
    messages = work(9_000, 9_000, 9_000, 3_000, 3_000)
    before = copy.deepcopy(messages)
    view = tool_compact(messages, count=COUNT)
    assert list_cleared(messages) == [0, 1]
    assert len(messages) == len(before)
    assert [m for m in messages if m["role"] != "tool"] == [
        m for m in before if m["role"] != "tool"
    ]
    assert messages[-6:] == before[-6:]
    assert view.revert().payload == before
    assert not refold.check(messages)


@pytest.mark.parametrize(("size", "done"), [(9_000, []), (10_100, [0]), (30_000, [0])])
def test_nothing_is_cleared_if_it_saves_less_than_the_minimum(size, done):
    """S4-07 S4-08 (C4-3): from the minimum on, so that a batch pays for the broken cache (C4-6)."""
    assert prune_and_list(work(size, 15_000)) == done


def test_outputs_are_cleared_if_it_saves_exactly_the_minimum():
    """S4-07 (C4-3): what is reclaimed is the result less its placeholder."""
    messages = work(12_000, 15_000)
    gain = tokens_of(messages[3]) - tokens_of({**messages[3], "content": CLEARED})
    assert prune_and_list(copy.deepcopy(messages), Limits(prune_minimum=gain)) == [0]
    assert prune_and_list(copy.deepcopy(messages), Limits(prune_minimum=gain + 1)) == []


def tokens_of(message: dict) -> int:
    view = refold.Compactor([], refold.Budget(10**9, 0), format="openai_chat")(
        [*work(1)[:3], {**message, "tool_call_id": "c0"}]
    )
    return COUNT(view.transcript.messages[-1])


def test_the_newest_output_up_to_prune_protect_tokens_is_not_cleared():
    """S4-06 S4-20: below it nothing is cleared; many small outputs add up (conformance 22, 25)."""
    assert prune_and_list(work(*[1_900] * 10)) == []
    assert prune_and_list(work(*[1_900] * 18)) == list(range(8))


def test_one_huge_newest_output_is_not_cleared():
    """S4-06 S4-20 (C4-2): though it alone exceeds the zone."""
    for read in ([], [assistant("Read.")]):
        assert prune_and_list([*work(15_000, 50_000), *read]) == [0]
        assert prune_and_list([*work(50_000), *read]) == []


def test_the_default_and_the_upstream_limits_have_the_documented_values():
    """S4-06 S4-07 S4-19 S4-20 (C4-13)"""
    assert (PRUNE_PROTECT, PRUNE_MINIMUM, MODEL_LIMIT, RESERVED_OUTPUT) == (
        20_000,
        10_000,
        128_000,
        32_000,
    )
    assert (UPSTREAM.prune_protect, UPSTREAM.prune_minimum) == (40_000, 20_000)
    assert prune_and_list(work(15_000, 15_000, 15_000)) == [0, 1]
    assert prune_and_list(work(15_000, 15_000, 15_000), UPSTREAM) == []
    assert prune_and_list(work(25_000, 15_000, 15_000), UPSTREAM) == [0]


def test_protected_tools_are_not_cleared_and_do_not_use_up_prune_protect():
    """S4-08 (C4-4, conformance 24)"""
    messages = [*work(15_000), *[{**m} for m in ran("s", 18_000, "skill")], *ran("n", 4_000)]
    assert prune_and_list(messages) == []
    messages += ran("m", 15_000)
    assert prune_and_list(messages) == [0]


@given(st.lists(st.integers(1, 30_000), min_size=1, max_size=8))
def test_pruning_again_changes_nothing(sizes):
    """S4-04 S4-05 S4-08 (C4-4): what is cleared is neither counted nor cleared again."""
    messages = work(*sizes)
    prune_and_list(messages)
    once = copy.deepcopy(messages)
    prune_and_list(messages)
    assert messages == once
    assert not refold.check(messages)


def test_results_folded_into_a_summary_are_not_cleared():
    """S4-08 (C4-4): the scan stops there (conformance 26)."""
    compactor = refold.Compactor([], refold.Budget(10**9, 0), format="openai_chat")
    history = work(30_000, 30_000, 15_000)
    fold = compactor(history).fold(0, 3, summary("[summary]"))
    view = View.of(compactor(history).transcript, [fold])
    from_here = [edit.start for edit in proposals(view, prune()).edits[1:]]
    assert from_here == [4]


def test_result_content_may_be_a_list_or_empty():
    """S4-08 (C4-4)"""
    messages = work(30_000, 15_000)
    messages[3]["content"] = [{"type": "text", "text": messages[3]["content"]}]
    messages[5]["content"] = ""
    tool_compact(messages, count=COUNT)
    assert messages[5]["content"] == ""
    assert messages[3]["content"] == [{"type": "text", "text": CLEARED}]
    assert not refold.check(messages)


def test_a_cleared_failure_keeps_its_error_line():
    """S4-05 (conformance 28)"""
    messages = work(30_000, 21_000)
    messages[3]["content"] += "\nerror TS2304: Cannot find name 'Foo'.\nexit code: 2"
    tool_compact(messages, count=COUNT)
    assert messages[3]["content"].startswith(CLEARED + "\n")
    assert "error TS2304: Cannot find name 'Foo'." in messages[3]["content"]


# --- overflow ----------------------------------------------------------------------------------


def test_overflow_means_strictly_more_tokens_than_the_window_minus_the_reserve():
    """S4-14 S4-15 S4-16 S4-19: 128,000 less 32,000."""
    assert not is_overflow({"prompt_tokens": 95_000, "completion_tokens": 1_000})
    assert is_overflow({"prompt_tokens": 95_000, "completion_tokens": 1_001})
    assert is_overflow(
        {"prompt_tokens": 90, "completion_tokens": 11}, model_limit=200, reserved_output=100
    )
    assert not is_overflow({"prompt_tokens": 95_000, "completion_tokens": 1_001}, reclaimed=1)


def test_usage_may_be_an_object_or_a_mapping_of_any_provider():
    """S4-15 S4-16 S4-23 (C4-7): cached tokens and reasoning count, each once."""
    chat = SimpleNamespace(
        prompt_tokens=95_000,
        completion_tokens=1_001,
        prompt_tokens_details=SimpleNamespace(cached_tokens=90_000),
    )
    assert is_overflow(chat)
    chat.completion_tokens = 1_000
    assert not is_overflow(chat)
    anthropic = {
        "input_tokens": 1_000,
        "cache_read_input_tokens": 90_000,
        "cache_creation_input_tokens": 4_000,
        "output_tokens": 1_001,
    }
    assert is_overflow(anthropic)
    gemini = {"promptTokenCount": 95_000, "candidatesTokenCount": 1, "thoughtsTokenCount": 1_000}
    assert is_overflow(gemini)
    assert is_overflow(
        SimpleNamespace(model_dump=lambda: {"input_tokens": 96_001, "output_tokens": 0})
    )
    assert not is_overflow(None)
    assert not is_overflow(object())


def test_a_reserve_that_fills_the_whole_window_is_refused():
    """S4-14 S4-19"""
    with pytest.raises(ValueError, match="leaves nothing"):
        Limits(model_limit=32_000)
    assert Limits().usable == 96_000


# --- compaction --------------------------------------------------------------------------------


def fifty() -> list[dict]:
    """Fifty messages, the last a plain answer."""
    messages = [make(f"{n}: " + "细节很多。" * 20) for n in range(24) for make in (user, assistant)]
    return [SYSTEM, *messages, assistant("完成。")]


def test_fifty_messages_become_four():
    """S4-09 S4-13 S4-22: system prompt, question, summary, and the user's new question."""
    messages = rebuild_messages(fifty(), SUMMARY)
    messages.append(user("用户的新问题"))
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user"]
    assert messages[0] == SYSTEM
    assert messages[1]["content"] == QUESTION == "What did we do so far?"
    assert SUMMARY in messages[2]["content"]


@pytest.mark.parametrize("heads", [0, 1, 3])
def test_all_system_messages_are_kept_and_none_is_summarised(heads):
    """S4-22 (C4-8)"""
    head = [{**SYSTEM, "content": f"Rule {n}: be careful."} for n in range(heads)]
    messages = rebuild_messages([*head, *fifty()[1:]], SUMMARY)
    assert messages[:heads] == head
    assert [message["role"] for message in messages[heads:]] == ["user", "assistant"]
    model = ScriptedModel([SUMMARY])
    generate_summary([*head, *fifty()[1:]], model)
    assert "be careful" not in model.asked[0].messages[0].text
    assert "0: 细节很多。" in model.asked[0].messages[0].text


def test_an_unanswered_question_is_kept_word_for_word():
    """S4-13 (C4-11)"""
    messages = rebuild_messages([*fifty(), user("用户的新问题")], SUMMARY)
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user"]
    assert messages[-1] == user("用户的新问题")


def test_in_a_tool_loop_the_task_and_the_newest_tool_group_are_kept():
    """S4-13 (C4-11): never ends on the assistant, loses neither the request nor results nobody has read."""
    history = [*fifty(), user("修复登录"), *ran("a", 2_000), *ran("b", 300)]
    messages = rebuild_messages(history, SUMMARY)
    assert messages[-2:] == history[-2:]
    assert user("修复登录") in messages
    assert len(messages) <= 7
    assert not refold.check(messages)


def test_the_summary_request_is_system_prompt_history_and_instruction():
    """S4-10 S4-11 S4-21: the history as a record, without tool messages (C4-10)."""
    model = ScriptedModel([SUMMARY])
    assert SUMMARY in generate_summary([*fifty(), *ran("a", 50)], model)
    (ask,) = model.asked
    assert ask.system.startswith(
        "You are a helpful AI assistant tasked with summarizing conversations."
    )
    assert ask.system == SUMMARY_SYSTEM_PROMPT.text
    assert all(
        word in ask.system
        for word in (
            "was done",
            "being worked on",
            "files",
            "next",
            "user preferences that should persist",
        )
    )
    assert "<user>\n0: 细节很多。" in ask.messages[0].text
    assert '<call tool="read">' in ask.messages[0].text
    assert "You are a careful engineer" not in ask.messages[0].text
    assert ask.prompt.startswith("请总结上述对话，以便继续后续工作。")


def test_the_flow_uses_the_same_prompts_as_generate_summary():
    """S4-10 S4-11 S4-21: by the same prompts, through the whole flow."""
    alone, flow = ScriptedModel([SUMMARY]), ScriptedModel([SUMMARY])
    generate_summary(fifty(), alone)
    PruneAndCompact(flow, Limits(model_limit=3_000, reserved_output=1_000)).finish_step(fifty())
    assert flow.asked[0].system == alone.asked[0].system
    assert flow.asked[0].prompt.startswith("请总结上述对话，以便继续后续工作。")


def test_a_history_too_long_for_the_model_is_still_summarised():
    """S4-01 S4-11 (C4-9): the request is bounded, whatever the history holds."""
    model = ScriptedModel([SUMMARY])
    history = work(*[30_000] * 12)
    assert SUMMARY in generate_summary(history, model)
    assert (
        sum(map(count_message, model.asked[0].messages))
        < 100_000
        < sum(map(count_message, open_view(history).messages))
    )


def open_view(history: list[dict]) -> View:
    return refold.Compactor([], refold.Budget(10**9, 0), format="openai_chat")(history)


# --- the flow ----------------------------------------------------------------------------------


def test_each_step_prunes_and_summarises_only_if_the_usage_is_still_too_high():
    """S4-01 S4-03 S4-16 S4-18: prune every round; only what that leaves over is compacted, by the usage less what
    was pruned (C4-5)."""
    model = ScriptedModel([SUMMARY])
    flow = PruneAndCompact(model, count=COUNT)
    messages = [*work(30_000, 30_000), *ran("x", 15_000), assistant("读完了。")]
    step = flow.finish_step(messages, {"prompt_tokens": 100_000, "completion_tokens": 500})
    assert 59_000 < step.reclaimed < 60_100
    assert (step.compacted, model.asked) == (False, [])
    assert step.used == 100_500 - step.reclaimed
    assert list_cleared(messages) == [0, 1]
    messages += [user("继续"), assistant("好。" * 10)]
    step = flow.finish_step(messages, {"prompt_tokens": 97_000, "completion_tokens": 10})
    assert (step.compacted, step.reclaimed, len(model.asked)) == (True, 0, 1)
    assert [message["role"] for message in messages] == ["system", "user", "assistant"]
    messages.append(user("下一个任务"))
    assert not refold.check(messages)


def test_usage_at_the_limit_is_not_summarised_and_one_token_more_is():
    """S4-14 S4-15 S4-18 S4-23: the API's figure decides, not the estimate."""
    for used, compacted in ((96_000, False), (96_001, True)):
        messages = fifty()
        step = PruneAndCompact(ScriptedModel([SUMMARY])).finish_step(
            messages, {"input_tokens": used, "output_tokens": 0}
        )
        assert (step.used, step.compacted) == (used, compacted)
        assert (len(messages) == 50) != compacted


def test_usage_below_the_estimate_decides_too():
    """S4-18 S4-23: such a usage used to raise a ValueError."""
    for sent, compacted in ((1_999, False), (2_000, False), (2_001, True)):
        messages = fifty()
        limits = Limits(model_limit=3_000, reserved_output=1_000)
        step = PruneAndCompact(ScriptedModel([SUMMARY]), limits).finish_step(
            messages, {"input_tokens": sent, "output_tokens": 0}
        )
        assert (step.used, step.compacted) == (sent, compacted)
        assert step.view.revert().tokens > sent


def test_without_usage_the_estimate_decides():
    """S4-16 S4-23 (C4-7)"""
    limits = Limits(model_limit=3_000, reserved_output=1_000)
    messages = fifty()
    assert PruneAndCompact(ScriptedModel([SUMMARY]), limits).finish_step(messages).compacted
    assert len(messages) == 3
    roomy = fifty()
    assert not PruneAndCompact(ScriptedModel([SUMMARY])).finish_step(roomy).compacted


def test_messages_added_after_the_reported_usage_are_counted_too():
    """S4-01 S4-18 (C4-12): results that came after the response, a paste before sending."""
    result = {"prompt_tokens": 80_000, "completion_tokens": 10}
    messages = [*fifty(), user("看日志"), *ran("log", 40_000)]
    step = PruneAndCompact(ScriptedModel([SUMMARY]), count=COUNT).finish_step(messages, result)
    assert step.used > 120_000
    assert step.compacted
    assert messages[-3:] == [user("看日志"), *ran("log", 40_000)]
    assert "看日志" not in messages[2]["content"]  # nothing stands there twice
    paste = fifty()
    view = PruneAndCompact(ScriptedModel([SUMMARY])).before_send(paste, "词" * 120_000)
    assert view.edits
    assert paste == view.payload


def test_results_are_cleared_in_batches_and_not_one_each_round():
    """S4-07 S4-18 (C4-6): the prefix changes once for many rounds, so a prompt cache holds."""
    flow, messages, changes = PruneAndCompact(count=COUNT), [SYSTEM, user("任务")], 0
    for n in range(30):
        before = copy.deepcopy(messages)
        messages += ran(f"r{n}", 2_000)
        flow.finish_step(messages)
        changes += messages[: len(before)] != before
    assert len(list_cleared(messages)) >= 15
    assert 1 <= changes <= 5


def test_no_request_of_a_hundred_step_run_exceeds_the_window():
    """S4-01 S4-03: a hundred steps in a window of 20,000 tokens; no request is ever longer."""
    limits = Limits(
        prune_protect=3_000,
        prune_minimum=1_500,
        model_limit=20_000,
        reserved_output=4_000,
        summary_max_tokens=800,
    )
    flow = PruneAndCompact(ScriptedModel([f"摘要{n}" for n in range(50)]), limits)
    messages, longest = [SYSTEM, user("把所有模块迁移到新接口。不要修改 tests/。")], 0
    for n in range(100):
        sent = flow.before_send(messages).tokens
        longest = max(longest, sent)
        messages += ran(f"m{n}", 700)
        messages[-2]["content"] = f"第{n}步：" + "迁移说明。" * 60
        flow.finish_step(messages, {"prompt_tokens": sent, "completion_tokens": 400})
        assert not refold.check(messages)
    assert longest < 16_000
    assert len(messages) < 80
    assert any("把所有模块迁移到新接口。不要修改 tests/。" in str(m["content"]) for m in messages)


def test_all_originals_can_be_restored_after_several_compactions():
    """S4-24: everything that was said can be had back, word for word, through several compactions, before sending
    and after responses."""
    flow, originals = (
        PruneAndCompact(
            ScriptedModel([SUMMARY] * 9), Limits(model_limit=6_000, reserved_output=1_000)
        ),
        [],
    )
    messages = []
    for message in [*work(3_000, 200), *fifty()[1:], *ran("z", 2_000), assistant("完")]:
        messages.append(message)
        originals.append(copy.deepcopy(message))
        if message["role"] == "assistant":
            flow.finish_step(messages)
        else:
            flow.before_send(messages)
    assert len(messages) < len(originals)
    assert flow.originals(messages) == originals


def test_the_rule_summary_is_used_if_the_model_fails():
    """S4-01 S4-12"""
    for answers in ([], [Answer("", "error", "down")], [""]):
        messages = fifty()
        step = PruneAndCompact(
            ScriptedModel(answers), Limits(model_limit=3_000, reserved_output=1_000)
        ).finish_step(messages)
        assert step.compacted
        assert "## Earlier requests" in messages[2]["content"]


def test_the_token_breakdown_matches_the_documented_example():
    """S4-02: the example's own figures, by category: a system prompt of 2,000 tokens, ten turns of 500, five files of
    10,000, three outputs of 5,000, 72,000 in all; tools, if there are any, count apart (C4-14)."""

    def words(tokens: int) -> str:
        return "word " * (tokens * 10 // 9)

    def results(count: int, tokens: int, name: str) -> list[dict]:
        pairs = [ran(f"{name}{n}", 1, name) for n in range(count)]
        return [m for call, result in pairs for m in (call, {**result, "content": words(tokens)})]

    history = [{"role": "system", "content": words(2_000)}]
    history += [m for _ in range(10) for m in (user(words(200)), assistant(words(300)))]
    history += [*results(5, 10_000, "read_file"), *results(3, 5_000, "run_code")]
    parts = break_down(open_view({"model": "gpt-4-turbo", "messages": history, "tools": []}))
    near = {"system": 2_000, "text": 5_000, "read_file": 50_000, "run_code": 15_000}
    counts = {**parts.names, "system": parts.system, "text": parts.kinds["text"]}
    for name, tokens in near.items():
        assert counts[name] == pytest.approx(tokens, rel=0.05)
    assert parts.total == sum(parts.roles.values()) == pytest.approx(72_000, rel=0.05)
    tool = {"type": "function", "function": {"name": "read_file", "parameters": {"type": "object"}}}
    with_tools = break_down(
        open_view({"model": "gpt-4-turbo", "messages": history, "tools": [tool]})
    )
    assert (
        with_tools.total - parts.total
        == with_tools.tools
        == with_tools.roles["tools"]
        == with_tools.kinds["tools"]
        > 0
    )
