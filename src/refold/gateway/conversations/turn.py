"""One request of a conversation, as the gateway works on it."""

from dataclasses import dataclass, replace
from functools import partial

from refold.codecs import anthropic
from refold.codecs.codec import Codec, with_rules
from refold.codecs.detect import open_payload
from refold.codecs.payload import Payload
from refold.codecs.prefix_cache import PrefixCache
from refold.core.view import View
from refold.gateway.conversations.conversations import Conversation
from refold.gateway.http.request_model import request_model
from refold.gateway.messages import Incoming
from refold.gateway.settings import Settings


@dataclass(frozen=True, slots=True)
class Turn:
    """One request of a conversation."""

    incoming: Incoming
    envelope: Payload
    conversation: Conversation

    @property
    def history(self) -> Payload:
        """The request for a compactor, with the model that its path names."""
        if not self.model:
            return self.envelope
        return replace(self.envelope, body={**self.envelope.body, "model": self.model})

    @property
    def model(self) -> str:
        """The model that it names."""
        return request_model(self.incoming.path, self.envelope.body)

    def encode(self, view: View) -> bytes:
        """The request that *view* makes; the very bytes that came where nothing shows."""
        source: bytes = replace(view, source=self.envelope).payload
        return source


OLDER_ANTHROPIC = with_rules(anthropic, anthropic.older_rules)
"""Messages of accounts that do not check what thinking is bound to (AN-8)."""


def codec_for(settings: Settings, incoming: Incoming) -> str | Codec:
    """The format that *incoming* is in."""
    is_older = incoming.api == anthropic.NAME and incoming.upstream in settings.older_accounts
    return OLDER_ANTHROPIC if is_older else incoming.api


def open_request(settings: Settings, incoming: Incoming, cache: PrefixCache) -> Payload:
    """The request taken apart, but for what its caller has sent before. Raises `FormatError`."""
    lookup = partial(cache.lookup, scope=incoming.credential.encode())
    envelope = open_payload(incoming.body, incoming.api, lookup)
    format = codec_for(
        settings, incoming
    )  # only now: by its name it is looked at whether the body is of it
    return envelope if isinstance(format, str) else replace(envelope, codec=format)
