"""The commands: each reads its options, has the library work, and shows what came of it."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click

from refold.checking import check as violations
from refold.cli import documents, report, screen, tour
from refold.cli.inputs import Inputs, named, reason, tokens
from refold.cli.parts import parts
from refold.cli.show import diff_lines, message_lines, view_lines
from refold.codecs import CODECS
from refold.defaults import default_strategies
from refold.demo.trial import trial
from refold.errors import RefoldError
from refold.repairing import repair as mended
from refold.spans import dump
from refold.stores import MemoryStore
from refold.strategy import Strategy
from refold.transcripts import discover
from refold.view import View
from refold.workfile import WorkFile, accept, holder, open_work, preview, shares, take_back

Command = Callable[..., int | None]
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


def run(arguments: Sequence[str]) -> int:
    """Run a command and say how it ended: 0 done, 1 a check failed, 2 misuse or unreadable input.

    Errors are one line on standard error.
    """
    screen.prepare()
    try:
        with refold.make_context("refold", list(arguments)) as context:
            return refold.invoke(context) or 0
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.ClickException as error:
        screen.complain(error.format_message())
    except (click.Abort, KeyboardInterrupt):
        return 130
    except (BrokenPipeError, SystemExit):  # rich makes the second of the first
        screen.let_go()
        return 141
    except (RefoldError, OSError) as error:
        screen.complain(reason(error))
    except (RecursionError, MemoryError) as error:
        screen.complain(f"the input is too deep or too large to work on ({type(error).__name__})")
    return 2


def takes_sessions(command: Command) -> Command:
    """Give a command the options that say which sessions it works on, as an `Inputs`."""

    @wraps(command)
    def wrapped(
        paths: str | tuple[str, ...],
        store: str | None,
        id: str,
        every: bool,
        format: str | None,
        exact: bool,
        **rest: Any,
    ) -> int | None:
        inputs = Inputs((paths,) if isinstance(paths, str) else paths, store, id, every, format, exact)
        inputs.guard(rest.get("output"))
        return command(inputs, **rest)

    for option in (
        click.option(
            "--store", metavar="PATH", help="Keep edits here (SQLite; FILE.refold as text), not beside the session."
        ),
        click.option(
            "--session", "id", default="", metavar="ID", help="Which session of a file with several; else the latest."
        ),
        click.option("--all", "every", is_flag=True, help="Every session of each file."),
        click.option(
            "--format",
            type=click.Choice([codec.NAME for codec in CODECS]),
            help="The wire format, if its shape misleads.",
        ),
        click.option("--exact", is_flag=True, help="Count with o200k_base instead of estimating (extra `exact`)."),
        JSON,
    ):
        wrapped = option(wrapped)
    return wrapped


SESSIONS = click.argument("paths", nargs=-1, required=True, metavar="FILE...")
SESSION = click.argument("paths", metavar="FILE")


@click.group(
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Commands take session files, directories of them, or - for standard input. Session files are only ever read.",
)
@click.version_option(version("refold"), prog_name="refold", message="%(prog)s %(version)s")
@JSON
@click.pass_context
def refold(context: click.Context, as_json: bool) -> int | None:
    """Compact agents' sessions, see what a model would see, and take it back.

    Without a command: the sessions of Claude Code, Codex, Gemini CLI, Qwen Code, pi and OpenCode
    on this machine.
    """
    if context.invoked_subcommand is None:
        found = discover(Path.home(), os.environ)
        if as_json:
            screen.emit({"found": [documents.found(one) for one in found]})
        else:
            report.found(found)
    return None


@refold.command(epilog="Example: refold stats ~/.claude/projects")
@SESSIONS
@takes_sessions
@click.option("--largest", default=5, show_default=True, metavar="N", help="How many of the largest messages to show.")
def stats(inputs: Inputs, as_json: bool, largest: int) -> None:
    """Show where the tokens are: by role, by tool, by kind of part; the largest messages.

    Several files make a table with a total.
    """
    rows = [(work, parts(work.view, largest), _effective(work)) for work in inputs.works()]
    if as_json:
        screen.emit(documents.answer((documents.stats(*row) for row in rows), inputs.skipped))
    elif len(rows) == 1:
        report.stats(*rows[0])
    else:
        report.table([row[0] for row in rows])


@refold.command(epilog="Example: refold compact session.jsonl --to 60k")
@SESSIONS
@takes_sessions
@click.option("--to", required=True, type=tokens, metavar="TOKENS", help="How large it may be: 60000, 60k, 1.5M.")
@click.option("--strategy", "strategies", multiple=True, type=named, metavar="NAME",
              help="What may be done, gentlest first, e.g. 'ClearToolResults(keep=3)'. May be repeated.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Show what it would do; write nothing.")
@click.option("-o", "--output", metavar="PATH", help="Write the compacted request as JSON (- for standard output).")
def compact(
    inputs: Inputs, to: int, strategies: tuple[Strategy, ...], dry_run: bool, output: str | None, as_json: bool
) -> None:
    """Make sessions fit a number of tokens.

    The edits are written beside each session (FILE.refold) or into --store; the session itself is
    left alone. A session from standard input goes to standard output unless --output, --store or
    --json says otherwise.
    """
    chosen = strategies or default_strategies(to)
    if inputs.paths == ("-",) and not (output or inputs.store or as_json or dry_run):
        output = "-"
    if output == "-" and as_json:
        raise click.UsageError("--json and --output - both want standard output")
    done = []
    for work in [inputs.one()] if output else inputs.works():
        after = preview(work, chosen, to, format=inputs.format)
        kept = "" if dry_run else report.place(accept(work, after), inputs.store)
        done.append((work, work.view, after, shares(work.view, after, chosen), to, kept))
    if output:
        _write(output, done[0][2].payload)
    if as_json:
        screen.emit(documents.answer((documents.compaction(*row) for row in done), inputs.skipped))
    else:
        report.compactions(done, dry_run=dry_run, console=screen.err() if output == "-" else screen.out())


@refold.command(epilog="Example: refold view session.jsonl --diff | less -R")
@SESSIONS
@takes_sessions
@click.option("--diff", is_flag=True, help="What the model would see against what was said.")
@click.option("--payload", is_flag=True, help="The request itself, as JSON.")
@click.option(
    "--effective", is_flag=True, help="What the client's own recorded compactions left, instead of our edits."
)
@click.option("--lines", type=click.IntRange(min=0), metavar="N", help="At most N lines of each message.")
def view(inputs: Inputs, diff: bool, payload: bool, effective: bool, lines: int | None, as_json: bool) -> None:
    """Show what the model would see."""
    if payload:
        _write("-", _seen(inputs.one(), effective).view.payload)
        return
    seen = (_seen(work, effective) for work in inputs.works())
    if as_json:
        screen.emit(documents.answer([documents.view(work) for work in seen], inputs.skipped))
        return
    for work in seen:
        report.title(work)
        report.lines(diff_lines(work.view) if diff else view_lines(work.view, lines))


@refold.command(epilog="Example: refold unfold session.jsonl a81c")
@SESSION
@click.argument("edit", metavar="EDIT")
@takes_sessions
def unfold(inputs: Inputs, edit: str, as_json: bool) -> None:
    """Show exactly what an edit hides. EDIT is its id, or as much of it as is unambiguous.

    With --json the entries are as they stand in the session.
    """
    work = holder(inputs.works(), edit)
    if as_json:
        screen.emit(documents.answer([documents.unfolded(work, edit)], inputs.skipped))
        return
    one = work.view.find(edit)
    for message in work.view.transcript.messages[one.start : one.stop]:
        report.lines(message_lines(message))


@refold.command(epilog="Example: refold revert session.jsonl")
@SESSION
@click.argument("edits", nargs=-1, metavar="[EDIT]...")
@takes_sessions
def revert(inputs: Inputs, edits: tuple[str, ...], as_json: bool) -> None:
    """Take edits back: those named, or all of them. The session shows what was said again."""
    works = [holder(inputs.works(), id) for id in edits[:1]] or list(inputs.works())
    done = [(work, take_back(work, edits)) for work in works]
    rows = [(work, gone, work.view.revert(*(edit.id for edit in gone)) if gone else work.view) for work, gone in done]
    if as_json:
        screen.emit(documents.answer((documents.reverted(*row) for row in rows), inputs.skipped))
    else:
        report.reverted(rows)


@refold.command(epilog="Example: refold check request.json --repair -o mended.json")
@SESSIONS
@takes_sessions
@click.option("--sent", is_flag=True, help="Check what the edits show instead of what was said.")
@click.option("--repair", is_flag=True, help="Mend what can be mended without inventing content; needs --output.")
@click.option("-o", "--output", metavar="PATH", help="Where the mended request goes (- for standard output).")
def check(inputs: Inputs, sent: bool, repair: bool, output: str | None, as_json: bool) -> int:
    """List what the provider's API would refuse, with rule and position; exit code 1 if there is any.

    With --repair the exit code says whether anything is left.
    """
    if repair != bool(output):
        raise click.UsageError("--repair and --output go together")
    if output == "-" and as_json:
        raise click.UsageError("--json and --output - both want standard output")
    works = [inputs.one()] if repair else inputs.works()
    rows = [_checked(work, work.view.payload if sent else work.view.revert().payload, repair) for work in works]
    if output and (repaired := rows[0][2]):
        _write(output, repaired.payload)
    if as_json:
        screen.emit(documents.answer((documents.checked(*row) for row in rows), inputs.skipped))
    else:
        report.checked(rows, screen.err() if output == "-" else screen.out())
    return int(any(repaired.left if repaired else found for _, found, repaired in rows))


@refold.command()
@JSON
@click.option("--turns", type=click.IntRange(min=1), metavar="N", help="Only the first N answers of the model.")
def demo(as_json: bool, turns: int | None) -> int:
    """Compact a long agent session turn by turn, and prove that nothing was lost.

    Needs no key, no network and no model. Exit code 1 if a proof fails.
    """
    done = trial(turns, watch=tour.watch)
    if as_json:
        screen.emit(tour.document(done))
    else:
        tour.show(done)
    return int(not all(proof.holds for proof in done.proofs))


# --- small steps that several commands take ---------------------------------------------------


def _effective(work: WorkFile) -> int | None:
    """Tokens of what the client's own model saw, where its compactions are recorded."""
    return _seen(work, effective=True).view.tokens if work.session.compactions else None


def _seen(work: WorkFile, effective: bool) -> WorkFile:
    if not effective:
        return work
    session = replace(work.session, messages=work.session.effective, compactions=())
    return open_work(session, None, MemoryStore(), count=work.count)


def _checked(work: WorkFile, payload: Any, repair: bool) -> tuple[WorkFile, Any, Any]:
    format = work.view.envelope.codec.NAME if work.view.envelope else work.session.format
    return work, violations(payload, format), mended(payload, format) if repair else None


def _write(target: str, payload: Any) -> None:
    """A request as JSON, in the spelling in which it came if it came as text."""
    data = payload if isinstance(payload, bytes) else dump(payload).encode()
    if target == "-":
        screen.write(data)
    else:
        Path(target).write_bytes(data)


__all__ = ["View", "refold", "run"]
