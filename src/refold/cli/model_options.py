"""The options of the model that summarises, and the strategies that use it."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import click

from refold import models
from refold.cli import terminal
from refold.cli.options import group_options, token_count
from refold.compactor.settings import default_strategies
from refold.core.strategy import Answer, Ask, Strategy
from refold.core.view import View
from refold.models.driver import Asker
from refold.models.model import Price
from refold.strategies import ClearToolInputs, ClearToolResults, Summarize
from refold.summarizers.heuristic import RuleSummary
from refold.summarizers.model import ModelSummary

SDKS = ("openai", "anthropic", "litellm")
"""Prefixes of a model's name."""


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """The model that summarises. Raises `click.UsageError` for options that do not fit together."""

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
        """The SDK that asks; None for plain HTTP."""
        prefix, colon, name = self.name.partition(":")
        return prefix if colon and name and prefix in SDKS else None

    @property
    def key(self) -> str:
        """The key in the named variable."""
        return os.environ.get(self.key_env, "").strip()

    def asker(self) -> Asker | None:
        """Return the model, with retries for failures that may pass; None if no model is named.

        Raises `click.UsageError` for an invalid address, or without the SDK.
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
        # An SDK takes what is not set from environment variables.
        options = {"api_key": self.key, "base_url": self.url}
        settings: dict[str, Any] = {option: value for option, value in options.items() if value}
        if self.sdk == "litellm":
            return models.LiteLLMModel(model=name, options=settings, price=self.prices)
        kind = models.OpenAIModel if self.sdk == "openai" else models.AnthropicModel
        client = kind.make_client(**settings) if settings else None
        return kind(client, model=name, price=self.prices)

    def strategies(self, named: Sequence[Strategy], view: View, to: int) -> tuple[Strategy, ...]:
        """Return the named strategies, else the default ones; the model writes their summaries."""
        if not self.name:
            return tuple(named) or default_strategies(to)
        summary = ModelSummary(instructions=self.instructions)
        if self.window is not None:
            summary = replace(summary, window=self.window)
        if named:
            return tuple(with_summarizer(strategy, summary) for strategy in named)
        return _one_question(view, to, summary)


def with_summarizer(strategy: Strategy, summary: ModelSummary) -> Strategy:
    """Return the strategy with *summary* in place of summaries by rules."""
    changes: dict[str, Any] = {}
    if isinstance(getattr(strategy, "summarizer", None), RuleSummary):
        changes["summarizer"] = summary
    inner = getattr(strategy, "strategy", None)
    if inner is not None:
        changes["strategy"] = with_summarizer(inner, summary)
    return replace(strategy, **changes) if changes else strategy  # type: ignore[type-var]


def _one_question(view: View, to: int, summary: ModelSummary) -> tuple[Strategy, ...]:
    """Return the default strategies with one summary that keeps the largest tail that fits.

    So one question is enough. If it is not, results are cleared before another is asked.
    """
    without_summaries, max_tokens = default_strategies(to)[:3], max(600, min(4_000, to // 10))
    share = 0.9 * (to - view.profile.fixed_tokens - max_tokens) / max(1, view.estimate)
    keep = round(min(0.8, max(0.05, share)), 2)
    first = Summarize(keep=keep, max_tokens=max_tokens, summarizer=summary)
    last = Summarize(keep=8, max_tokens=max_tokens, summarizer=summary)
    return (*without_summaries, first, ClearToolResults(keep=3), ClearToolInputs(keep=3), last)


def _with_status(model: Asker, name: str) -> Asker:
    """Return *model* with a sign of life on a terminal while it answers."""

    def ask(question: Ask) -> Answer | None:
        console = terminal.err()
        if not console.is_terminal:
            return model(question)
        with console.status(f"asking {terminal.clean(name)} for a {question.purpose}"):
            return model(question)

    return ask


# --- the options -----------------------------------------------------------------------------


def dollars_per_million(value: str) -> float:
    """Return a price in US dollars: finite and not negative. Raises `click.BadParameter`."""
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
    """Return prices in US dollars: `0.25,2.00`. Raises `click.BadParameter`."""
    try:
        prices = tuple(dollars_per_million(price) for price in value.split(","))
    except click.BadParameter:
        prices = ()
    if not 2 <= len(prices) <= 4:
        raise click.BadParameter(
            f"{value!r} is no price; write INPUT,OUTPUT in dollars per million tokens"
        )
    return prices


_OPTIONS = (
    click.option(
        "--instructions", default="", metavar="TEXT", help="Further instructions for the summary."
    ),
    click.option(
        "--model-price",
        "prices",
        type=model_price,
        metavar="IN,OUT",
        help="What it costs, in US dollars per million tokens of input and output.",
    ),
    click.option(
        "--model-window",
        "window",
        type=token_count,
        metavar="TOKENS",
        help="The most that one request to it may have. Default: 100k.",
    ),
    click.option(
        "--model-key-env",
        "key_env",
        default="",
        metavar="NAME",
        help="The environment variable that holds its key.",
    ),
    click.option(
        "--model-url",
        "url",
        default="",
        metavar="URL",
        help="Its address up to the version, e.g. http://localhost:11434/v1.",
    ),
    click.option(
        "--model",
        "name",
        default="",
        metavar="NAME",
        help="Have a model summarise: a name with --model-url, or openai:NAME, anthropic:NAME, "
        "litellm:NAME.",
    ),
)

model_options = group_options("model", ModelOptions, _OPTIONS)
"""Gives a command the options of a model, as `model`."""
