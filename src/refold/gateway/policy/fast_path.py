"""Requests so short that nothing in them is worth an edit. They pass without being taken apart."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from refold.gateway.http.request_model import request_model
from refold.gateway.messages import APIS, Incoming, Outgoing, is_auxiliary
from refold.gateway.policy import output_cap as caps
from refold.gateway.policy.policy import TokenLevels
from refold.gateway.policy.server_history import server_history_field
from refold.gateway.settings import Settings

EDITABLE_SIGNS = (
    b"tool_result",
    b'"tool"',
    b'"function"',
    b'_output"',
    b"unction_response",
    b"unctionResponse",
    b"ignature",
    b"encrypted_content",
    b"compaction",
)
"""What a conversation with results, with thinking that is bound to its place, or with a compaction of the provider's has in
its body, in any API. A client that hides them by escapes gets its request as it wrote it."""


def parse_light_body(incoming: Incoming, settings: Settings) -> Mapping[str, Any] | None:
    """The body of a light request; None for any other. Light is what has at most `Settings.read_above_bytes` bytes, is whole in
    itself, and holds nothing that a local strategy of ours would edit, so that passing it decides nothing for later."""
    source = incoming.body
    if (
        len(source) > settings.read_above_bytes
        or settings.strategies is not None
        or incoming.api in settings.native
    ):
        return None
    if any(sign in source for sign in EDITABLE_SIGNS):
        return None
    try:
        body = json.loads(source.decode())  # to be told its encoding saves the parser a look
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) and not server_history_field(incoming.api, body) else None


def pass_light_request(
    incoming: Incoming, settings: Settings, holds: Callable[[Incoming, Mapping[str, Any]], bool]
) -> Outgoing | None:
    """What goes out for a request that is so short that it passes unread, if its window *holds* it (`ModelLimits.holds`)."""
    if incoming.api not in APIS or is_auxiliary(incoming.path):
        return None
    body = parse_light_body(incoming, settings)
    if body is None or not holds(incoming, body):
        return None
    return Outgoing(incoming.body, reason="light", model=request_model(incoming.path, body))


def fits_window(api: str, body: Mapping[str, Any], size: int, limits: TokenLevels) -> bool:
    """Does a body of *size* bytes fit its window whatever its tokens are, and its answer too? No text has more tokens
    than bytes."""
    if limits.window is None or limits.soft is None:
        return True
    cap = caps.read_cap(api, body)
    return size < limits.soft and (cap is None or size + cap.tokens <= limits.window.context)
