"""Commands of the gateway: `refold serve` runs it, `refold prune` cleans its store, and `refold
report` shows the cost of its calls."""

import os
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from socket import gethostname
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click
from click.core import ParameterSource

from refold import gateway
from refold.cli import terminal
from refold.cli.options import GATEWAY_STORE, JSON, parse_since
from refold.cli.places import LOCATION_TYPE, STORE, data_directory, find_store, flag, option
from refold.cli.terminal import Line, Lines, Row, plural, printable, table, tokens
from refold.gateway.ledger.entry import (
    DOLLAR,
    Grouping,
    Report,
    ReportLine,
    Sums,
    build_report,
    floor_to_hour,
    report_as_json,
)
from refold.gateway.ledger.sql import prune as prune_store
from refold.gateway.ledger.writer import has_ledger, open_ledger
from refold.gateway.settings import is_loopback, parse_duration
from refold.gateway.tenants import HEADER
from refold.stores import file_path, is_server, open_store, require_file
from refold.text.json_values import Record

if TYPE_CHECKING:
    from refold.gateway import Config

# --- refold serve ---------------------------------------------------------------------------------

SHARE = click.FloatRange(0, 1, min_open=True)


@click.command()
@option(
    "--config path",
    "FILE",
    "Read settings from this TOML file. Options override it.",
    type=LOCATION_TYPE,
)
@option(
    "--upstream upstreams",
    "URL",
    "Forward requests to this address, to a provider by name (openai, anthropic, gemini ...), or "
    "with NAME=URL those below /NAME. May be repeated: a request's API decides.",
    multiple=True,
)
@option("--host", "ADDRESS", "Address to listen on. Default: 127.0.0.1.")
@option("--port", "N", "Port to listen on. Default: 8484.", type=click.IntRange(0, 65_535))
@option(
    "--store",
    "PLACE",
    "Store of the edits: an SQLite file or postgresql://... Default: $REFOLD_STORE, else refold.db "
    "here if a gateway was started here before, else in your data folder.",
    type=LOCATION_TYPE,
)
@option("--workers", "N", "Number of processes. Default: 1.", type=click.IntRange(1))
@option(
    "--record",
    "TIME",
    "Keep transcripts for this time after their last growth: 12h, 7d ... Default: none kept.",
)
@option(
    "--soft",
    "SHARE",
    "Prepare summaries from this share of the model's window on. Default: 0.7.",
    type=SHARE,
)
@option("--hard", "SHARE", "Compact from this share of it on. Default: 0.95.", type=SHARE)
@option("--target", "SHARE", "Compact down to this share of it. Default: 0.4.", type=SHARE)
@option(
    "--allow-host allowed_hosts",
    "NAME",
    "Also accept requests to this host name. May be repeated.",
    multiple=True,
)
@option(
    "--allow-origin allowed_origins",
    "ORIGIN",
    "Also accept requests from pages of this web site. May be repeated.",
    multiple=True,
)
@click.option(
    "--no-headers",
    "answer_headers",
    flag_value=False,
    default=None,
    help="Leave out the response headers that say what was done.",
)
@click.option(
    "--files/--no-files",
    default=None,
    help="List this user's session files on the web page. Default: only on 127.0.0.1.",
)
@click.option(
    "--shadow",
    is_flag=True,
    default=None,
    help="Change no request; only record what would have been done, for refold report.",
)
@option("--log", "LEVEL", "Log level: debug, info, warning or error. Default: info.")
@flag("--check", "Print what would be served as JSON, and exit.")
def serve(path: str | None, check: bool, **options: Any) -> int:
    """Run the gateway; agents use its address as their base URL.

    Long sessions are compacted when due. Otherwise bytes pass unchanged. Ctrl-C stops it after open
    streams have finished.
    """
    try:
        config, serve_gateway = _load_config(path, options).check_servable(), gateway.run
    except ImportError as error:
        raise click.ClickException(str(error)) from error
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    console = terminal.err()
    if console.is_terminal and not check:
        terminal.print_lines(banner(config), console)
    for upstream in config.upstreams if check or not console.is_terminal else ():
        terminal.warn(f"{_base(config)}{upstream.prefix} -> {upstream.url} ({upstream.name})")
    if check:
        names = [upstream.name for upstream in config.upstreams]
        terminal.print_json(
            {"listens": _address(config), "upstreams": names, "files": config.files}
        )
        return 0
    with _folder_of(config.store):
        serve_gateway(config)
    return 0


@contextmanager
def _folder_of(store: str) -> Iterator[None]:
    """Create the store's folder before the block if it is the user's data directory, and remove it
    afterwards if it is new and empty."""
    file = file_path(store)
    if file is None:
        yield
        return
    folder = file.absolute().parent
    is_new = not folder.exists()
    if folder == data_directory(Path.home()):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        yield
    finally:
        if is_new and folder.exists() and not any(folder.iterdir()):
            folder.rmdir()


def _address(config: "Config") -> str:
    """Return the host and port that the gateway listens on."""
    host = config.host.strip("[]")
    return f"[{host}]:{config.port}" if ":" in host else f"{host}:{config.port}"


def _base(config: "Config") -> str:
    """Return the URL of the gateway."""
    return f"http://{_address(config)}"


EVERY_INTERFACE = ("0.0.0.0", "::")  # noqa: S104 - compared, never bound
"""Wildcard addresses, which clients cannot use. They get the machine's name instead."""
CLIENTS = (
    ("anthropic", "Claude Code", "ANTHROPIC_BASE_URL={} claude"),
    ("anthropic", "Anthropic SDKs", "export ANTHROPIC_BASE_URL={}"),
    ("openai_responses", "Codex", 'openai_base_url = "{}/v1" in ~/.codex/config.toml'),
    ("openai_chat", "OpenAI SDKs", "export OPENAI_BASE_URL={}/v1"),
    ("gemini", "Gemini CLI", "GOOGLE_GEMINI_BASE_URL={} gemini"),
)
"""(API, client, setting) for each kind of client."""


def banner(config: "Config") -> Lines:
    """Yield how to use the gateway that was just started."""
    base, store = _base(config), config.store
    yield Line(f"Refold listens on {base}. Ctrl-C stops it once streams end.", "bold")
    if config.host.strip("[]") in EVERY_INTERFACE:
        base = _base(replace(config, host=gethostname()))
    yield Line()
    rows = list[tuple[str, str]]()
    for upstream in config.upstreams:
        rows.append(("upstream", f"{upstream.url} ({upstream.name})"))
        address = base + upstream.prefix
        rows += (
            (client, setting.format(address))
            for api, client, setting in CLIENTS
            if not upstream.apis or api in upstream.apis
        )
    rows.append(("web page", f"{base}/refold/"))
    if config.files:
        rows.append(("", "also lists your session files; --no-files turns that off"))
    file = file_path(store)
    rows.append(("store", terminal.short_path(file.absolute()) if file else _place_of(store)))
    if not config.record:
        rows.append(("transcripts", "not kept; with --record 7d the page shows conversations"))
    for name, text in dict.fromkeys(rows):
        yield Line.assemble((f"  {name:<16}", "dim"), printable(text))
    yield Line()


def _place_of(store: str) -> str:
    """Return the location of a store that is no file, without its password."""
    return urlsplit(store).hostname or "a database" if is_server(store) else "memory: lost at exit"


def _load_config(path: str | None, options: Record) -> "Config":
    """Return the file's settings, overridden by the flags. Raises ValueError, ImportError."""
    changes = {name: value for name, value in options.items() if value not in (None, ())}
    names = ("soft", "hard", "target", "shadow")
    shares = {name: changes.pop(name) for name in names if name in changes}
    own = gateway.Config(store=find_store())
    config = gateway.load_config(path) if path else gateway.with_environment(own)
    if "upstreams" in changes:
        changes["upstreams"] = tuple(map(gateway.parse_upstream, changes["upstreams"]))
    config = replace(config, settings=replace(config.settings, **shares), **changes)
    if config.files is None:  # other users must not see this user's files
        is_shared = bool(config.allowed_hosts) or config.tenant.startswith(HEADER)
        config = replace(config, files=is_loopback(config.host) and not is_shared)
    for upstream in config.upstreams:
        if _is_itself(upstream, config):
            raise ValueError(f"the upstream {upstream.name} is this gateway itself: {upstream.url}")
    return config


def _is_itself(upstream: "gateway.Upstream", config: "Config") -> bool:
    """Return whether an upstream that is reached without a proxy is this gateway."""
    address = urlsplit(upstream.url)
    hosts = {config.host, address.hostname or ""}
    is_here = len(hosts) == 1 or all(is_loopback(host) or host in EVERY_INTERFACE for host in hosts)
    port = address.port or (443 if address.scheme == "https" else 80)
    return is_here and port == config.port and not upstream.proxy


# --- refold prune ---------------------------------------------------------------------------------


@click.command()
@GATEWAY_STORE
@option(
    "--older",
    "TIME",
    "Delete what has not been used for this time: 90d, 2w ...; at least 1d.",
    required=True,
)
@JSON
def prune(store: str, older: str, as_json: bool) -> int:
    """Delete edits and records that no session has used for a time.

    Deletes edits, attempts, and the net ledger's lines about ended sessions. What an active session
    needs stays, however old it is, and so do token and money totals. Gateways may keep running.
    """
    require_file(store)
    with closing(open_ledger(store)) if has_ledger(store) else nullcontext() as ledger:
        try:
            removed = prune_store(open_store(store), ledger, parse_duration(older), time.time())
        except ValueError as error:
            raise click.UsageError(str(error)) from error
    if as_json:
        terminal.print_json(removed._asdict())
    else:
        counts = (plural(count, name[:-1]) for name, count in removed._asdict().items())
        terminal.print_lines([Line(f"deleted {', '.join(counts)}")])
    return 0


# --- refold report --------------------------------------------------------------------------------


@click.command()
@GATEWAY_STORE
@option(
    "--since",
    "TIME",
    "Show only calls of the last 12h, 7d ..., from a full hour on.",
    default="",
    callback=parse_since,
)
@click.option(
    "--by",
    type=click.Choice(["session", "model", "day"]),
    default="model",
    show_default=True,
    help="Show one row per session, model or day (UTC).",
)
@JSON
@click.pass_context
def report(context: click.Context, store: str, since: float, by: Grouping, as_json: bool) -> int:
    """Show what the gateway's calls cost and what it saved.

    Savings are negative if compaction cost more than it saved. Gateways may keep running.
    """
    first = floor_to_hour(since)
    is_option = context.get_parameter_source("store") is not ParameterSource.DEFAULT
    is_named = is_option or bool(os.environ.get(STORE))  # it may be misspelt
    is_used = is_named or has_ledger(store)
    with closing(open_ledger(store, create=False)) if is_used else nullcontext() as ledger:
        result = build_report(ledger.entries(first) if ledger else (), by, first)
    if as_json:
        terminal.print_json(report_as_json(result))
    elif is_used:
        terminal.print_lines(_report_lines(result))
    else:
        place = terminal.short_path(Path(store).absolute())
        terminal.print_lines(
            [
                Line(f"no calls recorded: no gateway has written to {place} yet"),
                Line("refold run COMMAND starts one for a command, refold serve one for a team"),
            ]
        )
    return 0


def _report_lines(report: Report) -> Lines:
    if not report.lines:
        yield Line("no calls recorded" + " in this period" * bool(report.since))
        return
    since = ""
    if report.since:
        since = datetime.fromtimestamp(report.since, UTC).strftime("since %Y-%m-%d %H:%M UTC, ")
    yield Line(f"{since}by {report.by}", "dim")
    names = (
        *("sessions>", "calls>", "input>", "unedited>", "cache hits>", "output>", "billed>"),
        *("without Refold>", "summaries>", "refetches>", "saved>", report.by),
    )
    if any(line.sums.calls or line.unreported.calls for line in report.lines):
        yield from table(names, map(_row, report.lines), _row(report.total))
    yield from _shadow_lines(report)
    yield from map(Line, _notes(report.total))


def _shadow_lines(report: Report) -> Lines:
    """Yield figures of calls in shadow mode, as they were and as they would have been."""
    lines = [line for line in report.lines if line.shadow.calls]
    if lines:
        yield Line("in shadow: nothing was changed", "dim")
        names = (
            "calls>",
            "edited>",
            "input>",
            "with Refold>",
            "billed>",
            "with Refold>",
            report.by,
        )
        yield from table(names, map(_shadow_row, lines), _shadow_row(report.total))


def _shadow_row(line: ReportLine) -> Row:
    sums = line.shadow
    money = sums.unpriced < sums.calls
    return (
        f"{sums.calls:,}",
        f"{sums.edited:,}",
        tokens(sums.would_input),
        tokens(sums.input),
        _dollars(sums.would_cost) if money else "?",
        _dollars(sums.cost) if money else "?",
        printable(line.name),
    )


def _row(line: ReportLine) -> Row:
    sums, hits = line.sums, line.hit_rate
    priced = _is_priced(sums)
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
        _savings(line) if priced else _tokens_saved(sums),
        printable(line.name),
    )


def _is_priced(sums: Sums) -> bool:
    """Return whether any price is known."""
    return sums.unpriced < sums.calls or bool(sums.summary_cost)


def _tokens_saved(sums: Sums) -> str:
    count = sums.would_input - sums.input
    return f"{'-' * (count < 0)}{tokens(abs(count))} tokens"


def _savings(line: ReportLine) -> str:
    share = f" ({line.sums.saved / line.sums.would_cost:.0%})" if line.sums.would_cost else ""
    return _dollars(line.sums.saved) + share


def _dollars(figure: int) -> str:
    value = figure / DOLLAR
    return f"{'-' * (value < 0)}${abs(value):,.{2 if abs(value) >= 100 else 4}f}"


def _notes(total: ReportLine) -> Iterator[str]:
    """Yield notes on what the figures omit and how they are computed."""
    sums, missing, priced = total.sums, total.unreported, _is_priced(total.sums)
    if sums.avoided:
        saved = f"; they account for {_dollars(sums.avoided_saved)} of the savings"
        yield (
            f"{plural(sums.avoided, 'call')} would not have fitted the model's window"
            f"{saved if priced else ''}"
        )
    if sums.refetches:
        charged = f". The savings are reduced by {_dollars(sums.refetch_cost)} for it"
        yield (
            f"{plural(sums.refetches, 'hidden result')} of {tokens(sums.refetched)} tokens fetched again: "
            "what is fetched again is kept, and compaction now starts later and hides less"
            f"{charged if priced else ''}"
        )
    if missing.calls:
        yield (
            f"{plural(missing.calls, 'call')} without usage from the upstream: "
            f"about {tokens(missing.fresh)} input tokens by our estimate, not included above"
        )
    if sums.unpriced:
        calls = plural(sums.unpriced, "call")
        yield (
            f"{calls} of models without a known price: tokens are counted, cost is not; "
            "set [prices] in refold.toml"
        )
    if sums.summaries_unpriced:
        calls = plural(sums.summaries_unpriced, "summary call")
        yield f"{calls} without a known price: their cost is not subtracted"
    yield (
        "without Refold: estimated, not measured, from the upstream's token counts and cache hits, "
        "plus the tokens that edits removed"
    )
