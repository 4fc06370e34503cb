"""Lists that are compacted in place, with everything they ever said kept beside them."""

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from sys import getrefcount
from threading import Lock
from typing import Any, NamedTuple

from refold.budget.budget import Budget
from refold.codecs.codec import Codec
from refold.codecs.detect import open_payload
from refold.core.view import View
from refold.errors import FormatError

EVERY_ROUND = Budget(trigger=0, target=0, progress=0, hysteresis=0)
"""Whatever the request holds (S1-02)."""
FEW = 64
"""So many entries are put into lists, or as many as were in use, before what nobody holds is looked
for."""


class Made(NamedTuple):
    """An entry that was put into a list, and the entries that it stands for."""

    entry: Any
    """The very object: while it is held here, no other has its id."""
    spelled: Any
    """What it said when it was made."""
    originals: tuple[Any, ...]


class Unabridged:
    """Knows what lists said before they were compacted in place (C1-10, S4-24, X-5), however many
    they are.

    A list is known by the very objects that were put into it, never by what it looks like (F2): two
    lists that say the same are two conversations. A list that holds such objects goes on from it:
    grown, cut short, copied entry by entry, forked. Of copies of those objects (out of JSON, after
    a restart), and of one that its owner changed so that it says something else in *format*,
    nothing is known but what they say.

    Originals are kept for as long as anybody else holds the entry that stands for them, and in this
    process only. Give the whole history and a store to a `refold.Compactor` where that is not
    enough. Calls may come from several threads, each with a list of its own.
    """

    def __init__(self, format: str | Codec | None = None) -> None:
        self._format = format
        self._made = dict[int, Made]()
        self._next = FEW
        self._lock = Lock()

    def __len__(self) -> int:
        """How many entries are known that stand for others."""
        return len(self._made)

    def full_history(self, messages: Sequence[Any]) -> list[Any]:
        """Everything that *messages* said, what was compacted away included."""
        return [entry for shown in messages for entry in self._originals(shown)]

    def rewrite(self, messages: list[Any], compact: Callable[[list[Any]], View]) -> View:
        """Let *messages* show what *compact* makes of everything that they said; return its
        view."""
        originals = self.full_history(messages)
        view = compact(originals)
        self.show(messages, originals, view.payload)
        return view

    def show(
        self,
        messages: list[Any],
        full: Sequence[Any],
        payload: Sequence[Any],
        seen: int | None = None,
    ) -> None:
        """Let *messages*, of which the first *seen* entries (all, without it) said *said*, show
        *payload* instead of those from now on."""
        seen = len(messages) if seen is None else seen
        known = {
            tuple(map(id, made.originals)): made
            for made in map(self._made_as, messages[:seen])
            if made
        }
        messages[:seen] = [
            shown if originals is None else self._put(shown, originals, known)
            for shown, originals in shares(full, payload)
        ]
        with self._lock:
            if len(self._made) > self._next:
                self._forget()

    def _made_as(self, entry: Any) -> Made | None:
        """What was made as *entry*, unless its owner made it say something else."""
        made = self._made.get(id(entry))
        return made if made is None or self._says_same(entry, made.spelled) else None

    def _says_same(self, entry: Any, spelled: Any) -> bool:
        """Is what was changed no more than a mark, such as one for a cache?"""
        if entry == spelled:
            return True
        try:
            now, then = open_payload([entry], self._format), open_payload([spelled], self._format)
            return (now.system, now.decode()) == (then.system, then.decode())
        except FormatError:
            return False

    def _originals(self, entry: Any) -> tuple[Any, ...]:
        made = self._made_as(entry)
        return (entry,) if made is None else made.originals

    def _put(
        self, shown: Any, originals: tuple[Any, ...], known: dict[tuple[int, ...], Made]
    ) -> Any:
        """An object of this list's own that says what *shown* does: the one that stood there, if it
        does."""
        before = known.pop(tuple(map(id, originals)), None)
        if before is not None and before.spelled == shown:
            return before.entry
        entry = deepcopy(shown)
        with self._lock:
            self._made[id(entry)] = Made(entry, deepcopy(shown), originals)
        return entry

    def _forget(self) -> None:
        """Forget entries that only this holds: nobody can ever come with them."""
        self._made = {key: made for key, made in self._made.items() if _holders(made) > _ALONE}
        self._next = FEW + 2 * len(self._made)


REMEMBERED = 256
"""How many conversations are known, unless told otherwise."""

Conversation = tuple[str, str | None]
"""An agent's id and a conversation's. Without the second it has no name, and nothing is kept."""


class Conversations:
    """Knows what the compacted lists of named conversations stand for (S2-51, S2-53), in this
    process.

    A list comes back as JSON, so the name says whose it is, and nothing else does: one without a
    name, or under another, is a list of its own, whatever it looks like (F2). Within a conversation
    its entries are known again as far as they stand as they were shown. Of more than *most*
    conversations (None: no limit) the one that was not compacted for longest is forgotten; going
    back says so then. Usable from several threads.
    """

    def __init__(self, most: int | None = REMEMBERED) -> None:
        self._most = most
        self._kept = OrderedDict[Conversation, list[tuple[Any, tuple[Any, ...]]]]()
        self._lock = Lock()

    def full_history(self, name: Conversation, messages: Any) -> Any:
        """Everything that *messages* said, what was compacted away included."""
        with self._lock:
            pairs = self._kept.get(name, [])
        if not pairs or not isinstance(messages, Sequence) or isinstance(messages, str | bytes):
            return messages
        same = 0
        while same < min(len(pairs), len(messages)) and messages[same] == pairs[same][0]:
            same += 1
        return [
            *(deepcopy(original) for _, originals in pairs[:same] for original in originals),
            *messages[same:],
        ]

    def keep(self, name: Conversation, full: Any, shown: Any) -> None:
        """The conversation of this *name*, which said *said*, goes on with the list *shown*."""
        if name[1] is None or not isinstance(full, list):
            return
        pairs = [
            (deepcopy(entry), deepcopy((entry,) if originals is None else originals))
            for entry, originals in shares(full, shown)
        ]
        with self._lock:
            self._kept[name] = pairs
            self._kept.move_to_end(name)
            while self._most is not None and len(self._kept) > self._most:
                self._kept.popitem(last=False)

    def forget(self, name: Conversation) -> None:
        """The conversation of this *name* is over."""
        with self._lock:
            self._kept.pop(name, None)


def shares(full: Sequence[Any], payload: Sequence[Any]) -> list[tuple[Any, tuple[Any, ...] | None]]:
    """Each entry of *payload*, with its share of *said*; None for one that stands for itself alone.
    Together the shares are *said*, in its order: entries that stayed the same objects say which
    part is whose."""
    places = dict[int, list[int]]()
    for at, entry in enumerate(full):
        places.setdefault(id(entry), []).append(at)
    out, at, strange = list[tuple[Any, tuple[Any, ...] | None]](), 0, list[Any]()
    for shown in payload:
        where = places.get(id(shown), [])
        nth = bisect_left(where, at)
        if nth == len(where):
            strange.append(shown)
            continue
        before = tuple(full[at : where[nth]])
        if (
            before and not strange
        ):  # nothing is shown for what was hidden: the next entry answers for it too
            out.append((shown, (*before, full[where[nth]])))
        else:
            out += [*_divide(strange, before), (shown, None)]
        at, strange = where[nth] + 1, []
    rest = tuple(full[at:])
    if rest and not strange and out:
        shown, originals = out.pop()
        out.append((shown, (*((full[at - 1],) if originals is None else originals), *rest)))
    return [*out, *_divide(strange, rest)]


def _divide(
    shown: Sequence[Any], originals: tuple[Any, ...]
) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """One to one where they are as many, else the first stands for all."""
    if len(shown) == len(originals):
        yield from ((entry, (original,)) for entry, original in zip(shown, originals, strict=True))
    else:
        yield from ((entry, () if at else originals) for at, entry in enumerate(shown))


def _holders(made: Made) -> int:
    return getrefcount(made.entry)


_ALONE = _holders(Made({}, {}, ()))
"""What is counted of an entry that only its `Made` holds."""
