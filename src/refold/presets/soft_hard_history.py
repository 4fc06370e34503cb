"""What conversations that have a name said before they were compacted, for who goes on with the compacted list alone."""

from collections import OrderedDict
from collections.abc import Sequence
from copy import deepcopy
from threading import Lock
from typing import Any

from refold.presets.in_place import shares

REMEMBERED = 256
"""How many conversations are known, unless told otherwise."""

Conversation = tuple[str, str | None]
"""An agent's id and a conversation's. Without the second it has no name, and nothing is kept."""


class Conversations:
    """Knows what the compacted lists of named conversations stand for (S2-51, S2-53), in this process.

    A list comes back as JSON, so the name says whose it is, and nothing else does: one without a name, or under
    another, is a list of its own, whatever it looks like (F2). Within a conversation its entries are known again as far
    as they stand as they were shown. Of more than *most* conversations (None: no limit) the one that was not compacted
    for longest is forgotten; going back says so then. Usable from several threads.
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
