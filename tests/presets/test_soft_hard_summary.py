"""The rule summary of the soft/hard preset, in its documented form (seed system S2)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.core.profile import Profile
from refold.core.view import View
from refold.messages import Message, Text, ToolCall, ToolResult, user
from refold.models.driver import drive
from refold.presets.soft_hard_summary import (
    TopicSummary,
    extract_conclusions,
    extract_technical_context,
    extract_topics,
    notes_of,
    parse,
    render,
)
from refold.text.summary_wrapper import TITLES, wrap_summary
from tests.support.messages import assistant

GOLDEN = """\
[以下是之前对话的摘要]
讨论主题: 如何在 Rust 中实现异步 HTTP 服务器; 性能优化建议
关键结论:
- 使用 tokio::run 作为异步运行时
- 考虑使用连接池减少开销
- 建议启用 HTTP/2 支持提升性能
技术上下文: 代码片段 (rust), 代码片段 (toml)
(已压缩 24 条消息,其中用户 12 条,助手 12 条)"""
ENGLISH = """\
[Summary of the conversation so far]
Topics: How do I write an async HTTP server in Rust; Tips for performance
Conclusions:
- Use tokio::run as the runtime
- Consider a connection pool to save work
Technical context: code (rust)
(4 messages compacted: 2 by the user, 2 by the assistant)"""


def summarize(messages, max_tokens: int = 2_000, language="auto", stop: int | None = None) -> str:
    view = messages if isinstance(messages, View) else View.of(messages)
    return drive(
        TopicSummary(language)(view, 0, len(view.transcript) if stop is None else stop, max_tokens)
    ).text


def rust() -> list[Message]:
    start = [
        user("请问如何在 Rust 中实现异步 HTTP 服务器？"),
        assistant(
            "使用 tokio::run 作为异步运行时。\n```rust\nfn main() { tokio::run(server()); }\n```"
        ),
        user("性能优化建议？"),
        assistant(
            '考虑使用连接池减少开销。\n```toml\n[dependencies]\ntokio = "1"\n```\n建议启用 HTTP/2 支持提升性能。'
        ),
    ]
    return start + [message for _ in range(10) for message in (user("好的，"), assistant("嗯。"))]


def test_the_summary_equals_the_documented_example():
    """S2-26 S2-27 S2-28 S2-29 S2-30 S2-31: header, topics, conclusions, code, and the number of
    messages by role (C2-11)."""
    assert len(rust()) == 24
    assert summarize(rust()) == GOLDEN


def test_the_summary_is_in_english_if_the_conversation_or_the_setting_is():
    """S2-26 S2-27 S2-28 S2-29 S2-30"""
    history = [
        user("Hi, could you please explain? How do I write an async HTTP server in Rust?"),
        assistant("Use tokio::run as the runtime.\n```rust\nfn main() {}\n```"),
        user("Tips for performance?"),
        assistant("Consider a connection pool to save work."),
    ]
    history[0] = user(
        "Please, how do I write an async HTTP server in Rust?".replace("Please, how", "How")
    )
    assert summarize(history) == ENGLISH
    assert summarize(rust(), language="en").startswith(
        "[Summary of the conversation so far]\nTopics: 如何在 Rust"
    )


def test_the_extractors_find_topics_conclusions_and_code_languages():
    """S2-27 S2-28 S2-29"""
    users = [
        user("你好，请帮我修复登录。谢谢！"),
        user("好的"),
        user("你好，请帮我修复登录。"),
        user("thanks!"),
    ]
    assert list(extract_topics(users)) == ["修复登录"]
    assert list(
        extract_topics([user("<system-reminder>x</system-reminder>"), user("A; B comes next")])
    ) == ["A, B comes next"]
    answers = [
        assistant("我来看看。"),
        assistant("原因是超时设置为 3 秒。要改吗？"),
        assistant("```sql\nuse db;\n```"),
    ]
    answers += [
        assistant("建议使用连接池，好不好？"),
        assistant("Should we use a connection pool?"),
        assistant("建议使用下面的方案："),
    ]
    assert extract_conclusions(answers) == ("原因是超时设置为 3 秒",)
    code = [
        assistant("```Rust\nx\n```\n```\nplain\n```"),
        user("```rust\ny\n```"),
        assistant("```toml\nz\n```"),
    ]
    assert extract_technical_context(code) == ("代码片段 (rust)", "代码片段 (toml)")


def test_empty_sections_are_left_out():
    """S2-26 S2-30 (C2-13)"""
    assert (
        summarize([user("好的"), assistant("嗯。")], language="zh")
        == "[以下是之前对话的摘要]\n(已压缩 2 条消息,其中用户 1 条,助手 1 条)"
    )


@pytest.mark.parametrize("text", ["I fixed the `load_pool` hang.", "问题已经处理，脚本可以运行。"])
def test_reports_of_finished_work_are_conclusions(text):
    """S2-28"""
    (sentence,) = extract_conclusions([assistant(text)])
    assert sentence == text.rstrip("。.")


def test_preferences_and_changed_files_are_in_the_summary():
    """S2-02 S2-29 S2-30: the user's preferences and the work that was done."""
    call = ToolCall("c1", "write", '{"content":"x","path":"src/app.py"}')
    history = [
        user("请写一个脚本。永远不要修改 tests/。"),
        Message("assistant", (call,)),
        Message("tool", (ToolResult("c1", (Text("ok"),)),)),
        assistant("已经完成脚本。"),
    ]
    assert summarize(history) == (
        "[以下是之前对话的摘要]\n讨论主题: 写一个脚本\n关键结论:\n- 已经完成脚本\n用户偏好:\n- 永远不要修改 tests/。\n"
        "技术上下文: 文件 src/app.py\n(已压缩 4 条消息,其中用户 1 条,助手 2 条,工具 1 条)"
    )


def test_an_earlier_summary_is_merged_and_never_a_topic():
    """S2-46 S2-50 (C2-12): counts add up. Earlier summaries are ours in its wrapper, and the
    unwrapped one of the desktop app's list."""
    later = [user("如何部署？"), assistant("推荐使用 systemd 管理进程。")]
    merged = GOLDEN.replace("性能优化建议", "性能优化建议; 如何部署").replace(
        "提升性能\n", "提升性能\n- 推荐使用 systemd 管理进程\n"
    )
    merged = merged.replace(
        "24 条消息,其中用户 12 条,助手 12 条", "26 条消息,其中用户 13 条,助手 13 条"
    )
    assert summarize([wrap_summary(GOLDEN), *later]) == merged
    assert summarize([user(GOLDEN), *later]) == merged
    history = View.of([*rust(), *later])
    assert summarize(history.apply(history.fold(0, 24, wrap_summary(GOLDEN)))) == merged


def test_the_rule_summary_keeps_the_content_of_an_earlier_model_summary():
    """S2-10 S2-50: the fallback loses nothing of it."""
    text = "用户在写 HTTP 服务器。\n\n<record>\n## Requests\n- 如何在 Rust 中实现？\n## Constraints\n- 不要用 unsafe。\n</record>"
    summary = summarize([wrap_summary(text), user("如何部署？"), assistant("推荐使用 systemd。")])
    for part in (
        "如何在 Rust 中实现",
        "不要用 unsafe",
        "用户在写 HTTP 服务器",
        "如何部署",
        "systemd",
    ):
        assert part in summary


def test_a_rendered_summary_parses_back_to_the_same_notes():
    """S2-46"""
    notes = notes_of(rust())
    assert parse(render(notes)) == notes


@pytest.mark.parametrize("cap", [90, 120, 200, 400, 800])
def test_the_summary_fits_max_tokens_and_keeps_the_first_topic_longest(cap):
    """S2-08 S2-30 (C2-12)"""
    history = [
        m
        for n in range(60)
        for m in (
            user(f"第{n}个问题是什么原因造成的呢"),
            assistant(f"建议采用第{n}种方案，因为它更快。"),
        )
    ]
    view = View.of(history)
    text = summarize(view, cap)
    assert view.profile.count(wrap_summary(text)) <= cap
    assert text.endswith("(已压缩 120 条消息,其中用户 60 条,助手 60 条)")
    assert "第0个问题" in text or cap < 120
    assert summarize(view, 10) == ""


TALK = st.lists(
    st.builds(
        Message,
        st.sampled_from(["user", "assistant"]),
        st.text("建议使用 use; a。\n-[]:(以", min_size=1, max_size=60)
        .map(Text)
        .map(lambda t: (t,)),
    ),
    min_size=1,
    max_size=12,
)


def test_a_long_history_is_not_rendered_again_for_each_topic_left_out():
    counted = []

    def count(message: Message) -> int:
        counted.append(message)
        return len(message.text)

    history = [user(f"Please build part number {n} now.") for n in range(2_000)]
    summary = summarize(View.of(history, profile=Profile(count)))
    topics = parse(summary).sections["topics"]
    assert topics[0] == "build part number 0 now"
    assert topics[-1] == "build part number 1999 now"
    assert 1_900 < len(wrap_summary(summary).text) <= 2_000
    assert sum(TITLES[2] in message.text for message in counted) < 20


@given(TALK, st.integers(60, 600))
def test_a_summary_of_any_history_fits_max_tokens_and_counts_every_message(history, cap):
    """S2-26 S2-30"""
    view = View.of(history)
    text = summarize(view, cap, "zh")
    assert not text or view.profile.count(wrap_summary(text)) <= cap
    assert not text or f"已压缩 {len(history)} 条消息" in text
