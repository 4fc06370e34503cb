"""`refold report` says what the calls of gateways cost."""

from collections.abc import Iterator
from datetime import UTC, datetime

import click

from refold.cli import terminal
from refold.cli.options import GATEWAY_STORE, JSON, start_of
from refold.cli.terminal import Line, clean, plural, table, tokens
from refold.gateway.ledger.entry import (
    DOLLAR,
    Grouping,
    Report,
    ReportLine,
    build_report,
    hour_of,
    report_as_json,
)
from refold.gateway.ledger.writer import open_ledger


@click.command()
@GATEWAY_STORE
@click.option(
    "--since",
    default="",
    callback=start_of,
    metavar="TIME",
    help="Only the last 7d, 12h ..., from a full hour on.",
)
@click.option(
    "--by",
    type=click.Choice(["session", "model", "day"]),
    default="model",
    help="A row for each of these.",
)
@JSON
def report(store: str, since: float, by: Grouping, as_json: bool) -> int:
    """Show what the gateway's calls cost and what it saved.

    Works while gateways write. Money saved is negative where compaction cost more than it saved.
    """
    first = hour_of(since)
    ledger = open_ledger(store, fresh=False)
    result = build_report(ledger.entries(first), by, first)
    ledger.close()
    if as_json:
        terminal.print_json(report_as_json(result))
    else:
        terminal.print_lines(_report_lines(result))
    return 0


def _report_lines(report: Report) -> Iterator[Line]:
    if not report.lines:
        yield Line("no calls were booked" + " in this time" * bool(report.since))
        return
    since = ""
    if report.since:
        since = datetime.fromtimestamp(report.since, UTC).strftime("since %Y-%m-%d %H:%M UTC, ")
    yield Line(f"{since}by {report.by}", "dim")
    names = (
        *("sessions>", "calls>", "input>", "unedited>", "cache hits>", "output>", "billed>"),
        *("without us>", "summaries>", "refetches>", "saved>", report.by),
    )
    if any(line.sums.calls or line.unreported.calls for line in report.lines):
        yield from table(names, list(map(_row, report.lines)), _row(report.total))
    yield from _shadow_lines(report)
    yield from map(Line, _notes(report.total))


def _shadow_lines(report: Report) -> Iterator[Line]:
    """Yield what calls in shadow were, and what they would have been."""
    lines = [line for line in report.lines if line.shadow.calls]
    if lines:
        yield Line("in shadow: nothing was changed", "dim")
        names = ("calls>", "edited>", "input>", "with us>", "billed>", "with us>", report.by)
        yield from table(names, list(map(_shadow_row, lines)), _shadow_row(report.total))


def _shadow_row(line: ReportLine) -> tuple[str, ...]:
    sums = line.shadow
    money = sums.unpriced < sums.calls
    return (
        f"{sums.calls:,}",
        f"{sums.edited:,}",
        tokens(sums.would_input),
        tokens(sums.input),
        _dollars(sums.would_cost) if money else "?",
        _dollars(sums.cost) if money else "?",
        clean(line.name),
    )


def _row(line: ReportLine) -> tuple[str, ...]:
    sums, hits = line.sums, line.hit_rate
    priced = sums.unpriced < sums.calls or sums.summary_cost
    money = (sums.cost, sums.would_cost, sums.summary_cost)
    return (
        f"{line.sessions:,}",
        f"{sums.calls + line.unreported.calls:,}",
        tokens(sums.input),
        tokens(sums.would_input),
        f"{hits:.0%}" if hits is not None else "",
        tokens(sums.output),
        *(_dollars(figure) if priced else "?" for figure in money),
        f"{sums.refetches:,}",
        _savings(line) if priced else "?",
        clean(line.name),
    )


def _savings(line: ReportLine) -> str:
    share = f" ({line.sums.saved / line.sums.would_cost:.0%})" if line.sums.would_cost else ""
    return _dollars(line.sums.saved) + share


def _dollars(figure: int) -> str:
    value = figure / DOLLAR
    return f"{'-' * (value < 0)}${abs(value):,.{2 if abs(value) >= 100 else 4}f}"


def _notes(total: ReportLine) -> Iterator[str]:
    """Yield what the figures leave out, and what they are made of."""
    sums, missing = total.sums, total.unreported
    if sums.avoided:
        yield (
            f"{plural(sums.avoided, 'call')} would not have fitted the model's window; "
            f"{_dollars(sums.avoided_saved)} of what was saved is of these"
        )
    if sums.refetches:
        yield (
            f"the brake: {plural(sums.refetches, 'hidden result')} of {tokens(sums.refetched)} tokens "
            "fetched again; what is fetched again stays, and compaction comes later and goes less "
            f"far by it. {_dollars(sums.refetch_cost)} is charged for it"
        )
    if missing.calls:
        yield (
            f"{plural(missing.calls, 'call')} without usage from the upstream: "
            f"about {tokens(missing.fresh)} tokens of input by our own estimate, in no sum"
        )
    if sums.unpriced:
        calls = plural(sums.unpriced, "call")
        yield f"{calls} of models without a known price: tokens are counted, money is not"
    if sums.summaries_unpriced:
        calls = plural(sums.summaries_unpriced, "summary call")
        yield f"{calls} without a known price: their cost is not subtracted"
    yield (
        "what it would have cost without us is estimated, not measured (docs/gateway-operations.md)"
    )
