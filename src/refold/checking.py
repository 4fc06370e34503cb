"""What a provider would refuse in a request, whether or not it is ever compacted."""

from typing import Any

from refold.codec import Codec
from refold.codecs import decode_all, open_payload
from refold.rules.verdict import Violation


def check(payload: Any, format: str | Codec | None = None) -> tuple[Violation, ...]:
    """Everything in *payload* that its API refuses, in order of position (docs/rules.md).

    *payload* is a list of messages, a request body, or the JSON text of either (`str` or `bytes`);
    its format is recognised by shape, or named: `anthropic`, `openai_chat`, `openai_responses`,
    `gemini`. A call at the very end that nobody has answered yet is no violation. Raises
    `FormatError` when the payload is in no form that Refold knows.
    """
    envelope = open_payload(payload, format)
    return envelope.codec.rules(envelope.body).check(decode_all(envelope), envelope.body)
