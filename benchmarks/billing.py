"""Bills of the calls of a replayed session, with a prompt cache and without."""

from collections.abc import Sequence
from dataclasses import dataclass

from refold.core.view import View
from refold.messages import Message
from refold.tokens.count import Counter


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of a model in US dollars per million tokens, and their date."""

    model: str
    date: str
    input: float
    """Input without a cache."""
    output: float
    cached: float
    """Input that is read from a cache."""
    written: float
    """Input that is written to the cache for five minutes."""

    @property
    def row(self) -> tuple[float, float, float, float]:
        """Return the prices in the form that `refold.models` takes."""
        return self.input, self.output, self.cached, self.written

    def __str__(self) -> str:
        return (
            f"Prices of {self.model}, {self.date}, dollars a million tokens: input {self.input:g}, read from the cache "
            f"{self.cached:g}, written to it {self.written:g}, output {self.output:g}"
        )


PRICES = Prices("Claude Opus 5.5", "November 2026", input=4.0, output=20.0, cached=0.2, written=5.0)


@dataclass(frozen=True, slots=True)
class Bill:
    """A bill in US dollars."""

    plain: float = 0.0
    """Without a cache."""
    cached: float = 0.0
    """With a cache that never expires between two calls."""

    def __add__(self, other: "Bill") -> "Bill":
        return Bill(self.plain + other.plain, self.cached + other.cached)


@dataclass(slots=True)
class Meter:
    """Bills the calls of one conversation in order. The messages of the common prefix with the
    previous request are read from the cache; the rest is written to it."""

    count: Counter
    prices: Prices = PRICES
    sent: tuple[Message, ...] | None = None
    """Messages of the previous request."""
    tokens: int = 0
    """Tokens of the previous request."""
    breaks: int = 0
    """Requests that did not continue the previous one."""

    def call(self, view: View, output: int) -> Bill:
        """Return the bill for the request of *view* with an answer of *output* tokens."""
        same = self._same(view)
        fresh = view.tokens - same
        self.sent, self.tokens = view.messages, view.tokens
        answer, price = output * self.prices.output, self.prices
        return Bill(
            (view.tokens * price.input + answer) / 1e6,
            (same * price.cached + fresh * price.written + answer) / 1e6,
        )

    def _same(self, view: View) -> int:
        """Return the cached tokens: system prompt, tools and unchanged messages."""
        if self.sent is None:
            return 0
        first = common(self.sent, view.messages)
        if first == len(self.sent):
            return self.tokens
        self.breaks += 1
        return view.profile.fixed_tokens + sum(map(self.count, view.messages[:first]))


def common(before: Sequence[Message], now: Sequence[Message]) -> int:
    """Return the number of messages in the common prefix."""
    pairs = enumerate(zip(before, now, strict=False))
    return next((at for at, (a, b) in pairs if a is not b and a != b), min(len(before), len(now)))
