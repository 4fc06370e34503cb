"""How requests are read: by the format of their API, and by the rules of the accounts that they are sent for."""

from dataclasses import replace
from functools import partial

from refold.beginnings import Beginnings
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


def opened(settings: Settings, incoming: Incoming, begun: Beginnings) -> Envelope:
    """The request taken apart, but for what its caller has sent before. Raises `FormatError`."""
    begin = partial(begun.begin, scope=incoming.credential.encode())
    envelope = open_payload(incoming.body, incoming.api, begin)
    format = format_of(settings, incoming)  # only now: by its name it is looked at whether the body is of it
    return envelope if isinstance(format, str) else replace(envelope, codec=format)
