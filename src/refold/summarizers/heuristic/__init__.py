"""Summaries without a model: the state of the work, and lines that nothing else shows."""

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cache

from refold.core.strategy import Answer, Ask, Summary
from refold.core.view import View
from refold.messages import Message
from refold.speakers import current_request, dialogue_share, segment_messages
from refold.speakers.carriers import mark_sender
from refold.summarizers.heuristic.actions import says_works
from refold.summarizers.heuristic.blocks import Block, FileHistory, Work, iter_lines, read_work
from refold.summarizers.heuristic.calls import read_boxes
from refold.summarizers.heuristic.current_files import CurrentFile, read_files, render_current
from refold.summarizers.heuristic.earlier import read_amendments, read_earlier_summaries
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
from refold.summarizers.heuristic.layout import CONVERSATION, REQUESTS, iter_rules, render_state
from refold.summarizers.heuristic.state import State, drop_superseded, read_state
from refold.summarizers.heuristic.steps import Source, Step, read_source, read_spans, read_steps
from refold.summarizers.heuristic.task import Task, read_task, read_task_hints, render_task
from refold.text.plain import readable_text, terms
from refold.text.summary_wrapper import wrap_summary, write_heading
from refold.tokens.count import estimate

EXCERPTS = "Excerpts (single lines, with gaps between them)"
MAX_FIT_PASSES = 4
"""Maximum number of passes to fit a text into its token limit."""
STATE_SHARE = 0.6
"""Share of a summary of work for requests, rules, state, checks and decisions."""
STATE_SHARE_IN_CHATS = 0.3
"""The same share in chats, where quotes of the conversation matter more."""
MIN_STATE_TOKENS = 800
"""Minimum tokens for these sections in a small summary of work, at the cost of excerpts."""
CURRENT_TEXT_SHARE = 0.5
"""Share of a summary's tokens beyond 1,500 for the current text of files."""
TASK_SHARE = 0.2
"""Share of a summary for the text of the task: an issue, ticket or plan."""


@dataclass(frozen=True, slots=True)
class RuleSummary:
    """A summarizer that works by rules. It asks no model, and the same view gives the same text.

    It states the requests, the rules, the state of the work and the decisions, and quotes the lines
    that later work most likely needs and that nothing else in the request shows
    (docs/summaries.md). It always reads the original messages, and of an earlier summary of them
    only what others wrote into it. Of more than a million tokens it reads the newest in full (fewer
    of a longer span that an earlier summary covers), and of older messages people's words and the
    changes of files and plans.
    """

    beside: Sequence[Message] = field(default=(), repr=False)
    """Messages that are kept verbatim around the summary. Strategies set it."""
    is_alone: bool = field(default=False, repr=False)
    """Whether other messages around the summary are not read, because they will be hidden, too.
    Strategies set it."""

    def __call__(
        self, view: View, start: int, stop: int, max_tokens: int
    ) -> Generator[Ask, Answer | None, Summary]:
        """Summarise `messages[start:stop]`. With its wrapper, which is added later, the text has at
        most *max_tokens* tokens. It is empty if nothing useful fits."""
        yield from ()
        count = view.profile.count
        material = read_material(read_source(view, start, stop, self.is_alone), self.beside)
        material.state.is_latest_current &= not self.is_alone

        def write() -> str:
            return write_summary(material, max_tokens, lambda text: count(wrap_summary(text)))

        if not (text := write()):  # an empty summary would hide nothing
            material.state.in_sight = frozenset()
            text = write()
        return Summary(text)


@dataclass(frozen=True, slots=True)
class Material:
    """Everything that a summary may contain, before it is fitted to a size."""

    state: State
    work: Work
    files: dict[str, CurrentFile]
    task: Task
    shown: Sequence[str]
    """Texts of the messages that stay visible."""
    shown_names: frozenset[str]
    """The names in them (`names_in`)."""
    answer_share: float
    """Share of the room for excerpts that goes first to the model's answers."""
    context: Context


def read_material(source: Source, beside: Sequence[Message] = ()) -> Material:
    """Return the contents of a summary of what *source* hides. The messages *beside* stay
    visible."""
    later, shown = source.later, (*beside, *source.shown)
    hidden = (*source.older, *source.hidden)
    spoken = segment_messages(whole := (*hidden, *later))
    earlier = read_earlier_summaries(source.given)
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
        block.is_in_clauses = block.kind in {"asked", "said"}
    request = current_request(whole, spoken)
    latest = max(request, default=-1)  # stays visible beside the summary
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
    wanted = read_task_hints((*changes, *steps, *after), asked, earlier.plan, texts)
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
    """Return the state of the work after the hidden *steps*, starting from that of *earlier*
    summaries, without what the visible steps *after* them supersede. The requests in these and in
    the messages *beside* the summary are in sight, also as marked with the senders' *names*."""
    state = read_state(steps, earlier)
    telling = [step for step in after if step.kind in {"call", "result"} or _tells_state(step)]
    drop_superseded(state, after, read_state(telling, State(todos=state.todos)))
    seen = [step.text for step in (*read_steps(beside), *after) if step.kind == "request"]
    state.in_sight = frozenset(
        (*seen, *(mark_sender(name, text) for name in names for text in seen))
    )
    state.is_latest_current = not any(step.kind == "request" for step in after)
    return state


def _tells_state(step: Step) -> bool:
    """Return whether a request or an answer says something about files or the plan."""
    return says_works(step.text) if step.kind == "request" else bool(read_boxes(step.text))


def _keys_of(file: CurrentFile) -> frozenset[str]:
    numbered = (f"{number}\t{text}" for number, text in file.lines)
    return frozenset(line.key for row in numbered for line in iter_lines(row))


def write_summary(material: Material, max_tokens: int, count: Callable[[str], int]) -> str:
    """Return the state of the work and the hidden lines that add most to the visible text, in at
    most *max_tokens* tokens; empty if nothing fits. *count* counts a summary with its wrapper."""
    room, best = max_tokens - count(""), ""
    excerpts = find_excerpts(material.work, material.context, room)
    in_sight = set(iter_rules(material.state.in_sight))
    add = cache(lambda *fixed: _add_excerpts(fixed, excerpts, material, max_tokens, count))
    for _ in range(MAX_FIT_PASSES):
        text = add(*_write_fixed(material, room, in_sight)) if room > 0 else ""
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
    """Return the *fixed* sections, uncut, with as many excerpts as fit into *max_tokens* tokens."""
    text = _join(*fixed)
    shown = {*names_in(text), *material.shown_names}
    selection = Selection(excerpts, material.work, shown, material.answer_share)
    for _ in range(MAX_FIT_PASSES):
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
    """Return the text of a summary: state, conversation, current text of files, other excerpts."""
    titles = (CONVERSATION, "Current text of files", EXCERPTS)
    rows = zip(titles, (talk, current, excerpts), strict=True)
    parts = (f"## {title}\n{text}" for title, text in rows if text)
    text = "\n".join(filter(None, (standing, *parts)))
    return text.replace("<record>\n", "<\\record>\n")  # no quoted line may open a record


def _write_fixed(material: Material, room: int, in_sight: AbstractSet[str]) -> tuple[str, str]:
    """Return the state of the work with the task, and the current text of files, each in its share
    of *room* tokens. *in_sight* holds the rules of the requests in sight."""
    dialogue = material.context.dialogue
    share = STATE_SHARE + (STATE_SHARE_IN_CHATS - STATE_SHARE) * dialogue
    own = max(int(share * room), min(room, int(MIN_STATE_TOKENS * (1 - dialogue**2))))
    state = render_state(material.state, own, 1 - dialogue, in_sight)
    requests = (
        part for part in state.removeprefix("## ").split("\n## ") if part.startswith(REQUESTS)
    )
    task = render_task(material.task, int(TASK_SHARE * room), "\n".join(requests))
    most = int(CURRENT_TEXT_SHARE * (room - 1_500))

    def write_current(task: str) -> str:
        own = min(most, room - estimate(state) - estimate(task))
        return render_current(material.files, (task, *material.shown), material.context, own)

    if material.task.is_product and write_heading(material.task.heading) in write_current(""):
        task = ""  # its text stands in one place
    current = write_current(task)
    return "\n".join(filter(None, (state, task))), current


def names_in(text: str) -> Iterator[str]:
    """Yield the names in a text as `Excerpt.names` spells them."""
    yield from (name for name, _ in iter_identifiers(text))
    yield from (f" {term}" for term in terms(text))


def _code_share(blocks: Iterable[Block]) -> float:
    """Return the share of tools' blocks that show source code or a change; 1.0 without any."""
    kinds = Counter(block.kind for block in blocks if block.kind not in {*TALK, *TURNS})
    return (kinds["source"] + kinds["written"]) / kinds.total() if kinds else 1.0


def _ages_of(sizes: Sequence[int]) -> list[float]:
    """Return the tokens, in thousands, between each message and the end."""
    ages, total = list[float](), 0
    for size in reversed(sizes):
        ages.append(total / 1_000)
        total += size
    return ages[::-1]


def _latest_words(steps: Sequence[Step]) -> str:
    """Return the last three requests and five answers, which name what is worked on."""
    requests = [step.text for step in steps if step.kind == "request"]
    answers = [step.text for step in steps if step.kind == "answer"]
    return "\n".join((*requests[-3:], *answers[-5:]))
