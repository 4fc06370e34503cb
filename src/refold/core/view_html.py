"""A view as HTML that stands alone: its messages, and a fold for each edit that opens to what it
hides."""

from collections.abc import Iterable, Iterator
from html import escape
from typing import TYPE_CHECKING

from refold.core.view_lines import (
    Titles,
    ViewLine,
    call_titles,
    diff_lines,
    edit_title,
    first_words,
    message_lines,
    report_lines,
    span_text,
    speaker,
)
from refold.messages import Message

if TYPE_CHECKING:
    from refold.core.view import View

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
"""Of one message in a notebook, and ten times as many of all together; what is cut is said."""


def html_of(view: "View", most: int | None = MOST_CHARACTERS) -> str:
    """Return *view* as a piece of HTML with its own style, of each message at most *most*
    characters."""
    return f'<div class="refold"><style>{STYLE}</style>{"".join(_body(view, most))}</div>'


def html_page(view: "View", title: str = "", *, diff: bool = False, only: int | None = None) -> str:
    """Return a whole page: nothing of it is loaded from elsewhere, nothing is cut; with *only*
    no more than what stands for that message."""
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
    room = None if most is None else 10 * most
    yield f"<p>{escape(next(report_lines(view)))} · {len(view.transcript):,} messages</p>"
    if view.profile.fixed_tokens:
        yield f"<p><small>system prompt and tools · {view.profile.fixed_tokens:,} tokens</small></p>"
    for item in view.iter_items():
        if only is not None and not item.start <= only < item.stop:
            continue
        if room is not None and room <= 0:
            rest = len(view.transcript) - item.start
            yield f"<p>… and {rest:,} more messages: refold.core.view_html.html_page shows all</p>"
            return
        answered = titles(item.start, item.stop)
        shown = [_message(view, message, answered, most, is_open=True) for message in item.messages]
        if item.edit is None:
            place = span_text(item.start, item.stop)
            pieces = [
                _message(view, message, answered, most, place=place) for message in item.messages
            ]
        else:
            hidden = [
                _message(view, messages[at], titles(at, at + 1), most, place=f"#{at}")
                for at in range(item.start, item.stop)
            ]
            pieces = [_fold(edit_title(view, item), shown, hidden)]
        piece = "".join(pieces)
        room = None if room is None else room - len(piece)
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
    role, count = speaker(message), view.profile.count(message)
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
