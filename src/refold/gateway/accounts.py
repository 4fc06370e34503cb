"""How requests are read: by the format of their API, and by the rules of the accounts that they are sent for."""

from dataclasses import replace

from refold.codec import Codec, with_rules
from refold.codecs import anthropic, open_payload
from refold.envelope import Envelope
from refold.gateway.settings import Settings
from refold.gateway.traffic import Incoming

OLDER = with_rules(anthropic, anthropic.older_rules)
"""Messages of accounts that do not check what thinking is bound to (AN-8)."""


def format_of(settings: Settings, incoming: Incoming) -> str | Codec:
    """The format that *incoming* is in."""
    is_older = incoming.api == anthropic.NAME and incoming.upstream in settings.older_accounts
    return OLDER if is_older else incoming.api


def opened(settings: Settings, incoming: Incoming) -> Envelope:
    """The request taken apart. Raises `FormatError`."""
    envelope = open_payload(
        incoming.body, incoming.api
    )  # by name, for then it is looked at whether it is of that format
    format = format_of(settings, incoming)
    return envelope if isinstance(format, str) else replace(envelope, codec=format)
