"""The options that say which model answers, and what they make of the strategies."""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from importlib import import_module
from typing import Any

import click

from refold import models
from refold.cli import terminal as screen
from refold.cli.inputs import tokens
from refold.cli.options import Command
from refold.compactor.defaults import default_strategies
from refold.core.strategy import Answer, Ask, Strategy
from refold.core.view import View
from refold.models.driver import Asker
from refold.models.model import Price
from refold.strategies import ClearToolInputs, ClearToolResults, Summarize
from refold.summarizers.heuristic import RuleSummary
from refold.summarizers.model import ModelSummary

SDKS = ("openai", "anthropic", "litellm")
"""What may stand before a model's name and a colon."""


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """What the command line says about the model that summarises."""

    name: str = ""
    url: str = ""
    key_env: str = ""
    window: int | None = None
    price: Price | None = None
    instructions: str = ""

    def __post_init__(self) -> None:
        if not self.name and (self.url or self.key_env or self.window or self.price or self.instructions):
            raise click.UsageError("--model-... and --instructions say something about a --model, and none is named")
        if self.name and not self.url and self.sdk is None:
            raise click.UsageError(
                f"--model {self.name} needs --model-url, or a prefix: {', '.join(f'{sdk}:' for sdk in SDKS)}"
            )
        self.key  # noqa: B018 - a key that is missing is told before anything is read

    @property
    def sdk(self) -> str | None:
        """The SDK that is to ask; None for plain HTTP."""
        prefix, colon, name = self.name.partition(":")
        return prefix if colon and name and prefix in SDKS else None

    @property
    def key(self) -> str:
        """The key in the variable that was named. Raises `click.UsageError` where that says nothing."""
        if self.key_env and not os.environ.get(self.key_env):
            raise click.UsageError(f"--model-key-env: the environment has no {self.key_env}")
        return os.environ.get(self.key_env, "")

    def asker(self) -> Asker | None:
        """What answers: the model, asked again where a failure may pass. None if no model is named.

        Raises `click.UsageError` for an address that is none, or without the SDK.
        """
        if not self.name:
            return None
        try:
            model = _MODELS[self.sdk](self, self.name.partition(":")[2] if self.sdk else self.name)
        except (ImportError, ValueError) as error:
            raise click.UsageError(f"--model: {error}") from error
        return _shown(models.Fallback(model).by_hand, self.name)

    def strategies(self, named: Sequence[Strategy], view: View, to: int) -> tuple[Strategy, ...]:
        """The strategies that were named, or the default; their summaries by the model, if one is named."""
        if not self.name:
            return tuple(named) or default_strategies(to)
        summary = ModelSummary(instructions=self.instructions)
        if self.window is not None:
            summary = replace(summary, window=self.window)
        if named:
            return tuple(by_model(one, summary) for one in named)
        return _asking_once(view, to, summary)


def by_model(strategy: Strategy, summary: ModelSummary) -> Strategy:
    """The strategy with *summary* where it would summarise by rules."""
    changed: dict[str, Any] = {}
    if isinstance(getattr(strategy, "summarizer", None), RuleSummary):
        changed["summarizer"] = summary
    inner = getattr(strategy, "strategy", None)
    if inner is not None:
        changed["strategy"] = by_model(inner, summary)
    return replace(strategy, **changed) if changed else strategy  # type: ignore[type-var]  # all of ours are dataclasses


def _asking_once(view: View, to: int, summary: ModelSummary) -> tuple[Strategy, ...]:
    """The default strategies, with one summary for their several: it keeps as large a tail as will fit,
    so that one question is enough. Where it is not, results are cleared before another is asked."""
    local_and_thinking, room = default_strategies(to)[:3], max(600, min(4_000, to // 10))
    share = 0.9 * (to - view.profile.fixed_tokens - room) / max(1, view.estimate)
    first = Summarize(keep=round(min(0.8, max(0.05, share)), 2), max_tokens=room, summarizer=summary)
    last = Summarize(keep=8, max_tokens=room, summarizer=summary)
    return (*local_and_thinking, first, ClearToolResults(keep=3), ClearToolInputs(keep=3), last)


# --- one maker for each way of asking --------------------------------------------------------


def _http(options: ModelOptions, name: str) -> models.Model:
    return models.HTTPModel(options.url, name, options.key, price=options.price)


def _openai(options: ModelOptions, name: str) -> models.Model:
    client = import_module("openai").OpenAI(**_client(options)) if _client(options) else None
    return models.OpenAIModel(client, model=name, price=options.price)


def _anthropic(options: ModelOptions, name: str) -> models.Model:
    client = import_module("anthropic").Anthropic(**_client(options)) if _client(options) else None
    return models.AnthropicModel(client, model=name, price=options.price)


def _litellm(options: ModelOptions, name: str) -> models.Model:
    said = {"api_key": options.key, "api_base": options.url}
    return models.LiteLLMModel(name, {key: value for key, value in said.items() if value}, price=options.price)


_MODELS: dict[str | None, Callable[[ModelOptions, str], models.Model]] = {
    None: _http,
    "openai": _openai,
    "anthropic": _anthropic,
    "litellm": _litellm,
}


def _client(options: ModelOptions) -> dict[str, str]:
    """What an SDK's client is told; what is not said here it takes from its own environment variables."""
    said = {"api_key": options.key, "base_url": options.url}
    return {key: value for key, value in said.items() if value}


def _shown(model: Asker, name: str) -> Asker:
    """*model*, with a sign of life on a terminal while it is asked."""

    def ask(question: Ask) -> Answer | None:
        console = screen.err()
        if not console.is_terminal:
            return model(question)
        with console.status(f"asking {screen.clean(name)} for a {question.purpose}"):
            return model(question)

    return ask


# --- the options -----------------------------------------------------------------------------


def dollars_a_million(value: str) -> float:
    """A price in US dollars: a finite number that is not negative. Raises `click.BadParameter`."""
    try:
        found = float(value)
    except ValueError:
        found = math.nan
    if not math.isfinite(found) or found < 0:
        raise click.BadParameter(f"{value!r} is no price; write dollars per million tokens, such as 0.25")
    return found


def price(value: str | None) -> Price | None:
    """Prices in US dollars: `0.25,2.00`. Raises `click.BadParameter`."""
    if value is None:
        return None
    try:
        found = tuple(dollars_a_million(one) for one in value.split(","))
    except click.BadParameter:
        found = ()
    if not 2 <= len(found) <= 4:
        raise click.BadParameter(f"{value!r} is no price; write INPUT,OUTPUT in dollars per million tokens")
    return found


def takes_model(command: Command) -> Command:
    """Give a command the options of a model, as `model`, a `ModelOptions`."""

    @wraps(command)
    def wrapped(
        *arguments: Any,
        model_name: str,
        model_url: str,
        model_key_env: str,
        model_window: int | None,
        model_price: Price | None,
        instructions: str,
        **rest: Any,
    ) -> int | None:
        model = ModelOptions(model_name, model_url, model_key_env, model_window, model_price, instructions)
        return command(*arguments, model=model, **rest)

    for option in (
        click.option("--instructions", default="", metavar="TEXT", help="What the summary should also heed."),
        click.option(
            "--model-price",
            type=price,
            metavar="IN,OUT",
            help="What it costs, in US dollars per million tokens of input and output.",
        ),
        click.option(
            "--model-window",
            type=tokens,
            metavar="TOKENS",
            help="The most that one request to it may have. Default: 100k.",
        ),
        click.option(
            "--model-key-env", default="", metavar="NAME", help="The environment variable that holds its key."
        ),
        click.option(
            "--model-url",
            default="",
            metavar="URL",
            help="Its address up to the version, e.g. http://localhost:11434/v1.",
        ),
        click.option(
            "--model",
            "model_name",
            default="",
            metavar="NAME",
            help="Have a model summarise: a name with --model-url, or openai:NAME, anthropic:NAME, litellm:NAME.",
        ),
    ):
        wrapped = option(wrapped)
    return wrapped
