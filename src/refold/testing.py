"""For tests of code that uses or extends Refold: random transcripts, a scripted model, and checks
that a strategy or a store keeps the laws. Needs `hypothesis`."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from hypothesis import strategies as st

from refold.budget import Budget
from refold.lens import Lens
from refold.loop import drive, first_sight, steps
from refold.messages import Media, Message, Opaque, Part, Text, Thinking, ToolCall, ToolResult
from refold.rules.verdict import Rules
from refold.stores.check import check_store
from refold.strategy import Answer, Ask, Strategy, is_local
from refold.view import View

TEXTS = st.one_of(
    st.text("abc 你好。\n", min_size=1, max_size=80),
    st.sampled_from(["never touch `src/main.py`", "不要修改配置文件", "see https://example.com/a?b=1", "exit code 2"]),
)
"""Short texts: words, Chinese, constraints, links, exit codes."""


@st.composite
def transcripts(draw: st.DrawFn, *, max_turns: int = 8, signed: bool = False, tidy: bool = True) -> tuple[Message, ...]:
    """Random transcripts: requests, answers, thinking, single and parallel calls (answered in one
    message or in several), media, unknown parts, system notes in the middle, open calls at the end.

    With *tidy* they break no provider's rule; without, also orphans and duplicates. *signed* gives
    every assistant message signed thinking.
    """
    ids = (f"c{n}" for n in range(10_000))
    messages = [Message("user", draw(_request_parts()))]
    for _ in range(draw(st.integers(0, max_turns))):
        messages += draw(_turn(ids, signed=signed))
    if draw(st.booleans()):
        messages.append(Message("assistant", (*draw(_thinking(signed)), *draw(_calls(ids)))))
    if not tidy:
        messages = [m for m in messages if draw(st.integers(0, 9))]
        messages += draw(st.lists(st.sampled_from(messages or [Message("user", (Text("x"),))]), max_size=3))
    return tuple(messages)


@st.composite
def _turn(draw: st.DrawFn, ids: Iterator[str], *, signed: bool) -> list[Message]:
    """What comes after a user's message, up to and including the next one."""
    out: list[Message] = []
    for _ in range(draw(st.integers(0, 3))):
        calls = draw(_calls(ids))
        said = (Text(draw(TEXTS)),) if draw(st.booleans()) else ()
        out.append(Message("assistant", (*draw(_thinking(signed)), *said, *calls)))
        out.append(Message("user", tuple(draw(_result(call)) for call in calls)))
    end: tuple[Part, ...] = (Text(draw(TEXTS)),) if draw(st.booleans()) else (draw(_opaque()),)
    out.append(Message("assistant", (*draw(_thinking(signed)), *end)))
    out.append(Message("user", draw(_request_parts())))
    return out


@st.composite
def _request_parts(draw: st.DrawFn) -> tuple[Part, ...]:
    media = draw(
        st.lists(st.builds(Media, st.just("image"), st.just("image/png"), st.text("ab", min_size=1)), max_size=1)
    )
    return (Text(draw(TEXTS)), *media)


@st.composite
def _calls(draw: st.DrawFn, ids: Iterator[str]) -> list[ToolCall]:
    names = draw(st.lists(st.sampled_from(["read", "write", "bash", "Skill"]), min_size=1, max_size=3))
    return [ToolCall(next(ids), name, f'{{"path":"src/{draw(st.sampled_from("abc"))}.py"}}') for name in names]


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
    return Opaque("future_block", f'{{"type":"future_block","x":"{draw(st.text("xyz", max_size=20))}"}}')


@dataclass
class ScriptedModel:
    """A model that answers from a list, for tests: `ask=ScriptedModel(["a summary"])`.

    When the list is used up it answers None, as when nobody can answer. `asked` is what it was asked.
    """

    answers: Sequence[str | Answer] = ()
    asked: list[Ask] = field(default_factory=list)

    def __call__(self, ask: Ask) -> Answer | None:
        """The next answer."""
        self.asked.append(ask)
        if len(self.asked) > len(self.answers):
            return None
        answer = self.answers[len(self.asked) - 1]
        return Answer(answer) if isinstance(answer, str) else answer


def proposals(view: View, strategy: Strategy, ask: Callable[[Ask], Answer | None] | None = None) -> View:
    """*view* with everything *strategy* proposes for it, whatever the budget."""
    if is_local(strategy):
        return view.keep(first_sight(view, [strategy]))
    return drive(steps(view, [strategy], Budget(0, 0)), ask).view


def check_strategy(strategy: Strategy, rules: Rules | None = None, *, examples: Iterable[tuple[Message, ...]]) -> None:
    """Check that *strategy* keeps the laws on *examples* (draw them from `transcripts()`), with a model
    that answers nine questions by "A summary.".

    Raises AssertionError with the law's name: validity (no new violation, nor by any single edit
    alone), progress (never more tokens than before), determinism (a second run on the same history gives
    the same view), reversibility and, for local ones, memorylessness.
    """
    for messages in examples:
        bare = View.of(messages, lens=Lens(rules=rules or Rules()))
        view = proposals(bare, strategy, ScriptedModel(["A summary."] * 9))
        _valid(bare, view)
        assert view.estimate <= bare.estimate, f"progress: {view.estimate} > {bare.estimate} tokens"
        assert proposals(bare, strategy, ScriptedModel(["A summary."] * 9)) == view, "determinism"
        assert view.revert().messages == tuple(messages), "reversibility"
        for edit in view.edits:
            _valid(bare, bare.keep([edit]))
        if is_local(strategy):
            _memoryless(bare, view, strategy)


def _valid(bare: View, view: View) -> None:
    rules = bare.lens.rules
    before = {(v.rule, v.subject) for v in rules.check(bare.messages)}
    after = {(v.rule, v.subject) for v in rules.check(view.messages)}
    assert after <= before, f"validity: {sorted(after - before)} by {[e.by for e in view.edits]}"


def _memoryless(bare: View, at_once: View, strategy: Strategy) -> None:
    grown = View.of((), lens=bare.lens)
    for message in bare.transcript.messages:
        grown = grown.grow([message])
        grown = grown.keep(first_sight(grown.revert(), [strategy], len(grown.transcript) - 1))
    assert grown.messages == at_once.messages, "memorylessness: turn by turn is not at once"


__all__ = ["ScriptedModel", "check_store", "check_strategy", "proposals", "transcripts"]
