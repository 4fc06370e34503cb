"""One request of a conversation, as the gateway works on it."""

from dataclasses import dataclass, replace
from typing import Any

from refold.envelope import Envelope
from refold.gateway.asked_model import request_model
from refold.gateway.threads import Thread
from refold.gateway.traffic import Incoming
from refold.view import View


@dataclass(frozen=True, slots=True)
class Turn:
    """One request of a conversation."""

    incoming: Incoming
    envelope: Envelope
    thread: Thread

    @property
    def history(self) -> dict[str, Any]:
        """The request for a compactor, with the model that its path names: entries stay where they stand in the text."""
        parcel, model = self.envelope.parcel, self.model
        body = {**parcel.body, "model": model} if model else parcel.body
        return {**body, parcel.field: parcel.wires}

    @property
    def model(self) -> str:
        """The model that it names."""
        return request_model(self.incoming.path, self.envelope.body)

    def encode(self, view: View) -> bytes:
        """The request that *view* makes; the very bytes that came where nothing shows."""
        source: bytes = replace(view, envelope=self.envelope).payload
        return source
