"""What a provider would refuse in a request, whether or not it is ever compacted."""

from typing import Any

from refold.codec import Codec
from refold.codecs import decode_all, open_payload
from refold.envelope import Envelope
from refold.rules.verdict import Sent, Violation


def check(payload: Any, format: str | Codec | None = None, *, before: Any = None) -> tuple[Violation, ...]:
    """Everything in *payload* that its API refuses, in order of position (docs/rules.md).

    *payload* is a list of messages, a request body, or the JSON text of either (`str` or `bytes`);
    its format is recognised by shape, or named: `anthropic`, `openai_chat`, `openai_responses`,
    `gemini`. A call at the very end that nobody has answered yet is no violation.

    *before*, of any of these kinds, is the request that was sent before this one in the same
    conversation: then also what had to be kept of it, such as what signed thinking is bound to
    (AN-6, AN-7, AN-10, OA-4, GE-3, DS-1). It is taken to be valid itself, and to have been answered.
    Raises `FormatError` when either is in no form that Refold knows.
    """
    envelope = open_payload(payload, format)
    rules, sent = envelope.codec.rules(envelope.body), sent_as(envelope)
    found = rules.check(sent.messages, sent.body)
    if before is None:
        return found
    kept = rules.kept(sent_as(open_payload(before, envelope.codec)), sent)
    return tuple(sorted((*found, *kept), key=lambda v: (v.at, v.rule)))


def sent_as(envelope: Envelope) -> Sent:
    """The request that an envelope holds, as the rules look at it."""
    whole = envelope.whole
    entries = whole[envelope.codec.FIELD][envelope.head :]
    return Sent(decode_all(envelope), entries, whole, envelope.system, envelope.tools)
