"""One request of a conversation, as the gateway works on it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote

from refold.envelope import Envelope
from refold.gateway.threads import Thread
from refold.gateway.traffic import Incoming
from refold.view import View

_MODEL = re.compile(r"/(?:models|deployments)/([^/:?]+)")
"""Gemini's paths, and Azure's."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One request of a conversation."""

    incoming: Incoming
    envelope: Envelope
    thread: Thread

    @property
    def history(self) -> dict[str, Any]:
        """The request for a compactor: entries stay where they stand in the text."""
        parcel = self.envelope.parcel
        return {**parcel.body, parcel.field: parcel.wires}

    @property
    def model(self) -> str:
        """The model that it names."""
        return model_of(self.incoming, self.envelope)

    def encode(self, view: View) -> bytes:
        """The request that *view* makes; the very bytes that came where nothing shows."""
        source: bytes = replace(view, envelope=self.envelope).payload
        return source


def model_of(incoming: Incoming, envelope: Envelope) -> str:
    """The model that a request names, in its body or in its path."""
    return named(incoming.path, envelope.body)


def named(path: str, body: Mapping[str, Any]) -> str:
    """The model that *body* names, or else *path*."""
    model = body.get("model")
    if isinstance(model, str) and model:
        return model
    found = _MODEL.search(path)
    return unquote(found[1]) if found else ""
