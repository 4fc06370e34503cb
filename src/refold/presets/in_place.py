"""Lists that are compacted in place, with everything they ever said kept beside them."""

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from math import inf
from sys import getrefcount
from threading import Lock
from typing import Any, NamedTuple

from refold.budget.budget import Budget
from refold.codecs.codec import Codec
from refold.codecs.detect import open_payload
from refold.compactor.conversations import put_latest
from refold.core.view import View
from refold.errors import FormatError
from refold.rules.request import common_length

EVERY_ROUND = Budget(trigger=0, target=0, progress=0, hysteresis=0)
"""Whatever the request holds (S1-02)."""
FIRST_SWEEP = 64
"""Entries after which those that nobody else holds are looked for the first time."""


class Substitute(NamedTuple):
    """An entry that was put into a list, and the entries that it stands for."""

    entry: Any
    """The very object: while it is held here, no other has its id."""
    copy: Any
    """What it said when it was put there."""
    originals: tuple[Any, ...]


class CompactedLists:
    """The full histories of any number of lists that are compacted in place (C1-10, S4-24, X-5).

    An entry that stands for others is known by its identity, never by what it looks like: two
    lists that say the same are two conversations. So a list with such entries has its full history,
    grown, cut short, copied entry by entry or forked. Copies of them (out of JSON, after a restart)
    stand for themselves, as does one that its owner changed so that it says something else in
    *format*.

    Originals are kept for as long as anybody else holds the entry that stands for them, and in this
    process only. Give the whole history and a store to a `refold.Compactor` where that is not
    enough. Calls may come from several threads, each with a list of its own.
    """

    def __init__(self, format: str | Codec | None = None) -> None:
        self._format = format
        self._substitutes = dict[int, Substitute]()
        self._next_sweep = FIRST_SWEEP
        self._lock = Lock()

    def __len__(self) -> int:
        """Return how many entries are known that stand for others."""
        return len(self._substitutes)

    def full_history(self, messages: Sequence[Any]) -> list[Any]:
        """Return everything that *messages* said, what was compacted away included."""
        return [original for entry in messages for original in self._originals_of(entry)]

    def rewrite(self, messages: list[Any], compact: Callable[[list[Any]], View]) -> View:
        """Show in *messages* what *compact* makes of their full history, and return its view."""
        history = self.full_history(messages)
        view = compact(history)
        self.show(messages, history, view.payload)
        return view

    def show(
        self,
        messages: list[Any],
        history: Sequence[Any],
        payload: Sequence[Any],
        seen: int | None = None,
    ) -> None:
        """Show *payload* in *messages* instead of its first *seen* entries (all, without it), whose
        full *history* it stands for."""
        seen = len(messages) if seen is None else seen
        present = {
            tuple(map(id, substitute.originals)): substitute
            for substitute in map(self._find_substitute, messages[:seen])
            if substitute
        }
        messages[:seen] = [
            self._make_entry(shown, originals, present)
            for shown, originals in match_originals(history, payload)
        ]
        with self._lock:
            if len(self._substitutes) > self._next_sweep:
                self._forget()

    def _originals_of(self, entry: Any) -> tuple[Any, ...]:
        substitute = self._find_substitute(entry)
        return substitute.originals if substitute else (entry,)

    def _find_substitute(self, entry: Any) -> Substitute | None:
        """Return the substitute that *entry* is, unless its owner changed what it says."""
        substitute = self._substitutes.get(id(entry))
        if substitute is not None and self._says_same(entry, substitute.copy):
            return substitute
        return None

    def _says_same(self, entry: Any, copy: Any) -> bool:
        """Is what was changed no more than a mark, such as one for a cache?"""
        if entry == copy:
            return True
        try:
            now, then = open_payload([entry], self._format), open_payload([copy], self._format)
            return (now.system, now.decode()) == (then.system, then.decode())
        except FormatError:
            return False

    def _make_entry(
        self, shown: Any, originals: tuple[Any, ...], present: dict[tuple[int, ...], Substitute]
    ) -> Any:
        """Return the entry that says in a list what *shown* does: *shown* itself if it is its own
        original; one that is *present* for the same originals, if it says so; else a copy, which
        is the list's own."""
        ids = tuple(map(id, originals))
        if ids == (id(shown),):
            return shown
        before = present.pop(ids, None)
        if before is not None and before.copy == shown:
            return before.entry
        entry = deepcopy(shown)
        with self._lock:
            self._substitutes[id(entry)] = Substitute(entry, deepcopy(shown), originals)
        return entry

    def _forget(self) -> None:
        """Forget entries that nobody else holds: they cannot come back."""
        self._substitutes = {
            key: substitute
            for key, substitute in self._substitutes.items()
            if _holders(substitute) > _ALONE
        }
        self._next_sweep = FIRST_SWEEP + 2 * len(self._substitutes)


REMEMBERED = 256
"""How many conversations are known by default."""

Conversation = tuple[str, str | None]
"""An agent's id and a conversation's. Without the second it has no name, and nothing is kept."""


class Conversations:
    """Knows what the compacted lists of named conversations stand for (S2-51, S2-53), in this
    process.

    A list comes back as JSON, so the name says whose it is, and nothing else does: one without a
    name, or under another, is a list of its own, whatever it looks like. Within a conversation
    its entries are known again as far as they stand as they were shown. Of more than *most*
    conversations (None: no limit) the one that was not compacted for longest is forgotten; going
    back says so then. Usable from several threads.
    """

    def __init__(self, most: int | None = REMEMBERED) -> None:
        self._most = most
        self._kept = OrderedDict[Conversation, list[tuple[Any, tuple[Any, ...]]]]()
        self._lock = Lock()

    def full_history(self, name: Conversation, messages: Any) -> Any:
        """Return everything that *messages* said, what was compacted away included."""
        with self._lock:
            pairs = self._kept.get(name, [])
        if not pairs or not isinstance(messages, Sequence) or isinstance(messages, str | bytes):
            return messages
        same = common_length([shown for shown, _ in pairs], messages)
        return [
            *(deepcopy(original) for _, originals in pairs[:same] for original in originals),
            *messages[same:],
        ]

    def keep(self, name: Conversation, full: Any, shown: Any) -> None:
        """Note that the conversation of this *name*, of which *full* is all, goes on as *shown*."""
        if name[1] is None or not isinstance(full, list):
            return
        pairs = deepcopy(match_originals(full, shown))
        with self._lock:
            put_latest(self._kept, name, pairs, inf if self._most is None else self._most)

    def forget(self, name: Conversation) -> None:
        """The conversation of this *name* is over."""
        with self._lock:
            self._kept.pop(name, None)


def match_originals(
    full: Sequence[Any], payload: Sequence[Any]
) -> list[tuple[Any, tuple[Any, ...]]]:
    """Return each entry of *payload* with the entries of *full* that it stands for, itself if they
    are the same object. Together they are *full*, in its order."""
    places = dict[int, list[int]]()
    for at, entry in enumerate(full):
        places.setdefault(id(entry), []).append(at)
    out, at, unmatched = list[tuple[Any, tuple[Any, ...]]](), 0, list[Any]()
    for shown in payload:
        positions = places.get(id(shown), [])
        nth = bisect_left(positions, at)
        if nth == len(positions):
            unmatched.append(shown)
            continue
        hidden = tuple(full[at : positions[nth]])
        if unmatched:
            out += [*_divide(unmatched, hidden), (shown, (shown,))]
        else:  # nothing is shown for what is hidden: the next entry stands for it too
            out.append((shown, (*hidden, shown)))
        at, unmatched = positions[nth] + 1, []
    rest = tuple(full[at:])
    if rest and not unmatched and out:
        shown, originals = out.pop()
        out.append((shown, (*originals, *rest)))
    return [*out, *_divide(unmatched, rest)]


def _divide(
    shown: Sequence[Any], originals: tuple[Any, ...]
) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Divide one to one if they are as many, else the first stands for all."""
    if len(shown) == len(originals):
        yield from ((entry, (original,)) for entry, original in zip(shown, originals, strict=True))
    else:
        yield from ((entry, () if at else originals) for at, entry in enumerate(shown))


def _holders(substitute: Substitute) -> int:
    return getrefcount(substitute.entry)


_ALONE = _holders(Substitute({}, {}, ()))
"""What is counted of an entry that only its `Substitute` holds."""
