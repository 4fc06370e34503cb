"""Summaries prepared in the background, kept in the store for whichever process the next request comes to.

They are stored as edits under tips of their own, so that they do not show. All edits of one preparation
share the tip of the last of them: who finds one finds all, and only a history that has them all finds them.
"""

from collections.abc import Iterable
from dataclasses import replace

from refold.compactor.preview import Preview
from refold.core.view import View
from refold.edits import Edit
from refold.gateway.conversations.identity import hash_parts
from refold.stores.store import Store


def save(store: Store, edits: Iterable[Edit]) -> None:
    """Keep what was prepared. Raises `StoreError`."""
    store.save(_copies(edits))


def remove(store: Store, edits: Iterable[Edit]) -> None:
    """Forget what was prepared: it is used, or no use. Raises `StoreError`."""
    store.remove(copy.id for copy in _copies(edits))


def find(store: Store, view: View) -> Preview | None:
    """What was prepared last for this history and is not yet part of it. Raises `StoreError`."""
    tips = view.transcript.tips
    places = {_tip(tips[stop]): stop for stop in range(1, len(tips))}
    found = store.load(list(places))
    last = max((places[edit.tip] for edit in found), default=0)
    edits = tuple(replace(edit, tip=tips[edit.stop]) for edit in found if places[edit.tip] == last)
    if not edits or {edit.id for edit in edits} & {edit.id for edit in view.edits}:
        return None
    return Preview(view, view.apply_valid(edits), edits)


def _copies(edits: Iterable[Edit]) -> list[Edit]:
    made = list(edits)
    last = max(made, key=lambda edit: edit.stop, default=None)
    return [replace(edit, tip=_tip(last.tip)) for edit in made] if last else []


def _tip(tip: str) -> str:
    return hash_parts("prepared", tip)
