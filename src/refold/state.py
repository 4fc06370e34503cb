"""What a compactor knows of one conversation."""

from dataclasses import dataclass, replace
from typing import Any

from refold.codec import Codec
from refold.envelope import Envelope
from refold.ground import Ground
from refold.lens import Lens
from refold.log import Log
from refold.spans import Span
from refold.triggers import Mark
from refold.view import View

UNMARKED = Mark()


@dataclass(frozen=True)
class State:
    """One conversation as far as it was decoded, and how it was shown last."""

    codec: Codec
    kept: View
    """The view with the stored edits alone."""
    view: View
    """The view with those of local strategies too: what was answered last."""
    seen: Log[Any]
    """Copies of the entries that were decoded, or their fingerprints: a list that its owner changed in
    place is another."""
    frame: Any
    """Copies of system prompt, tools and the rest of the body, from which `fixed` was counted."""
    version: int
    """The store's version when its edits were loaded."""
    mark: Mark = UNMARKED
    """When it was compacted last, or seen first."""
    cap: int | None = None
    """Tokens that its model lets a request have, where it had a wider window before."""
    widest: int = 0
    """Tokens of the widest window it had, where its model was ever changed."""

    def through(self, lens: Lens) -> "State":
        """The same conversation, counted and cut by another lens."""
        ground = Ground(self.kept.ground.transcript, lens, self.kept.ground.sums)
        kept, view = self.kept, self.view
        return replace(self, kept=kept.over(ground, kept.envelope), view=view.over(ground, view.envelope))


def frame_of(envelope: Envelope) -> Any:
    """Copies of everything around the conversation: two equal frames are counted alike."""
    head = [copy_of(wire) for wire in envelope.parcel.wires[: envelope.head]]
    return envelope.codec.NAME, copy_of(envelope.body), head


def copy_of(value: Any) -> Any:
    """A copy of JSON-like data, strings shared. Of a span its fingerprint, so as not to keep the text it is in."""
    if type(value) is dict:
        return {key: copy_of(item) for key, item in value.items()}
    if type(value) is list:
        return [copy_of(item) for item in value]
    return value.fingerprint if type(value) is Span else value
