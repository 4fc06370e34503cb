"""The counterfactual: what a call would have been billed with its history as it was said.

It never happened, so it is reckoned, from what the upstream reported of the call as it was sent:

- tokens are scaled by what the upstream counted against what we estimated of the same request;
- of what the request has in common with the one before, the share is read from the cache that was read of the
  request as sent, where that merely continued the one before. Where an edit of ours changed what was sent,
  that says nothing of the history without it: then the share of the calls before is taken, or none where
  the cache has lapsed;
- of the rest, the share is written to the cache that was written of the request as sent, and of that the same
  share for an hour.

Where no edit shows and none showed before, it is what was billed.
"""

from dataclasses import dataclass

from refold.gateway.books.bills import Tokens
from refold.gateway.books.seen import Shared, said_tokens, sent_tokens
from refold.view import View


@dataclass(slots=True)
class Habits:
    """How the calls of a conversation use the cache."""

    hit: float | None = None
    """Share of the common beginning that was read, where the cache was alive."""
    written: float = 0.0
    """Share written of what was not read."""
    hour: float = 0.0
    """Share of what was written that is kept for an hour."""
    caches: bool = False
    """Was anything ever read or written?"""

    @property
    def usual(self) -> float:
        """The share that is read of a common beginning, as far as it is known. Where it is not, all of it:
        rather too small a saving than one that was none."""
        return (1.0 if self.caches else 0.0) if self.hit is None else self.hit


def without(tokens: Tokens, view: View, before: Shared | None, habits: Habits, *, alive: bool) -> Tokens:
    """What a call billed as *tokens* would have been without the edits of *view*; *habits* learn from it."""
    habits.caches = habits.caches or tokens.read > 0 or tokens.written > 0
    rest = tokens.fresh + tokens.written
    habits.written = tokens.written / rest if rest else habits.written
    habits.hour = tokens.hour / tokens.written if tokens.written else habits.hour
    scale = tokens.input / max(1, sent_tokens(view))
    hit = _hit(tokens, before, habits, scale, alive=alive)
    if not view.top and (before is None or not before.seen.top):
        return tokens
    total = tokens.input + round(scale * (said_tokens(view) - sent_tokens(view)))
    if before is None:
        read = round(total * tokens.read / max(1, tokens.input))
    else:
        read = min(total, round(scale * hit * before.said))
    written = round(habits.written * (total - read))
    return Tokens(total - read - written, read, written, tokens.output, round(habits.hour * written))


def _hit(tokens: Tokens, before: Shared | None, habits: Habits, scale: float, *, alive: bool) -> float:
    """The share of the common beginning that the cache held."""
    if before is None:
        return 0.0
    if before.sent < before.seen.sent or not scale * before.sent:
        return habits.usual if alive else 0.0
    measured = min(1.0, tokens.read / (scale * before.sent))
    if alive:
        habits.hit = measured
    return measured
