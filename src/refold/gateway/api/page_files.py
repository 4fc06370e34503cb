"""The files of the page at `/refold/`, for everybody: they hold no data."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from refold.gateway.http.caller import Caller
from refold.gateway.messages import Headers

_KINDS: Mapping[str, str] = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_NAMES = (
    *("index.html", "page.css", "icon.svg", "app.js", "api.js", "dom.js", "format.js", "charts.js"),
    *("sessions.js", "session.js", "timeline.js", "preview.js", "setup.js"),
)
_PAGE: Mapping[str, str] = {
    f"/refold/{'' if name == 'index.html' else name}": name for name in _NAMES
}
"""Paths and files."""
_CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Nothing from elsewhere, nothing inline, in nobody's frame."""
_PAGE_HEADERS: Headers = (
    ("content-security-policy", _CONTENT_SECURITY_POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cache-control", "no-cache"),
)


def is_page(scope: Mapping[str, Any]) -> bool:
    """Is a file of the page asked for?"""
    return scope["method"] in {"GET", "HEAD"} and (
        scope["path"] in _PAGE or scope["path"] == "/refold"
    )


async def send_page(scope: Mapping[str, Any], caller: Caller) -> None:
    """Send the file, or the redirect to the page."""
    if scope["path"] == "/refold":
        await caller.respond(308, (("location", "/refold/"), ("content-length", "0")), b"")
        return
    name = _PAGE[scope["path"]]
    kind, body = _KINDS[f".{name.rpartition('.')[2]}"], _read_file(name)
    await caller.respond(
        200, (("content-type", kind), ("content-length", str(len(body))), *_PAGE_HEADERS), body
    )


@cache
def _read_file(name: str) -> bytes:
    return (files("refold.gateway.api") / "page" / name).read_bytes()
