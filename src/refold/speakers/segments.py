"""Splitting a message into segments with one voice each, by shape and then by clients' wording.

Segments are needed because clients put their texts beside a person's, and a person's at the end of
a tool result. Work is linear in the length of the text.
"""

import re
from collections.abc import Container, Iterator, Sequence
from typing import NamedTuple

from refold.messages import Media, Message, Opaque, Text, ToolResult
from refold.speakers.carriers import (
    ABORTED,
    ASIDE,
    CALL_ID,
    ENVELOPE,
    EXIT_CODE,
    FILES_BEGIN,
    FILES_END,
    IN_RESULT,
    INSIDE_PREFIXES,
    NEW_TASK,
    NOTE,
    NOTES,
    ORDER,
    OUTPUT_MARKS,
    PART_FOLLOWS,
    PARTS_FOLLOW,
    PERSON,
    QUEUED,
    QUOTING_STATES,
    REMINDER,
    REQUEST_HEADING,
    RESUME_LINE,
    RETRY_MARKS,
    SELECTED,
    SKILL,
    STAMP,
    STAMP_CHARS,
    STEERING_CHARS,
    STEERING_END,
    STEERING_LINE,
    STEERING_WORDS,
    SUMMARY,
    SUMMARY_CHARS,
    SUMMARY_QUESTION,
    SUMMARY_WORDS,
    TAGS,
    TEMPLATE,
    TEMPLATES,
    TEXT_PREFIXES,
    TOOL,
    UNTRUSTED,
    Carrier,
    Voice,
    carrier_of_tag,
    find_speakers,
    has_queue,
    is_runtime,
    mark_sender,
    read_editor_text,
    read_envelope,
    read_framed_task,
    read_name,
    read_ran_command,
    read_sender,
    read_speaker,
)
from refold.text.clip import find_fences
from refold.text.plain import shorten_quoted
from refold.text.summary_wrapper import summary_in, without_summary

WRAPPED = 50
"""Minimum characters of a line that may have been wrapped."""
LIFTED = "(This stood at the end of a tool's result.)"
"""Prefix of words that were at the end of a tool result and now stand alone."""
NAME = 64
"""Maximum characters of a tag's name."""

_OPENING_TAG = re.compile(rf"<([A-Za-z_][\w.:-]{{0,{NAME}}})(\s[^<>\n]{{0,500}})?(/?)>")
_PAGE = re.compile(r"\s(?:class|style|href)=")
"""Attributes of HTML, which people paste and clients do not use around their words."""
_COMMON_TAGS = frozenset(
    ("system", "error", "output", "returncode", "env", "feedback", "notification", "task")
)
"""Tags that a person may write too: with other text around them, all of it is the person's."""
_CLIENT_TAGS = TAGS.keys() - _COMMON_TAGS
_QUOTING_TAGS = {tag for tag in _CLIENT_TAGS if TAGS[tag] in (TOOL, SELECTED)}.union(QUOTING_STATES)
"""Tags around tool output or files, whatever these begin or end with."""
_TRUSTED = frozenset(("person", "summary", "instruction"))
"""Voices that an element with an unknown tag cannot claim."""
_FIRST_TAG = re.compile(
    rf"^[ \t]{{0,40}}<([A-Za-z_][\w.:-]{{0,{NAME}}})(?:\s[^<>\n]{{0,500}})?>", re.MULTILINE
)
"""Opening tag at the beginning of a line, of any name: all known ones compile slowly."""
_CLOSING_TAG_AT_END = re.compile(rf"</([A-Za-z_][\w.:-]{{0,{NAME}}})>\s{{0,40}}\Z")
_NUMBER = re.compile(r"(?<![\w/.\\-])\d[\d.,:-]{0,40}(?![\w/\\])")

_TEXT_CARRIERS, _INNER_CARRIERS = dict(TEXT_PREFIXES), dict((*TEXT_PREFIXES, *INSIDE_PREFIXES))
"""Carriers by the first words of a whole text, and of the body of an element."""
_FIRST_WORDS = re.compile(
    f"^(?:{'|'.join(map(re.escape, (*_INNER_CARRIERS, STEERING_LINE)))})", re.MULTILINE
)
"""First words of a text, an element's body or a line."""
_FRAGMENT = re.compile(r"/[\w:-]*|\s{0,9}NO_REPLY\s{0,9}")
_SHELL_PROMPT = re.compile(
    r"\s*+\[?[\w.-]{1,40}@[\w.-]{1,80}[: ][^\s#$%]{0,200}(?:[#$]| %)(?: |\Z)|(?:PS )?[A-Z]:\\[^>\n]{0,200}>"
)
_LOGGED = re.compile(
    r"\s*+(?:(?:\W?\d{4}[-/]\d\d[-/]\d\d[T ]|\[)\d\d:\d\d:\d\d"
    r"|(?:TRACE|DEBUG|INFO|WARN|ERROR|FATAL): |\[(?i:trace|debug|info|warn(?:ing)?|error|fatal)\] "
    r"|npm (?i:warn|err!|error|notice)\s|\[[a-z][\w-]{0,40}(?::[\w./@-]{1,40})+\] "
    r"|(?:Uncaught )?[\w.$]{0,80}(?:Error|Exception): |Traceback \(|File \"[^\"\n]+\", line \d"
    r"|\S{1,300}\.\w{1,5}:\d+:\d+|at (?:async |new )?[^\s()]{1,300} ?\([^\s()]+\)\s*\Z|at \S+:\d+\s*\Z)"
)
"""Beginning of a line of a log or stack trace."""
_SENTENCE_ENDS = frozenset(".!?:;。！？：；")
_IMAGE_TAG = re.compile(r"</?image\b[^<>\n]{0,500}>")
"""Tags in texts of their own before and after an image (Codex)."""
_TEMPLATE_INPUT = re.compile(r"## User Input\n\n```text\n((?:(?!```)[^\n]*\n)*)```\s*")
_TYPED = re.compile(r"(?:<command-name>([^<]*)</command-name>\s*)?<command-args>\s*([^<\s][^<]*)</")
_HEADING = 120
"""Characters of a first line that distinguish kinds."""


class Segment(NamedTuple):
    """Part of a message in one voice."""

    voice: Voice
    text: str
    """Text with the client's wrapper; empty for media that are a request by themselves."""
    part: int
    """Index of the message part that it is in."""
    kind: str = ""
    """Subject of context or a summary; `TEMPLATE` for the text of a command or skill."""
    is_whole: bool = False
    """Whether it replaces earlier segments of its kind."""
    was_in_result: bool = False
    """Whether it was at the end of a tool result."""
    is_sure: bool = True
    """False if a person's text may also be a client's, such as one about summaries."""
    sender: str = ""
    """Name of the sender, if several people write."""


Spoken = tuple[Segment, ...]
"""Segments of one message, in order."""


def segments(message: Message) -> Spoken:
    """Split *message* into segments, in order.

    Assistant messages, tool results and Refold's summaries have none.
    """
    if message.role == "assistant":
        return ()
    if summary_in(message) is not None:
        message = without_summary(message)
    spoken = list[Segment]()
    for at, part in enumerate(message.parts):
        if isinstance(part, Text):
            sender = ""
            for text, carrier in _split_text(part.text, message.role):
                sender = read_sender(text) if carrier is ENVELOPE else sender
                segment = _make_segment(text, carrier, message.role, at)
                spoken.append(segment._replace(sender=sender * (segment.voice == "person")))
        elif isinstance(part, ToolResult):
            spoken += (
                Segment("person", text, at, was_in_result=True) for text in steering_texts(part)
            )
    if not spoken and message.role == "user" and not message.results:
        media = (at for at, part in enumerate(message.parts) if isinstance(part, Media | Opaque))
        spoken += (Segment("person", "", at) for at in media)
    quoted, kind = _find_quoted(message)
    if sender := message.sender and read_name(message.sender):
        spoken = [s._replace(sender=sender) if s.voice == "person" else s for s in spoken]
    return tuple(s._replace(voice="tool", kind=kind) if s.part in quoted else s for s in spoken)


def _find_quoted(message: Message) -> tuple[Container[int], str]:
    """Return the indexes of parts with the contents of a preceding result, or of files that a
    person names, and their kind. Without such parts, return an empty range."""
    texts = [
        part.text.strip() if isinstance(part, Text | ToolResult) else "" for part in message.parts
    ]
    if PARTS_FOLLOW in texts:
        return range(texts.index(PARTS_FOLLOW), len(texts)), ""
    heads = {at for at, text in enumerate(texts) if text.startswith(PART_FOLLOWS)}
    if heads and message.role == "user":
        return heads | {at + 1 for at in heads}, ""
    if FILES_BEGIN not in texts:
        return range(0), ""
    end = texts[::-1].index(FILES_END) if FILES_END in texts else 0  # a file may hold the mark
    return range(texts.index(FILES_BEGIN), len(texts) - end), SELECTED.kind


def steering_texts(result: ToolResult) -> list[str]:
    """Return a person's messages at the end of a tool result, with the client's wrapper, in order.
    They must be in a client's note that begins a line and has one closing tag. Other elements are
    tool output, whatever they say."""
    text = next((part.text for part in reversed(result.content) if isinstance(part, Text)), "")
    return [
        element
        for start, element in reversed(list(trailing_elements(text)))
        if element.startswith(NOTES)
        and text[max(0, start - 1) : start] in ("", "\n")
        and element.count(f"</{element[1:].partition('>')[0]}") == 1
        and is_steering(_element_body(element))
    ]


def own_words(segment: Segment) -> str:
    """Return a person's words without the client's wrapper, after `IN_RESULT` if from a result."""
    words = _without_wrapper(segment.text.removeprefix(LIFTED).strip())
    was_in_result = segment.was_in_result or segment.text.startswith(LIFTED)
    return IN_RESULT + words if was_in_result and words else words


def iter_requests(segment: Segment) -> Iterator[tuple[str, bool]]:
    """Yield a person's own words, with the sender if several write, and whether they are the text
    of a command or skill. The person's input to that text is yielded before it (Spec Kit)."""
    words, is_template = own_words(segment), segment.kind == TEMPLATE
    if given := _TEMPLATE_INPUT.match(words) if is_template else None:
        if given[1].strip(" \n") not in ("", "$ARGUMENTS"):
            yield given[1].strip(), False
        words = words[given.end() :]
    if words:
        yield mark_sender(segment.sender, words), is_template


def _without_wrapper(text: str) -> str:
    if text.startswith("<command-") and (command := _TYPED.search(text)):
        return f"{command[1] or ''} {command[2]}".strip()
    text = text.partition(REMINDER)[0].rstrip() if REMINDER in text else text
    if stamp := STAMP.search(text, max(0, len(text) - STAMP_CHARS)):
        text = text[: stamp.start()].rstrip()
    text = text[heading.end() :].strip() if (heading := REQUEST_HEADING.match(text)) else text
    match = _OPENING_TAG.match(text)
    if match and text.endswith(f"</{match[1]}>") and not _is_page(match):
        text = text[match.end() : -len(match[1]) - 3].strip()
    words, explained, _ = text.partition(STEERING_END)
    first, _, rest = words.partition("\n")
    return rest.strip() if explained and is_steering(first) else shorten_quoted(text)


def name_senders(spoken: Sequence[Spoken]) -> list[Spoken]:
    """Return the segments of each message with their senders; without senders if all are of one."""
    texts = [s.text for own in spoken for s in own if s.voice == "person" and not s.sender]
    if names := find_speakers(texts):
        spoken = [tuple(_name_speaker(s, names) for s in own) for own in spoken]
    if len({segment.sender for own in spoken for segment in own if segment.sender}) > 1:
        return [*spoken]
    return [tuple(s._replace(sender="") if s.sender else s for s in own) for own in spoken]


def _name_speaker(segment: Segment, names: Container[str]) -> Segment:
    is_named = segment.voice == "person" and (name := read_speaker(segment.text)) in names
    return segment._replace(sender=segment.sender or name) if is_named else segment


def without_numbers(text: str) -> str:
    """Remove numbers from *text*, so that another date, count or port makes no difference."""
    return _NUMBER.sub("", text)


def _make_segment(text: str, carrier: Carrier, role: str, at: int) -> Segment:
    if carrier.voice == "person" and role == "user":
        kind = TEMPLATE if text.lstrip().startswith(TEMPLATES) else carrier.kind
        is_sure = text.startswith("<command-") or not SUMMARY_WORDS.search(text[:SUMMARY_CHARS])
        was_in_result = text.startswith(NEW_TASK)  # it follows tool output, which can forge it
        return Segment("person", text, at, kind, was_in_result=was_in_result, is_sure=is_sure)
    kind = carrier.kind or _kind_by_heading(text)
    if carrier is SKILL:
        kind = f"{SKILL.kind} {_kind_by_heading(text)}"
    whole = carrier.is_whole and (
        not text.lstrip().startswith("<environment_context>") or "<cwd>" in text
    )
    return Segment(carrier.voice, text, at, kind, whole)


def _kind_by_heading(text: str) -> str:
    """Return a kind made of the tag and the first line inside, without numbers."""
    text = text.strip()
    opened = _OPENING_TAG.match(text)
    line = next(filter(str.strip, _element_body(text)[: 4 * _HEADING].splitlines()), "")
    return without_numbers(f"{opened[1] if opened else ''}: {line.strip()[:_HEADING]}")


# --- cutting a text -----------------------------------------------------------------------------


def _split_text(text: str, role: str) -> Iterator[tuple[str, Carrier]]:
    """Yield the segments of one text, which may hold several messages, with their carriers."""
    pieces = QUEUED.split(text)
    for piece in pieces if len(pieces) < 2 or has_queue(text) else [text]:
        yield from _split_message(piece, role)


def _split_message(text: str, role: str) -> Iterator[tuple[str, Carrier]]:
    bare = text.strip()
    if not bare:
        return
    if carrier := _carrier_of_text(bare, role):
        at = text.rfind(NEW_TASK) if carrier is TOOL else -1
        if at >= 0 and CALL_ID.sub("", bare, 1).startswith((*OUTPUT_MARKS, RETRY_MARKS[0])):
            yield text[:at], TOOL
            yield text[at:], PERSON
        else:
            yield text, carrier
        return
    if role == "user" and (framed := read_framed_task(text)):
        rows = zip(framed, (ORDER, PERSON, ORDER), strict=True)
        yield from ((piece, carrier) for piece, carrier in rows if piece.strip())
        return
    if role == "user" and (read := read_envelope(text) or read_editor_text(text)):
        yield read
        text = text[len(read[0]) :]
        if carrier := _carrier_of_text(text.strip(), role):
            yield text, carrier
            return
    spans = role == "user" and _find_untrusted(text)
    spans = spans or _spans_if_only_elements(text) or list(_find_marked_elements(text))
    at = 0
    for start, stop in spans:
        before, element = text[at:start], text[start:stop]
        if before.strip() == LIFTED:
            yield text[at:stop].strip(), _carrier_of_element(element)
            at = stop
            continue
        carrier = _carrier_of_element(element)
        if before.strip() and role == "user" and carrier is PERSON:
            yield before, NOTE  # the client introduces the person
        elif before.strip():
            yield from _split_outside_elements(before, role)
        yield element, carrier
        at = stop
    if text[at:].strip():
        yield from _split_outside_elements(text[at:], role)


def _carrier_of_text(bare: str, role: str) -> Carrier | None:
    """Return the carrier of a text if its first words, or its last line, decide it; else None."""
    if (call_id := CALL_ID.match(bare)) and not CALL_ID.match(bare, call_id.end()):
        return TOOL if _carrier_of_text(bare[call_id.end() :], role) is TOOL else None
    if bare.startswith(("<command-name>", "<command-message>")):
        return PERSON if _TYPED.search(bare) else ASIDE
    if _IMAGE_TAG.fullmatch(bare) or ABORTED.fullmatch(bare):
        return ASIDE
    if role != "user":
        return None
    is_output = bare.startswith(EXIT_CODE) and any(trailing_elements(bare))
    if read_ran_command(bare) or is_runtime(bare) or is_output:
        return TOOL
    if bare.startswith(RETRY_MARKS[0]) and RETRY_MARKS[1] in bare:
        return TOOL
    if carrier := _TEXT_CARRIERS.get(_first_words(f"{bare}\n")):
        return carrier  # also of empty output
    last = bare.rpartition("\n")[2]
    is_resumed = last.startswith(RESUME_LINE) and not last.endswith(">")  # else an element has it
    return SUMMARY if bare == SUMMARY_QUESTION or is_resumed else None


def _split_outside_elements(text: str, role: str) -> Iterator[tuple[str, Carrier]]:
    """Yield text outside of elements: a person's in the user role, else orders.

    Orders are split where known words begin a line.
    """
    if role == "user":
        yield text, PERSON
        return
    starts = sorted({0, *(match.start() for match in _FIRST_WORDS.finditer(text))})
    for start, stop in zip(starts, [*starts[1:], len(text)], strict=True):
        if (piece := text[start:stop]).strip():
            yield piece, _carrier_by_prefix(piece) or ORDER


def _carrier_of_element(text: str) -> Carrier:
    """Return the carrier of an element: by tag for quoting ones, else by body and then by tag.
    Unknown ones are context."""
    match = _OPENING_TAG.search(text)
    carrier = carrier_of_tag(match[1]) if match else NOTE
    if text.startswith(UNTRUSTED[0]):
        return SELECTED
    if carrier.voice == "person" or (match and match[1] in _QUOTING_TAGS):
        return carrier
    inside = _carrier_by_prefix(_element_body(text))
    is_client = match and match[1] in TAGS  # otherwise it may be of a page or file
    return inside if inside and (is_client or inside.voice not in _TRUSTED) else carrier


def _carrier_by_prefix(text: str) -> Carrier | None:
    """Return the carrier of a text by its first words, or None."""
    text = text.lstrip()
    return PERSON if is_steering(text) else _INNER_CARRIERS.get(_first_words(text))


def _first_words(text: str) -> str:
    """Return the known words at the beginning of *text*, or an empty string."""
    match = _FIRST_WORDS.match(text)
    return match[0] if match else ""


def is_steering(text: str) -> bool:
    """Return whether *text* is a client's report that a person wrote while the model worked."""
    text = text.lstrip()
    if carrier := _INNER_CARRIERS.get(_first_words(text)):
        return carrier.voice == "person"
    head = text[:STEERING_CHARS]
    return bool(STEERING_WORDS.search(head)) and not SUMMARY_WORDS.search(head)


def _element_body(element: str) -> str:
    """Return the body of an element; other text unchanged."""
    text = element.strip()
    match = _OPENING_TAG.match(text)
    end = text.rfind(f"</{match[1]}") if match else -1
    return text[match.end() : end].strip() if match and end >= match.end() else text


def _is_page(opening: re.Match[str]) -> bool:
    """Return whether an opening tag is HTML."""
    return bool(_PAGE.search(opening[2] or ""))


def _find_untrusted(text: str) -> list[tuple[int, int]]:
    """Return the span of content that a client marks as untrusted, up to its last end marker."""
    begin, end = text.find(UNTRUSTED[0]), text.rfind(UNTRUSTED[1])
    stop = text.find("\n", end)
    return [(begin, stop if stop >= 0 else len(text))] if 0 <= begin < end else []


def _spans_if_only_elements(text: str) -> list[tuple[int, int]]:
    """Return the spans of a text's elements; empty if it has other text or is HTML."""
    spans, at, end = list[tuple[int, int]](), 0, len(text.rstrip())
    while at < end:
        while text[at].isspace():
            at += 1
        opening = _OPENING_TAG.match(text, at)
        if not opening or _is_page(opening) or (stop := _element_end(text, opening)) < 0:
            return _spans_to_the_end(text, spans)
        spans.append((at, stop))
        at = stop
    return spans


def _spans_to_the_end(text: str, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the spans up to the element that ends with the text, which may contain its own closing
    tag. Return none if no element with an unknown tag ends there."""
    closing = _CLOSING_TAG_AT_END.search(text, max(0, len(text.rstrip()) - NAME - 40))
    if not closing or closing[1] in TAGS:
        return []
    begins = f"<{closing[1]}>", f"<{closing[1]} "
    place = next((at for at, (start, _) in enumerate(spans) if text.startswith(begins, start)), -1)
    return [*spans[:place], (spans[place][0], len(text))] if place >= 0 else []


def _find_marked_elements(text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of closed elements with known tags at the beginning of a line."""
    at, missing = 0, set[str]()
    while opening := _FIRST_TAG.search(text, at):
        is_mark = opening[1] in _CLIENT_TAGS and opening[1] not in missing
        stop = _element_end(text, opening) if is_mark else -1
        if stop < 0:
            missing.add(opening[1])
            at = opening.end()
        else:
            yield opening.start(), stop
            at = stop


def _element_end(text: str, opening: "re.Match[str]") -> int:
    """Return the end of an element, or -1 if it is open. One with tool output ends at its last
    closing tag, since the output may contain others; a client's note ends before the next one."""
    if opening.re is _OPENING_TAG and opening[3]:
        return opening.end()
    tag, begin = opening[1], opening.end()
    close = text.find(f"</{tag}", begin)
    if tag in _QUOTING_TAGS or TAGS.get(tag) is NOTE:
        following = text.find(f"\n<{tag}>", begin) if tag not in _QUOTING_TAGS else -1
        until = following if following >= 0 else len(text)
        close = max(close, text.rfind(f"</{tag}", begin, until))
    stop = text.find(">", close, close + NAME + 500) if close >= 0 else -1
    return stop + 1 if stop >= 0 else -1


def trailing_elements(text: str) -> Iterator[tuple[int, str]]:
    """Yield the start and text of the elements at the end of a text, last first."""
    end = len(text)
    while end and (closing := _CLOSING_TAG_AT_END.search(text, max(0, end - NAME - 40), end)):
        start = text.rfind(f"<{closing[1]}", 0, closing.start())
        if start < 0:
            return
        yield start, text[start:end].strip()
        end = start


def is_fragment(text: str) -> bool:
    """Return whether a text has no content: a client's command or its beginning (`/the`), or the
    model's silent reply (OpenClaw)."""
    return bool(_FRAGMENT.fullmatch(text))


def read_typed(text: str) -> str:
    """Return what a user typed rather than pasted, each sentence on one line. Fenced blocks,
    quotes, log lines, shell sessions and elements with attributes (`<file name="a.csv">`) become
    empty blocks, since instructions in them are no rules for this work."""
    lines = _without_elements(text).splitlines()
    pasted = {at for fence in find_fences(lines) for at in fence}
    if prompts := [at for at, line in enumerate(lines) if _SHELL_PROMPT.match(line)]:
        has_ended = _SHELL_PROMPT.fullmatch(lines[prompts[-1]])
        pasted |= {*range(prompts[0], prompts[-1] + 1 if has_ended else len(lines))}
    pasted |= {at for at, line in enumerate(lines) if line.lstrip().startswith(">")}
    pasted.update(_find_logged(lines))
    typed = ("```\n```" if at in pasted else line for at, line in enumerate(lines))
    return _unwrap_lines("\n".join(typed))


def _find_logged(lines: Sequence[str]) -> Iterator[int]:
    """Yield the indexes of log and trace lines, and of lines between two of them in a paragraph."""
    start = -1
    for at, line in enumerate(lines):
        if _LOGGED.match(line):
            yield from range(at if start < 0 else start, at + 1)
            start = at + 1
        elif not line.strip():
            start = -1


def _without_elements(text: str) -> str:
    """Replace each element with attributes by an empty block."""
    pieces, at, missing = list[str](), 0, set[str]()
    for opening in _OPENING_TAG.finditer(text):
        if opening.start() < at or "=" not in (opening[2] or "") or opening[1] in missing:
            continue
        if (stop := _element_end(text, opening)) < 0:
            missing.add(opening[1])
            continue
        pieces += (text[at : opening.start()], "\n```\n```\n")
        at = stop
    return "".join((*pieces, text[at:]))


def _unwrap_lines(text: str) -> str:
    """Join a line that begins small to a long one that ends in mid-sentence: it was wrapped."""
    pieces, is_open = list[str](), False
    for line in text.splitlines():
        begins = line.lstrip()[:1]
        pieces.append(f" {line.strip()}" if is_open and begins.islower() else f"\n{line.rstrip()}")
        is_open = len(line) >= WRAPPED and line.rstrip()[-1:] not in _SENTENCE_ENDS
    return "".join(pieces)
