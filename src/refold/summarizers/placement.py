"""How a summary replaces a span of messages: its role, and the messages that stay around it, such
as memory.

Messages that stay are always taken from the transcript, never from the view of an earlier
compaction (C3-1). If a placement is against the provider's rules, or does not fit the next message,
the plain one is used.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import chain
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from refold.core.strategy import Answer, Ask, Asking, Ending, Summarizer, Summary
from refold.core.tool_groups import latest_turn_start
from refold.core.view import View
from refold.edits import Edit
from refold.errors import EditError, as_names
from refold.messages import Message, Part, Text, Thinking, user
from refold.rules.pairing import any_ids
from refold.rules.request import is_sealed, is_signed, loads_of, may_open
from refold.rules.rule import Rules
from refold.speakers import Verbatim, find_verbatim, has_person, view_segments
from refold.summarizers.tail import count_shown
from refold.text.summary_wrapper import (
    ACK,
    CONTINUE,
    QUESTION,
    belongs_to_summary,
    beside_summary,
    without_summary,
    wrap_summary,
)

# --- memory ---------------------------------------------------------------------------------------
# Messages that survive compactions word for word.

MEMORY, MEMORY_END = "<memory>", "</memory>"
KOOG_TEXTS = ("Here are the relevant facts from memory", "Memory feature is not enabled")
"""Texts that mark koog's memory messages (S3-26)."""
MessageFilter = Callable[[Message], bool]


def remember(text: str) -> Message:
    """Return a user message tagged as memory, so that it survives compactions (S3-26)."""
    inside = text.replace(MEMORY_END, "<\\/memory>").strip()
    return user(f"{MEMORY}\n{inside}\n{MEMORY_END}")


@dataclass(frozen=True, slots=True)
class TaggedMemory:
    """A filter for messages tagged as memory: `<memory>` encloses their whole text. A message that
    only mentions or quotes the tag is not memory (C3-5)."""

    def __call__(self, message: Message) -> bool:
        """Return whether *message* is memory."""
        text = message.text.strip()
        return text.startswith(MEMORY) and text.endswith(MEMORY_END) and text.count(MEMORY_END) == 1


@dataclass(frozen=True, slots=True)
class MemoryContaining:
    """A filter for messages that contain one of *texts*, for memory without tags. Anybody who
    writes such a text into a message makes it memory, so prefer `TaggedMemory` (C3-5). Raises
    ValueError for anything but strings."""

    texts: Collection[str] = KOOG_TEXTS

    def __post_init__(self) -> None:
        object.__setattr__(self, "texts", as_names("texts", self.texts))

    def __call__(self, message: Message) -> bool:
        """Return whether one of the texts is in *message*."""
        return any(text in message.text for text in self.texts)


@dataclass(frozen=True, slots=True)
class TaggedOrBeginning:
    """A filter for messages tagged as memory, and those that begin with one of *texts*, as koog's
    do (S3-26). A message that only quotes such a text is not memory (C3-5). Raises ValueError for
    anything but strings."""

    texts: Collection[str] = KOOG_TEXTS

    def __post_init__(self) -> None:
        object.__setattr__(self, "texts", as_names("texts", self.texts))

    def __call__(self, message: Message) -> bool:
        """Return whether *message* is memory."""
        return TaggedMemory()(message) or message.text.lstrip().startswith(tuple(self.texts))


# --- messages that stay whole ---------------------------------------------------------------------


def whole_groups(view: View, positions: Iterable[int]) -> list[int]:
    """Return *positions* in order, each call or result with all of its tool group."""
    cuts = sorted(view.base.cuts)
    ends = {bisect_right(cuts, at) for at in positions}
    return sorted(at for end in ends for at in range(cuts[end - 1], cuts[end]))


def find_kept(view: View, start: int, stop: int, memory: MessageFilter | None) -> list[int]:
    """Return the positions in `messages[start:stop]` that stay whole, each with its tool group:
    system messages, the first request, content that only the provider can read, and memory
    (duplicates once)."""
    messages = view.transcript.messages
    chosen = {_find_first_request(view)} & set(range(start, stop))
    seen = set(messages[:start])
    for at in range(start, stop):
        own = beside_summary(messages, at)
        if own.parts and (
            own.role == "system"
            or is_sealed(own)
            or (memory is not None and memory(own) and own not in seen)
        ):
            chosen.add(at)
        seen.add(messages[at])
    return whole_groups(view, chosen)


def keep_loads(view: View, stop: int) -> Iterator[tuple[int, Message]]:
    """Yield the messages before *stop* that load or withdraw tools, unless a later message does the
    same, each after its position and reduced to these parts and their calls. If thinking must stay
    (`fixed`), the messages are whole."""
    messages, later = view.transcript.messages, set[str]()
    ids, changes = set[str](), set[tuple[int, Part]]()
    for at in range(len(messages) - 1, -1, -1):
        for part in messages[at].parts:
            loads = loads_of(part)
            if at < stop and not loads <= later:
                ids.update(filter(None, any_ids(part)))
                changes.add((at, part))
            later |= loads
    thinking, turn = view.profile.rules.thinking, latest_turn_start(messages)
    for at in whole_groups(view, {at for at, _ in changes}):
        beside = Thinking if thinking == "loop" and at >= turn else ()
        message = messages[at]
        chosen = [
            part
            for part in message.parts
            if (at, part) in changes or not ids.isdisjoint(any_ids(part))
        ]
        if thinking == "fixed":
            yield at, message
        elif chosen:
            parts = [part for part in message.parts if part in chosen or isinstance(part, beside)]
            yield at, replace(message, parts=tuple(parts))


def _find_first_request(view: View) -> int:
    """Return the position of a person's first message with role user, or -1."""
    roles = (message.role for message in view.transcript.messages)
    spoken = zip(roles, view_segments(view), strict=True)
    return next(
        (
            at
            for at, (role, segments) in enumerate(spoken)
            if role == "user" and has_person(segments)
        ),
        -1,
    )


# --- placements -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Placement:
    """How a summary is carried."""

    role: Literal["user", "assistant", "system"] = "user"
    """Role of the summary message. `system` only if roles need not alternate."""
    before: Literal["", "question", "first"] = ""
    """What precedes it: nothing, a user's question that it answers (S4-13), or the first request,
    word for word (S3)."""
    acknowledged: bool = False
    """Whether the assistant acknowledges it (S0-31), unless the assistant speaks next."""


PLACEMENTS: Mapping[str, Placement] = MappingProxyType(
    {
        "user": Placement(),
        "acknowledged": Placement(acknowledged=True),
        "system": Placement("system"),
        "answer": Placement("assistant", "question"),
        "after_first": Placement("assistant", "first"),
    }
)
"""The five placements in use, by name. `user` is the default. A summary in any of them is
recognised in a history that is sent back (`refold.text.summary_wrapper.belongs_to_summary`)."""


class Surroundings(NamedTuple):
    """The messages around a summary of `messages[start:stop]`."""

    start: int
    stop: int
    before: tuple[Message, ...]
    after: tuple[Message, ...]
    role: str = "user"
    """Role of the summary message."""
    omitted: int = 0
    """Number of texts that should stay word for word but found no room."""
    ends_view: bool = False
    """Whether nothing follows, so that the user has to speak last (C3-4)."""

    def around(self, *messages: Message) -> tuple[Message, ...]:
        """Return *messages* between the others, with a user's `CONTINUE` at the end if the user has
        to speak."""
        shown = (*self.before, *messages, *self.after)
        needs_user = (
            self.ends_view and shown and shown[-1].role == "assistant" and not shown[-1].calls
        )
        return (*shown, user(CONTINUE)) if needs_user else shown

    def around_summary(self, text: str) -> tuple[Message, ...]:
        """Return a summary with this *text* between the messages before and after it."""
        return self.around(wrap_summary(text, self.role))

    def tokens(self, view: View) -> int:
        """Return the tokens of the messages that stay, without those that carry the summary."""
        frame = self.around_summary("")
        stay = (message for at, message in enumerate(frame) if not belongs_to_summary(frame, at))
        return sum(map(view.profile.count, stay))


def keep_behind(
    view: View,
    stop: int,
    placement: Placement,
    pinned: Sequence[int] = (),
    stays: Verbatim | None = None,
) -> Surroundings:
    """Return the surroundings of a summary of `messages[:stop]` by *placement*. After it stay, word
    for word, the messages at *pinned* positions and those in *stays*: the current request if the
    fold would hide it, all instructions, the newest context of each kind (C1-9, C4-11; conformance
    8). Content that only the provider can read stays first: the provider ignores all before it.

    Never ends on the assistant when it is the model's turn (C4-11).
    """
    messages, rules = view.transcript.messages, view.profile.rules
    stays = find_verbatim(view, stop) if stays is None else stays
    first = _find_first_request(view)
    if (
        not 0 <= first < stop
        or messages[first].results
        or is_sealed(messages[first])
        or without_summary(messages[first]) != messages[first]
    ):
        first = -1
    placement = _allow_placement(placement, rules, has_request=first >= 0)
    asks_first = placement.before == "first" and first >= 0
    beside = dict(stays.messages) | {at: _for_another_place(messages[at], rules) for at in pinned}
    dialogue = [message for at, message in stays.dialogue if at not in beside]
    sealed = whole_groups(view, [at for at in pinned if is_sealed(messages[at])])
    opening = [message for at in sealed if (message := beside.pop(at)).parts]
    if opening and rules.alternate and not may_open(opening):
        opening.insert(0, user(QUESTION))
    if asks_first:
        head = [messages[first]]
        beside.pop(first, None)
    else:
        head = [user(QUESTION)] if placement.before == "question" else []
    after = [beside[at] for at in sorted(beside) if beside[at].parts]
    bridge = _make_bridge(placement, _find_next_speaker(view, stop, after))
    return Surroundings(
        0, stop, (*opening, *dialogue, *head), (*bridge, *after), placement.role, stays.omitted
    )


def keep_before(view: View, start: int, stop: int, memory: MessageFilter | None) -> Surroundings:
    """Return the surroundings of a summary of `messages[start:stop]`. System messages, the first
    request, memory and standing context stay before it in their order, the current request after
    it.

    Begins with the user if the provider requires it, and ends on the assistant only if somebody
    else speaks next (C3-4).
    """
    messages, rules = view.transcript.messages, view.profile.rules
    stays, is_memory = find_verbatim(view, stop), TaggedMemory()
    standing = ((at, m) for at, m in (*stays.dialogue, *stays.messages) if not is_memory(m))
    beside = {at: message for at, message in standing if at >= start}
    beside |= {at: messages[at] for at in find_kept(view, start, stop, memory)}
    moved = [(at, _for_another_place(beside[at], rules)) for at in sorted(beside)]
    request = stays.request - {_find_first_request(view)}
    before = tuple(message for at, message in moved if at not in request and message.parts)
    after = tuple(message for at, message in moved if at in request and message.parts)
    if not start and before and rules.alternate and not may_open(before):
        before, after = (), (*before, *after)
    return Surroundings(start, stop, before, after, ends_view=stop == len(messages))


def _for_another_place(message: Message, rules: Rules) -> Message:
    """Return a message without summaries and without thinking, which is bound to its place. What
    the rules call `fixed` or `loop` stays (AN-6), and unsigned thinking if they say `unsure`."""
    message = without_summary(message)
    has_thinking = any(isinstance(part, Thinking) for part in message.parts)
    if rules.thinking in ("fixed", "loop") or not has_thinking:
        return message
    if rules.thinking == "unsure" and not is_signed(message):
        return message
    parts = tuple(part for part in message.parts if not isinstance(part, Thinking))
    return Message(message.role, parts)


def _make_bridge(placement: Placement, next_speaker: str) -> Iterable[Message]:
    """Return the messages between a summary and the next speaker: a role, or `end` or `model` as in
    `_find_next_speaker`."""
    if placement.acknowledged and next_speaker in ("user", "end"):
        return (Message("assistant", (Text(ACK),)),)
    if placement.role == "assistant" and next_speaker in ("assistant", "model"):
        return (user(CONTINUE),)
    return ()


def _find_next_speaker(view: View, stop: int, after: Sequence[Message]) -> str:
    """Return who speaks after the summary, in *after* or the view: the user or the assistant. If
    neither does, return `model` when it is the model's turn, else `end`."""
    shown = (item.messages for item in view.iter_items() if item.start >= stop)
    roles = (message.role for message in chain(after, chain.from_iterable(shown)))
    if role := next((role for role in roles if role != "system"), ""):
        return role
    return "end" if view.transcript.messages[stop - 1].role == "assistant" else "model"


def _allow_placement(placement: Placement, rules: Rules, *, has_request: bool) -> Placement:
    """Return *placement*, or another one if it is against the rules or lacks what it needs."""
    if placement.role == "system" and (
        rules.alternate or rules.check((wrap_summary("x", "system"),))
    ):
        return Placement()
    lacks_question = not placement.before or (placement.before == "first" and not has_request)
    if placement.role == "assistant" and lacks_question:
        return Placement("assistant", "question")
    return placement


# --- the summary of a span ------------------------------------------------------------------------


class SpanResult(NamedTuple):
    """Whether an edit was proposed, and how the attempt ended."""

    is_proposed: bool
    ending: Ending | None = None


def set_field(summarizer: Any, name: str, value: object) -> Any:
    """Return a copy of *summarizer* with its field called *name* set to *value*; *summarizer*
    itself if it is no dataclass with such a field."""
    settings = fields(summarizer) if is_dataclass(summarizer) else ()
    has_field = any(field.name == name and field.init for field in settings)
    return replace(summarizer, **{name: value}) if has_field else summarizer


def tell_beside(summarizer: Summarizer, surroundings: Surroundings) -> Summarizer:
    """Return *summarizer* with the messages around its summary as `beside` (`set_field`). The
    result raises TypeError if the summarizer does not return a `Summary`."""
    write = set_field(summarizer, "beside", (*surroundings.before, *surroundings.after))

    def write_checked(view: View, start: int, stop: int, max_tokens: int) -> Asking[Summary]:
        run = write(view, start, stop, max_tokens)
        summary = (yield from run) if isinstance(run, Generator) else run
        if not (isinstance(summary, Summary) and isinstance(summary.text, str)):
            raise TypeError(
                "a summarizer is a generator that returns a Summary of a text, not "
                f"{summary!r:.80}: {write!r}"
            )
        return summary

    return write_checked


def summarize_span(
    view: View,
    surroundings: Surroundings,
    summarizer: Summarizer,
    max_tokens: int,
    by: str,
    since: int | None = None,
) -> Generator[Edit | Ask, Answer | None, SpanResult]:
    """Propose an edit, named *by*, that replaces a span with a summary in its *surroundings*.

    The summary message takes at most *max_tokens*. *since* is the start of the summarised messages,
    if later than the span's.
    """
    start, stop = surroundings.start, surroundings.stop
    shown = count_shown(view, start, stop)
    stay = surroundings.tokens(view)
    hidden = shown - stay
    cap = min(max_tokens, hidden - hidden // 8)
    if cap <= 0:
        return SpanResult(
            False, Ending("noop", f"nothing but what stays word for word: {stay} of {shown} tokens")
        )
    write = tell_beside(summarizer, surroundings)
    text, ending = yield from write(view, start if since is None else since, stop, cap)
    if not text.strip():
        return SpanResult(False, ending)
    insert = surroundings.around_summary(text)
    if sum(map(view.profile.count, insert)) >= shown:
        return SpanResult(
            False, Ending("rejected", "the summary is not smaller than what it stands for")
        )
    if (size := view.profile.count(wrap_summary(text))) > max_tokens:
        reason = f"the summary takes {size} tokens, and may take {max_tokens}"
        return SpanResult(False, Ending("rejected", reason))
    try:
        yield view.fold(start, stop, *insert, by=by)
    except EditError as error:  # a call and result among those that stay never paired (C3-6)
        return SpanResult(False, Ending("rejected", str(error)))
    if surroundings.omitted and ending is None:
        reason = f"texts that should stay word for word and found no room: {surroundings.omitted}"
        ending = Ending("degraded", reason)
    return SpanResult(True, ending)
