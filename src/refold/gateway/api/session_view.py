"""What the page shows of one session, as it is now or as a call was sent (`session`), and of its texts
while transcripts are recorded (`messages`, `text`, `search`)."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from msgspec import UNSET

from refold.budget.prices import find_rates
from refold.gateway.api.actions import describe_pins
from refold.gateway.api.context import ApiContext, Problem
from refold.gateway.api.lookup import (
    find_listed,
    find_past_call,
    ledger_rows,
    list_shown,
    load_briefs,
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
from refold.gateway.conversations.pins import Pins
from refold.gateway.ledger.entry import DOLLAR
from refold.gateway.ledger.rows import ListedSession, MessageBrief
from refold.gateway.ledger.sessions import SessionRow, ShownEdit
from refold.gateway.messages import Incoming
from refold.retrieval.search import Index, cut_snippet
from refold.stores.store import LedgerRow
from refold.text.plain import readable_text
from refold.transcript import Transcript

BEGINNING = 1_240
"""Characters of our words that an edit in `session` holds; `edit_text` has them all."""
REACH = 20
"""Messages before a window in which the calls of its results are looked for."""
SNIPPET = 200
MOST_HITS = 500
NOT_KEPT = "The text of this session is not kept: `record` keeps it."


# --- the session ------------------------------------------------------------------------------


def session(context: ApiContext, asked: SessionArguments) -> SessionAnswer:
    """Return one session without its texts. Raises `Problem` 404, `StoreError`."""
    listed, row = find_listed(context, asked.session)
    rows = ledger_rows(context, row.tips) if row is not None else ()
    shown, original, sent = [], None, None
    if row is not None:
        shown, original, sent = list_shown(row, rows), row.tokens_before, row.tokens_after
        gone = {edit.id for edit in row.list_edits()} - {edit.id for edit in shown}
        sent += sum(e.tokens_before - e.tokens_after for e in row.list_edits() if e.id in gone)
    info = context.recorder.info(listed.tenant, listed.session) if context.recorder else None
    calls = context.call_log.calls_of(listed.session)
    briefs = load_briefs(context, listed)
    if asked.call is not UNSET:
        past = find_past_call(context, listed, asked.call)
        call = calls[asked.call - 1]
        shown, briefs, original, sent = past.edits, briefs[: past.length], call.original, call.sent
    pins = Pins(context.pipeline.store, listed.session).load()
    return SessionAnswer(
        now=context.pipeline.settings.clock(),
        row=list_rows(context, [listed])[0],
        api=listed.api,
        original=original,
        sent=sent,
        fixed=row.fixed_tokens if row is not None else 0,
        levels=_levels(context, listed, row),
        prices=_prices(listed.model, context),
        summary_model=(writer := _name_summary_model(context)),
        summary_prices=_prices(writer, context),
        calls=[
            (*call[2:3], *call[4:10], call.cost / DOLLAR, call.would_cost / DOLLAR)
            for call in calls
        ],
        edits=_describe_edits(shown, rows),
        pins=describe_pins(pins, is_readable=info is not None),
        log=[_log_row(item) for item in rows if item.edit and item.action != "preview"],
        kept_until=info.until if info is not None else None,
        sizes=[brief.tokens for brief in briefs],
        speakers="".join(_letter(brief.speaker) for brief in briefs),
        shares=_shares(briefs, shown),
    )


def _name_summary_model(context: ApiContext) -> str:
    ask = context.pipeline.settings.ask
    models = getattr(getattr(ask, "__self__", None), "models", ())
    names = [name for model in models if (name := getattr(model, "model", ""))]
    return ", ".join(names) or ("the gateway's model" if ask is not None else "")


def _prices(model: str, context: ApiContext) -> Prices | None:
    rates = find_rates(model, context.pipeline.settings.prices)
    if rates is None:
        return None
    return Prices(rates.input, rates.output, rates.read, rates.write, rates.lifetime)


def _levels(context: ApiContext, listed: ListedSession, row: SessionRow | None) -> Levels:
    upstream = row.upstream if row is not None else ""
    incoming = Incoming(listed.api, upstream, "/", (), b"")
    levels = context.pipeline.resources.model_limits.for_model(incoming, listed.model)
    window = levels.window.context if levels.window is not None else None
    return Levels(window, levels.hard, levels.target if window is not None else None)


def _describe_edits(shown: Sequence[ShownEdit], rows: Sequence[LedgerRow]) -> list[ViewEdit]:
    by_edit = {row.edit: row for row in rows if row.edit and row.action in ("compact", "accept")}
    runs = {row.edit: row.run for row in rows if row.edit and row.run and row.action == "compact"}
    return [
        ViewEdit(
            **edit._replace(text=edit.text[:BEGINNING])._asdict(),
            length=len(edit.text),
            when=row.when if row else None,
            actor=row.actor if row else "",
            cost=row.cost if row else 0.0,
            model=row.model if row else "",
            run=runs.get(edit.id, _run(row)),
        )
        for edit in shown
        for row in (by_edit.get(edit.id),)
    ]


def _run(row: LedgerRow | None) -> str:
    """Return what all edits of one compaction have in common; an accepted one has no run."""
    return (row.run or f"{row.when:.6f}") if row is not None else ""


def _log_row(row: LedgerRow) -> LogRow:
    return LogRow(
        row.when,
        row.action,
        row.edit or "",
        row.by,
        row.before,
        row.after,
        row.actor,
        _run(row),
        row.reason,
    )


def _letter(speaker: str) -> str:
    return speaker[0] if speaker in ("you", "assistant", "result") else "o"


def _shares(briefs: Sequence[MessageBrief], shown: Sequence[ShownEdit]) -> list[Share]:
    """Return the tokens by tool and speaker, the most first, with those of what stands in for
    them."""
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
        names = {tools.get(id, "Results") for id in brief.answers}
        if brief.speaker == "result":
            yield brief.place, names.pop() if len(names) == 1 else "Several tools"
        else:
            yield brief.place, brief.speaker.capitalize()


# --- its texts, while transcripts are recorded -----------------------------------------------------


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
    shown = list_shown(row, ledger_rows(context, row.tips)) if row is not None else []
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
