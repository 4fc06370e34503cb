"""`refold report`: what the gateway's calls were billed, and what they would have been without it."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import click

from refold.cli import terminal as screen
from refold.cli.listings import line
from refold.cli.options import JSON
from refold.cli.tables import columns
from refold.cli.terminal import clean, many, tokens
from refold.gateway.config.config import STORE
from refold.gateway.config.durations import parse_duration
from refold.gateway.ledger.cost import DOLLAR
from refold.gateway.ledger.entry import hour_of
from refold.gateway.ledger.open import open_ledger
from refold.gateway.ledger.report import By, Line, Report, document
from refold.gateway.ledger.report import report as summed


@click.command()
@click.option(
    "--store",
    envvar=STORE,
    default="refold.db",
    metavar="PLACE",
    help=f"The gateway's store. Default: ${STORE}, else refold.db.",
)
@click.option("--since", default="", metavar="TIME", help="Only the last 7d, 12h ..., from a full hour on.")
@click.option("--by", type=click.Choice(["session", "model", "day"]), default="model", help="A row for each of these.")
@JSON
def report(store: str, since: str, by: By, as_json: bool) -> int:
    """Say what the gateway's calls cost and what they would have cost without it.

    Works while gateways write. Money saved is negative where compaction cost more than it saved.
    """
    try:
        first = hour_of(time.time() - parse_duration(since)) if since else 0
    except ValueError as error:
        raise click.UsageError(f"--since: {error}") from error
    ledger = open_ledger(store, fresh=False)
    found = summed(ledger.entries(first), by, first)
    ledger.close()
    if as_json:
        screen.emit(document(found))
    else:
        _show(found)
    return 0


def _show(found: Report) -> None:
    console = screen.out()
    if not found.lines:
        line(console, "no calls were booked" + " in this time" * bool(found.since))
        return
    since = datetime.fromtimestamp(found.since, UTC).strftime("since %Y-%m-%d %H:%M UTC, ") if found.since else ""
    line(console, f"{since}by {found.by}", "dim")
    names = ("sessions>", "calls>", "input>", "unedited>", "cache hits>", "output>", "billed>", "without us>")
    columns(
        console,
        (*names, "summaries>", "refetches>", "saved>", found.by),
        list(map(_row, found.lines)),
        _row(found.total),
    )
    for note in _notes(found.total):
        line(console, note)


def _row(one: Line) -> tuple[str, ...]:
    sums, hits = one.sums, one.hit_rate
    priced = sums.unpriced < sums.calls or sums.summary_cost
    money = (sums.cost, sums.would_cost, sums.summary_cost)
    return (
        f"{one.sessions:,}",
        f"{sums.calls + one.unreported.calls:,}",
        tokens(sums.input),
        tokens(sums.would_input),
        f"{hits:.0%}" if hits is not None else "",
        tokens(sums.output),
        *(_dollars(figure) if priced else "?" for figure in money),
        f"{sums.refetches:,}",
        _saved(one) if priced else "?",
        clean(one.name),
    )


def _saved(one: Line) -> str:
    share = f" ({one.sums.saved / one.sums.would_cost:.0%})" if one.sums.would_cost else ""
    return _dollars(one.sums.saved) + share


def _dollars(figure: int) -> str:
    value = figure / DOLLAR
    return f"{'-' * (value < 0)}${abs(value):,.{2 if abs(value) >= 100 else 4}f}"


def _notes(total: Line) -> Iterator[str]:
    """What the figures leave out, and what they are made of."""
    sums, missing = total.sums, total.unreported
    if sums.avoided:
        yield (
            f"{many(sums.avoided, 'call')} would not have fitted the model's window; "
            f"{_dollars(sums.avoided_saved)} of what was saved is of these"
        )
    if sums.refetches:
        yield f"refetches: {tokens(sums.refetched)} tokens; {_dollars(sums.refetch_cost)} is charged for them"
    if missing.calls:
        yield (
            f"{many(missing.calls, 'call')} without usage from the upstream: about {tokens(missing.fresh)} tokens of "
            "input by our own estimate, in no sum"
        )
    if sums.unpriced:
        yield f"{many(sums.unpriced, 'call')} of models without a known price: tokens are counted, money is not"
    if sums.summaries_unpriced:
        yield f"{many(sums.summaries_unpriced, 'summary call')} without a known price: their cost is not subtracted"
    yield "what it would have cost without us is reckoned, not measured (docs/gateway-ledger.md)"
