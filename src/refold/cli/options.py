"""Shared options of commands: for sessions, outputs, and the model that writes summaries."""

import getpass
import math
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import wraps
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from refold import models
from refold.cli import terminal
from refold.cli.inputs import NO_SESSION, Inputs, Use
from refold.cli.places import LOCATION_TYPE, STORE, Command, Option, find_store, flag, option
from refold.cli.sessions import ids_on_machine
from refold.codecs.detect import CODECS
from refold.codecs.json_text import dump
from refold.compactor.settings import default_strategies, parse_strategy
from refold.core.strategy import Answer, Ask, Strategy
from refold.gateway.settings import parse_duration
from refold.models.driver import Asker
from refold.models.model import Price
from refold.session_files.source import MIN_ID_PREFIX
from refold.summarizers.heuristic import RuleSummary
from refold.summarizers.model import ModelSummary
from refold.text.json_values import (
    JsonObject,
    without_empty,
)

# --- values ---------------------------------------------------------------------------------------

MAX_TOKENS = 10**15
_NUMBER = re.compile(r"(\d[\d_,]{0,30}(?:\.\d{1,30})?)\s*([kKmM]?)", re.ASCII)


def token_count(value: str) -> int:
    """Parse a number of tokens: 60000, 60_000, 60k, 1.5M. Raises `click.BadParameter`."""
    match = _NUMBER.fullmatch(value.strip())
    if not match:
        raise click.BadParameter(f"{value[:40]!r} is no number of tokens; write 60000, 60k or 1.5M")
    unit = {"": 1, "k": 1_000, "m": 1_000_000}[match[2].lower()]
    count = round(Fraction(re.sub("[_,]", "", match[1])) * unit)
    if not 1 <= count <= MAX_TOKENS:
        raise click.BadParameter(f"{value!r}: it must be from 1 to {MAX_TOKENS:,} tokens")
    return count


def dollars_per_million(value: str) -> float:
    """Parse a price in US dollars, finite and not negative. Raises `click.BadParameter`."""
    try:
        price = float(value)
    except ValueError:
        price = math.nan
    if not math.isfinite(price) or price < 0:
        raise click.BadParameter(
            f"{value!r} is no price; write dollars per million tokens, such as 0.25"
        )
    return price


def model_price(value: str) -> Price:
    """Parse prices in US dollars per million tokens: of input and output (`0.25,2.00`), then, if
    given, of cached input and cache writes. Raises `click.BadParameter`."""
    try:
        prices = tuple(dollars_per_million(price) for price in value.split(","))
    except click.BadParameter:
        prices = ()
    if not 2 <= len(prices) <= 4:
        raise click.BadParameter(
            f"{value!r} is no price; write INPUT,OUTPUT in dollars per million tokens"
        )
    return prices


def strategy_named(value: str) -> Strategy:
    """Parse a strategy: ClearToolResults(keep=3). Raises `click.BadParameter`."""
    try:
        return parse_strategy(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def parse_since(_: click.Context, option: click.Parameter, value: str) -> float:
    """Return the start of the last 7d, 12h ... in seconds since 1970; 0 for an empty value. An
    option callback. Raises `click.UsageError`."""
    try:
        return time.time() - parse_duration(value) if value else 0.0
    except ValueError as error:
        raise click.UsageError(f"{option.opts[0]}: {error}") from error


def login_name() -> str:
    """Return the login name of the user, or `manual` if the system knows none."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a user id without a name, or Windows
        return "manual"


# --- outputs --------------------------------------------------------------------------------------


def check_output(output: str | None, inputs: Inputs, option: str = "--output") -> None:
    """Check an output option before costly work. Raises `click.UsageError` for a file that cannot
    be written or is a session, and for two outputs on standard output."""
    if not output:
        return
    if output == "-":
        if inputs.as_json:
            raise click.UsageError(f"--json and {option} - both want standard output")
        return
    inputs.protect(output, [target.path for target in inputs.targets])
    path = Path(output)
    if path.is_dir():
        raise click.UsageError(f"{option} {output}: it is a directory")
    if not path.parent.is_dir():
        raise click.UsageError(f"{option} {output}: there is no directory {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise click.UsageError(f"{option} {output}: it may not be written")


def write_request(output: str, payload: Any) -> None:
    """Write a request as JSON, or its bytes if it came as bytes. `-` is standard output."""
    write_output(output, payload if isinstance(payload, bytes) else dump(payload).encode())


def write_output(output: str, data: bytes) -> None:
    """Write bytes to standard output (`-`) or atomically to a file. Raises `OSError` naming it."""
    if output == "-":
        terminal.write(data)
        return
    path = draft = Path(output)
    target = Path(os.path.realpath(path))
    if (path.is_file() or not path.exists()) and os.access(target.parent, os.W_OK):
        path = target  # a pipe is written directly
        draft = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        draft.write_bytes(data)
        if draft != path:
            if path.exists():
                shutil.copymode(path, draft)
            draft.replace(path)
    except OSError as error:  # the error of a full disk names no file
        if draft != path:
            draft.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, output) from error


# --- options and arguments ------------------------------------------------------------------------

GATEWAY_STORE = option(
    "--store",
    "PLACE",
    f"Store of the gateway. Default: ${STORE}, else refold.db here if a gateway has used it, "
    "else the store of refold run.",
    type=LOCATION_TYPE,
    default=find_store,
)
JSON = flag("--json as_json", "Print one JSON document.")


def complete_session(_: click.Context, __: click.Parameter, typed: str) -> list[CompletionItem]:
    """Return completions: files, and ids of sessions on this machine."""
    ids = ids_on_machine(typed) if len(typed) >= MIN_ID_PREFIX else []
    return [CompletionItem(typed, type="file"), *map(CompletionItem, ids)]


SESSIONS = click.argument("paths", nargs=-1, metavar="[FILE]...", shell_complete=complete_session)
SESSION = click.argument(
    "paths",
    metavar="[FILE]",
    callback=lambda _, __, path: (path,) if path else (),
    shell_complete=complete_session,
)


class SingleSessionCommand(click.Command):
    """A command whose first argument is a session, unless an option selects one."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert an empty first argument if --last or --project is among *args*."""
        options = args[: args.index("--")] if "--" in args else args
        if any(option.partition("=")[0] in {"--last", "--project"} for option in options):
            args = ["", *args]
        try:
            return super().parse_args(ctx, args)
        except click.MissingParameter as error:
            if error.param is not None and error.param.name == "paths":
                raise click.UsageError(NO_SESSION) from error
            raise


ACTOR = option(
    "--actor",
    "NAME",
    "Name that refold history shows for this change. Default: your login name.",
    default=login_name,
)
_SESSION_OPTIONS = (
    option(
        "--store",
        "PLACE",
        "Store of the edits: an SQLite file, a text file NAME.refold, or postgresql://... "
        "Default: a file beside the session.",
        type=LOCATION_TYPE,
    ),
    option(
        "--session id",
        "ID",
        "Use this session of a file with several. Default: the latest.",
        default="",
    ),
    flag("--last", "Use only the latest session, of this machine or of --project."),
    option("--project", "DIR", "Use the sessions that ran in this directory or below it."),
    flag("--all every", "Use every session of each file."),
    click.option(
        "--format",
        type=click.Choice([codec.NAME for codec in CODECS]),
        help="Wire format of the messages. Default: detected.",
    ),
    flag("--exact", "Count tokens with o200k_base instead of estimating (extra `exact`)."),
    flag("--why", "List the formats that were tried for a file that cannot be read."),
    JSON,
)


def group_options(
    name: str, record: type[Any], options: Iterable[Option], **settings: Any
) -> Option:
    """Return a decorator that adds *options* to a command. It gets them as one argument *name*: a
    *record* made from their values and from *settings*."""
    names = {field.name for field in fields(record)}

    def decorate(command: Command) -> Command:
        @wraps(command)
        def run(**values: Any) -> int | None:
            own = {key: values.pop(key) for key in names & values.keys()}
            return command(**{name: record(**own, **settings)}, **values)

        grouped: Command = run
        for add in options:
            grouped = add(grouped)
        return grouped

    return decorate


def sessions_command(
    use: Use, example: str, *, is_of_one: bool = False
) -> Callable[[Command], click.Command]:
    """Return a decorator that makes a function a command on sessions, or on one session. It gets
    the options that select sessions as `inputs`."""
    argument, kind = (SESSION, SingleSessionCommand) if is_of_one else (SESSIONS, click.Command)
    options = group_options("inputs", Inputs, _SESSION_OPTIONS, use=use)

    def decorate(function: Command) -> click.Command:
        command = click.command(cls=kind, epilog=f"Example: refold {example}")
        return command(argument(options(function)))

    return decorate


# --- the model that summarises --------------------------------------------------------------------

SDKS = ("openai", "anthropic", "litellm")
"""Prefixes of model names that select an SDK."""


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """The model that writes summaries. Raises `click.UsageError` for inconsistent options."""

    name: str = ""
    url: str = ""
    key_env: str = ""
    window: int | None = None
    prices: Price | None = None
    instructions: str = ""

    def __post_init__(self) -> None:
        if not self.name and any(
            (self.url, self.key_env, self.window, self.prices, self.instructions)
        ):
            raise click.UsageError(
                "--model-... and --instructions say something about a --model, and none is named"
            )
        if self.name and not self.url and self.sdk is None:
            prefixes = ", ".join(f"{sdk}:" for sdk in SDKS)
            raise click.UsageError(
                f"--model {self.name} needs --model-url, or a prefix: {prefixes}"
            )
        if self.key_env and not self.key:
            raise click.UsageError(f"--model-key-env: the environment has no {self.key_env}")

    @property
    def sdk(self) -> str | None:
        """SDK to use; None for plain HTTP."""
        prefix, colon, name = self.name.partition(":")
        return prefix if colon and name and prefix in SDKS else None

    @property
    def key(self) -> str:
        """API key from the environment variable *key_env*; empty if it is not set."""
        return os.environ.get(self.key_env, "").strip()

    def asker(self) -> Asker | None:
        """Return the model, with retries of transient failures; None if no model is named.

        Raises `click.UsageError` for an invalid URL, or if the SDK is missing.
        """
        if not self.name:
            return None
        try:
            model = self._model()
        except (ImportError, ValueError) as error:
            raise click.UsageError(f"--model: {error}") from error
        return _with_status(models.Fallback(model).manual, self.name)

    def _model(self) -> models.Model:
        if self.sdk is None:
            return models.HTTPModel(self.url, model=self.name, key=self.key, price=self.prices)
        name = self.name.partition(":")[2]
        # An SDK takes unset values from environment variables.
        settings = without_empty({"api_key": self.key, "base_url": self.url})
        if self.sdk == "litellm":
            return models.LiteLLMModel(model=name, options=settings, price=self.prices)
        kind = models.OpenAIModel if self.sdk == "openai" else models.AnthropicModel
        client = kind.make_client(**settings) if settings else None
        return kind(client, model=name, price=self.prices)

    def strategies(self, named: Sequence[Strategy], to: int) -> tuple[Strategy, ...]:
        """Return the named strategies, or the default ones, with the model as their summarizer."""
        strategies = tuple(named) or default_strategies(to)
        if not self.name:
            return strategies
        summary = ModelSummary(instructions=self.instructions)
        if self.window is not None:
            summary = replace(summary, window=self.window)
        return tuple(with_summarizer(strategy, summary) for strategy in strategies)


def with_summarizer(strategy: Strategy, summary: ModelSummary) -> Strategy:
    """Return the strategy, and the strategy that it wraps, with *summary* in place of
    `RuleSummary`."""
    changes: JsonObject = {}
    if isinstance(getattr(strategy, "summarizer", None), RuleSummary):
        changes["summarizer"] = summary
    inner = getattr(strategy, "strategy", None)
    if inner is not None:
        changes["strategy"] = with_summarizer(inner, summary)
    return replace(strategy, **changes) if changes else strategy  # type: ignore[type-var]


def _with_status(model: models.Model, name: str) -> Asker:
    """Return *model* with a status line on a terminal while it answers."""

    def ask(question: Ask) -> Answer | None:
        console = terminal.err()
        if not console.is_terminal:
            return model(question)
        with console.status(f"asking {terminal.printable(name)} for a {question.purpose}"):
            return model(question)

    return ask


# --- options of the model -------------------------------------------------------------------------

_MODEL_OPTIONS = (
    option("--instructions", "TEXT", "Additional instructions for the summary.", default=""),
    option(
        "--model-price prices",
        "IN,OUT",
        "Price of --model in US dollars per million input and output tokens.",
        type=model_price,
    ),
    option(
        "--model-window window",
        "TOKENS",
        "Maximum tokens of one request to --model. Default: 100k.",
        type=token_count,
    ),
    option(
        "--model-key-env key_env",
        "NAME",
        "Environment variable that holds the API key of --model.",
        default="",
    ),
    option(
        "--model-url url",
        "URL",
        "Base URL of --model, including the version: http://localhost:11434/v1.",
        default="",
    ),
    option(
        "--model name",
        "NAME",
        "Model that writes the summaries: a name with --model-url, or openai:NAME, "
        "anthropic:NAME, litellm:NAME. Default: rules write them.",
        default="",
    ),
)

model_options = group_options("model", ModelOptions, _MODEL_OPTIONS)
"""Decorator that passes the model options to a command as `model`."""
