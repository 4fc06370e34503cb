"""What the page shows of one session: its figures, now or in a call, and its texts, from a client's
file or a recorded transcript."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from msgspec import UNSET
from msgspec.structs import replace

from refold.edits import Edit
from refold.gateway.api.actions import list_pins
from refold.gateway.api.api_types import EditTextAnswer, EditTextArguments, FileFacts, ListRow
from refold.gateway.api.context import ApiContext, Problem
from refold.gateway.api.files import OpenedFile
from refold.gateway.api.lookup import (
    find_edits,
    find_history,
    find_listed,
    find_past_call,
    find_session,
    ledger_rows,
    list_visible_edits,
    rows_by_edit,
    text_hidden_by,
)
from refold.gateway.api.overview import list_rows
from refold.gateway.api.page_types import (
    Brief,
    Find,
    Levels,
    LogRow,
    MessagesAnswer,
    MessagesArguments,
    Prices,
    SearchAnswer,
    SearchArguments,
    SessionAnswer,
    SessionArguments,
    Share,
    TextAnswer,
    TextArguments,
    ViewEdit,
)
from refold.gateway.api.previews import find_endpoint, list_writers
from refold.gateway.exchange import Incoming
from refold.gateway.ledger.entry import DOLLAR
from refold.gateway.ledger.rows import ListedSession, MessageBrief
from refold.gateway.ledger.sessions import (
    SessionRow,
    ShownEdit,
    text_inserted_by,
)
from refold.messages import Message
from refold.retrieval.search import Index, cut_snippet
from refold.session_files.edited import ledger_rows as edited_rows
from refold.session_files.export import CLIENTS
from refold.stores.store import LedgerRow
from refold.text.plain import readable_text
from refold.tokens.model_table import find_rates
from refold.transcript import Transcript

# --- figures --------------------------------------------------------------------------------------

PREVIEW_CHARACTERS = 1_240
"""Characters of an edit's text in `session`. `edit_text` has all."""
LETTERS = {"you": "y", "assistant": "a", "result": "r"}


def session(context: ApiContext, arguments: SessionArguments) -> SessionAnswer:
    """Return one session without its texts. Raises `Problem` 404 and 409, `FormatError`,
    `StoreError`."""
    if file := context.find_file(arguments.session):
        return _describe_file(context, file)
    listed, latest = find_listed(context, arguments.session)
    (row,) = list_rows(context, [listed])  # before its calls: one may be added meanwhile
    ledger, calls = list[LedgerRow](), context.call_log.calls_of(listed.session)
    row.calls = max(row.calls, *calls, 0)
    ratio = latest.ratio if latest is not None else 1.0
    shown, briefs = list[ShownEdit](), _load_briefs(context, listed, ratio)
    original = sent = None
    if latest is not None:
        ledger += ledger_rows(context, latest.tips, ratio)
        shown, original = list_visible_edits(latest, ledger), latest.original
        reverted = [edit for edit in latest.list_edits() if edit not in shown]
        sent = latest.sent + sum(e.tokens_before - e.tokens_after for e in reverted)
    if arguments.call is not UNSET:
        past = find_past_call(context, listed, arguments.call)
        call = calls[arguments.call]
        shown, briefs = [edit.calibrate(ratio) for edit in past.edits], briefs[: past.length]
        original, sent = call.original, call.sent
    upstream = latest.upstream if latest is not None else ""
    incoming = Incoming(listed.api, upstream, "/", (), b"")
    answer = _describe(context, row, incoming, shown, ledger, briefs)
    answer.original, answer.sent = original, sent
    answer.fixed = round(latest.fixed_tokens * ratio) if latest is not None else 0
    answer.calls = [
        (
            *(call.at, call.original, call.sent, call.edits),
            *(call.input, call.read, call.would_read),
            *(call.cost / DOLLAR, call.would_cost / DOLLAR),
        )
        for call in calls.values()
    ]
    info = context.transcripts.info(listed.tenant, listed.session)
    answer.kept_until = info.until if info is not None else None
    answer.pins = list_pins(context, listed.tenant, listed.session)
    return answer


def _load_briefs(
    context: ApiContext,
    listed: ListedSession,
    ratio: float,
    start: int = 0,
    stop: int = 2**40,
) -> list[MessageBrief]:
    """Return the timeline rows of `messages[start:stop]`, with *ratio* times their estimated
    tokens; none if not recorded. Raises `StoreError`."""
    if not context.transcripts.is_recorded(listed.tenant, listed.session):
        return []
    briefs = context.transcripts.briefs(listed.tenant, listed.session, start, stop)
    return [brief._replace(tokens=round(brief.tokens * ratio)) for brief in briefs]


def _describe_file(context: ApiContext, file: OpenedFile) -> SessionAnswer:
    edited, session = file.edited, file.edited.session
    latest = session.updated.timestamp() if session.updated else file.row.latest
    row = replace(file.list_row, latest=latest)
    incoming, ledger = Incoming(edited.format, "", "/", (), b""), edited_rows(edited)
    answer = _describe(context, row, incoming, file.visible_edits, ledger, file.briefs)
    answer.original, answer.sent = row.original, row.sent
    answer.fixed = edited.view.profile.fixed_tokens
    answer.file = FileFacts(
        str(session.path),
        str(edited.place or ""),
        len(session.compactions),
        session.client in CLIENTS,
    )
    return answer


def _describe(
    context: ApiContext,
    row: ListRow,
    incoming: Incoming,
    shown: Sequence[ShownEdit],
    ledger: Sequence[LedgerRow],
    briefs: Sequence[MessageBrief],
) -> SessionAnswer:
    """Return what sessions of the gateway and those in files have in common; the rest is empty."""
    writer, begins = _name_summary_model(context), dict[str, int]()
    for item in ledger:  # also of edits that the same compaction replaced later
        begins.setdefault(_name_run(item), item.before)
    return SessionAnswer(
        now=context.pipeline.settings.clock(),
        row=row,
        api=incoming.api,
        original=None,
        sent=None,
        fixed=0,
        levels=_levels(context, incoming, row.model),
        prices=_prices(row.model, context, row.sent),
        summary_model=writer,
        summary_prices=_prices(writer, context, 0),
        takes_summary_model=find_endpoint(context) is not None,
        calls=[],
        edits=_describe_edits(shown, ledger),
        pins=[],
        log=[
            LogRow(
                *(item.when, item.action, item.edit, item.by),
                *(begins.pop(_name_run(item), item.before), item.after),
                *(item.actor, _name_run(item), item.reason),
            )
            for item in ledger
            if item.edit and item.action != "preview"
        ],
        kept_until=None,
        in_shadow=context.pipeline.settings.shadow,
        sizes=[brief.tokens for brief in briefs],
        speakers="".join(LETTERS.get(brief.speaker, "o") for brief in briefs),
        shares=_shares(briefs, shown),
    )


def _name_summary_model(context: ApiContext) -> str:
    names = [name for model in list_writers(context) if (name := getattr(model, "model", ""))]
    has_model = context.pipeline.settings.ask is not None
    return ", ".join(names) or ("the gateway's model" if has_model else "")


def _prices(model: str, context: ApiContext, tokens: int) -> Prices | None:
    rates = find_rates(model, context.pipeline.settings.prices)
    if rates is None:
        return None
    rates = rates.for_request(tokens)
    return Prices(rates.input, rates.output, rates.read, rates.write, rates.lifetime)


def _levels(context: ApiContext, incoming: Incoming, model: str) -> Levels:
    levels = context.pipeline.resources.model_limits.for_model(incoming, model)
    window = levels.window.context if levels.window is not None else None
    return Levels(window, levels.hard, levels.target if window is not None else None)


def _describe_edits(shown: Sequence[ShownEdit], rows: Sequence[LedgerRow]) -> list[ViewEdit]:
    by_edit = rows_by_edit(rows)
    runs = {row.edit: row.run for row in rows if row.edit and row.run and row.action == "compact"}
    return [
        ViewEdit(
            **edit._replace(text=edit.text[:PREVIEW_CHARACTERS])._asdict(),
            length=len(edit.text),
            when=row.when if row else None,
            actor=row.actor if row else "",
            cost=row.cost if row else 0.0,
            model=row.model if row else "",
            run=runs.get(edit.id, _name_run(row)),
        )
        for edit in shown
        for row in (by_edit.get(edit.id),)
    ]


def _name_run(row: LedgerRow | None) -> str:
    """Return an id shared by all edits of a compaction: the run, or the time of an accepted edit;
    empty without a row."""
    return (row.run or f"{row.when:.6f}") if row is not None else ""


def _shares(briefs: Sequence[MessageBrief], shown: Sequence[ShownEdit]) -> list[Share]:
    """Return original and sent tokens by tool and speaker, the largest first."""
    names = dict(_name_speakers(briefs))
    original, sent = defaultdict[str, int](int), defaultdict[str, int](int)
    hidden = {at: edit for edit in shown for at in range(edit.start, edit.stop)}
    for brief in briefs:
        name, edit = names[brief.place], hidden.get(brief.place)
        original[name] += brief.tokens
        if edit is None:
            sent[name] += brief.tokens
        elif edit.stop == edit.start + 1:
            sent[name] += edit.tokens_after
    if folds := sum(edit.tokens_after for edit in shown if edit.stop > edit.start + 1):
        sent["Summary"] += folds
    every = sorted(original.keys() | sent.keys(), key=lambda name: -original[name])
    return [Share(name, original[name], sent[name]) for name in every]


def _name_speakers(briefs: Sequence[MessageBrief]) -> Iterator[tuple[int, str]]:
    tools = dict[str, str]()
    for brief in briefs:
        tools |= {id: name for name, _, id in brief.calls}
        names = {tools.get(id, "Results") for id in brief.answers} or {"Results"}
        if brief.speaker == "result":
            yield brief.place, names.pop() if len(names) == 1 else "Several tools"
        else:
            yield brief.place, brief.speaker.capitalize()


# --- texts ----------------------------------------------------------------------------------------

NEIGHBOURS = 20
"""Messages before a window that are searched for the calls of its results."""
SNIPPET = 200
MOST_HITS = 500
NOT_KEPT = "The transcript of this session is not kept: `refold serve --record 7d` keeps it."
HIDDEN_NOT_KEPT = (
    "The hidden text needs the session's transcript, which is not kept or not this history's, or a "
    "`preview` that was made with `request`."
)


def messages(context: ApiContext, arguments: MessagesArguments) -> MessagesAnswer:
    """Return messages in short form. Raises `Problem` 404 and 409, `FormatError`, `StoreError`."""
    first, stop = max(0, arguments.start - NEIGHBOURS), arguments.start + arguments.count
    if file := context.find_file(arguments.session):
        briefs = file.briefs[first:stop]
    else:
        listed, row = _find_recorded(context, arguments.session)
        ratio = row.ratio if row is not None else 1.0
        briefs = _load_briefs(context, listed, ratio, first, stop)
    tools, rows = dict[str, str](), list[Brief]()
    for brief in briefs:
        tools |= {id: name for name, _, id in brief.calls}  # an id may come again in each turn
        if brief.place >= arguments.start:
            shown = Brief(
                number=brief.place,
                speaker=brief.speaker,
                tools=[tools.get(id, "") for id in brief.answers],
                lines=brief.lines,
                line_count=brief.line_count,
                digest=brief.digest,
                calls=[(name, gist) for name, gist, _ in brief.calls],
                kinds=brief.kinds,
                tokens=brief.tokens,
            )
            rows.append(shown)
    return MessagesAnswer(rows)


def _find_recorded(context: ApiContext, session: str) -> tuple[ListedSession, SessionRow | None]:
    listed, row = find_listed(context, session)
    if not context.transcripts.is_recorded(listed.tenant, listed.session):
        raise Problem(409, "history_needed", NOT_KEPT)
    return listed, row


def text(context: ApiContext, arguments: TextArguments) -> TextAnswer:
    """Return a part of a message. Raises `Problem` 404 and 409, `FormatError`, `StoreError`."""
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
    return context.transcripts.load_message(listed.tenant, listed.session, arguments.message)


def _load_all(context: ApiContext, session: str) -> tuple[Sequence[Message], Sequence[ShownEdit]]:
    """Return a session's messages and visible edits. Raises `Problem` 404 and 409."""
    if file := context.find_file(session):
        return file.messages, file.visible_edits
    listed, row = _find_recorded(context, session)
    recorded = context.transcripts.load(listed.tenant, listed.session)
    shown = list_visible_edits(row, ledger_rows(context, row.tips)) if row is not None else []
    return recorded.messages if recorded is not None else (), shown


def search(context: ApiContext, arguments: SearchArguments) -> SearchAnswer:
    """Search a session for words, in hidden text too. Raises `Problem`, `FormatError`,
    `StoreError`."""
    messages, shown = _load_all(context, arguments.session)
    hiding = {at: edit.id for edit in shown for at in range(edit.start, edit.stop)}
    texts = map(readable_text, messages)
    hits = list(islice(_find_exact(texts, arguments.query, hiding), MOST_HITS + 1))
    if not hits and messages:
        with Index() as index:
            transcript = Transcript.of(messages)
            index.add(transcript)
            places = {tip: at for at, tip in enumerate(transcript.tips[1:])}
            scores = index.find(places, arguments.query)
        for at, _ in sorted(scores.items(), key=lambda item: (-item[1], -item[0]))[:20]:
            snippet = cut_snippet(readable_text(messages[at]), arguments.query, SNIPPET)
            hits.append(Find(at, 0, snippet, hiding.get(at, ""), False))
    return SearchAnswer(hits[:MOST_HITS], len(hits) > MOST_HITS)


def _find_exact(texts: Iterable[str], query: str, hiding: Mapping[int, str]) -> Iterator[Find]:
    wanted = query.strip().lower()
    for at, whole in enumerate(texts):
        if wanted not in whole.lower():
            continue
        for number, line in enumerate(whole.split("\n"), 1):
            if wanted in line.lower():
                snippet = cut_snippet(line, query, SNIPPET)
                yield Find(at, number, snippet, hiding.get(at, ""), True)


def edit_text(context: ApiContext, arguments: EditTextArguments) -> EditTextAnswer:
    """Return a part of the text that an edit shows or hides. Raises `Problem`, `FormatError`,
    `StoreError`."""
    edit, text, history = _locate_edit(context, arguments)
    if arguments.of == "hidden":
        if history is None:
            raise Problem(409, "history_needed", HIDDEN_NOT_KEPT)
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
    """Return the edit, its text, and its history, or None for one that may not be read or is not
    recorded. The edit is of a preview, a client's file, a call, or the session's latest request.
    Raises as `edit_text`."""
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
    if arguments.of == "text":  # a transcript, which may be long, is not loaded
        return shown, shown.text, None
    recorded = context.transcripts.load(session.tenant, session.session)
    return shown, shown.text, find_history(recorded, session, shown.stop)


def _find_shown_edit(edits: Sequence[ShownEdit], id: str) -> ShownEdit:
    """Return the edit with this id or a unique prefix of it. Raises `Problem` 404."""
    matches = [edit for edit in edits if edit.id.startswith(id)]
    if len(matches) != 1:
        problem = "several edits begin so" if matches else "there is no such edit in effect"
        raise Problem(404, "no_edit", f"{id}: {problem}")
    return matches[0]
