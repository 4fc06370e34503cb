"""A provider's own clearing or compaction, asked for where that is configured.

The provider then edits what it reads; the history that the client sends, and what signed thinking is
bound to, stay as they are. That is the sanctioned way to clear results for models that bind thinking.
"""

import json
from collections.abc import Mapping
from typing import Any

from refold.gateway.messages import Incoming

BETAS: Mapping[str, str] = {
    "clear_tool_uses_20250919": "context-management-2025-06-27",
    "clear_thinking_20251015": "context-management-2025-06-27",
    "compact_20260112": "compact-2026-01-12",
}
"""The beta that each edit of Anthropic's needs."""

Headers = tuple[tuple[str, str], ...]


def add_native_fields(
    incoming: Incoming, body: Mapping[str, Any], source: bytes, fields: Mapping[str, Any]
) -> tuple[bytes, Headers]:
    """*source*, what is made of *incoming* with the fields *body*, with those of *fields* that it does not have
    itself, put first; and the headers to send in place of its own. No other byte is changed."""
    new = {name: value for name, value in fields.items() if name not in body}
    return (prepend_fields(source, new), _beta_headers(incoming, new)) if new else (source, ())


def prepend_fields(source: bytes, fields: Mapping[str, Any]) -> bytes:
    """The JSON object *source*, which is not empty, with *fields* before its own."""
    at = source.index(b"{") + 1
    said = json.dumps(fields, ensure_ascii=False, separators=(",", ":"))[1:-1]
    return source[:at] + said.encode() + b"," + source[at:]


def _beta_headers(incoming: Incoming, new: Mapping[str, Any]) -> Headers:
    """`anthropic-beta` with what the edits need; nothing for other APIs."""
    value = new.get("context_management")
    edits = (
        value.get("edits", ()) if incoming.api == "anthropic" and isinstance(value, Mapping) else ()
    )
    said = [name.strip() for name in _client_betas(incoming).split(",") if name.strip()]
    need = sorted({BETAS[edit["type"]] for edit in edits if edit.get("type") in BETAS} - set(said))
    return (("anthropic-beta", ",".join([*said, *need])),) if need else ()


def _client_betas(incoming: Incoming) -> str:
    """What the client asks for, in as many headers as it likes: they are one list (RFC 9110, 5.3)."""
    return ",".join(value for name, value in incoming.headers if name == "anthropic-beta")
