"""What the page shows of a session's texts while transcripts are recorded: `messages`, `text` and
`search`."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence

from msgspec import UNSET

from refold.gateway.api.context import ApiContext, Problem
from refold.gateway.api.page_types import (
    Brief,
    Find,
    MessagesAnswer,
    MessagesArguments,
    SearchAnswer,
    SearchArguments,
    TextAnswer,
    TextArguments,
)
from refold.gateway.api.session_view import find_listed, load_briefs
from refold.gateway.ledger.rows import ListedSession, MessageBrief
from refold.gateway.ledger.sessions import SessionRow
from refold.retrieval.search import Index, cut_snippet
from refold.text.plain import readable_text
from refold.transcript import Transcript

REACH = 20
"""Messages before a window in which the calls of its results are looked for."""
SNIPPET = 200
MOST_HITS = 500
NOT_KEPT = "The text of this session is not kept: `record` keeps it."


def messages(context: ApiContext, asked: MessagesArguments) -> MessagesAnswer:
    """Return messages in short. Raises `Problem` 404 and 409, `StoreError`."""
    listed, _ = _find_recorded(context, asked.session)
    first = max(0, asked.start - REACH)
    briefs = load_briefs(context, listed, first, asked.start + asked.count)
    tools = {id: name for brief in briefs for name, _, id in brief.calls}
    return MessagesAnswer(
        [_describe_brief(brief, tools) for brief in briefs if brief.place >= asked.start]
    )


def _describe_brief(brief: MessageBrief, tools: Mapping[str, str]) -> Brief:
    return Brief(
        number=brief.place,
        speaker=brief.speaker,
        tools=[tools.get(id, "") for id in brief.answers],
        lines=brief.lines,
        line_count=brief.line_count,
        calls=[(name, gist) for name, gist, _ in brief.calls],
        kinds=brief.kinds,
        tokens=brief.tokens,
    )


def _find_recorded(context: ApiContext, session: str) -> tuple[ListedSession, SessionRow | None]:
    listed, row = find_listed(context, session)
    if not context.is_recorded(listed.tenant, listed.session):
        raise Problem(409, "history_needed", NOT_KEPT)
    return listed, row


def text(context: ApiContext, asked: TextArguments) -> TextAnswer:
    """Return a part of a message. Raises `Problem` 404 and 409, `StoreError`."""
    listed, _ = _find_recorded(context, asked.session)
    assert context.recorder is not None  # noqa: S101 - it is recorded
    message = context.recorder.load_message(listed.tenant, listed.session, asked.message)
    if message is None:
        raise Problem(404, "no_message", "The session has no such message.")
    whole = readable_text(message)
    starts = [0, *(at + 1 for at, letter in enumerate(whole) if letter == "\n")]
    offset = asked.offset
    if asked.line is not UNSET:
        offset = starts[min(asked.line, len(starts)) - 1]
    end = min(len(whole), offset + asked.limit)
    if end < len(whole):
        line = bisect_right(starts, end) - 1
        end = starts[line] if starts[line] > offset else end
    return TextAnswer(
        text=whole[offset:end],
        offset=offset,
        line=bisect_right(starts, offset),
        lines=len(starts),
        total=len(whole),
        next=end if end < len(whole) else None,
    )


def search(context: ApiContext, asked: SearchArguments) -> SearchAnswer:
    """Look for words in a session, hidden text too. Raises `Problem`, `StoreError`."""
    listed, row = _find_recorded(context, asked.session)
    recorded = context.load_transcript(listed.tenant, listed.session)
    shown = row.list_edits() if row is not None else []
    hiding = {at: edit.id for edit in shown for at in range(edit.start, edit.stop)}
    texts = list(map(readable_text, recorded.messages)) if recorded is not None else []
    hits = list(_find_exact(texts, asked.query, hiding))
    if not hits and recorded is not None:
        with Index() as index:
            transcript = Transcript.of(recorded.messages)
            index.add(transcript)
            places = {tip: at for at, tip in enumerate(transcript.tips[1:])}
            scores = index.find(places, asked.query)
        hits = [
            Find(at, 0, cut_snippet(texts[at], asked.query, SNIPPET), hiding.get(at, ""), False)
            for at, _ in sorted(scores.items(), key=lambda item: (-item[1], -item[0]))[:20]
        ]
    return SearchAnswer(hits[:MOST_HITS], len(hits) > MOST_HITS)


def _find_exact(texts: Sequence[str], query: str, hiding: Mapping[int, str]) -> Iterator[Find]:
    wanted = query.strip().lower()
    for at, whole in enumerate(texts):
        if wanted not in whole.lower():
            continue
        for number, line in enumerate(whole.split("\n"), 1):
            if wanted in line.lower():
                snippet = cut_snippet(line, query, SNIPPET)
                yield Find(at, number, snippet, hiding.get(at, ""), True)
