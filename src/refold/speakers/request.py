"""Who says what in a conversation, which part is the current request, and what stays verbatim when
messages are hidden."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, groupby, pairwise
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

from refold.codecs.detect import open_payload
from refold.core.profile import CountedTranscript
from refold.core.view import View
from refold.errors import FormatError
from refold.messages import Media, Message, Opaque, Text, Thinking, ToolCall, ToolResult
from refold.speakers.carriers import (
    DIRECTIVE,
    ENDING_TOOLS,
    ENDING_WORDS,
    EXPANDED,
    NEW_TASK,
    REPORTS,
    REQUEST_CONTEXT_KINDS,
    REQUEST_HEADINGS,
    SKILL,
    SKILL_RESULT,
    TEMPLATE,
    TEXT_PREFIXES,
)
from refold.speakers.segments import (
    LIFTED,
    Segment,
    Spoken,
    is_steering,
    name_senders,
    own_words,
    segments,
    without_numbers,
)
from refold.text.clip import gap
from refold.text.json_values import first_text, parse_or_none
from refold.text.plain import count_columns
from refold.text.summary_wrapper import CONTINUE, QUESTION, belongs_to_summary, without_summary
from refold.tokens.count import Counter as TokenCounter

Segmented = Sequence[Spoken]
"""Segments of each message."""
SpokenAt = dict[int, Spoken]
"""Segments by message position."""
SegmentFilter = Callable[[Segment], bool]
CARRIERS = frozenset({QUESTION, CONTINUE})
"""User messages added beside a summary."""
PERSON_PREFIXES = tuple(words for words, carrier in TEXT_PREFIXES if carrier.voice == "person")
STARTS = 80
"""Characters that are searched for a text's first words."""
_FOLDER = re.compile(r"<cwd>([^<\n]{2,400})</cwd>")
"""Working directory reported by a client (Codex)."""
OUTPUT_LABEL = re.compile(r"\s{0,9}\[(\w{1,80})(?: for [\s\S]{0,20000}?)?\] Result:(\s*\Z)?")
"""Label with the tool's name before a call's output, which may be in the next text (Cline, Roo
Code). A person may write the same, so the call must come directly before."""
LABELED_SHARE = 2 / 3
"""Minimum fraction of the texts after a task that share the label of an unknown client."""


def view_segments(view: View) -> Segmented:
    """Return the segments of each message of a view's transcript; known ones are cached."""
    return view.base.compute_once(_segment_transcript)


def _segment_transcript(base: CountedTranscript) -> Segmented:
    return _apply_labels(base.transcript.messages, base.map_cached(label_segments))


def segment_messages(messages: Sequence[Message]) -> Segmented:
    """Return the segments of each of *messages*.

    If there are no tool results, and most texts after the first begin with the same line that ends
    with a colon, those are tool output. Clients label texts like this, and persons rarely do.
    """
    return _apply_labels(messages, list(map(label_segments, messages)))


class LabeledSegments(NamedTuple):
    """Segments of a message that was read by itself."""

    spoken: Spoken
    labels: tuple[str, ...]
    """First lines of a person's texts that may be a client's labels."""


def label_segments(message: Message) -> LabeledSegments:
    """Segment a message by itself."""
    spoken = segments(message)
    return LabeledSegments(spoken, tuple(filter(None, map(_label, spoken))))


def _apply_labels(messages: Sequence[Message], labeled: Sequence[LabeledSegments]) -> Segmented:
    """Return the segments of each message. Those under a client's label become tool output, and
    those of messages that carry a summary are removed."""
    labels = _find_client_labels(messages, labeled)
    segmented, skills = name_senders([spoken for spoken, _ in labeled]), set[str]()
    is_launched = False
    for at, (spoken, (_, own)) in enumerate(zip(segmented, labeled, strict=True)):
        for part in messages[at].parts:
            if isinstance(part, ToolCall) and part.name.lower() == "skill":
                skills.add(part.id)
            elif isinstance(part, ToolResult) and part.text.startswith(SKILL_RESULT):
                is_launched = part.id in skills
        if messages[at].role == "assistant":
            is_launched = False
        elif is_launched and spoken:  # only the text directly after it
            segmented[at], is_launched = (_as_skill(spoken[0]), *spoken[1:]), False
        elif spoken and spoken[0].text in CARRIERS and belongs_to_summary(messages, at):
            segmented[at] = ()
        elif not labels.isdisjoint(own):
            segmented[at] = tuple(
                segment._replace(voice="tool") if _label(segment) in labels else segment
                for segment in spoken
            )
    _mark_templates(messages, segmented)
    _mark_outputs(messages, segmented)
    return segmented


def _mark_outputs(messages: Sequence[Message], segmented: list[Spoken]) -> None:
    """Mark output under the label of a call directly before it, native or written as text."""
    for at, (before, message) in enumerate(pairwise(messages), 1):
        is_under, marked = False, list[Segment]()
        names = {part.name for part in before.parts if isinstance(part, ToolCall)}
        is_answered = before.role == "assistant" != message.role
        for _, group in groupby(segmented[at] if is_answered else (), attrgetter("part")):
            first, *rest = group
            label = OUTPUT_LABEL.match(first.text)
            is_call = label and (label[1] in names or f"<{label[1]}>" in before.text)
            is_alone = bool(is_call and label and label[2] is not None and not rest)
            is_answer = is_call and label and label[1] in ENDING_TOOLS  # by the person
            is_output = is_under or (is_call and (is_alone or not is_answer))
            marked += map(_as_output, (first, *rest)) if is_output else (first, *rest)
            is_under = is_alone and not is_answer
        segmented[at] = tuple(marked) or segmented[at]


def _as_output(segment: Segment) -> Segment:
    """Return a segment under the label of a call as tool output. A person's element stays, marked
    as lifted, and so do the client's environment details."""
    if _is_person(segment) and segment.text.lstrip().startswith("<"):
        return segment._replace(was_in_result=True)
    return segment if segment.kind == "environment_details" else segment._replace(voice="tool")


def _mark_templates(messages: Sequence[Message], segmented: list[Spoken]) -> None:
    """Mark a person's text directly after a command as the text that replaces the command."""
    is_expanded = False
    for at, message in enumerate(messages):
        is_expanded = is_expanded and message.role != "assistant"
        for place, segment in enumerate(segmented[at]):
            if segment.text[:STARTS].lstrip().startswith(EXPANDED):
                is_expanded = True
            elif is_expanded and segment.voice in ("person", "tool"):  # it printed something
                is_expanded = False
                if _is_person(segment) and not _is_steered(segment):
                    marked = segment._replace(kind=TEMPLATE)
                    segmented[at] = (*segmented[at][:place], marked, *segmented[at][place + 1 :])


def _as_skill(segment: Segment) -> Segment:
    """Return the text that a client sends after a skill call as a tool's instead of a person's."""
    if segment.voice != "person" or _is_steered(segment):
        return segment
    return segment._replace(voice="tool", kind=TEMPLATE)


def _is_steered(segment: Segment) -> bool:
    return segment.was_in_result or is_steering(segment.text)


def _find_client_labels(
    messages: Sequence[Message], labeled: Sequence[LabeledSegments]
) -> frozenset[str]:
    """Return the labels under which a client without tool results sends tool output. The first text
    begins otherwise, and most texts after it with the label."""
    counts = Counter(chain.from_iterable(own for _, own in labeled))
    repeated = {label for label, count in counts.items() if count > 1}
    if not repeated or any(message.results for message in messages):
        return frozenset()
    first, *later = (own for spoken, own in labeled if has_person(spoken))
    least = max(2.0, LABELED_SHARE * len(later))
    return frozenset(label for label in repeated.difference(first) if counts[label] >= least)


def _label(segment: Segment) -> str:
    """Return the first line of a person's text if a colon ends it and more follows, else ""."""
    text = segment.text.lstrip()
    if not _is_person(segment) or segment.was_in_result or is_steering(text) or _is_marked(text):
        return ""
    line, _, rest = text[:400].partition("\n")
    return line.rstrip() if rest.strip() and line.rstrip().endswith((":", "：")) else ""


def _is_marked(text: str) -> bool:
    """Return whether a text is an element, or marked by a client as a person's."""
    return text.startswith(("<", *REQUEST_HEADINGS, *PERSON_PREFIXES)) or NEW_TASK in text


# --- persons and their words ----------------------------------------------------------------------


def is_request(message: Message) -> bool:
    """Return whether a person speaks in a message of the user role."""
    return message.role == "user" and has_person(segments(message))


def has_person(spoken: Sequence[Segment]) -> bool:
    """Return whether a segment is a person's."""
    return any(map(_is_person, spoken))


def is_report(message: Message) -> bool:
    """Return whether a user message is only output of a command that the model wrote as text."""
    if message.role != "user" or not message.text.lstrip().startswith(REPORTS):
        return False
    return all(segment.voice == "tool" for segment in segments(message))


def request_text(message: Message) -> str:
    """Return the person's own words in *message*, without the client's wrapper; empty if there are
    none, as in an assistant message."""
    own = map(own_words, filter(_is_person, segments(message)))
    return "\n\n".join(filter(None, own))


def first_request(payload: Any, format: str) -> str:
    """Return the first words of a person in a conversation, preferably other than a slash command.
    Return an empty string if there are none or the payload cannot be read."""
    with suppress(FormatError):
        spoken = segment_messages(open_payload(payload, format).decode())
        words = [own_words(s) for segments in spoken for s in segments if _is_person(s)]
        requests = (text for text in words if text and not text.startswith("/"))
        return next(chain(requests, words), "")
    return ""


def find_folder(spoken: Segmented) -> str:
    """Return the working directory that a client reports, without a slash at its end; empty if it
    reports none or several."""
    folders = {
        folder[1].rstrip("/\\")
        for segments in spoken
        for segment in segments
        if segment.voice == "context" and (folder := _FOLDER.search(segment.text))
    }
    return folders.pop() if len(folders) == 1 else ""


def dialogue_share(messages: Sequence[Message], spoken: Segmented) -> float:
    """Return the number of a person's messages per assistant message, at most 1: 1 in a chat, near
    0 if the model works with tools, 0 without assistant messages. *spoken*, the segments, may
    extend beyond *messages*."""
    answers = sum(message.role == "assistant" for message in messages)
    people = sum(map(has_person, spoken[: len(messages)]))
    return min(1.0, people / answers) if answers else 0.0


def view_dialogue_share(view: View) -> float:
    """Return the `dialogue_share` of a view's transcript."""
    return view.base.compute_once(_share_dialogue)


def _share_dialogue(base: CountedTranscript) -> float:
    return dialogue_share(base.transcript.messages, base.compute_once(_segment_transcript))


# --- the current request --------------------------------------------------------------------------


def current_request(messages: Sequence[Message], spoken: Segmented) -> SpokenAt:
    """Return the current request by position: a person's words since the last finished turn.

    If no text is surely a person's, uncertain ones are used. The newest text of unknown origin is
    used if there are none, and is added if a turn ended after them. Steering adds to a request.
    """
    open_request = _open_request(messages, spoken, _is_surely_person)
    open_request = open_request or _open_request(messages, spoken, _is_person)
    if not open_request:
        return _newest_text(
            messages, spoken, (is_unknown_context, lambda segment: segment.voice != "summary")
        )
    newest = _newest_text(messages, spoken, (is_unknown_context,), max(open_request) + 1)
    begun = any(
        messages[at].role == "assistant" and _ends_turn(messages, at)
        for at in range(max(open_request), max(newest, default=0))
    )
    return open_request | newest if begun else open_request


def _open_request(
    messages: Sequence[Message], spoken: Segmented, is_own: SegmentFilter
) -> SpokenAt:
    request, seen = SpokenAt(), set[str]()
    for at in reversed(range(len(messages))):
        if messages[at].role == "assistant":
            if request and _ends_turn(messages, at):
                break
            continue
        own = list[Segment]()
        for segment in filter(is_own, spoken[at]):
            if not segment.text or segment.text not in seen:  # nothing later repeats it
                own.append(segment)
                seen.add(segment.text)
        if own:
            request[at] = tuple(own)
    return request


def _newest_text(
    messages: Sequence[Message], spoken: Segmented, picks: Sequence[SegmentFilter], first: int = 0
) -> SpokenAt:
    """Return the newest text of the user role from *first* on that one of *picks* accepts, tried in
    turn, with other accepted segments of the same part."""
    for fits in picks:
        for at in reversed(range(first, len(messages))):
            if messages[at].role == "user" and (own := tuple(filter(fits, spoken[at]))):
                return {at: tuple(segment for segment in own if segment.part == own[-1].part)}
    return {}


def _is_person(segment: Segment) -> bool:
    return segment.voice == "person"


def _is_surely_person(segment: Segment) -> bool:
    return _is_person(segment) and segment.is_sure


def is_unknown_context(segment: Segment) -> bool:
    """Return whether a segment is context that does not replace earlier context of its kind."""
    return segment.voice == "context" and not segment.is_whole


def _ends_turn(messages: Sequence[Message], at: int) -> bool:
    """Return whether the assistant messages up to *at* end a turn: they say something, call nothing
    but ending tools, and no assistant message follows."""
    if at + 1 < len(messages) and messages[at + 1].role == "assistant":
        return False
    speaks = False
    while at >= 0 and messages[at].role == "assistant":
        if not is_final(messages[at]):
            return False
        speaks = speaks or any(not isinstance(part, Thinking) for part in messages[at].parts)
        at -= 1
    return speaks


def is_final(message: Message) -> bool:
    """Return whether an assistant message calls nothing but ending tools."""
    calls = (part for part in message.parts if isinstance(part, ToolCall))
    return all(call.name in ENDING_TOOLS for call in calls)


def answer_text(message: Message) -> str:
    """Return the model's words in a message, including those in a call that ends its turn, without
    directives to a gateway."""
    calls = (part for part in message.parts if isinstance(part, ToolCall))
    values = [parse_or_none(call.arguments) for call in calls if call.name in ENDING_TOOLS]
    texts = (first_text(values, key) for key in ENDING_WORDS)
    text = "\n".join(filter(None, (message.text, next(filter(None, texts), ""))))
    return DIRECTIVE.sub("", text)


# --- words that stay when messages are hidden -----------------------------------------------------


UNKNOWN_SHARE = 5
"""Divisor of the room for context of unknown kinds and skills of earlier requests, newest first."""
SHORT = 40
"""Columns below which a request may mean nothing without the answer before it: `go on`."""
ANSWER, LONG_ANSWER = (8, 400), (4, 1_500)
"""Divisor of the room and maximum tokens for that answer; the latter before a short request."""
LEAST_ANSWER = 60
"""Minimum tokens of a cut answer; with less room it is left out."""
EXAMPLE = "example"
"""Kind of orders in the form of a dialogue, whose answers belong to them."""


class Verbatim(NamedTuple):
    """Messages shown verbatim beside a summary."""

    messages: tuple[tuple[int, Message], ...] = ()
    """Positions and messages, in transcript order."""
    dialogue: tuple[tuple[int, Message], ...] = ()
    """Orders in the form of a dialogue with their answers, shown before a summary."""
    request: frozenset[int] = frozenset()
    """Positions of the current request and the answer before it."""
    omitted: int = 0
    """Number of segments without room: steering after the task, or context of unknown kinds."""


def find_verbatim(
    view: View, stop: int, room: int | None = None, *, with_answer: bool = False
) -> Verbatim:
    """Return what stays verbatim of `messages[:stop]` when it is hidden.

    That is the current request, all orders, and the newest context of each kind. *with_answer* adds
    the answer before an open request, shortened to its two ends if long. If the request has many
    messages, those between the first (the task) and the newest, and all from tool results, take at
    most *room* tokens (default: half of the view), newest first. Editor context of the request gets
    what they leave. Context of unknown kinds and skills of earlier requests get at most a fifth of
    the room. Texts of people or clients without room are counted.
    """
    messages, spoken = view.transcript.messages, view_segments(view)
    room = view.estimate // 2 if room is None else max(0, room)
    asked = {} if _is_over(messages, stop) else current_request(messages, spoken)
    request_room, omitted = _TokenRoom(view.profile.count, room), 0
    context_room = _TokenRoom(view.profile.count, room // UNKNOWN_SHARE)
    chosen = dict[int, list[Segment]]()
    for at in sorted((at for at in asked if at < stop), reverse=True):
        stays = at == min(asked) or (at == max(asked) and not asked[at][0].was_in_result)
        if not stays and not request_room.takes(asked[at]):
            omitted += len(asked[at])
        else:
            chosen[at] = list(asked[at])
    for at in sorted(chosen, reverse=True):
        in_editor = [segment for segment in spoken[at] if segment.kind in REQUEST_CONTEXT_KINDS]
        if in_editor and request_room.takes(in_editor):
            chosen[at] += in_editor
    first = min(asked, default=len(messages))
    for at, segment in _iter_standing(spoken):  # later messages replace earlier context too
        if at >= stop or segment in chosen.get(at, ()):
            continue
        is_over = at < first and segment.kind.startswith(SKILL.kind)
        if (is_over or is_unknown_context(segment)) and not context_room.takes((segment,)):
            omitted += 1
        else:
            chosen.setdefault(at, []).append(segment)
    reduced = {at: _reduce_message(messages[at], own) for at, own in sorted(chosen.items())}
    examples = {at for at, own in chosen.items() if any(segment.kind == EXAMPLE for segment in own)}
    beside = tuple((at, message) for at, message in reduced.items() if at not in examples)
    dialogue = [(at, reduced[at]) for at in examples]
    answers = (at + 1 for at in examples if at + 1 < stop)
    dialogue += [(at, messages[at]) for at in answers if _is_answer(messages[at])]
    request = frozenset(asked) & chosen.keys()
    is_open = with_answer and not _is_answer(messages[-1])
    at = _find_answer(messages, min(asked, default=0)) if is_open else -1
    if 0 <= at < stop and (answer := _cut_answer(messages[at], asked, room, view.profile.count)):
        beside = tuple(sorted((*beside, (at, answer)), key=itemgetter(0)))
        request |= {at}
    return Verbatim(beside, tuple(sorted(dialogue, key=itemgetter(0))), request, omitted)


def _find_answer(messages: Sequence[Message], at: int) -> int:
    """Return the position of the answer before a request at *at*, or -1."""
    at -= 1
    while at >= 0 and messages[at].role != "assistant":
        at -= 1
    return at if at >= 0 and _ends_turn(messages, at) else -1


def _cut_answer(
    message: Message, asked: Mapping[int, Sequence[Segment]], room: int, count: TokenCounter
) -> Message | None:
    """Return the answer before the request *asked*, without its middle if it exceeds its share of
    *room* tokens; None if it is empty, or too little of it fits."""
    words = "\n".join(own_words(segment) for own in asked.values() for segment in own)
    parts, most = LONG_ANSWER if count_columns(words, SHORT) < SHORT else ANSWER
    most = min(most, room // parts)
    text = answer_text(message).strip()
    answer = Message("assistant", (Text(text),))
    tokens = count(answer)
    if not text or (tokens > most and most < LEAST_ANSWER):
        return None
    if tokens <= most:
        return answer
    start, stop = gap(text, len(text) * most // tokens)
    mark = f"\n[… {stop - start} characters …]\n"
    return Message("assistant", (Text(text[:start] + mark + text[stop:]),))


@dataclass(slots=True)
class _TokenRoom:
    """Remaining tokens."""

    count: TokenCounter
    remaining: int

    def takes(self, spoken: Sequence[Segment]) -> bool:
        """Subtract the tokens of segments and return whether they fit; if not, none fit later."""
        texts = (Message("user", (Text(segment.text),)) for segment in spoken)
        self.remaining -= sum(map(self.count, texts))
        return self.remaining >= 0


def _is_answer(message: Message) -> bool:
    return message.role == "assistant" and is_final(message)


def _iter_standing(spoken: Segmented) -> Iterator[tuple[int, Segment]]:
    """Yield orders and context that no later segment repeats or replaces, with message positions,
    latest first."""
    states, bodies = set[str](), set[str]()
    for at in reversed(range(len(spoken))):
        for segment in reversed(spoken[at]):
            is_order = segment.voice == "instruction"
            if segment.voice in ("person", "tool") or (not is_order and segment.kind in states):
                continue
            if segment.is_whole:
                states.add(segment.kind)
            body = segment.text if is_order else without_numbers(segment.text)
            if body not in bodies:
                bodies.add(body)
                yield at, segment


def _reduce_message(message: Message, chosen: Sequence[Segment]) -> Message:
    """Return the chosen segments of *message*; the same object if that is all of it."""
    message = without_summary(message)
    by_part = dict[int, list[Segment]]()
    for segment in sorted(chosen, key=lambda segment: segment.part):
        by_part.setdefault(segment.part, []).append(segment)
    asks = has_person(chosen)
    parts = list[Text | Media | Opaque]()
    for at, part in enumerate(message.parts):
        if isinstance(part, Media) or (
            isinstance(part, Opaque) and not part.opens and not part.closes
        ):
            parts += [part] if asks or not message.text else []
        elif at in by_part:
            parts += _reduce_part(part.text if isinstance(part, Text) else "", by_part[at])
    reduced = Message("user" if message.results else message.role, tuple(parts))
    return message if reduced == message else reduced


def _reduce_part(whole: str, chosen: Sequence[Segment]) -> list[Text]:
    """Return the chosen text of one part, in its order."""
    ordered = sorted(chosen, key=lambda segment: whole.find(segment.text))
    texts = [
        f"{LIFTED}\n{segment.text}" if segment.was_in_result else segment.text
        for segment in ordered
    ]
    as_said = len("".join("".join(texts).split())) == len("".join(whole.split()))
    return [Text(whole)] if as_said else [Text("\n\n".join(text.strip("\n") for text in texts))]


def _is_over(messages: Sequence[Message], stop: int) -> bool:
    """Return whether *stop* is the end and the model has answered everything."""
    return stop == len(messages) and bool(stop) and _is_answer(messages[-1])
