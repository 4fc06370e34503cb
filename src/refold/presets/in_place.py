"""Lists that are compacted in place, and their full histories."""

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
from refold.compactor.conversations import put_lru
from refold.core.view import View
from refold.errors import FormatError
from refold.rules.request import common_length

EVERY_ROUND = Budget(trigger=0, target=0, progress=0, hysteresis=0)
"""Budget that compacts whatever the size of the request (S1-02)."""
FIRST_SWEEP = 64
"""Number of substitutes before the first cleanup of unreferenced ones."""


class Substitute(NamedTuple):
    """An entry that was put into a list in place of others."""

    entry: Any
    """The object itself. While it is referenced here, no other object has its id."""
    copy: Any
    """Copy of its content when it was put in."""
    originals: tuple[Any, ...]


class CompactedLists:
    """The full histories of any number of lists that are compacted in place (C1-10, S4-24, X-5).

    A substitute is recognised by object identity, never by content: two equal lists are two
    conversations. So a list with substitutes keeps its full history when it is extended, cut short,
    copied entry by entry or forked. Copies of substitutes (out of JSON, after a restart) are
    ordinary entries, and so is one whose content in *format* its owner changed.

    Originals are kept in this process, while anyone else references their substitute. If that is
    not enough, pass whole histories and a store to a `refold.Compactor`. Calls may come from
    several threads, each with its own list.
    """

    def __init__(self, format: str | Codec | None = None) -> None:
        self._format = format
        self._substitutes = dict[int, Substitute]()
        self._next_sweep = FIRST_SWEEP
        self._lock = Lock()

    def __len__(self) -> int:
        """Return the number of known substitutes."""
        return len(self._substitutes)

    def full_history(self, messages: Sequence[Any]) -> list[Any]:
        """Return all original entries behind *messages*."""
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
        """Replace the first *seen* entries of *messages* (default: all) by *payload*, which stands
        for the full *history*."""
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
        """Return the substitute that *entry* is, unless its owner changed its content."""
        substitute = self._substitutes.get(id(entry))
        if substitute is not None and self._says_same(entry, substitute.copy):
            return substitute
        return None

    def _says_same(self, entry: Any, copy: Any) -> bool:
        """Return whether both have the same content. A mark such as one for a cache may differ."""
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
        """Return the list entry for *shown*: *shown* itself if it is its only original, the entry
        *present* for the same originals if it is equal, else a copy for this list."""
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
        """Forget substitutes that nobody else references, since they cannot come back."""
        self._substitutes = {
            key: substitute
            for key, substitute in self._substitutes.items()
            if _holders(substitute) > _ALONE
        }
        self._next_sweep = FIRST_SWEEP + 2 * len(self._substitutes)


REMEMBERED = 256
"""Default number of remembered conversations."""

Conversation = tuple[str, str | None]
"""An agent's id and a conversation's. Without the latter nothing is remembered."""


class Conversations:
    """Remembers the originals behind compacted lists of named conversations (S2-51, S2-53), in this
    process.

    A list comes back as JSON, so only the name tells which conversation it is. A list without a
    name, or under another, is independent. Within a conversation entries are recognised as far as
    they match those shown last. Beyond *most* conversations (None: no limit) the one compacted
    least recently is forgotten, and a revert then reports that. Thread-safe.
    """

    def __init__(self, most: int | None = REMEMBERED) -> None:
        self._most = most
        self._kept = OrderedDict[Conversation, list[tuple[Any, tuple[Any, ...]]]]()
        self._lock = Lock()

    def full_history(self, name: Conversation, messages: Any) -> Any:
        """Return copies of all original entries behind *messages*, or *messages* itself if none are
        remembered."""
        with self._lock:
            pairs = self._kept.get(name, [])
        if not pairs or not isinstance(messages, Sequence) or isinstance(messages, str | bytes):
            return messages
        same = common_length([shown for shown, _ in pairs], messages)
        return [
            *(deepcopy(original) for _, originals in pairs[:same] for original in originals),
            *messages[same:],
        ]

    def record(self, name: Conversation, full: Any, shown: Any) -> None:
        """Record that the conversation *name*, whose full history is *full*, goes on as *shown*.
        Nothing is recorded without a conversation's id, or if *full* is no list."""
        if name[1] is None or not isinstance(full, list):
            return
        pairs = deepcopy(match_originals(full, shown))
        with self._lock:
            put_lru(self._kept, name, pairs, inf if self._most is None else self._most)

    def forget(self, name: Conversation) -> None:
        """Forget the conversation *name*."""
        with self._lock:
            self._kept.pop(name, None)


def match_originals(
    full: Sequence[Any], payload: Sequence[Any]
) -> list[tuple[Any, tuple[Any, ...]]]:
    """Return each entry of *payload* with the entries of *full* that it stands for, which is itself
    if it is the same object. Together they are *full*, in order."""
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
        else:  # hidden without a substitute: the next entry stands for it too
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
    """Pair entries one to one if the counts are equal. Otherwise the first stands for all."""
    if len(shown) == len(originals):
        yield from ((entry, (original,)) for entry, original in zip(shown, originals, strict=True))
    else:
        yield from ((entry, () if at else originals) for at, entry in enumerate(shown))


def _holders(substitute: Substitute) -> int:
    return getrefcount(substitute.entry)


_ALONE = _holders(Substitute({}, {}, ()))
"""Reference count of an entry that only its `Substitute` holds."""
