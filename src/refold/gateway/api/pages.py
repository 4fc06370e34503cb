"""The page at `/refold/`: three files without data, the same for everybody. Data comes from the operations."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from refold.gateway.answers import Headers
from refold.gateway.caller import Caller

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Nothing from elsewhere, nothing inline, in nobody's frame."""
_FILES: Mapping[str, tuple[str, str]] = {
    "/refold/": ("page.html", "text/html; charset=utf-8"),
    "/refold/page.css": ("page.css", "text/css; charset=utf-8"),
    "/refold/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/refold/icon.svg": ("icon.svg", "image/svg+xml"),
}
_FIXED: Headers = (
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cache-control", "no-cache"),
)


def is_page(scope: Mapping[str, Any]) -> bool:
    """Is a file of the page asked for?"""
    return scope["method"] in {"GET", "HEAD"} and (scope["path"] in _FILES or scope["path"] == "/refold")


async def send_page(scope: Mapping[str, Any], caller: Caller) -> None:
    """The file, or the way to the page."""
    if scope["path"] == "/refold":
        await caller.whole(308, (("location", "/refold/"), ("content-length", "0")), b"")
        return
    name, kind = _FILES[scope["path"]]
    body = _read(name)
    await caller.whole(200, (("content-type", kind), ("content-length", str(len(body))), *_FIXED), body)


@cache
def _read(name: str) -> bytes:
    return (files("refold.gateway.api") / "page" / name).read_bytes()
