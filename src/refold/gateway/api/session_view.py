"""What the page shows of one session in figures, as it is now or as a call was sent: `session`."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from msgspec import UNSET

from refold.compactor.pins import Pins
from refold.gateway.api.actions import describe_pins
from refold.gateway.api.answers import FileFacts, ListRow, describe_file
from refold.gateway.api.context import ApiContext
from refold.gateway.api.files import OpenedFile
from refold.gateway.api.lookup import (
    find_listed,
    find_past_call,
    ledger_rows,
    list_visible_edits,
    load_briefs,
    rows_by_edit,
)
from refold.gateway.api.overview import list_rows
from refold.gateway.api.page_types import (
    Levels,
    LogRow,
    Prices,
    SessionAnswer,
    SessionArguments,
    Share,
    ViewEdit,
)
from refold.gateway.api.preview_strategies import find_endpoint, list_writers
from refold.gateway.ledger.entry import DOLLAR
from refold.gateway.ledger.rows import MessageBrief
from refold.gateway.ledger.sessions import ShownEdit
from refold.gateway.messages import Incoming
from refold.session_files.edited import ledger_rows as edited_rows
from refold.session_files.export import CLIENTS
from refold.stores.store import LedgerRow
from refold.tokens.model_table import find_rates

BEGINNING = 1_240
"""Characters of our words that an edit in `session` holds; `edit_text` has them all."""


def session(context: ApiContext, arguments: SessionArguments) -> SessionAnswer:
    """Return one session without its texts. Raises `Problem` 404, `FormatError`, `StoreError`."""
    if file := context.find_file(arguments.session):
        return _describe_file(context, file)
    listed, latest = find_listed(context, arguments.session)
    (row,) = list_rows(context, [listed])  # before its calls, of which one may come meanwhile
    ledger, calls = list[LedgerRow](), context.call_log.calls_of(listed.session)
    row.calls = max(row.calls, len(calls))
    shown, briefs = list[ShownEdit](), load_briefs(context, listed)
    original = sent = None
    if latest is not None:
        ledger += ledger_rows(context, latest.tips)
        shown, original = list_visible_edits(latest, ledger), latest.tokens_before
        reverted = [edit for edit in latest.list_edits() if edit not in shown]
        sent = latest.tokens_after + sum(e.tokens_before - e.tokens_after for e in reverted)
    if arguments.call is not UNSET:
        past = find_past_call(context, listed, arguments.call)
        call = calls[arguments.call - 1]
        shown, briefs, original, sent = past.edits, briefs[: past.length], call.original, call.sent
    upstream = latest.upstream if latest is not None else ""
    incoming = Incoming(listed.api, upstream, "/", (), b"")
    answer = _describe(context, row, incoming, shown, ledger, briefs)
    answer.original, answer.sent = original, sent
    answer.fixed = latest.fixed_tokens if latest is not None else 0
    answer.calls = [
        (
            *(call.at, call.original, call.sent, call.edits),
            *(call.input, call.read, call.would_read),
            *(call.cost / DOLLAR, call.would_cost / DOLLAR),
        )
        for call in calls
    ]
    info = context.recorder.info(listed.tenant, listed.session) if context.recorder else None
    answer.kept_until = info.until if info is not None else None
    pins = Pins(context.pipeline.store, listed.session).load()
    answer.pins = describe_pins(pins, is_readable=info is not None)
    return answer


def _describe_file(context: ApiContext, file: OpenedFile) -> SessionAnswer:
    """Return a session in a client's file: its own figures are those of the file."""
    edited, session = file.edited, file.edited.session
    row = describe_file(file.row, file.figures, is_read=True)
    if session.updated:
        row.latest = session.updated.timestamp()
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
    """Return what a session of the gateway and one in a file have alike; the rest is empty."""
    writer = _name_summary_model(context)
    return SessionAnswer(
        now=context.pipeline.settings.clock(),
        row=row,
        api=incoming.api,
        original=None,
        sent=None,
        fixed=0,
        levels=_levels(context, incoming, row.model),
        prices=_prices(row.model, context),
        summary_model=writer,
        summary_prices=_prices(writer, context),
        takes_summary_model=find_endpoint(context) is not None,
        calls=[],
        edits=_describe_edits(shown, ledger),
        pins=[],
        log=[_log_row(item) for item in ledger if item.edit and item.action != "preview"],
        kept_until=None,
        sizes=[brief.tokens for brief in briefs],
        speakers="".join(_letter(brief.speaker) for brief in briefs),
        shares=_shares(briefs, shown),
    )


def _name_summary_model(context: ApiContext) -> str:
    names = [name for model in list_writers(context) if (name := getattr(model, "model", ""))]
    has_model = context.pipeline.settings.ask is not None
    return ", ".join(names) or ("the gateway's model" if has_model else "")


def _prices(model: str, context: ApiContext) -> Prices | None:
    rates = find_rates(model, context.pipeline.settings.prices)
    if rates is None:
        return None
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
        names = {tools.get(id, "Results") for id in brief.answers} or {"Results"}
        if brief.speaker == "result":
            yield brief.place, names.pop() if len(names) == 1 else "Several tools"
        else:
            yield brief.place, brief.speaker.capitalize()
