"""What can be configured of the gateway's core."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from refold.loop import AsyncAsker
from refold.strategy import Strategy
from refold.windows import Window


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """When and how requests are compacted. Figures in tokens, shares of the window, seconds."""

    strategies: tuple[Strategy, ...] | None = None
    """None: `refold.default_strategies`, with summaries by *ask* where there is one."""
    windows: Mapping[str, Window] = field(default_factory=dict)
    """Windows of models, by name; others are looked up in `refold.windows`."""
    ask: AsyncAsker | None = None
    """Who writes summaries: `Ladder.acall`, or any coroutine function of an `Ask`. None: rules do."""
    soft: float = 0.6
    """Share of the usable window from which a summary is prepared in the background."""
    hard: float = 0.9
    """Share of the usable window from which compaction is due whatever it costs."""
    target: float = 0.4
    """Share of the usable window to come down to."""
    economy: bool = True
    """Compact below the hard level too, where that pays."""
    deadline: float = 2.0
    """Seconds for everything but a summary; after that the request goes through as it came."""
    patience: float = 60.0
    """Seconds for a summary that a request waits for."""
    refuse: frozenset[str] = frozenset({"thread"})
    """Delta transports to refuse so that the client sends its full history: `thread`, `previous_response_id`.
    What is not refused passes through untouched."""
    threads: int = 256
    """Conversations known in memory."""
    workers: int = 16
    """Threads that compute."""
    clamp: bool = True
    """Lower a request's cap of output tokens to what the window leaves."""
