"""The soft/hard preset: compaction is suggested from one threshold on and forced from another (seed
system S2)."""

import asyncio
import copy
import json
import logging
from dataclasses import asdict, fields, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.request import urlopen

import pytest

import refold
from refold.compactor.hooks import CompactionEnded
from refold.core.strategy import Answer
from refold.errors import StoreError
from refold.memory import ProcessMemories
from refold.presets.measures import rather_over
from refold.presets.soft_hard import (
    DEVELOPMENT,
    LARGE_CONTEXT,
    LARGE_CONTEXT_WINDOW,
    PRODUCTION,
    CompactableMessage,
    CompactionCheck,
    CompactionConfig,
    CompactionResult,
    SoftHardCompactor,
    clamp_config,
    extract_memories,
    merge_config,
)
from refold.presets.soft_hard_commands import (
    ChatStore,
    CommandError,
    CompactorClient,
    Dispatcher,
    Intelligence,
    compactor_check_threshold,
    compactor_compact,
    compactor_estimate_messages_tokens,
    compactor_estimate_tokens,
    in_thread,
)
from refold.scorers import Emphasis
from refold.testing import ScriptedModel

ROOT = Path(__file__).parents[2]
SMALL = CompactionConfig(1_000, 2_000, 500, keep_recent_messages=4, summary_max_tokens=300)


def user(text: str, **extras) -> CompactableMessage:
    return {"role": "user", "content": text, **extras}


def assistant(text: str, **extras) -> CompactableMessage:
    return {"role": "assistant", "content": text, **extras}


def talk(pairs: int) -> list[dict]:
    """Return pairs of about 175 tokens, with a preference and a decision in the first."""
    first = [
        user("我住在北京。我喜欢简洁的代码，永远不要使用 unsafe。"),
        assistant("决定采用 tokio 作为异步运行时。"),
    ]
    return first + [
        m
        for n in range(1, pairs)
        for m in (
            user(f"第{n}步怎么做？" + "细节" * 20),
            assistant(f"建议执行方案{n}。" + "说明" * 30),
        )
    ]


def ran(id: str, result: str) -> list[dict]:
    call = {
        "id": id,
        "type": "function",
        "function": {"name": "bash", "arguments": '{"command":"ls"}'},
    }
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": id, "content": result},
    ]


# --- the configuration -------------------------------------------------------------------------


def test_the_eight_settings_have_the_documented_defaults():
    """S2-03 S2-04 S2-05 S2-06 S2-07 S2-08 S2-09 S2-10 S2-43: the default is the production preset
    (C2-7)."""
    assert [field.name for field in fields(CompactionConfig)] == [
        "soft_threshold_tokens", "hard_threshold_tokens", "reserve_tokens", "memory_flush_enabled",
        "keep_recent_messages", "summary_max_tokens", "use_llm", "llm_fallback_to_rules",
    ]  # fmt: skip
    assert tuple(asdict(PRODUCTION).values()) == (15_000, 20_000, 4_000, True, 6, 800, False, True)
    assert CompactionConfig() == PRODUCTION == SoftHardCompactor().config


def test_the_development_and_large_context_presets_have_the_documented_settings():
    """S2-42 S2-44"""
    assert tuple(asdict(DEVELOPMENT).values()) == (5_000, 8_000, 2_000, True, 4, 400, False, True)
    assert tuple(asdict(LARGE_CONTEXT).values()) == (
        25_000,
        30_000,
        6_000,
        True,
        10,
        1_200,
        True,
        True,
    )


def test_thresholds_are_lowered_to_leave_the_reserve_free_in_the_window(caplog):
    """S2-05 S2-44 (C2-3, C2-4): 30,000 and 6,000 do not fit into 32,768, and the change is
    reported."""
    with caplog.at_level(logging.WARNING, "refold"):
        compactor = SoftHardCompactor(LARGE_CONTEXT, window=LARGE_CONTEXT_WINDOW)
    assert compactor.config.hard_threshold_tokens == 26_768
    assert compactor.config.soft_threshold_tokens == 25_000
    assert "26768" in caplog.text
    caplog.clear()
    assert clamp_config(PRODUCTION, 32_768) == clamp_config(PRODUCTION, None) == PRODUCTION
    assert clamp_config(DEVELOPMENT, 32_768) == DEVELOPMENT
    assert clamp_config(CompactionConfig(500, 900, 200), 600).soft_threshold_tokens == 400
    with pytest.raises(ValueError, match="leaves nothing"):
        clamp_config(PRODUCTION, 4_000)


def test_a_partial_config_is_accepted_and_invalid_settings_are_refused():
    """S2-39 (C2-6)"""
    given = merge_config(PRODUCTION, {"soft_threshold_tokens": 12_000, "keep_recent_messages": 10})
    assert asdict(given) == asdict(PRODUCTION) | {
        "soft_threshold_tokens": 12_000,
        "keep_recent_messages": 10,
    }
    given = merge_config(DEVELOPMENT, {"keep_recent_messages": 10})
    assert asdict(given) == asdict(DEVELOPMENT) | {"keep_recent_messages": 10}
    assert merge_config(DEVELOPMENT, None) == DEVELOPMENT
    assert merge_config(DEVELOPMENT, PRODUCTION) == PRODUCTION
    for wrong in (
        {"soft_threshold": 1},
        {"use_llm": 1},
        {"summary_max_tokens": "800"},
        {"reserve_tokens": -1},
        {"hard_threshold_tokens": 3},
    ):
        with pytest.raises(ValueError, match=next(iter(wrong))[:4]):
            merge_config(PRODUCTION, wrong)


# --- the check ---------------------------------------------------------------------------------


def test_urgency_is_none_soft_or_hard_by_the_thresholds():
    """S2-03 S2-04 S2-11 S2-12 S2-13 S2-14 S2-23: a threshold is reached at exactly its value
    (C2-8)."""
    history = talk(10)
    tokens = compactor_estimate_messages_tokens(history)
    for soft, hard, expected in (
        (tokens + 1, tokens + 2, CompactionCheck(False, tokens, tokens + 1, "none")),
        (tokens, tokens + 1, CompactionCheck(True, tokens, tokens, "soft")),
        (tokens - 1, tokens, CompactionCheck(True, tokens, tokens, "hard")),
    ):
        config = {"soft_threshold_tokens": soft, "hard_threshold_tokens": hard}
        assert compactor_check_threshold(history, config) == expected
    assert [field.name for field in fields(CompactionCheck)] == [
        "should_compact",
        "current_tokens",
        "threshold",
        "urgency",
    ]


def test_the_reserve_lowers_the_hard_threshold_of_the_check():
    """S2-05 S2-14 (C2-3)"""
    history = talk(10)
    tokens = compactor_estimate_messages_tokens(history)
    config = {"soft_threshold_tokens": 10, "hard_threshold_tokens": 50_000, "reserve_tokens": 100}
    base = merge_config(PRODUCTION, config)
    assert SoftHardCompactor(base, window=tokens + 101).check_threshold(history).urgency == "soft"
    assert SoftHardCompactor(base, window=tokens + 100).check_threshold(history).urgency == "hard"
    assert (
        SoftHardCompactor(SMALL, window=tokens + 100).check_threshold(history, config).urgency
        == "hard"
    )


# --- compaction --------------------------------------------------------------------------------


def test_old_messages_become_a_summary_and_the_newest_stay():
    """S2-02 S2-07 S2-15 S2-16 S2-17 S2-18 S2-19 S2-20 S2-21 S2-22 S2-23: seven consistent fields.
    The summary is a user message (C2-14)."""
    system = {"role": "system", "content": "你是一个助手。"}
    history = [
        system,
        *(message | {"id": n, "timestamp": n * 1_000} for n, message in enumerate(talk(12))),
    ]
    before = copy.deepcopy(history)
    memory = ProcessMemories()
    result = SoftHardCompactor(SMALL, memory=memory).compact(history, "agent")
    assert history == before
    assert result.compacted_messages[0] == system
    assert result.compacted_messages[2:] == history[-4:]
    assert result.compacted_messages[-1]["timestamp"] == 23_000
    assert result.summary.startswith("[以下是之前对话的摘要]\n讨论主题: ")
    assert result.compacted_messages[1]["role"] == "user"
    assert result.summary in result.compacted_messages[1]["content"]
    assert (result.original_count, result.retained_count) == (25, 5)
    assert result.flushed_memories == len(memory.search("", 100)) > 0
    assert result.tokens_before_compaction == compactor_estimate_messages_tokens(history)
    assert result.tokens_after_compaction == compactor_estimate_messages_tokens(
        result.compacted_messages
    )
    assert result.tokens_after_compaction < result.tokens_before_compaction / 2
    assert list(asdict(result)) == [field.name for field in fields(CompactionResult)]
    assert [field.name for field in fields(CompactionResult)][7:] == ["memory_failure"]


def test_a_call_is_not_separated_from_its_result():
    """S2-07 S2-23 (C2-10)"""
    for keep in range(1, 8):
        history = [
            *talk(8),
            user("列出文件"),
            *ran("a", "a.py"),
            *ran("b", "b.py"),
            assistant("完成。"),
        ]
        config = {"keep_recent_messages": keep}
        result = SoftHardCompactor(SMALL).compact(history, config=config)
        assert not refold.check(result.compacted_messages)
        assert result.retained_count >= keep
        assert result.compacted_messages[-keep:] == history[-keep:]


def test_a_tail_over_the_budget_is_shortened_but_keeps_the_last_message():
    """S2-07 S2-21 (C2-10, X-4)"""
    history = [
        *talk(4),
        *(make("很长的内容" * 120) for _ in range(3) for make in (user, assistant)),
        user("最后的问题"),
    ]
    result = SoftHardCompactor(SMALL).compact(history, config={"keep_recent_messages": 6})
    assert result.compacted_messages[-1] == history[-1]
    assert result.tokens_after_compaction < SMALL.soft_threshold_tokens
    huge = [*talk(4), user("读取日志"), *ran("a", "x " * 3_000), *ran("b", "ok")]
    result = SoftHardCompactor(SMALL).compact(huge)
    assert result.tokens_after_compaction < SMALL.soft_threshold_tokens
    assert result.compacted_messages[-1] == huge[-1]
    assert not refold.check(result.compacted_messages)


def test_a_compaction_that_would_save_no_tokens_is_not_made():
    """S2-20 S2-21 (C2-10)"""
    history = [
        user("好"),
        assistant("嗯"),
        user("好"),
        assistant("嗯"),
        user("好"),
        assistant("嗯"),
        user("好"),
        assistant("嗯"),
    ]
    result = SoftHardCompactor(SMALL, memory=ProcessMemories()).compact(history)
    assert result.compacted_messages == history
    assert (result.summary, result.retained_count, result.flushed_memories) == ("", 8, 0)
    assert result.tokens_before_compaction == result.tokens_after_compaction
    assert SoftHardCompactor(SMALL).compact([]).compacted_messages == []


# --- memory ------------------------------------------------------------------------------------


class Broken:
    """A memory sink with a full disk."""

    def store(self, memories):
        raise StoreError("disk full")

    def search(self, query, limit=10):
        return []


def test_each_memory_is_flushed_only_once():
    """S2-06 S2-19 S2-40 (C2-9): once for each content, even if it was stored elsewhere before."""
    memory = ProcessMemories()
    compactor = SoftHardCompactor(SMALL, memory=memory)
    first = compactor.compact(talk(12), "agent")
    assert {"我住在北京。", "我喜欢简洁的代码，永远不要使用 unsafe。"} <= {
        memory.text for memory in memory.search("", 100)
    }
    again = compactor.compact(talk(12), "agent")
    assert (again.flushed_memories, again.retained_count) == (0, first.retained_count)
    assert SoftHardCompactor(SMALL, memory=memory).compact(talk(12), "agent").flushed_memories == 0
    assert first.flushed_memories == len(memory.search("", 100))
    off = ProcessMemories()
    assert (
        SoftHardCompactor(SMALL, memory=off)
        .compact(talk(12), config={"memory_flush_enabled": False})
        .flushed_memories
        == 0
    )
    assert off.search("") == []


def test_a_failing_memory_sink_does_not_stop_the_compaction():
    """S2-06 S2-19 (C2-9)"""
    result = SoftHardCompactor(SMALL, memory=Broken()).compact(talk(12))
    assert result.flushed_memories == 0
    assert result.summary


def test_each_agent_has_a_memory_of_its_own():
    """S2-36 S2-41"""
    sinks = {"a": ProcessMemories(), "b": ProcessMemories()}
    SoftHardCompactor(SMALL, memory=sinks.__getitem__).compact(talk(12), "b")
    assert sinks["b"].search("北京")
    assert not sinks["a"].search("北京")


# --- by a model --------------------------------------------------------------------------------


def test_a_model_writes_the_summary_if_use_llm_is_true():
    """S2-09 S2-44 S2-45 S2-48 S2-49 (C2-5): any light model can be used."""
    light = ScriptedModel(["用户在写异步服务器，采用 tokio。"])
    result = SoftHardCompactor(SMALL, model=light).compact(talk(12), config={"use_llm": True})
    assert len(light.asked) == 1
    assert result.summary.startswith("用户在写异步服务器，采用 tokio。")
    assert "永远不要使用 unsafe" in result.summary
    unused = ScriptedModel(["unused"])
    SoftHardCompactor(SMALL, model=unused).compact(talk(12))
    assert unused.asked == []
    large = ScriptedModel(["用户在写异步服务器，采用 tokio。"])
    assert (
        SoftHardCompactor(LARGE_CONTEXT, model=large)
        .compact(talk(20))
        .summary.startswith("用户在写异步服务器")
    )


@pytest.mark.parametrize(
    "answers", [[], [Answer("", "error", "down")], [""], [Answer("半截", "length")]]
)
def test_a_failed_model_is_replaced_by_rules_unless_the_fallback_is_off(answers):
    """S2-10"""
    config = {"use_llm": True}
    by_rules = SoftHardCompactor(SMALL, model=ScriptedModel(answers)).compact(
        talk(12), config=config
    )
    assert by_rules.summary.startswith("[以下是之前对话的摘要]")
    config |= {"llm_fallback_to_rules": False}
    untouched = SoftHardCompactor(SMALL, model=ScriptedModel(answers)).compact(
        talk(12), config=config
    )
    assert untouched.compacted_messages == talk(12)
    assert untouched.summary == ""


@pytest.mark.parametrize("cap", [120, 240])
def test_the_summary_stays_within_summary_max_tokens(cap):
    """S2-08 (C2-12): counted as it stands in the list. Rules obey the limit, and a model is told
    it."""
    history = [*talk(60), user("最后的问题")]
    config = {"summary_max_tokens": cap}
    by_rules = SoftHardCompactor(SMALL).compact(history, config=config).compacted_messages
    assert cap / 2 < compactor_estimate_messages_tokens(by_rules[:1]) <= cap
    model = ScriptedModel(["用户在问步骤。"])
    SoftHardCompactor(SMALL, model=model).compact(history, config=config | {"use_llm": True})
    assert cap / 4 < model.asked[0].max_tokens <= cap


# --- the document's future work ----------------------------------------------------------------


def test_a_second_summary_is_made_from_the_first_one_and_the_new_messages():
    """S2-46 S2-50: for the grown full history and for the compacted one, the earlier summary is
    updated."""
    for whole in (True, False):
        model = ScriptedModel(["第一份摘要。", "第二份摘要。"])
        compactor = SoftHardCompactor(SMALL, model=model)
        first = compactor.compact(talk(12), config={"use_llm": True})
        grown = [*(talk(12) if whole else first.compacted_messages), *talk(20)[-10:]]
        second = compactor.compact(grown, config={"use_llm": True})
        earlier, _, new = model.asked[1].messages[0].text.partition("</previous-summary>")
        assert "第一份摘要。" in earlier
        assert "第3步" not in new
        assert "第15步" in new
        assert second.summary.startswith("第二份摘要。")
    rules = SoftHardCompactor(SMALL)
    once = rules.compact(talk(12)).compacted_messages
    twice = rules.compact([*once, *talk(20)[-10:]]).summary
    assert twice.count("[以下是之前对话的摘要]") == 1
    assert "(已压缩 30 条消息,其中用户 15 条,助手 15 条)" in twice


def test_a_compaction_can_be_previewed_and_edited_before_it_is_accepted():
    """S2-47 S2-51: nothing is stored before it is accepted. Then it is exactly the preview."""
    compactor = SoftHardCompactor(SMALL, memory=ProcessMemories())
    history = talk(12)
    preview = compactor.preview(history, "agent")
    assert compactor.history(history, "agent")[-1].action == "preview"
    ((id, text),) = preview.summaries().items()
    assert text.startswith("[以下是之前对话的摘要]")
    result = compactor.accept(preview.amend(id, text + "\n端口: 8443"), "agent")
    assert result.summary.endswith("端口: 8443")
    assert result.flushed_memories > 0
    assert compactor.compact([*history, user("继续"), assistant("好")], "agent").summary.startswith(
        "[以下是之前对话的摘要]"
    )


@pytest.mark.parametrize("is_flushed", [True, False])
def test_memories_are_flushed_by_the_configuration_of_the_preview(is_flushed: bool):
    by = SoftHardCompactor(
        replace(SMALL, memory_flush_enabled=not is_flushed), memory=ProcessMemories()
    )
    preview = by.preview(talk(12), "agent", config={"memory_flush_enabled": is_flushed})
    ((id, text),) = preview.summaries().items()
    assert bool(by.accept(preview.amend(id, text[:-1]), "agent").flushed_memories) == is_flushed


def test_a_message_that_the_scorer_rates_high_is_kept_word_for_word():
    """S2-52"""
    history = talk(12)
    history[4] = user("记住：部署端口是 8443。")
    plain = SoftHardCompactor(SMALL).compact(history)
    assert history[4] not in plain.compacted_messages
    scored = SoftHardCompactor(SMALL, scorer=Emphasis()).compact(history)
    assert history[4] in scored.compacted_messages
    assert scored.tokens_after_compaction < scored.tokens_before_compaction / 2


def test_a_compaction_is_recorded_and_can_be_reverted():
    """S2-53"""
    compactor = SoftHardCompactor(SMALL)
    history = talk(12)
    compactor.compact(history, "agent", "talk-1")
    rows = compactor.history(history, "agent", "talk-1")
    assert [(row.action, row.outcome, row.actor) for row in rows] == [
        ("compact", "applied", "manual")
    ]
    assert rows[0].after < rows[0].before
    assert compactor.history(history, "another") == ()
    assert (
        compactor.revert(history, rows[0].edit, agent_id="agent", conversation_id="talk-1")
        == history
    )
    assert [row.action for row in compactor.history(history, "agent", "talk-1")] == [
        "compact",
        "revert",
    ]


def test_the_later_of_two_compactions_can_be_reverted_alone():
    """S2-53: the list is then that of the earlier compaction, with all later messages."""
    compactor, history = SoftHardCompactor(SMALL), talk(24)
    first = compactor.compact(history[:24]).compacted_messages
    assert compactor.compact(history).compacted_messages != first
    rows = compactor.history(history)
    assert compactor.revert(history, rows[-1].edit) == [*first, *history[24:]]
    assert compactor.revert(history) == history


def test_on_event_reports_the_end_of_a_compaction():
    """S2-54: memory is a port of two methods, and a reflection component can learn of every
    compaction."""
    events = []
    SoftHardCompactor(SMALL, on_event=events.append, memory=ProcessMemories()).compact(talk(12))
    ended = next(event for event in events if isinstance(event, CompactionEnded))
    assert ended.edits
    assert ended.after < ended.before


def test_the_docs_page_states_the_maturity_and_date_of_the_document():
    """S2-01"""
    page = (ROOT / "docs" / "presets" / "soft-hard.md").read_text(encoding="utf-8")
    assert "L4" in page
    assert "2026-03-24" in page


# --- the commands ------------------------------------------------------------------------------


def test_the_four_commands_can_be_called_as_functions():
    """S2-33 S2-34 S2-35 S2-36: with these arguments, the last ones optional (C2-15). A message
    costs more than its text (C2-2)."""
    assert compactor_estimate_tokens("") == 0
    assert compactor_estimate_tokens("你好, world\n") == rather_over("你好, world\n") == 6
    assert compactor_estimate_messages_tokens([]) == 0
    assert compactor_estimate_messages_tokens([user("你好")]) > compactor_estimate_tokens("你好")
    assert compactor_check_threshold(talk(3)).urgency == "none"
    assert compactor_check_threshold(talk(3), DEVELOPMENT).threshold == 5_000
    result = compactor_compact(talk(12), "agent", None, {"keep_recent_messages": 4})
    assert result.retained_count == 4


def test_each_agent_and_each_conversation_has_compactions_of_its_own():
    """S2-36 C2-15: equal messages of another agent or conversation are not compacted by the same
    call. The agent is required, the conversation optional."""
    by, history = SoftHardCompactor(SMALL), talk(12)
    assert (
        compactor_compact(history, "a", "one", {"keep_recent_messages": 2}, by=by).retained_count
        == 2
    )
    names = [("a", "one"), ("a", "two"), ("a", None), ("b", "one")]
    assert [len(by.history(history, *name)) for name in names] == [1, 0, 0, 0]
    assert compactor_compact(history, "a", by=by).retained_count == 4
    assert [len(by.history(history, *name)) for name in names] == [1, 0, 1, 0]
    for name, answer in (
        ({"agent_id": "a"}, "result"),
        ({"agentId": "a"}, "result"),
        ({}, "error"),
    ):
        assert answer in Dispatcher().call(
            {"command": "compactor_compact", "arguments": {"messages": []} | name}
        )


def test_ids_with_a_nul_are_conversations_of_their_own():
    by, history = SoftHardCompactor(SMALL), talk(12)
    names = [("a", "b\0c"), ("a\0b", "c"), ("a\0b\0c", None), ("a\0b\0c", "")]
    by.compact(history, *names[0])
    assert [len(by.history(history, *name)) for name in names] == [1, 0, 0, 0]
    by.compact(history, *names[2])
    assert [len(by.history(history, *name)) for name in names] == [1, 0, 1, 1]


def test_the_dispatcher_answers_json_commands_with_json():
    """S2-32 S2-33 S2-34 S2-35 S2-36 S2-37: as an HTTP gateway would mount it. JavaScript's
    camelCase is accepted."""
    dispatcher = Dispatcher(SoftHardCompactor(SMALL))

    def call(command: str, **arguments) -> dict:
        return json.loads(
            json.dumps(
                dispatcher.call(
                    json.loads(json.dumps({"command": command, "arguments": arguments}))
                )
            )
        )

    assert call("compactor_estimate_tokens", text="abcd") == {"result": 2}
    assert call("compactor_estimate_messages_tokens", messages=talk(2))["result"] > 50
    check = call("compactor_check_threshold", messages=talk(30))["result"]
    assert check == asdict(SoftHardCompactor(SMALL).check_threshold(talk(30)))
    assert check["urgency"] == "hard"
    both = [
        call(
            "compactor_compact",
            messages=talk(12),
            agent_id="a",
            conversation_id=None,
            config={"keep_recent_messages": 2},
        ),
        call(
            "compactor_compact",
            messages=talk(12),
            agentId="a",
            conversationId="c",
            config={"keep_recent_messages": 2},
        ),
    ]
    assert both[0] == both[1]
    assert both[0]["result"]["retained_count"] == 2


@pytest.mark.parametrize(
    ("request_", "code", "word"),
    [
        ({"command": "drop_tables"}, "unknown_command", "compactor_compact"),
        (None, "unknown_command", "None"),
        ({"command": ["x"]}, "unknown_command", "x"),
        ({"command": "compactor_estimate_tokens"}, "bad_arguments", "missing: text"),
        ({"command": "compactor_estimate_tokens", "arguments": []}, "bad_arguments", "object"),
        (
            {"command": "compactor_estimate_tokens", "arguments": {"text": 5}},
            "bad_arguments",
            "int",
        ),
        (
            {"command": "compactor_estimate_tokens", "arguments": {"text": "", "by": 1}},
            "bad_arguments",
            "no such arguments: by",
        ),
        (
            {"command": "compactor_check_threshold", "arguments": {"messages": [3]}},
            "bad_arguments",
            "",
        ),
        (
            {
                "command": "compactor_check_threshold",
                "arguments": {"messages": [], "config": {"x": 1}},
            },
            "bad_arguments",
            "x",
        ),
    ],
)
def test_a_bad_request_is_answered_with_an_error_code(request_, code, word):
    """S2-32 S2-35 (C2-6)"""
    error = Dispatcher().call(request_)["error"]
    assert error["code"] == code
    assert word in error["message"]


def test_a_store_error_is_answered_with_the_code_store_failed():
    """S2-32"""

    class Down(refold.MemoryStore):
        def load(self, tips):
            raise StoreError("gone")

    request = {"command": "compactor_compact", "arguments": {"messages": talk(3), "agent_id": "a"}}
    assert Dispatcher(SoftHardCompactor(store=Down())).call(request)["error"] == {
        "code": "store_failed",
        "message": "gone",
    }


def client(**settings) -> CompactorClient:
    return CompactorClient(in_thread(Dispatcher(SoftHardCompactor(SMALL, **settings))))


def test_the_client_returns_typed_results_over_any_transport():
    """S2-32 S2-37"""

    async def main() -> None:
        for compactor in (client(), CompactorClient(Dispatcher(SoftHardCompactor(SMALL)).call)):
            assert await compactor.estimate_tokens("abcd") == 2
            assert await compactor.estimate_messages_tokens(
                talk(2)
            ) == compactor_estimate_messages_tokens(talk(2))
            assert (await compactor.check_threshold(talk(30), SMALL)).urgency == "hard"
            result = await compactor.compact(
                talk(12), "agent", "conversation", {"keep_recent_messages": 2}
            )
            assert result == SoftHardCompactor(SMALL).compact(
                talk(12), config={"keep_recent_messages": 2}
            )
            with pytest.raises(CommandError, match="no such setting") as raised:
                await compactor.check_threshold(talk(2), {"soft": 1})
            assert raised.value.code == "bad_arguments"

    asyncio.run(main())


class Commands(BaseHTTPRequestHandler):
    """The dispatcher behind HTTP: JSON objects in and out."""

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        body = json.dumps(Dispatcher(SoftHardCompactor(SMALL)).call(request)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Do nothing."""


def test_the_client_works_over_http():
    """S2-32 S2-37: the four entries over HTTP and JSON, as in `intelligence.compactor`."""

    async def main(address: str) -> None:
        def post(request: dict) -> dict:
            with urlopen(address, json.dumps(request).encode(), timeout=30) as response:
                return json.load(response)

        async def transport(request: dict) -> dict:
            return await asyncio.to_thread(post, request)

        compactor = Intelligence(CompactorClient(transport), ProcessMemories()).compactor
        here = SoftHardCompactor(SMALL)
        assert await compactor.estimate_tokens("你好") == compactor_estimate_tokens("你好")
        assert await compactor.estimate_messages_tokens(
            talk(3)
        ) == compactor_estimate_messages_tokens(talk(3))
        assert await compactor.check_threshold(talk(30)) == here.check_threshold(talk(30))
        assert await compactor.compact(talk(12), "agent") == here.compact(talk(12), "agent")

    with ThreadingHTTPServer(("127.0.0.1", 0), Commands) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        asyncio.run(main(f"http://127.0.0.1:{server.server_port}/"))
        server.shutdown()


# --- the scenarios -----------------------------------------------------------------------------


def test_scenario_1_soft_suggests_and_hard_compacts_automatically():
    """S2-02 S2-23 S2-32 S2-38 S2-41: soft suggests, hard compacts, and the user does nothing."""

    async def main() -> tuple[ChatStore, list, list]:
        suggested, done = [], []
        chat = ChatStore(client(), "agent", suggest=suggested.append)
        for message in talk(40):
            if result := await chat.add(message):
                done.append(
                    f"压缩完成: {result.tokens_before_compaction} → {result.tokens_after_compaction} tokens"
                )
                assert result.compacted_messages == chat.messages
        return chat, suggested, done

    chat, suggested, done = asyncio.run(main())
    assert len(done) >= 2
    assert all(check.urgency == "soft" for check in suggested)
    assert len(suggested) > len(done)
    assert compactor_estimate_messages_tokens(chat.messages) < 2_000
    assert "永远不要使用 unsafe" in chat.messages[0]["content"]
    assert chat.messages[-1] == talk(40)[-1]


def test_a_chat_checks_each_added_message_by_its_own_config_and_ids():
    """S2-36 S2-38 S2-41: the message that reaches the exact threshold triggers the suggestion or
    the compaction, no earlier one. Memories go to the chat's agent, the record to its
    conversation."""
    sinks, suggested = {"a": ProcessMemories(), "b": ProcessMemories()}, []
    core, history = SoftHardCompactor(PRODUCTION, memory=sinks.__getitem__), talk(12)
    soft, hard = (compactor_estimate_messages_tokens(history[:count]) for count in (20, 22))
    config = {
        "soft_threshold_tokens": soft,
        "hard_threshold_tokens": hard,
        "keep_recent_messages": 2,
    }

    async def main() -> tuple[ChatStore, list]:
        transport = in_thread(Dispatcher(core))
        chat = ChatStore(CompactorClient(transport), "b", "talk-1", config, suggested.append)
        return chat, [await chat.add(message) for message in history[:22]]

    chat, results = asyncio.run(main())
    assert [check.urgency for check in suggested] == ["soft"] * 2
    assert [result is not None for result in results] == [False] * 21 + [True]
    assert chat.messages == results[-1].compacted_messages
    assert chat.messages[1:] == history[20:22]
    assert sinks["b"].search("北京")
    assert not sinks["a"].search("北京")
    assert [
        len(core.history(history[:22], *name))
        for name in (("b", "talk-1"), ("b", None), ("", "talk-1"))
    ] == [
        1,
        0,
        0,
    ]


def test_scenario_2_a_chat_is_compacted_manually_with_a_partial_config():
    """S2-39"""

    async def main() -> CompactionResult:
        chat = ChatStore(
            CompactorClient(in_thread(Dispatcher())), "agent", "conversation", messages=talk(20)
        )
        return await chat.compact({"soft_threshold_tokens": 12_000, "keep_recent_messages": 10})

    result = asyncio.run(main())
    assert result.retained_count == 10
    assert result.tokens_after_compaction < result.tokens_before_compaction


def test_scenario_3_memories_stored_beforehand_are_not_stored_twice():
    """S2-40 S2-41: manual storage counts (C2-9)."""
    memory = ProcessMemories()
    intelligence = Intelligence(client(memory=memory), memory)
    messages = talk(12)

    async def main() -> CompactionResult:
        for memory in extract_memories(messages):
            intelligence.memory.store([memory])
        return await intelligence.compactor.compact(messages, "agent")

    result = asyncio.run(main())
    assert memory.search("北京")
    assert result.flushed_memories == 0
    assert result.summary


def test_a_compactor_accepts_a_mapping_of_some_settings() -> None:
    """The documentation allows partial settings wherever a configuration is accepted. A mapping
    used to cause an AttributeError later."""
    compactor = SoftHardCompactor({"keep_recent_messages": 10})
    assert compactor.config == replace(PRODUCTION, keep_recent_messages=10)
    assert compactor.compact(talk(40)).retained_count >= 10
    with pytest.raises(ValueError, match="no such setting: keep"):
        SoftHardCompactor({"keep": 10})
