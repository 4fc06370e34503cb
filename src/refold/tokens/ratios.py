"""How many tokens a provider counts for an estimated one (F15): by its model's family as long as it
reported nothing, then as its reports tell, for each model and, beside a constant, for each system
prompt.

A caller that gives its messages alone sends a system prompt and tools that we never see. One report
cannot tell those from another tokenizer; two of one conversation can, since what is not seen stays
as it is while the conversation grows.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import NamedTuple

from refold.tokens.model_table import ModelTable

BOUNDS = 0.5, 3.0
"""What a provider may count for each estimated token: a ratio beyond is a fault of measurement, or a
sum over several calls."""
LEAST = 200
"""Estimated tokens that must have come between two reports for these to tell anything."""
ENOUGH = 1_000
"""Estimated tokens that must have come, all together, before a line is drawn."""
ALIKE = 1.6
"""How far a step's ratio may be from the middle one to count: beyond is a wrong report, or a prompt
that was changed."""
MOST = 200
"""Steps that are held of one line, the newest."""
MAX_WEIGHT = 200_000
"""Estimated tokens after which a new observation weighs as much as all before it."""


def _read_ratio(*, ratio: float) -> float:
    return float(ratio)


PRIORS = ModelTable(Path(__file__).with_name("priors.json"), _read_ratio)


def prior_of(model: str) -> float:
    """Return the tokens that the provider of *model* is expected to count for an estimated one; 1.0
    for a family of which nothing was measured."""
    return PRIORS.lookup(model) or 1.0


def no_prior(model: str) -> float:  # noqa: ARG001 - as `prior_of`
    """Return 1.0: a token that is counted by the model's own tokenizer, or only compared, is one
    token."""
    return 1.0


@dataclass(frozen=True, slots=True)
class Ratios:
    """How many tokens each model's provider counts for an estimated one, learned as you go.

    Immutable: `learn` returns another. Claude, for example, counts 1.1 to 1.5 times o200k.
    """

    by_model: Mapping[str, tuple[float, int]] = field(default_factory=lambda: MappingProxyType({}))
    """By model: the ratio, and the estimated tokens it was learned from (at most MAX_WEIGHT)."""

    def of(self, model: str, prior: float = 1.0) -> float:
        """Return the ratio of *model*; *prior* if nothing was learned."""
        return self.by_model.get(model, (prior, 0))[0]

    def learn(self, model: str, estimated: int, reported: int) -> "Ratios":
        """Return these ratios after one more request of *model*.

        They are running means weighted by tokens, so that short requests with their hidden prompts
        count little; figures outside BOUNDS, and empty ones, teach nothing.
        """
        if estimated <= 0 or not BOUNDS[0] <= reported / estimated <= BOUNDS[1]:
            return self
        ratio, weight = self.by_model.get(model, (1.0, 0))
        mean = (ratio * weight + reported) / (weight + estimated)
        return Ratios(
            MappingProxyType({**self.by_model, model: (mean, min(MAX_WEIGHT, weight + estimated))})
        )


Key = tuple[str, int]
"""A model, and the estimated tokens of the system prompt and tools that are given."""


class Line(NamedTuple):
    """Expected tokens are `ratio * estimated + constant`."""

    ratio: float
    constant: int


class Step(NamedTuple):
    """From one report of a conversation to a later one."""

    estimated: int
    """Of the later one."""
    reported: int
    came: int
    """Estimated tokens that came between them."""
    ratio: float
    """Reported tokens for each of those."""


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines of all models. Immutable: `learn` returns another."""

    by_key: Mapping[Key, tuple[tuple[Step, ...], Line | None]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """The steps of each line, and the line, if they tell enough."""

    def of(self, key: Key) -> Line | None:
        """Return the line of *key*; None if too little is known."""
        return self.by_key[key][1] if key in self.by_key else None

    def learn(self, key: Key, before: tuple[int, int], now: tuple[int, int]) -> "Lines":
        """Return these lines after two reports of one conversation, each as estimated and as
        reported tokens."""
        came, grown = now[0] - before[0], now[1] - before[1]
        if came < LEAST or not BOUNDS[0] <= grown / came <= BOUNDS[1]:
            return self
        before_steps = self.by_key[key][0] if key in self.by_key else ()
        steps = (*before_steps, Step(*now, came, grown / came))[-MOST:]
        return Lines(MappingProxyType({**self.by_key, key: (steps, _fit(steps))}))


def _fit(steps: tuple[Step, ...]) -> Line | None:
    """Draw the line of *steps*, if they are enough. One wrong report among several moves it
    little."""
    if sum(step.came for step in steps) < ENOUGH:
        return None
    middle = _middle((step.ratio, step.came) for step in steps)
    alike = [step for step in steps if middle / ALIKE <= step.ratio <= middle * ALIKE]
    ratio = sum(step.ratio * step.came for step in alike) / sum(step.came for step in alike)
    beside = median(step.reported - ratio * step.estimated for step in steps)
    if beside >= 0:
        return Line(ratio, round(beside))
    through = median(step.reported / max(1, step.estimated) for step in steps)  # nothing is hidden
    return Line(min(max(through, BOUNDS[0]), BOUNDS[1]), 0)


def _middle(weighed: Iterable[tuple[float, int]]) -> float:
    """Return the weighted median."""
    ordered = sorted(weighed)
    half, passed = sum(weight for _, weight in ordered) / 2, 0
    for value, weight in ordered:
        passed += weight
        if passed >= half:
            return value
    raise ValueError("nothing is weighed")
