"""A provider that signs its model's thinking, and checks signatures as Anthropic does (AN-7)."""

import json
from hashlib import sha256
from typing import Any


def sign(sent: list[Any]) -> str:
    """Sign thinking that follows the messages *sent*."""
    return sha256(json.dumps(_bare(sent), sort_keys=True).encode()).hexdigest()


def refuse_bad_signatures(body: bytes) -> bytes | None:
    """Return the provider's error if a signature does not match the messages before its block."""
    sent = json.loads(body)["messages"]
    for at, entry in enumerate(sent):
        blocks = entry["content"] if isinstance(entry["content"], list) else []
        for part, block in enumerate(blocks):
            if block["type"] == "thinking" and block["signature"] != sign(sent[:at]):
                return _error(f"messages.{at}.content.{part}")
    return None


def _error(place: str) -> bytes:
    message = (
        f"{place}: Invalid `signature` in `thinking` block. "
        "The block is bound to a different conversation. Remove the block."
    )
    return json.dumps(
        {"type": "error", "error": {"type": "invalid_request_error", "message": message}}
    ).encode()


def _bare(value: Any) -> Any:
    """Remove cache marks, which are not signed."""
    if isinstance(value, dict):
        return {key: _bare(item) for key, item in value.items() if key != "cache_control"}
    return [_bare(item) for item in value] if isinstance(value, list) else value
