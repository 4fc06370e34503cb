"""A provider that signs what its model thinks, and checks signatures as Anthropic does (AN-7)."""

import json
from hashlib import sha256
from typing import Any


def signature(sent: list[Any]) -> str:
    """What is thought after these messages is signed so."""
    return sha256(json.dumps(_bare(sent), sort_keys=True).encode()).hexdigest()


def refusal(body: bytes) -> bytes | None:
    """The provider's error for a request, whose every thinking block is checked against all that stands before it."""
    sent = json.loads(body)["messages"]
    for at, entry in enumerate(sent):
        blocks = entry["content"] if isinstance(entry["content"], list) else []
        for part, block in enumerate(blocks):
            if block["type"] == "thinking" and block["signature"] != signature(sent[:at]):
                return _error(f"messages.{at}.content.{part}")
    return None


def _error(place: str) -> bytes:
    said = f"{place}: Invalid `signature` in `thinking` block. The block is bound to a different conversation. Remove the block."
    return json.dumps(
        {"type": "error", "error": {"type": "invalid_request_error", "message": said}}
    ).encode()


def _bare(value: Any) -> Any:
    """Without marks of the cache, which are not signed."""
    if isinstance(value, dict):
        return {key: _bare(one) for key, one in value.items() if key != "cache_control"}
    return [_bare(one) for one in value] if isinstance(value, list) else value
