"""`refold unroll`: cut a corpus of sessions into physical traces for training."""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from warnings import catch_warnings, simplefilter

import click
from rich import progress

from refold.cli import terminal
from refold.cli.options import JSON, token_count
from refold.cli.places import flag, option
from refold.cli.terminal import Line, Lines, plural, short_path, table
from refold.corpus.inputs import list_inputs
from refold.corpus.output import Output, lock
from refold.corpus.run import Progress, list_cuts, report_page, summarize, unroll_files
from refold.corpus.segments import UnrollSettings
from refold.errors import ModelNotNamed
from refold.session_files import FIELDS, READERS

BYTES_PER_PROCESS = 4_000_000
"""Bytes of input that justify another process."""
FORMATS = tuple(dict.fromkeys((*FIELDS, *(reader.client for reader in READERS))))


@click.command(epilog="Example: refold unroll sessions --to 32k -o traces.jsonl")
@click.argument("paths", nargs=-1, required=True, metavar="IN...")
@option(
    "-o --output",
    "PATH",
    "File to write. Its suffix is .jsonl, .jsonl.gz, .jsonl.zst or .parquet.",
    required=True,
    type=click.Path(path_type=Path),
)
@option(
    "--to", "N", "Window of the agent in tokens. Default: 32k.", type=token_count, default="32k"
)
@option("--target", "N", "Compact down to N tokens. Default: half of --to.", type=token_count)
@option(
    "--reserve",
    "N",
    "Keep N tokens free for an answer. Default: an eighth of --to.",
    type=lambda value: 0 if value.strip() == "0" else token_count(value),
)
@option(
    "--strategy strategies",
    "NAME",
    "Strategy to use instead of the default ones, as in refold compact. May be repeated.",
    multiple=True,
)
@option(
    "--format",
    "NAME",
    "Format of the records. Default: detected.",
    default="",
    type=click.Choice(["", *FORMATS]),
)
@option("--model", "NAME", "Model to assume for records that name none.", default="")
@option(
    "--vocabulary",
    "NAME",
    "Count tokens with this tokenizer, such as qwen3, instead of estimating (extra `exact`).",
    default="",
)
@option("--jobs", "N", "Number of processes. Default: one per core.", type=click.IntRange(min=1))
@flag("--overwrite", "Replace the output file if it exists.")
@option(
    "--report page",
    "FILE",
    "Also write an HTML report with plots.",
    type=click.Path(path_type=Path),
)
@JSON
def unroll(
    paths: tuple[str, ...],
    output: Path,
    jobs: int | None,
    overwrite: bool,
    page: Path | None,
    as_json: bool,
    **options: Any,
) -> int:
    """Cut sessions into training rows, as a compacting agent would.

    One row per physical trace. IN is files (JSONL, JSON, Parquet, session files, also .gz and
    .zst), directories, patterns, or - for standard input. Records that cannot be read go to
    PATH.bad.jsonl. To resume a stopped run, repeat the command.
    """
    settings = UnrollSettings(**{**options, "strategies": options["strategies"] or None})
    for name, path in (("--output", output), ("--report", page)):
        if path and not path.parent.is_dir():
            raise click.UsageError(f"{name} {path}: there is no directory {path.parent}")
    with _with_standard_input(paths, output) as names, catch_warnings():
        simplefilter("ignore", ModelNotNamed)  # training data is sent to no provider
        files = list_inputs(names)
        if any(output.exists() and output.samefile(file) for file in files):
            raise click.UsageError(f"{output} is one of the inputs")
        size = sum(file.stat().st_size for file in files)
        jobs = min(jobs or os.cpu_count() or 1, 1 + size // BYTES_PER_PROCESS)
        try:
            with _show_progress(files) as watch:
                done = unroll_files(
                    files,
                    output,
                    settings,
                    jobs=jobs,
                    overwrite=overwrite,
                    watch=watch,
                    note=terminal.warn,
                )
        except ValueError as error:
            raise click.UsageError(str(error)) from error
        except KeyboardInterrupt:
            terminal.warn(f"stopped; the same command goes on with {output}")
            raise
    if page:
        page.write_text(report_page(done.tally, f"refold unroll: {output.name}"), encoding="utf-8")
    if as_json:
        bad = str(done.bad_path) if done.tally["bad"] else None
        figures = {**summarize(done.tally), "cuts": list_cuts(done.tally)}
        terminal.print_json({"output": str(output), "bad_rows": bad, **figures})
    else:
        terminal.print_lines(_lines(done))
    return int(not done.tally["sessions"])


def _lines(done: Output) -> Lines:
    figures = summarize(done.tally)
    names = [f"{name.replace('_', ' ')}>" for name in figures]
    yield from table((*names, ""), [(*(f"{value:,}" for value in figures.values()), "")])
    if cuts := list_cuts(done.tally):
        yield Line()
        rows = [
            (cut["strategy"], *(f"{cut[name]:,}" for name in ("edits", "messages", "tokens")), "")
            for cut in cuts
        ]
        yield from table(("cut by", "edits>", "messages>", "tokens>", ""), rows)
    yield Line()
    if done.passed:
        yield Line(f"went on behind {plural(done.passed, 'chunk')} of an earlier run")
    yield Line(f"wrote {short_path(done.path)}")
    if figures["bad"]:
        count = plural(figures["bad"], "record")
        yield Line(f"{count} could not be read: {short_path(done.bad_path)} says why")


@contextmanager
def _with_standard_input(paths: Sequence[str], output: Path) -> Iterator[list[str]]:
    """Yield *paths* with `-` replaced by a temporary copy of standard input beside the output."""
    if "-" not in paths:
        yield list(paths)
        return
    copy = output.with_name(f"{output.name}.stdin.part")
    with lock(copy):
        try:
            _keep_standard_input(copy)
            yield [str(copy) if path == "-" else path for path in paths]
        finally:
            copy.unlink(missing_ok=True)


def _keep_standard_input(copy: Path) -> None:
    try:
        with copy.open("wb") as file:
            shutil.copyfileobj(terminal.stdin(), file)
    except OSError as error:  # the error of a full disk names no file
        raise OSError(error.errno, error.strerror, str(copy)) from error


@contextmanager
def _show_progress(files: Sequence[Path]) -> Iterator[Callable[[Progress], object]]:
    """Show on a terminal the progress, speed, remaining time and counts."""
    starts, total = dict[str, int](), 0
    for file in files:
        starts.setdefault(str(file), total)
        total += file.stat().st_size
    columns = (
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(),
        progress.TextColumn("{task.description}"),
    )
    console = terminal.err()
    with progress.Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("", total=total)

        def watch(now: Progress) -> None:
            counts = ", ".join(
                f"{now.tally[name]:,} {name}" for name in ("sessions", "segments", "bad")
            )
            bar.update(task, completed=starts[now.path] + now.done, description=counts)

        yield watch
