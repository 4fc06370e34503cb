"""What two requests of one conversation have in common from their beginning on: what a cache may hold."""

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import NamedTuple

from refold.edits import Edit
from refold.stack import Placed
from refold.view import View


class Seen(NamedTuple):
    """A request that was sent, as hashes and edits."""

    tips: Sequence[str]
    top: tuple[Placed, ...]
    sent: int
    """Its tokens, as estimated."""
    when: float


class Shared(NamedTuple):
    """What a request has in common with an earlier one, in estimated tokens."""

    seen: Seen
    length: int
    """Messages of the history that both begin with."""
    said: int
    """Tokens of the beginning that their histories share."""
    sent: int
    """Tokens of the beginning that was sent in both."""


def seen(view: View, when: float) -> Seen:
    """*view* as a request that was sent."""
    return Seen(view.transcript.tips, view.top, sent_tokens(view), when)


def sent_tokens(view: View) -> int:
    """Tokens of the request, as estimated."""
    return view.lens.fixed + view.estimate


def said_tokens(view: View) -> int:
    """Tokens of the request without edits, as estimated."""
    return view.lens.fixed + view.ground.sums[-1]


def shared(view: View, known: Iterable[Seen]) -> Shared | None:
    """What *view* shares with that of *known* whose history it shares most of; None where nothing is known."""
    return max((_shared(view, one) for one in known), key=lambda found: (found.length, found.sent), default=None)


def _shared(view: View, before: Seen) -> Shared:
    length = _common(view.transcript.tips, before.tips)
    fixed, sums, stop, gained = view.lens.fixed, view.ground.sums, length, 0
    for now, then in zip_longest(view.top, before.top):
        if now is None or then is None or now.edit.id != then.edit.id or now.edit.stop > length:
            stop = min(length, *(placed.edit.start for placed in (now, then) if placed is not None))
            break
        gained += now.tokens - view.ground.tokens(now.edit.start, now.edit.stop)
    return Shared(before, length, fixed + sums[length], fixed + sums[stop] + gained)


def _common(a: Sequence[str], b: Sequence[str]) -> int:
    """How many messages both histories begin with: a tip is the hash of everything before it."""
    low, high = 0, min(len(a), len(b)) - 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if a[middle] == b[middle] else (low, middle - 1)
    return low


def covering(top: Sequence[Placed], at: int) -> Edit | None:
    """The edit that shows at a position."""
    return next((placed.edit for placed in top if placed.edit.start <= at < placed.edit.stop), None)
