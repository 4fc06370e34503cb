"""A summary by selection: the state of the work, and the lines that nothing else shows."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from benchmarks.evidence.selection.blocks import Block, Work, read_work
from benchmarks.evidence.selection.current_files import read_files, render_current
from benchmarks.evidence.selection.earlier import amendments, take_over
from benchmarks.evidence.selection.excerpts import (
    Context,
    find_excerpts,
    quote,
    render_excerpts,
    select,
)
from benchmarks.evidence.selection.identifiers import iter_identifiers
from benchmarks.evidence.selection.state import read_state, render_state
from refold.core.strategy import Answer, Ask, Summary
from refold.core.view import View
from refold.messages import Message
from refold.summarizers.heuristic import RuleSummary
from refold.text.plain import plain_text
from refold.text.summary_wrapper import (
    belongs_to_summary,
    summary_in,
    without_summary,
    wrap_summary,
)
from refold.tokens.estimate import estimate

FIXED = 0.45
"""The share of a summary that requests, rules, state, checks and decisions may take."""
CURRENT = 0.25
"""The share of what a summary has beyond 1,000 tokens for the current text of files."""
TASK = 0.2
"""The share for the text of the task: an issue, a ticket, a plan."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Summarises by selection, without a model; the same view gives the same text.

    Always reads the original messages, never an earlier summary of them. What the kept tail shows
    is not said again.
    """

    def __call__(
        self, view: View, start: int, stop: int, max_tokens: int
    ) -> Generator[Ask, Answer | None, Summary]:
        """Summarise `messages[start:stop]` in at most *max_tokens* tokens, wrapped."""
        yield from ()
        source = read_source(view, start, stop)
        if not any(message.calls for message in source.hidden):
            return (yield from RuleSummary()(view, start, stop, max_tokens))
        room = max_tokens - view.profile.count(wrap_summary(""))
        text = write_summary(source, room)
        while text and view.profile.count(wrap_summary(text)) > max_tokens:
            text = text.rpartition("\n")[0]
        return Summary(text)


class Source(NamedTuple):
    """What a summary is made of."""

    hidden: list[Message]
    """The original messages that it stands for."""
    shown: list[Message]
    """The messages that stay."""
    edited: list[str]
    """Earlier summaries, made by edits, of messages that are in *hidden*."""
    given: list[str]
    """Earlier summaries that a caller sent as messages; what they stand for is not here."""


def read_source(view: View, start: int, stop: int) -> Source:
    """Return the original messages of a span, and what earlier summaries of it say."""
    messages = view.transcript.messages
    given = [text for message in messages[start:stop] if (text := summary_in(message))]
    edited = [
        text
        for item in view.iter_items()
        if item.edit and start <= item.start and item.stop <= stop
        for message in item.messages
        if (text := summary_in(message))
    ]
    own = [
        Message(message.role)
        if belongs_to_summary(messages, at)
        else without_summary(message)
        if summary_in(message) is not None
        else message
        for at, message in enumerate(messages)
    ]
    return Source(own[start:stop], [*own[:start], *own[stop:]], edited, given)


def write_summary(source: Source, room: int) -> str:
    """Write where the work stands, and the hidden lines that add most to what is shown."""
    hidden, shown = source.hidden, source.shown
    state, work = read_state(hidden, shown), read_work(hidden)
    for text in source.edited:
        state.notes += amendments(text, state)
    for text in source.given:
        take_over(text, state, work.blocks)
    named, ages = latest_words((*hidden, *shown)), ages_of(hidden)
    texts = [plain_text(message) for message in shown]
    current = render_current(
        read_files(hidden), texts, ages, named, int(CURRENT * (room - 1_000)), estimate
    )
    parts = [
        render_state(state, int(FIXED * room), estimate),
        render_task(work, named, int(TASK * room)),
        "## Current text of files, as edited\n" + current if current else "",
    ]
    fixed = "\n".join(filter(None, parts))
    seen = {name for text in (*texts, fixed) for name, _ in iter_identifiers(text)}
    context = Context(ages, frozenset(read_work(shown).files), named)
    rest = room - estimate(fixed) - 20
    chosen = select(find_excerpts(work, context), work, seen, rest, estimate)
    excerpts = render_excerpts(chosen, work)
    return "\n".join(filter(None, (fixed, "## Excerpts\n" + excerpts if excerpts else "")))


def names_of(block: Block) -> set[str]:
    """The identifiers in a block and its heading."""
    texts = (block.heading, *(line.text for line in block.lines))
    return {name for text in texts for name, _ in iter_identifiers(text)}


def render_task(work: Work, named: str, room: int) -> str:
    """The newest text that describes what the user names, else the newest about any task, in its own lines, as far as it fits."""
    blocks = [block for block in work.blocks if block.kind == "task" and len(block.lines) > 1]
    wanted = {name for name, _ in iter_identifiers(named)}
    about = [block for block in blocks if wanted & names_of(block)]
    block = next(reversed(about or blocks), None)
    if block is None:
        return ""
    lines, title = list[str](), f"## Task, as in: {block.heading}"
    room -= estimate(title)
    for line in block.lines:
        room -= estimate(line.text) + 1
        if room < 0:
            break
        lines.append(quote(line.text))
    return "\n".join((title, *lines)) if lines else ""


def ages_of(messages: Sequence[Message]) -> list[float]:
    """Thousands of tokens between each message and the end."""
    ages, total = list[float](), 0
    for message in reversed(messages):
        ages.append(total / 1_000)
        total += estimate(plain_text(message))
    return ages[::-1]


def latest_words(messages: Sequence[Message]) -> str:
    """The last three texts of the user."""
    texts = [message.text for message in messages if message.role == "user" and message.text]
    return "\n".join(texts[-3:])
