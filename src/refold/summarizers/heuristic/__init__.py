"""A summary without a model: where the work stands, and the lines that nothing else shows."""

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache

from refold.core.strategy import Answer, Ask, Summary
from refold.core.view import View
from refold.messages import Message
from refold.speakers import current_request, dialogue_share, segment_messages
from refold.speakers.carriers import mark_sender
from refold.summarizers.heuristic.blocks import Block, FileHistory, Work, iter_lines, read_work
from refold.summarizers.heuristic.current_files import CurrentFile, read_files, render_current
from refold.summarizers.heuristic.earlier import read_amendments, read_given
from refold.summarizers.heuristic.excerpts import (
    CHAT,
    IN_CODE,
    SAID_SHARE,
    TALK,
    TURNS,
    Context,
    Excerpt,
    Selection,
    find_excerpts,
)
from refold.summarizers.heuristic.identifiers import iter_identifiers, split_words
from refold.summarizers.heuristic.layout import CONVERSATION, render_state
from refold.summarizers.heuristic.state import State, drop_superseded, read_state
from refold.summarizers.heuristic.steps import Source, Step, read_source, read_spans, read_steps
from refold.summarizers.heuristic.task import Task, read_task, read_wanted, render_task
from refold.text.plain import readable_text, terms
from refold.text.summary_wrapper import wrap_summary
from refold.tokens.count import estimate

EXCERPTS = "Excerpts (single lines, with gaps between them)"
MAX_TRIES = 4
"""How often a text that turned out too long, or too short, is written again."""
FIXED = 0.6
"""The share of a summary that requests, rules, state, checks and decisions may take."""
FIXED_IN_CHATS = 0.3
"""The same if a person answers each turn: there, what was said is what counts."""
LEAST_FIXED = 800
"""Tokens that these may take of a small summary in work: what holds comes before what may be
needed."""
CURRENT = 0.5
"""The share of what a summary has beyond 1,500 tokens for the current text of files."""
TASK = 0.2
"""The share for the text of the task: an issue, a ticket, a plan."""


@dataclass(frozen=True, slots=True)
class RuleSummary:
    """Summarises by rules. Asks no model; the same view gives the same text.

    Says what was asked, by which rules, where the work stands and what was decided, and quotes the
    lines that later work will most likely need and that nothing else in the request shows
    (docs/summaries.md). Always reads the original messages, never an earlier summary of them; of
    more than a million tokens the newest (of what an earlier summary stands for the fewer, the more
    there are), and of what is older what people said and which files and plans changed.
    """

    beside: Sequence[Message] = field(default=(), repr=False)
    """Messages out of the span that stay word for word around the summary. Strategies fill it
    in."""

    def __call__(
        self, view: View, start: int, stop: int, max_tokens: int
    ) -> Generator[Ask, Answer | None, Summary]:
        """Summarise `messages[start:stop]` in at most *max_tokens* tokens, wrapped; the text is
        empty if nothing useful fits."""
        yield from ()
        count = view.profile.count
        material = read_material(read_source(view, start, stop), self.beside)

        def write() -> str:
            return write_summary(material, max_tokens, lambda text: count(wrap_summary(text)))

        if not (text := write()):  # without a summary nothing would be hidden
            material.state.in_sight = frozenset()
            text = write()
        return Summary(text)


@dataclass(frozen=True, slots=True)
class Material:
    """All that a summary may say, before it is known how much fits."""

    state: State
    work: Work
    files: dict[str, CurrentFile]
    task: Task
    shown: Sequence[str]
    """The texts of the messages that stay."""
    shown_names: frozenset[str]
    """The identifiers in them."""
    said_share: float
    """The share of the room for excerpts that goes first to what the model said."""
    context: Context


def read_material(source: Source, beside: Sequence[Message] = ()) -> Material:
    """Read what there is to say of what *source* hides, of which *beside* stay as they are."""
    later, shown = source.later, (*beside, *source.shown)
    hidden = (*source.older, *source.hidden)
    spoken = segment_messages(whole := (*hidden, *later))
    earlier = read_given(source.given)
    asked = tuple(earlier.state.requests)
    given = {path: file.state for path, file in earlier.state.files.items()}
    changes, steps, after, spellings = read_spans(source, spoken, given.items())
    earlier.state.files = {spellings.get(p, p): file for p, file in earlier.state.files.items()}
    names = {segment.sender for own in spoken for segment in own if segment.sender}
    state = _read_standing(earlier.state, (*changes, *steps), after, beside, names)
    files = read_files((*steps, *after))
    work, later_work = read_work(steps), read_work(after)
    work.commands |= dict.fromkeys(later_work.commands, len(whole))
    work.current = {
        path: _keys_of(file) for path, file in files.items() if file.edits and file.numbers
    }
    dialogue = dialogue_share(source.hidden, spoken[len(source.older) :])
    for block in work.blocks if dialogue >= CHAT else ():
        block.is_parted = block.kind in {"asked", "said"}
    request = current_request(whole, spoken)
    latest = max(request, default=-1)  # it stays beside the summary
    for block in (b for b in work.blocks if b.at == latest and b.kind in TURNS):
        block.kind = "latest"
    for text in source.edited:
        state.notes += read_amendments(text, state)
    work.blocks[:0] = earlier.blocks
    for path in earlier.stale:
        history = work.files.setdefault(path, FileHistory())
        history.changed_at = max(1, history.changed_at)
    named = _latest_words((*steps, *after))
    texts = [readable_text(message) for message in shown]
    wanted = read_wanted((*changes, *steps, *after), asked, earlier.plan, texts)
    task = read_task(work, files, wanted, named)
    context = Context(
        [*_ages_of(source.sizes), *[0.0] * len(later)],
        frozenset(word for text in texts for word in split_words(text)),
        dialogue,
        "\n".join((named, *(line.text for line in task.lines))),
        min(1.0, _code_share(work.blocks) / IN_CODE),
    )
    return Material(
        state,
        work,
        files,
        task,
        texts,
        frozenset(name for text in texts for name in names_in(text)),
        0.0 if context.is_chat else SAID_SHARE,
        context,
    )


def _read_standing(
    earlier: State,
    steps: Sequence[Step],
    after: Sequence[Step],
    beside: Sequence[Message],
    names: Iterable[str],
) -> State:
    """Read where the work, which *earlier* summaries tell of, stands after hidden *steps*, but for
    what stays in sight: the steps *after* them, and the messages *beside* the summary, by one of
    those with *names*."""
    state = read_state(steps, earlier)
    drop_superseded(state, after)
    seen = [step.text for step in (*read_steps(beside), *after) if step.kind == "request"]
    state.in_sight = frozenset(
        (*seen, *(mark_sender(name, text) for name in names for text in seen))
    )
    state.is_latest_current = not any(step.kind == "request" for step in after)
    return state


def _keys_of(file: CurrentFile) -> frozenset[str]:
    """Return the keys of the lines that are known of a file."""
    numbered = (f"{number}\t{text}" for number, text in file.lines)
    return frozenset(line.key for row in numbered for line in iter_lines(row))


def write_summary(material: Material, max_tokens: int, count: Callable[[str], int]) -> str:
    """Write where the work stands, and the hidden lines that add most to what is shown, in at most
    *max_tokens* by *count*, which counts a summary with what surrounds it; empty if nothing
    fits."""
    room, best = max_tokens - count(""), ""
    excerpts = find_excerpts(material.work, material.context, room)
    add = cache(lambda *fixed: _add_excerpts(fixed, excerpts, material, max_tokens, count))
    for _ in range(MAX_TRIES):
        text = add(*_write_fixed(material, room)) if room > 0 else ""
        over = count(text) - max_tokens
        if over <= 0 and len(text) <= len(best):
            break
        if over <= 0:
            best = text
        if -max_tokens // 25 <= over <= 0:
            break
        room -= over + (room // 50 + 1 if over > 0 else 0)
    return best


def _add_excerpts(
    fixed: tuple[str, str],
    excerpts: Sequence[Excerpt],
    material: Material,
    max_tokens: int,
    count: Callable[[str], int],
) -> str:
    """Add excerpts up to *max_tokens* to what stands first and to the text of files."""
    text = _join(*fixed)
    shown = {*names_in(text), *material.shown_names}
    selection = Selection(excerpts, material.work, shown, material.said_share)
    for _ in range(MAX_TRIES):
        before, spare = len(selection.chosen), max_tokens - count(text)
        selection.fill(spare)
        if len(selection.chosen) == before:
            break
        text = _join(*fixed, *selection.render())
    while (over := count(text) - max_tokens) > 0 and selection.chosen:
        selection.drop(over)
        text = _join(*fixed, *selection.render())
    return text


def _join(standing: str, current: str, talk: str = "", excerpts: str = "") -> str:
    """Write what stands first, what was said, the current text of files and other excerpts."""
    titles = (CONVERSATION, "Current text of files", EXCERPTS)
    rows = zip(titles, (talk, current, excerpts), strict=True)
    parts = (f"## {title}\n{text}" for title, text in rows if text)
    text = "\n".join(filter(None, (standing, *parts)))
    return text.replace("<record>\n", "<\\record>\n")  # nothing quoted begins a record


def _write_fixed(material: Material, room: int) -> tuple[str, str]:
    """Write where the work stands with the task, and the current text of files, of which each has
    its share of *room* tokens."""
    dialogue = material.context.dialogue
    share = FIXED + (FIXED_IN_CHATS - FIXED) * dialogue
    own = max(int(share * room), min(room, int(LEAST_FIXED * (1 - dialogue**2))))
    state = render_state(material.state, own, 1 - dialogue)
    task = render_task(material.task, int(TASK * room))
    current = render_current(
        material.files,
        (task, *material.shown),
        material.context,
        min(int(CURRENT * (room - 1_500)), room - estimate(state) - estimate(task)),
    )
    return "\n".join(filter(None, (state, task))), current


def names_in(text: str) -> Iterator[str]:
    """Yield what `Excerpt.names` may hold of a text."""
    yield from (name for name, _ in iter_identifiers(text))
    yield from (f" {term}" for term in terms(text))


def _code_share(blocks: Iterable[Block]) -> float:
    """Return which share of what tools brought shows or changes source; all if they brought
    nothing."""
    kinds = Counter(block.kind for block in blocks if block.kind not in {*TALK, *TURNS})
    return (kinds["source"] + kinds["written"]) / kinds.total() if kinds else 1.0


def _ages_of(sizes: Sequence[int]) -> list[float]:
    """Return the thousands of tokens between each message and the end."""
    ages, total = list[float](), 0
    for size in reversed(sizes):
        ages.append(total / 1_000)
        total += size
    return ages[::-1]


def _latest_words(steps: Sequence[Step]) -> str:
    """Return the last three requests and the last five answers: both name what is worked on."""
    requests = [step.text for step in steps if step.kind == "request"]
    answers = [step.text for step in steps if step.kind == "answer"]
    return "\n".join((*requests[-3:], *answers[-5:]))
