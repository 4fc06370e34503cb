"""Messages, views and diffs as lines of text, a view as HTML, and the breakdown of its tokens."""

import json
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from html import escape
from itertools import accumulate, chain, filterfalse, groupby
from math import inf
from typing import TYPE_CHECKING, Literal, NamedTuple
from unicodedata import east_asian_width

from refold.core.tool_groups import match_calls
from refold.edits import Edit
from refold.messages import (
    Content,
    Media,
    Message,
    Opaque,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from refold.text.clip import one_line
from refold.text.json_values import parse_or_none, parse_or_text, text_at
from refold.text.plain import IMPORT, PATHS, SUBJECTS, arguments_of
from refold.tokens.count import count_fixed, part_counter

if TYPE_CHECKING:
    from refold.core.profile import ViewItem
    from refold.core.view import View

# --- words and lines ------------------------------------------------------------------------------

LineKind = Literal[
    "text", "user", "assistant", "tool", "system", "edit", "note",
    "call", "result", "error", "thinking", "media", "hunk", "removed", "added",
]  # fmt: skip
"""Kind of a line: text, heading of a message by role or of an edit, note of Refold, part, diff
line."""

WORDS = {
    "ClearThinking": "old thinking cleared",
    "ClearToolInputs": "old tool calls shortened",
    "ClearToolResults": "old tool results cleared",
    "ClipResults": "long tool results clipped",
    "DropDuplicates": "repeated tool results dropped",
    "OutlineResults": "long tool results outlined",
    "KeepImportant": "less important messages summarised",
    "RetrieveFacts": "facts in place of messages",
    "settle": "signed thinking dropped",
    "as said": "sent unchanged",
    "Restore": "message restored",
}
"""Descriptions of edits other than summaries, by the name of their strategy."""
SUMMARIZERS = {"RuleSummary": "rules", "ModelSummary": "a model", "FactSummary": "facts"}
SUMMARIZER = re.compile("|".join(SUMMARIZERS))


class ViewLine(NamedTuple):
    """A line of text."""

    text: str
    kind: LineKind = "text"


def describe_strategy(by: str) -> str:
    """Return a description of an edit's *by*: for an unknown strategy its name, for an empty *by*
    `edited by hand`."""
    by = by.removeprefix("decided (")  # the gateway made the strategy's edit again
    name = by.partition("(")[0].strip()
    if name in WORDS:
        return WORDS[name]
    if writers := SUMMARIZER.findall(by):  # the first: another one behind it is its fallback
        return f"summary by {SUMMARIZERS[writers[0]]}"
    return name or "edited by hand"


def span_text(start: int, stop: int) -> str:
    """Return a range of positions as text: `#3`, `#3-7`."""
    return f"#{start}" if stop == start + 1 else f"#{start}-{stop - 1}"


def speaker(message: Message) -> str:
    """Return the speaker: the role, or `tool` for a message that holds only results."""
    has_only_results = all(isinstance(part, ToolResult) for part in message.parts)
    return "tool" if message.parts and has_only_results else message.role


def path_of(call: ToolCall) -> str:
    """Return the path of the file that a call names, or an empty string."""
    arguments = arguments_of(call)
    return next(filter(None, (text_at(arguments, key) for key in PATHS)), "")


def call_gist(call: ToolCall, size: int = 60) -> str:
    """Return the subject of a call, such as a path, in one line of at most *size* characters; empty
    if no argument has one."""
    return one_line(next(_subjects(call), ""), size)


def call_title(call: ToolCall) -> str:
    """Return tool and subject of a call in one line: `read src/app.py`, or `call` without both."""
    return f"{call.name} {call_gist(call)}".strip() or "call"


def _subjects(call: ToolCall) -> Iterator[str]:
    value = parse_or_text(call.arguments)
    arguments, text = (value, ()) if isinstance(value, dict) else ({}, (call.arguments,))
    preferred = (arguments[key] for key in SUBJECTS if key in arguments)
    for value in chain(preferred, arguments.values(), text):
        if isinstance(value, str) and value.strip():
            rows = value[:1_000].split("\n")
            yield "\n".join(filterfalse(IMPORT.match, rows)).strip() or value[:1_000]
        elif isinstance(value, list) and value and all(isinstance(word, str) for word in value):
            yield " ".join(value)[:1_000]


def first_words(message: Message, width: int = 90) -> str:
    """Return the beginning of a message on one line of at most *width* terminal cells: of its text,
    else of its calls, its results, or the names of its kinds of parts."""
    calls = [f"→ {call_title(part)}" for part in message.parts if isinstance(part, ToolCall)]
    results = [f"← {part.text}" for part in message.parts if isinstance(part, ToolResult)]
    kinds = [type(part).__name__.lower() for part in message.parts]
    text = message.text if message.text.strip() else "; ".join(calls or results or kinds)
    line = " ".join(text[: 4 * width].split())
    ends = list(accumulate(1 + (east_asian_width(letter) in "WF") for letter in line))
    return line if not ends or ends[-1] <= width else line[: bisect_right(ends, width - 1)] + "…"


Titles = Mapping[str, str]
"""Titles of calls, by id."""


def call_titles(view: "View") -> Callable[[int, int], Titles]:
    """Return a function that returns the titles of the calls answered in `messages[start:stop]`."""
    calls = match_calls(view.transcript.messages)
    return lambda start, stop: {
        id: call_title(call) for answered in calls[start:stop] for id, call in answered.items()
    }


# --- messages -------------------------------------------------------------------------------------


def message_lines(message: Message, titles: Titles) -> Iterator[ViewLine]:
    """Yield the lines of a message, part by part, with the *titles* of the calls it answers."""
    for part in message.parts:
        yield from part_lines(part, titles)


def part_lines(part: Part, titles: Titles) -> Iterator[ViewLine]:
    """Yield the lines of a part. All but plain text begin with a marker or are indented."""
    match part:
        case Text(text):
            yield from _lines(text)
        case Thinking(text, signature):
            yield from _lines(text or "(not readable)", "thinking", "✻ ")
            if signature:
                yield ViewLine("✻ signed", "thinking")
        case ToolCall(_, name, arguments):
            yield ViewLine(f"→ {name}", "call")
            yield from _lines(_arguments(arguments), "call", "    ")
        case ToolResult(id, content, error, name):
            title = f"← {titles.get(id, name) or id}{' failed' if error else ''}"
            yield ViewLine(title, "error" if error else "result")
            for inner in content:
                yield from (
                    line._replace(text=f"    {line.text}") for line in part_lines(inner, {})
                )
        case Media(kind, mime, ref, width, height, size):
            extent = f"{width}x{height} " * bool(width) + f"{size:,} bytes " * bool(size)
            yield ViewLine(f"▣ {kind} {mime} {extent}{ref[:60]}", "media")
        case Opaque(kind, text):
            yield ViewLine(f"◇ {kind} {' '.join(text[:600].split())[:160]}", "note")


def _lines(text: str, kind: LineKind = "text", mark: str = "") -> Iterator[ViewLine]:
    return (ViewLine(mark + line, kind) for line in text.replace("\r\n", "\n").split("\n"))


def _arguments(text: str) -> str:
    """Return a call's arguments as lines of `name: value`, unchanged if they are no JSON object."""
    arguments = parse_or_none(text)
    if not isinstance(arguments, dict):
        return text
    return "\n".join(
        f"{name}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for name, value in arguments.items()
    )


# --- views and differences ------------------------------------------------------------------------


def select_items(view: "View", only: int | None) -> Iterator["ViewItem"]:
    """Yield the items of a view; with *only*, the one that covers the message at that position."""
    items = view.iter_items()
    return (item for item in items if only is None or item.start <= only < item.stop)


def view_lines(
    view: "View", most: int | None = None, only: int | None = None
) -> Iterator[ViewLine]:
    """Yield what the model would see, at most *most* lines of each message (None: all); with
    *only*, what is shown for the message at that position."""
    titles = call_titles(view)
    if view.profile.fixed_tokens and only is None:
        fixed = view.count_part(view.profile.fixed_tokens)
        yield ViewLine(f"system prompt and tools · {fixed:,} tokens", "system")
    for item in select_items(view, only):
        yield ViewLine("")
        if item.edit:
            yield ViewLine(edit_title(view, item), "edit")
            if not item.messages:
                yield ViewLine("hidden, nothing is shown instead", "note")
        for message in item.messages:
            yield _message_title(view, item, message)
            lines = list(message_lines(message, titles(item.start, item.stop)))
            yield from lines[:most]
            if most is not None and len(lines) > most:
                rest = len(lines) - most
                yield ViewLine(f"  … {rest:,} more line{'s' * (rest > 1)}", "note")


def edit_title(view: "View", item: "ViewItem") -> str:
    """Return the title of an item's edit: what it hides, how, and the tokens before and after.
    Empty without an edit."""
    if item.edit is None:
        return ""
    place, before = span_text(item.start, item.stop), view.base.tokens(item.start, item.stop)
    sizes = f"{view.count_part(before):,} → {view.count_part(item.tokens):,} tokens"
    return f"{place} · {describe_strategy(item.edit.by)} · {sizes} · edit {item.edit.id[:8]}"


def _message_title(view: "View", item: "ViewItem", message: Message) -> ViewLine:
    role = speaker(message)
    place = "instead:" if item.edit else span_text(item.start, item.stop)
    kinds: dict[str, LineKind] = {"user": "user", "assistant": "assistant", "tool": "tool"}
    count = view.count_part(view.profile.count(message))
    return ViewLine(f"{place} {role} · {count:,} tokens", kinds.get(role, "system"))


def diff_lines(view: "View", only: int | None = None, width: int = 130) -> Iterator[ViewLine]:
    """Yield a diff from the original to the visible messages, edit by edit; with *only*, that of
    the edit that hides the message at that position. If an edit shows other roles than it hides,
    each hidden message is one line of about *width* cells."""
    messages, at, titles = view.transcript.messages, 0, call_titles(view)
    for item in select_items(view, only):
        if item.edit is None:
            continue
        if item.start > at and only is None:
            yield ViewLine(f"   {span_text(at, item.start)} unchanged", "note")
        at = item.stop
        yield ViewLine(f"@@ {edit_title(view, item)}", "hunk")
        hidden = messages[item.start : item.stop]
        if [message.role for message in hidden] == [message.role for message in item.messages]:
            yield from _diff(hidden, item.messages, titles(item.start, item.stop))
        else:
            yield from _replacement(view, item, titles(item.start, item.stop), width)
    if only is not None and not at:
        yield ViewLine(f"   {span_text(only, only + 1)} unchanged", "note")
    elif at < len(messages) and only is None:
        yield ViewLine(f"   {span_text(at, len(messages))} unchanged", "note")


def _diff(
    hidden: Sequence[Message], shown: Sequence[Message], titles: Titles
) -> Iterator[ViewLine]:
    old, new = (
        [line.text for message in messages for line in message_lines(message, titles)]
        for messages in (hidden, shown)
    )
    kinds: dict[str, LineKind] = {"-": "removed", "+": "added", "@": "hunk"}
    for line in list(unified_diff(old, new, lineterm="", n=2))[2:]:
        yield ViewLine(line, kinds.get(line[:1], "text"))


def _replacement(view: "View", item: "ViewItem", titles: Titles, width: int) -> Iterator[ViewLine]:
    """Yield one line for each hidden message, then all of what is shown instead."""
    for at in range(item.start, item.stop):
        message, count = view.transcript.messages[at], view.count_part(view.base.tokens(at, at + 1))
        text = f"- #{at} {speaker(message)} · {count:,} tokens · "
        yield ViewLine(text + first_words(message, max(20, width - len(text))), "removed")
    for message in item.messages:
        for line in message_lines(message, titles):
            yield ViewLine(f"+ {line.text}", "added")


# --- savings --------------------------------------------------------------------------------------


class Saving(NamedTuple):
    """Tokens that the edits of one strategy save in a view."""

    by: str
    edits: int
    saved: int
    """Estimated tokens."""
    outcome: str = "applied"
    """Outcome of the strategy's run."""
    reason: str = ""


def tokens_saved(view: "View", edit: Edit) -> int:
    """Return the estimated tokens that an edit hides, minus those of its insert."""
    return view.base.tokens(edit.start, edit.stop) - sum(map(view.profile.count, edit.insert))


def savings_by_strategy(view: "View") -> list[Saving]:
    """Return the savings of the visible edits by strategy, the largest first."""
    edits = sorted((placed.edit for placed in view.visible_edits), key=lambda edit: edit.by)
    grouped = ((by, list(group)) for by, group in groupby(edits, lambda edit: edit.by))
    savings = [
        Saving(by, len(group), sum(tokens_saved(view, edit) for edit in group))
        for by, group in grouped
    ]
    return sorted(savings, key=lambda saving: -saving.saved)


def report_lines(view: "View") -> Iterator[str]:
    """Yield lines that say what was done to a view, what it saved, and what did not work."""
    before, after = view.tokens_unedited, view.tokens
    share = f" ({1 - after / before:.0%} less)" if after < before else ""
    fits = "" if view.goal is None else f", {'fits' if view.fits else 'over'} {view.goal:,}"
    yield f"{before:,} → {after:,} tokens{share}{fits}"
    savings = savings_by_strategy(view)
    factor = (before - after) / (sum(saving.saved for saving in savings) or 1)  # as calibrated
    for saving in savings:
        edits = f"{saving.edits:,} edit{'s' * (saving.edits != 1)}"
        yield f"  {describe_strategy(saving.by)}: {edits}, {saving.saved * factor:,.0f} tokens saved"
    for attempt in view.attempts:
        if attempt.outcome not in ("applied", "noop"):
            yield f"  {describe_strategy(attempt.by)}: {attempt.outcome}, {attempt.reason}"


# --- HTML -----------------------------------------------------------------------------------------
# It stands alone, with its own style; each edit is a fold that opens to what it hides.

STYLE = """\
.refold{--ink:#14201d;--ink3:#5f6e6a;--line:#e4e9e7;--sunk:#f1f4f3;--accent:#0f766e;--soft:#e2f1ee;
--warn:#875300;color:var(--ink);font:13px/1.45 system-ui,sans-serif;max-width:1100px}
@media(prefers-color-scheme:dark){.refold{--ink:#e4ecea;--ink3:#8a9994;--line:#232c2a;
--sunk:#101615;--accent:#6fcdc1;--soft:#14332f;--warn:#e3b553}body.refold{background:#0d1211}}
body.refold{margin:24px auto;padding:0 16px}
.refold summary{cursor:pointer;padding:3px 6px;border-top:1px solid var(--line);
overflow-wrap:anywhere}
.refold details.edit>summary{background:var(--soft);color:var(--accent)}
.refold details.edit{border-left:3px solid var(--accent)}
.refold details.edit>div{padding-left:14px}
.refold pre{margin:0;padding:6px;background:var(--sunk);white-space:pre-wrap;
overflow-wrap:anywhere;font:12px/1.45 ui-monospace,Menlo,Consolas,monospace}
.refold small{color:var(--ink3)}.refold .user>summary{font-weight:600}
.refold .removed{color:var(--warn)}.refold .added,.refold .hunk{color:var(--accent)}
.refold .thinking,.refold .note{color:var(--ink3)}
"""
MOST_CHARACTERS = 20_000
"""Maximum characters of one message in a notebook; ten times as many for all together."""


def html_of(view: "View", most: int | None = MOST_CHARACTERS) -> str:
    """Return *view* as an HTML fragment with its own style, at most *most* characters of each
    message and about ten times as many in all; None: everything."""
    return f'<div class="refold"><style>{STYLE}</style>{"".join(_body(view, most))}</div>'


def html_page(view: "View", title: str = "", *, diff: bool = False, only: int | None = None) -> str:
    """Return a complete HTML page without external resources, of the messages or of the *diff*;
    with *only*, what is shown for the message at that position."""
    pieces = (
        ("<pre>", _spans(diff_lines(view, only)), "</pre>") if diff else _body(view, None, only)
    )
    body = "".join(pieces)
    name = escape(title or "A conversation")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{name}</title><style>{STYLE}</style></head>"
        f'<body class="refold"><h1>{name}</h1>{body}</body></html>\n'
    )


def _body(view: "View", most: int | None, only: int | None = None) -> Iterator[str]:
    titles, messages = call_titles(view), view.transcript.messages
    room = inf if most is None else 10 * most
    yield f"<p>{escape(next(report_lines(view)))} · {len(view.transcript):,} messages</p>"
    if view.profile.fixed_tokens:
        fixed = view.count_part(view.profile.fixed_tokens)
        yield f"<p><small>system prompt and tools · {fixed:,} tokens</small></p>"
    for item in select_items(view, only):
        if room <= 0:
            rest = len(view.transcript) - item.start
            yield f"<p>… and {rest:,} more messages: refold.core.view_lines.html_page shows all</p>"
            return
        answered = titles(item.start, item.stop)
        if item.edit is None:
            place = span_text(item.start, item.stop)
            pieces = [
                _message(view, message, answered, most, place=place) for message in item.messages
            ]
        else:
            shown = [
                _message(view, message, answered, most, is_open=True) for message in item.messages
            ]
            hidden = [
                _message(view, messages[at], titles(at, at + 1), most, place=f"#{at}")
                for at in range(item.start, item.stop)
            ]
            pieces = [_fold(edit_title(view, item), shown, hidden)]
        piece = "".join(pieces)
        room -= len(piece)
        yield piece


def _fold(title: str, shown: Iterable[str], hidden: Iterable[str]) -> str:
    sent = "".join(shown) or "<p><small>nothing is shown instead</small></p>"
    return (
        f'<details class="edit"><summary>{escape(title)}</summary><div><p><small>sent instead'
        f"</small></p>{sent}<p><small>original</small></p>{''.join(hidden)}</div></details>"
    )


def _message(
    view: "View",
    message: Message,
    titles: Titles,
    most: int | None,
    *,
    place: str = "",
    is_open: bool = False,
) -> str:
    role, count = speaker(message), view.count_part(view.profile.count(message))
    lines = list(message_lines(message, titles))
    text, omitted = _spans(lines), 0
    if most is not None and (size := sum(len(line.text) + 1 for line in lines)) > most:
        text = escape("\n".join(line.text for line in lines)[:most])
        omitted = size - most
    rest = f"<small>… {omitted:,} more characters</small>" if omitted else ""
    return (
        f'<details class="{escape(role)}"{" open" * is_open}><summary><small>{place}</small> '
        f"{escape(role)} · {escape(first_words(message))} <small>{count:,} tokens</small>"
        f"</summary><pre>{text}</pre>{rest}</details>"
    )


def _spans(lines: Iterable[ViewLine]) -> str:
    return "\n".join(
        escape(line.text)
        if line.kind == "text"
        else f'<span class="{line.kind}">{escape(line.text)}</span>'
        for line in lines
    )


# --- where the tokens are: by role, by tool, by kind of part, by message ---------------------------


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Estimated tokens of a request, broken down in four ways that all add up to `total`."""

    system: int
    """System prompt."""
    tools: int
    """Tool definitions."""
    messages: tuple[int, ...]
    """Each message, framing included, without system prompt and tools."""
    roles: Mapping[str, int]
    """By role, the largest first, with `system` and `tools`."""
    kinds: Mapping[str, int]
    """Kinds: `text`, `thinking`, `call`, `result`, `image` ..., `opaque`, `framing` and so on."""
    names: Mapping[str, int]
    """By tool, calls and results together. Everything else is under the empty name."""

    @property
    def total(self) -> int:
        """Tokens of the whole request, as in `View.tokens_uncalibrated`."""
        return self.system + self.tools + sum(self.messages)


def break_down(view: "View") -> Breakdown:
    """Break down the tokens of *view* by its profile's counter.

    Tokens of a message beyond its parts are its framing. System prompt and tools are counted
    separately if the view came from a payload; otherwise all of `fixed_tokens` counts as the system
    prompt.
    """
    items, calls = view.items, match_calls(view.transcript.messages)
    messages = [message for item in items for message in item.messages]
    counts, part = tuple(map(view.profile.count, messages)), part_counter(view.profile.count)
    system, tools = _split_fixed_tokens(view)
    fixed = {"system": system, "tools": tools}
    parts = [
        (_kind_of(piece), _tool_of(piece, calls[item.start : item.stop]), part(piece))
        for item in items
        for message in item.messages
        for piece in message.parts
    ]
    framing = sum(counts) - sum(tokens for _, _, tokens in parts)
    roles = zip((message.role for message in messages), counts, strict=True)
    kinds = [("framing", framing), *((kind, tokens) for kind, _, tokens in parts)]
    names = [("", system + tools + framing), *((tool, tokens) for _, tool, tokens in parts)]
    return Breakdown(
        system, tools, counts, _tally(fixed, roles), _tally(fixed, kinds), _tally({}, names)
    )


def _split_fixed_tokens(view: "View") -> tuple[int, int]:
    """Return the tokens of system prompt and tools, together the profile's `fixed_tokens`."""
    total = view.profile.fixed_tokens
    if view.source is None:
        return total, 0
    tools = min(total, count_fixed((), view.source.tools))
    return total - tools, tools


def _tally(fixed: Mapping[str, int], pairs: Iterable[tuple[str, int]]) -> Mapping[str, int]:
    tally = Counter(fixed)
    for name, tokens in pairs:
        tally[name] += tokens
    return {name: tokens for name, tokens in tally.most_common() if tokens}


_KINDS: Mapping[type, str] = {
    Text: "text",
    Thinking: "thinking",
    ToolCall: "call",
    ToolResult: "result",
    Opaque: "opaque",
}


def _kind_of(part: Part | Content) -> str:
    return part.kind if isinstance(part, Media) else _KINDS[type(part)]


def _tool_of(part: Part | Content, answered: Iterable[Mapping[str, ToolCall]]) -> str:
    """Return the name of a part's tool. *answered*: the calls that the results answer."""
    match part:
        case ToolCall(_, name, _):
            return name
        case ToolResult(id, _, _, name):
            return name or next((calls[id].name for calls in answered if id in calls), "")
        case _:
            return ""
