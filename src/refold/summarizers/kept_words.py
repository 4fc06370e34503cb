"""What stays word for word around a summary: system notes, the first request, memory, whatever the
model has not answered yet. Always taken from the transcript, never from what an earlier compaction
showed of it (C3-1)."""

from bisect import bisect_right
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import Field, dataclass, fields
from types import FunctionType
from typing import Any, ClassVar, NamedTuple, Protocol

from refold.core.strategy import Answer, Ask, Ending, Summarizer
from refold.core.tool_groups import groups, latest_turn, unseen
from refold.core.view import View
from refold.edits import Edit
from refold.errors import EditError
from refold.messages import Message, Thinking, user
from refold.rules.rule import Rules
from refold.speakers import has_person, heard_in, staying
from refold.text.summary_wrapper import CONTINUE, belongs_to_summary, summary_in, without_summary, wrap_summary

MEMORY, MEMORY_END = "<memory>", "</memory>"
KOOG_TEXTS = ("Here are the relevant facts from memory", "Memory feature is not enabled")
"""What marks koog's memory messages (S3-26)."""

Picks = Callable[[Message], bool]


def remember(text: str) -> Message:
    """A user message that is tagged as memory, and so outlives compactions (S3-26)."""
    inside = text.replace(MEMORY_END, "<\\/memory>").strip()
    return user(f"{MEMORY}\n{inside}\n{MEMORY_END}")


@dataclass(frozen=True, slots=True)
class Tagged:
    """Picks messages tagged as memory: their whole text stands in `<memory>`. A message that only
    mentions the tag, or quotes it, is none (C3-5)."""

    def __call__(self, message: Message) -> bool:
        """Is *message* memory?"""
        text = message.text.strip()
        return text.startswith(MEMORY) and text.endswith(MEMORY_END) and text.count(MEMORY_END) == 1


@dataclass(frozen=True, slots=True)
class Containing:
    """Picks messages that contain one of *texts*: for memory that carries no tag. Whoever writes
    such a text into a message makes it memory, so prefer `Tagged` (C3-5)."""

    texts: tuple[str, ...] = KOOG_TEXTS

    def __call__(self, message: Message) -> bool:
        """Is one of the texts in *message*?"""
        return any(text in message.text for text in self.texts)


@dataclass(frozen=True, slots=True)
class Marked:
    """Picks messages tagged as memory, and those that begin with one of *texts*, as koog's own do (S3-26). A text that
    only quotes one is none (C3-5)."""

    texts: tuple[str, ...] = KOOG_TEXTS

    def __call__(self, message: Message) -> bool:
        """Is *message* memory?"""
        return Tagged()(message) or message.text.lstrip().startswith(self.texts)


def pending(view: View) -> int:
    """Where what the model has not answered begins: a request, results it has not read with their
    calls, calls that are still open. The latest legal cut before it (C3-3, S3-09)."""
    said = view.transcript.messages
    limit, turn = unseen(said), latest_turn(said)
    for group in groups(said[turn:], turn):
        if any(pair.answered is None or pair.answered >= limit for pair in group):
            limit = min(limit, group[0].made)
    return max((cut for cut in view.cuts if cut <= limit), default=0)


def untold(view: View, stop: int) -> list[tuple[int, int]]:
    """The runs of `messages[:stop]` that no summary stands for."""
    runs = list[tuple[int, int]]()
    for item in view.each():
        if item.stop > stop or any(summary_in(message) is not None for message in item.shown):
            continue
        if runs and runs[-1][1] == item.start:
            runs[-1] = (runs[-1][0], item.stop)
        else:
            runs.append((item.start, item.stop))
    return runs


def kept(view: View, start: int, stop: int, memory: Picks | None) -> list[int]:
    """Positions in `messages[start:stop]` that stay whole: system messages, the first request, memory (one that
    says the same as an earlier one is not kept again); each with what it cannot be parted from."""
    said, cuts = view.transcript.messages, sorted(view.ground.cuts)
    picked = {first_request(view)} & set(range(start, stop))
    before = set(said[:start])
    for at in range(start, stop):
        own = _own(said, at)
        remembered = memory is not None and bool(own.parts) and memory(own)
        if (said[at].role == "system" and own.parts) or (remembered and own not in before):
            picked.add(at)
        before.add(said[at])
    places = (bisect_right(cuts, at) for at in picked)
    return sorted({at for place in places for at in range(cuts[place - 1], cuts[place])})


def first_request(view: View) -> int:
    """Where a person speaks first, as the user; -1 if nowhere."""
    said = view.transcript.messages
    return next((at for at, spoken in enumerate(heard_in(view)) if said[at].role == "user" and has_person(spoken)), -1)


def _own(said: Sequence[Message], at: int) -> Message:
    """What a message says besides a summary; nothing if it only carries one."""
    return Message(said[at].role) if belongs_to_summary(said, at) else without_summary(said[at])


def composed(view: View, start: int, stop: int, told: Iterable[Message], memory: Picks | None) -> tuple[Message, ...]:
    """What to show instead of `messages[start:stop]`: what stays, in its order, then *told*, then
    the current request (`refold.speakers.staying`).

    Begins with the user where the provider wants that, and ends on the assistant only if somebody
    else speaks next (C3-4).
    """
    said, rules, stays, is_memory = view.transcript.messages, view.lens.rules, staying(view, stop), Tagged()
    own = {at: said[at] for at in kept(view, start, stop, memory)}
    beside = (
        (at, message) for at, message in (*stays.dialogue, *stays.messages) if at >= start and not is_memory(message)
    )
    own = dict(beside) | own
    behind = stays.request - {first_request(view)}
    stay = _bare((own[at] for at in sorted(own) if at not in behind), rules)
    after = _bare((own[at] for at in sorted(own) if at in behind), rules)
    told = tuple(told)
    head = (*stay, *told) if start or not stay or not rules.alternate or stay[0].role == "user" else (*told, *stay)
    shown = (*head, *after)
    ends = stop == len(said) and bool(shown) and shown[-1].role == "assistant" and not shown[-1].calls
    return (*shown, user(CONTINUE)) if ends else shown


def _bare(messages: Iterable[Message], rules: Rules) -> list[Message]:
    """Messages for another place: without a summary, and without thinking, which is bound to where it stood."""
    own = list(map(without_summary, messages))
    if rules.thinking != "fixed":
        own = [Message(m.role, tuple(part for part in m.parts if not isinstance(part, Thinking))) for m in own]
    return [message for message in own if message.parts]


class Telling(NamedTuple):
    """How a stretch of history is told shorter."""

    summarizer: Summarizer
    max_tokens: int
    """Cap of one summary message."""
    memory: Picks | None
    by: str


class Told(NamedTuple):
    """Whether an edit was proposed, and how it went."""

    done: bool
    ending: Ending | None = None


def tell(view: View, start: int, stop: int, since: int, telling: Telling) -> Generator[Edit | Ask, Answer | None, Told]:
    """Propose to show a summary of `messages[since:stop]`, and what stays, instead of `messages[start:stop]`."""
    hidden = sum(item.tokens for item in view.each() if start <= item.start and item.stop <= stop)
    room = hidden - sum(map(view.lens.count, composed(view, start, stop, (), telling.memory)))
    cap = min(telling.max_tokens, room - room // 8)
    if cap <= 0:
        return Told(False, Ending("noop", "nothing but what stays anyway"))
    text, ending = yield from telling.summarizer(view, since, stop, cap)
    if not text.strip():
        return Told(False, ending)
    insert = composed(view, start, stop, (wrap_summary(text),), telling.memory)
    if sum(map(view.lens.count, insert)) >= hidden:
        return Told(False, Ending("rejected", "the summary is not smaller than what it stands for"))
    try:
        yield view.fold(start, stop, *insert, by=telling.by)
    except EditError as error:  # what stays holds calls and results that never paired (C3-6)
        return Told(False, Ending("rejected", str(error)))
    return Told(True, ending)


class _Settings(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


def spelled(strategy: _Settings) -> str:
    """A strategy's repr with every setting, functions by their names, so that it says the same in every process."""
    values = ((f.name, getattr(strategy, f.name)) for f in fields(strategy))
    shown = (
        f"{name}={value.__qualname__ if isinstance(value, FunctionType) else repr(value)}" for name, value in values
    )
    return f"{type(strategy).__name__}({', '.join(shown)})"
