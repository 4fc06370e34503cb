"""Random transcripts for property-based tests. Needs `hypothesis`, the extra `testing`."""

from collections.abc import Iterator

from refold.errors import install_hint
from refold.messages import Media, Message, Opaque, Part, Text, Thinking, ToolCall, ToolResult

try:
    from hypothesis import strategies as st
except ImportError as error:
    raise ImportError(f"random transcripts need hypothesis: {install_hint('testing')}") from error

TEXTS = st.one_of(
    st.text("abc 你好。\n", min_size=1, max_size=80),
    st.sampled_from(
        [
            "never touch `src/main.py`",
            "不要修改配置文件",
            "see https://example.com/a?b=1",
            "exit code 2",
        ]
    ),
)
"""Short texts: words, Chinese, constraints, links, exit codes."""

# Created once, because hypothesis validates each new strategy object.
_NAMES = st.lists(st.sampled_from(["read", "write", "bash", "Skill"]), min_size=1, max_size=3)
_LETTERS = st.sampled_from("abc")
_IMAGES = st.lists(
    st.builds(Media, st.just("image"), st.just("image/png"), st.text("ab", min_size=1)), max_size=1
)
_THOUGHTS = st.lists(st.builds(Thinking, TEXTS), max_size=1)
_SIGNED_THOUGHTS = st.builds(Thinking, TEXTS, st.text("0123456789abcdef", min_size=8, max_size=8))
_BESIDE: st.SearchStrategy[tuple[Media | Opaque, ...]] = st.sampled_from(
    [
        (),
        (Media("image", "image/png", "blake2b:00", 640, 480),),
        (Opaque("future", "{}"),),
        (Opaque("tool_reference", '{"tool_name":"mail","type":"tool_reference"}'),),
    ]
)
_BEYOND = st.text("xyz", max_size=20)


@st.composite
def transcripts(
    draw: st.DrawFn, *, max_turns: int = 8, signed: bool = False, tidy: bool = True
) -> tuple[Message, ...]:
    """Draw a transcript with requests, answers, thinking, calls, media and unknown parts.

    Calls are single or parallel, answered in one or several messages, and may be open at the end.
    Without *tidy* there are violations of providers' rules: orphans and duplicates. With *signed*
    every assistant message has signed thinking.
    """
    ids = (f"c{n}" for n in range(10_000))
    messages = [Message("user", _draw_request(draw))]
    for _ in range(draw(st.integers(0, max_turns))):
        messages += _draw_turn(draw, ids, signed)
    if draw(st.booleans()):
        messages.append(
            Message("assistant", (*_draw_thinking(draw, signed), *_draw_calls(draw, ids)))
        )
    if not tidy:
        messages = [m for m in messages if draw(st.integers(0, 9))]
        messages += draw(
            st.lists(st.sampled_from(messages or [Message("user", (Text("x"),))]), max_size=3)
        )
    return tuple(messages)


def _draw_turn(draw: st.DrawFn, ids: Iterator[str], signed: bool) -> Iterator[Message]:
    """Draw the messages after a user message, up to and including the next one."""
    for _ in range(draw(st.integers(0, 3))):
        calls = _draw_calls(draw, ids)
        texts = (Text(draw(TEXTS)),) if draw(st.booleans()) else ()
        yield Message("assistant", (*_draw_thinking(draw, signed), *texts, *calls))
        yield Message("user", tuple(_draw_result(draw, call) for call in calls))
    end: Part = Text(draw(TEXTS)) if draw(st.booleans()) else _draw_opaque(draw)
    yield Message("assistant", (*_draw_thinking(draw, signed), end))
    yield Message("user", _draw_request(draw))


def _draw_request(draw: st.DrawFn) -> tuple[Part, ...]:
    return (Text(draw(TEXTS)), *draw(_IMAGES))


def _draw_calls(draw: st.DrawFn, ids: Iterator[str]) -> list[ToolCall]:
    return [
        ToolCall(next(ids), name, f'{{"path":"src/{draw(_LETTERS)}.py"}}') for name in draw(_NAMES)
    ]


def _draw_result(draw: st.DrawFn, call: ToolCall) -> ToolResult:
    text = Text(draw(TEXTS) * draw(st.integers(1, 40)))
    return ToolResult(call.id, (text, *draw(_BESIDE)), draw(st.booleans()))


def _draw_thinking(draw: st.DrawFn, signed: bool) -> list[Thinking]:
    return [draw(_SIGNED_THOUGHTS)] if signed else draw(_THOUGHTS)


def _draw_opaque(draw: st.DrawFn) -> Opaque:
    return Opaque("future_block", f'{{"type":"future_block","x":"{draw(_BEYOND)}"}}')
