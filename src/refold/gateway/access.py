"""Who may ask: by which names, from whose pages (a browser sends requests for any page), and
who may administer."""

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from hmac import compare_digest
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from refold.gateway.config import Config, is_loopback
from refold.gateway.messages import HTTPException

Headers = Mapping[bytes, bytes]
"""The first header of each name, in lower case."""
_KEYS = (b"authorization", b"x-api-key", b"x-goog-api-key", b"api-key")
_FORM_TYPES = (b"", b"application/x-www-form-urlencoded", b"multipart/form-data", b"text/plain")
"""Types of a body that a page may post anywhere without asking (the Fetch standard's safelist)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sites:
    """Who may ask, besides programs that are no browsers. The default is the strictest: this
    machine's own pages."""

    allowed_hosts: tuple[str, ...] = ()
    """Names of the gateway beside this machine's; `*` stands for anything."""
    allowed_origins: tuple[str, ...] = ()
    """Other sites whose pages may ask: `https://chat.example`, `null`; `*` stands for anything."""
    allows_local: bool = False
    """Are names taken that no public server can have, and pages that no web site can be
    (`vscode-webview://...`)?"""
    checks_names: bool = True


def sites_for(config: Config, scope: Mapping[str, Any]) -> Sites:
    """Return who may ask for what is passed on. Names matter if this machine alone can connect: a
    page whose own name was made to lead here (DNS rebinding) is one more program on it. Elsewhere
    they matter once some are configured."""
    at = scope.get("server")
    local = is_loopback(config.host) and at is not None and is_loopback(str(at[0]))
    return Sites(
        allowed_hosts=config.allowed_hosts,
        allowed_origins=config.allowed_origins,
        allows_local=True,
        checks_names=local or bool(config.allowed_hosts),
    )


def check_site(headers: Headers, sites: Sites) -> HTTPException | None:
    """Return the answer to a request of a page that may not ask; None for every other request."""
    host = _text(headers, b"host").lower()
    if host and sites.checks_names and not _is_own_name(_host_name(f"//{host}"), sites):
        words = (
            f"This gateway is not called {host[:100]!r}: if it is, add that name to allowed_hosts"
        )
        return HTTPException(403, f"{words} in refold.toml.", reason="foreign_host")
    origin = _text(headers, b"origin").lower()
    if origin:
        if _is_admitted(origin, host, headers, sites):
            return None
        words = f"Pages of {origin[:100]!r} may not use this gateway: if they may, add that to"
        words += " allowed_origins in refold.toml."
        return HTTPException(403, words, reason="foreign_site")
    if headers.get(b"sec-fetch-site") == b"cross-site":
        return HTTPException(
            403, "Pages of other sites may not use this gateway.", reason="foreign_site"
        )
    return None


def _is_own_name(name: str, sites: Sites) -> bool:
    if _is_this_machine(name) or _matches(name, sites.allowed_hosts):
        return True
    return sites.allows_local and (
        "." not in name or name.endswith(".internal") or _is_address(name)
    )


def _is_admitted(origin: str, host: str, headers: Headers, sites: Sites) -> bool:
    """May pages of this origin ask? Those of this machine and of the gateway itself may, and those
    that are configured."""
    if _matches(origin, sites.allowed_origins):
        return True
    scheme, _, place = origin.partition("://")
    if scheme in {"http", "https"}:
        return _is_this_machine(_host_name(f"//{place}")) or (sites.allows_local and place == host)
    return sites.allows_local and (origin != "null" or _has_preflight_headers(headers))


def _has_preflight_headers(headers: Headers) -> bool:
    """Does a request hold what a page's browser sends only after a preflight? Any page can have the
    origin `null`, but its preflight is refused; an application that switched that check off (as
    Electron's can) comes through."""
    if headers.keys() & set(_KEYS):
        return True
    return headers.get(b"content-type", b"").partition(b";")[0].strip().lower() not in _FORM_TYPES


def _is_this_machine(name: str) -> bool:
    """Does *name* always lead to this machine?"""
    return is_loopback(name) or name.endswith(".localhost")


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _matches(text: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(text, pattern.lower()) for pattern in patterns)


@lru_cache(maxsize=64)
def _host_name(address: str) -> str:
    try:
        return (urlsplit(address).hostname or "").rstrip(".")
    except ValueError:
        return "."  # nobody's


def _text(headers: Headers, name: bytes) -> str:
    return headers.get(name, b"").decode("latin-1")


_FORWARDED = frozenset(
    {b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip", b"via"}
)
"""Headers that say that somebody else is asking through a proxy on this machine."""


def may_administer(scope: Mapping[str, Any], token: str) -> bool:
    """May the caller see and change what the gateway does?

    With a token, a caller who brings it: `authorization: Bearer TOKEN`, the scheme in any case
    (RFC 9110, 11.1), the token compared in constant time. Without, a program on this machine that
    names it as this machine and asks for itself: no page of another site whose name was made to
    lead here, no caller behind a proxy.
    """
    headers = [(bytes(name).lower(), bytes(value)) for name, value in scope["headers"]]
    if token:
        brought = next((value for name, value in headers if name == b"authorization"), b"")
        scheme, _, word = brought.partition(b" ")
        return scheme.lower() == b"bearer" and compare_digest(word.strip(b" "), token.encode())
    client, first = scope.get("client"), dict(reversed(headers))
    return (
        client is not None
        and is_loopback(client[0])
        and first.keys().isdisjoint(_FORWARDED)
        and sum(name == b"host" for name, _ in headers) == 1
        and check_site(first, Sites()) is None
    )
