"""When to act, and how far."""

from dataclasses import dataclass
from typing import Literal

from refold.view import View

Level = Literal["none", "soft", "hard"]


@dataclass(frozen=True, slots=True)
class Budget:
    """Act when a request has at least *trigger* tokens; bring it down to *target*.

    `soft`, if given, is the figure from which compaction is worth preparing, though not yet due.
    Raises ValueError for figures that contradict one another.
    """

    trigger: int
    target: int
    soft: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.target <= self.trigger:
            raise ValueError(f"the target ({self.target}) must lie between 0 and the trigger ({self.trigger})")
        if self.soft is not None and self.soft > self.trigger:
            raise ValueError(f"the soft level ({self.soft}) must not exceed the trigger ({self.trigger})")

    @classmethod
    def of_window(cls, window: int, reserve: int = 20_000, target: float = 0.5) -> "Budget":
        """A budget for a model's window: act when less than *reserve* tokens are left for the
        answer, go down to the share *target* of what is usable. Raises ValueError."""
        usable = window - reserve
        if usable <= 0:
            raise ValueError(f"a reserve of {reserve} tokens leaves nothing of a window of {window}")
        return cls(trigger=usable, target=int(usable * target))

    def check(self, view: View) -> Level:
        """Is compaction due? Exactly at a level counts as reached."""
        if view.tokens >= self.trigger:
            return "hard"
        return "soft" if self.soft is not None and view.tokens >= self.soft else "none"
