"""What the page reads of a session's texts, those of a client's file or of a recorded transcript:
`messages`, `text`, `search`; and the words of edits: `edit_text`."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence

from msgspec import UNSET

from refold.edits import Edit
from refold.gateway.api.answers import EditTextAnswer
from refold.gateway.api.arguments import EditTextArguments
from refold.gateway.api.context import ApiContext, Problem
from refold.gateway.api.lookup import (
    find_edits,
    find_listed,
    find_past_call,
    find_session,
    ledger_rows,
    list_visible_edits,
    load_briefs,
    text_hidden_by,
)
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
from refold.gateway.ledger.rows import ListedSession, MessageBrief
from refold.gateway.ledger.sessions import SessionRow, ShownEdit, text_inserted_by
from refold.gateway.ledger.transcripts import RecordedTranscript
from refold.messages import Message
from refold.retrieval.search import Index, cut_snippet
from refold.text.plain import readable_text
from refold.transcript import Transcript

REACH = 20
"""Messages before a window in which the calls of its results are looked for."""
SNIPPET = 200
MOST_HITS = 500
HISTORY_NEEDED = "No transcript of this session is recorded: send it as `request`."
NOT_KEPT = "The text of this session is not kept: `record` keeps it."


def messages(context: ApiContext, arguments: MessagesArguments) -> MessagesAnswer:
    """Return messages in short. Raises `Problem` 404 and 409, `StoreError`."""
    first, stop = max(0, arguments.start - REACH), arguments.start + arguments.count
    if file := context.find_file(arguments.session):
        briefs = file.briefs[first:stop]
    else:
        briefs = load_briefs(context, _find_recorded(context, arguments.session)[0], first, stop)
    tools, rows = dict[str, str](), list[Brief]()
    for brief in briefs:
        tools |= {id: name for name, _, id in brief.calls}  # an id may come again in each turn
        if brief.place >= arguments.start:
            rows.append(_describe_brief(brief, tools))
    return MessagesAnswer(rows)


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


def text(context: ApiContext, arguments: TextArguments) -> TextAnswer:
    """Return a part of a message. Raises `Problem` 404 and 409, `StoreError`."""
    message = _load_message(context, arguments)
    if message is None:
        raise Problem(404, "no_message", "The session has no such message.")
    whole = readable_text(message)
    starts = [0, *(at + 1 for at, letter in enumerate(whole) if letter == "\n")]
    offset = arguments.offset
    if arguments.line is not UNSET:
        offset = starts[min(arguments.line, len(starts)) - 1]
    end = min(len(whole), offset + arguments.limit)
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


def _load_message(context: ApiContext, arguments: TextArguments) -> Message | None:
    if file := context.find_file(arguments.session):
        return next(iter(file.messages[arguments.message : arguments.message + 1]), None)
    listed, _ = _find_recorded(context, arguments.session)
    assert context.recorder is not None  # noqa: S101 - it is recorded
    return context.recorder.load_message(listed.tenant, listed.session, arguments.message)


def _load_all(context: ApiContext, session: str) -> tuple[Sequence[Message], Sequence[ShownEdit]]:
    """Return the messages of a session, and the edits that show. Raises `Problem` 404 and 409."""
    if file := context.find_file(session):
        return file.messages, file.visible_edits
    listed, row = _find_recorded(context, session)
    recorded = context.load_transcript(listed.tenant, listed.session)
    shown = list_visible_edits(row, ledger_rows(context, row.tips)) if row is not None else []
    return recorded.messages if recorded is not None else (), shown


def search(context: ApiContext, arguments: SearchArguments) -> SearchAnswer:
    """Look for words in a session, hidden text too. Raises `Problem`, `StoreError`."""
    messages, shown = _load_all(context, arguments.session)
    hiding = {at: edit.id for edit in shown for at in range(edit.start, edit.stop)}
    texts = list(map(readable_text, messages))
    hits = list(_find_exact(texts, arguments.query, hiding))
    if not hits and messages:
        with Index() as index:
            transcript = Transcript.of(messages)
            index.add(transcript)
            places = {tip: at for at, tip in enumerate(transcript.tips[1:])}
            scores = index.find(places, arguments.query)
        hits = [
            Find(at, 0, cut_snippet(texts[at], arguments.query, SNIPPET), hiding.get(at, ""), False)
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


def edit_text(context: ApiContext, arguments: EditTextArguments) -> EditTextAnswer:
    """Return a part of what an edit shows or hides. Raises `Problem`, `StoreError`."""
    edit, text, history = _locate_edit(context, arguments)
    if arguments.of == "hidden":
        if history is None:
            raise Problem(409, "history_needed", HISTORY_NEEDED)
        text = text_hidden_by(edit, history)
    end = arguments.offset + arguments.limit
    return EditTextAnswer(
        session=arguments.session,
        edit=edit.id,
        of=arguments.of,
        text=text[arguments.offset : end],
        total=len(text),
        next=end if end < len(text) else None,
    )


def _locate_edit(
    context: ApiContext, arguments: EditTextArguments
) -> tuple[Edit | ShownEdit, str, Sequence[Message] | None]:
    """Return the edit, the text that it shows, and the history that it stands in; None for a
    history that may not be read or is not recorded. The edit is one of a preview, of a client's
    file, of a call, or else of those that the session shows now. Raises `Problem`, `StoreError`."""
    if arguments.preview is not UNSET:
        pending = context.find_preview(arguments.preview, arguments.session)
        view = pending.preview.view
        (edit,), history = find_edits(view, [arguments.edit]), view.transcript.messages
        return edit, text_inserted_by(view, edit), history if pending.is_readable else None
    if file := context.find_file(arguments.session):
        shown = _find_shown_edit(file.visible_edits, arguments.edit)
        return shown, shown.text, file.messages
    session = find_session(context, arguments.session)
    edits: Sequence[ShownEdit] = session.list_edits()
    if arguments.call is not UNSET:
        listed, _ = find_listed(context, arguments.session)
        edits = find_past_call(context, listed, arguments.call).edits
    shown = _find_shown_edit(edits, arguments.edit)
    if arguments.of == "text":  # so the transcript, which may be long, is not loaded
        return shown, shown.text, None
    recorded = context.load_transcript(session.tenant, session.session)
    return shown, shown.text, find_history(recorded, session, shown.stop)


def _find_shown_edit(edits: Sequence[ShownEdit], id: str) -> ShownEdit:
    """Return the edit of this id, or of a unique beginning of it. Raises `Problem` 404."""
    matches = [edit for edit in edits if edit.id.startswith(id)]
    if len(matches) != 1:
        problem = "several edits begin so" if matches else "there is no such edit in what shows"
        raise Problem(404, "no_edit", f"{id}: {problem}")
    return matches[0]


def find_history(
    recorded: RecordedTranscript | None, session: SessionRow, stop: int
) -> Sequence[Message] | None:
    """Return the recorded messages; None if they are not the session's own up to *stop*."""
    if recorded is None or recorded.tips[stop - 1 : stop] != (session.tip_at(stop),):
        return None
    return recorded.messages
