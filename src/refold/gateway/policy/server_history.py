"""Requests that carry only what is new, since the provider holds the rest: nothing of that can be rewritten."""

import json
from collections.abc import Mapping
from typing import Any

from refold.gateway.messages import GatewayResponse

_FIELDS: Mapping[str, tuple[str, ...]] = {
    "anthropic": ("thread",),
    "openai_responses": ("previous_response_id", "conversation"),
    "gemini": ("cachedContent", "cached_content"),
}
JSON = (("content-type", "application/json"),)


def server_history_field(api: str, body: Mapping[str, Any]) -> str:
    """The field by which a request says that the provider holds its history; empty where none does."""
    return next((name for name in _FIELDS.get(api, ()) if body.get(name) is not None), "")


def refuse_server_history(field: str, body: Mapping[str, Any]) -> GatewayResponse | None:
    """The answer that makes a client send its full history from now on; None where there is none.

    The Anthropic SDK drops `thread` when told that threads are not supported. A client of
    `previous_response_id` is told that there is no such response.
    """
    if field == "thread":
        details = {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
        said = "message threads are not supported here"
        error: Any = {
            "type": "error",
            "error": {"type": "invalid_request_error", "message": said, "details": details},
        }
    elif field == "previous_response_id":
        message = f"Previous response with id '{body.get(field)}' not found."
        told = {
            "message": message,
            "type": "invalid_request_error",
            "param": field,
            "code": "previous_response_not_found",
        }
        error = {"error": told}
    else:
        return None
    return GatewayResponse(400, JSON, json.dumps(error).encode())
