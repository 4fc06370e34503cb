"""Random transcripts, for property-based tests. Needs `hypothesis`, the extra `testing`."""

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


@st.composite
def transcripts(
    draw: st.DrawFn, *, max_turns: int = 8, signed: bool = False, tidy: bool = True
) -> tuple[Message, ...]:
    """Draw transcripts with requests, answers, thinking, calls, media and unknown parts.

    Calls are single or parallel, answered in one message or in several, and may be open at the end.
    With *tidy* no provider's rule is broken; without, there are orphans and duplicates. *signed*
    gives every assistant message signed thinking.
    """
    ids = (f"c{n}" for n in range(10_000))
    messages = [Message("user", draw(_request_parts()))]
    for _ in range(draw(st.integers(0, max_turns))):
        messages += draw(_turn(ids, signed=signed))
    if draw(st.booleans()):
        messages.append(Message("assistant", (*draw(_thinking(signed)), *draw(_calls(ids)))))
    if not tidy:
        messages = [m for m in messages if draw(st.integers(0, 9))]
        messages += draw(
            st.lists(st.sampled_from(messages or [Message("user", (Text("x"),))]), max_size=3)
        )
    return tuple(messages)


@st.composite
def _turn(draw: st.DrawFn, ids: Iterator[str], *, signed: bool) -> list[Message]:
    """Draw what comes after a user's message, up to and including the next one."""
    out: list[Message] = []
    for _ in range(draw(st.integers(0, 3))):
        calls = draw(_calls(ids))
        texts = (Text(draw(TEXTS)),) if draw(st.booleans()) else ()
        out.append(Message("assistant", (*draw(_thinking(signed)), *texts, *calls)))
        out.append(Message("user", tuple(draw(_result(call)) for call in calls)))
    end: tuple[Part, ...] = (Text(draw(TEXTS)),) if draw(st.booleans()) else (draw(_opaque()),)
    out.append(Message("assistant", (*draw(_thinking(signed)), *end)))
    out.append(Message("user", draw(_request_parts())))
    return out


@st.composite
def _request_parts(draw: st.DrawFn) -> tuple[Part, ...]:
    media = draw(
        st.lists(
            st.builds(Media, st.just("image"), st.just("image/png"), st.text("ab", min_size=1)),
            max_size=1,
        )
    )
    return (Text(draw(TEXTS)), *media)


@st.composite
def _calls(draw: st.DrawFn, ids: Iterator[str]) -> list[ToolCall]:
    names = draw(
        st.lists(st.sampled_from(["read", "write", "bash", "Skill"]), min_size=1, max_size=3)
    )
    return [
        ToolCall(next(ids), name, f'{{"path":"src/{draw(st.sampled_from("abc"))}.py"}}')
        for name in names
    ]


@st.composite
def _result(draw: st.DrawFn, call: ToolCall) -> ToolResult:
    text = Text(draw(TEXTS) * draw(st.integers(1, 40)))
    image = Media("image", "image/png", "blake2b:00", 640, 480)
    content = draw(st.sampled_from([(text,), (text, image), (text, Opaque("future", "{}"))]))
    return ToolResult(call.id, content, draw(st.booleans()))


@st.composite
def _thinking(draw: st.DrawFn, signed: bool) -> list[Thinking]:
    if signed:
        return [Thinking(draw(TEXTS), draw(st.text("0123456789abcdef", min_size=8, max_size=8)))]
    return draw(st.lists(st.builds(Thinking, TEXTS), max_size=1))


@st.composite
def _opaque(draw: st.DrawFn) -> Opaque:
    return Opaque(
        "future_block", f'{{"type":"future_block","x":"{draw(st.text("xyz", max_size=20))}"}}'
    )
