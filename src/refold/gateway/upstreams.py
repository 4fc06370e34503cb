"""Which upstreams there are, and which of them a request goes to. Nothing else can be reached."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit

from refold.gateway.messages import APIS, HTTPException

_OWN = ("/refold", "/metrics")
"""Paths that the gateway answers itself; no upstream's prefix may be one of them."""
_REMEDY = (
    "its key is sent to none of them. Bind them by apis, or give one a prefix, in refold.toml."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """A server that requests are sent to. Raises ValueError for an address or prefix that cannot
    be."""

    name: str
    url: str
    """What stands before the path that a client asks for: `https://api.example.com`, with a path or
    without."""
    prefix: str = ""
    """Requests below this path go here, without it: `/openai` sends `/openai/v1/models` on as
    `/v1/models`."""
    models: tuple[str, ...] = ()
    """Requests for these models go here; `*` stands for anything: `gpt-*`."""
    apis: tuple[str, ...] = ()
    """Requests in these formats go here."""
    issuers: tuple[str, ...] = ()
    """Who issues the tokens that this server checks: a token renewed by one of these leaves a
    caller who they are. A `*` stands for anything, `aws` for signatures in the form of Amazon's."""
    older_account: bool = False
    """Are all keys that come here of Anthropic accounts created before 2026-08-31 (AN-8)?"""
    proxy: str = ""
    """An HTTP proxy on the way, `http://host:port`, or with a user:
    `http://user:password@host:port`."""

    def __post_init__(self) -> None:
        _check_address(self.url)
        if self.prefix and (not self.prefix.startswith("/") or self.prefix.endswith("/")):
            raise ValueError(
                f"a prefix begins with a slash and does not end with one, and {self.prefix!r} does not"
            )
        if self.proxy and (
            not self.proxy.startswith("http://") or not urlsplit(self.proxy).hostname
        ):
            raise ValueError("a proxy's address begins with http://")
        if is_own_path(self.prefix):
            raise ValueError(f"the gateway answers {self.prefix} itself")
        if unclear := next((issuer for issuer in self.issuers if issuer.strip("*") == ""), None):
            raise ValueError(f"issuers must name who issues tokens, and {unclear!r} is anybody")
        strange = [api for api in self.apis if api not in APIS]
        if strange:
            raise ValueError(f"no API is called {strange[0]!r}; there are {', '.join(APIS)}")

    @property
    def issuer_patterns(self) -> tuple[str, ...]:
        """Its issuers; Amazon checks its own signatures."""
        parts = urlsplit(self.url)
        is_amazon = parts.scheme == "https" and (parts.hostname or "").endswith(".amazonaws.com")
        return (*self.issuers, "aws") if is_amazon else self.issuers


def match_prefix(upstreams: Sequence[Upstream], path: str) -> tuple[tuple[Upstream, ...], str]:
    """Return the upstreams that *path* can go to, and the path without their prefix. The longest
    prefix wins."""
    prefixes = {upstream.prefix for upstream in upstreams if _is_below(path, upstream.prefix)}
    prefix = max(prefixes - {""}, key=len, default="")
    matches = tuple([upstream for upstream in upstreams if upstream.prefix == prefix])
    return matches, path[len(prefix) :] or "/"


def choose_upstream(
    upstreams: Sequence[Upstream], apis: Sequence[str], model: str = "", *, keyed: bool = False
) -> Upstream:
    """Return the upstream for a request in one of these *apis*: by model, else by API, else the
    first that is bound to neither.

    If the request names no *model*, those with `models` may be meant too, and a key (*keyed*) goes
    nowhere on a guess. Raises `HTTPException` (404) if no upstream fits, and if several do and it
    has a key.
    """
    if len(upstreams) == 1 and not (model and upstreams[0].models):
        return upstreams[0]
    for upstream in upstreams:
        if model and any(fnmatchcase(model, pattern) for pattern in upstream.models):
            return upstream
    candidates = [upstream for upstream in upstreams if not (model and upstream.models)]
    fitting = _filter_by_api(candidates, apis)
    if not fitting:
        raise HTTPException(404, "No upstream is configured for this path.", reason="no_upstream")
    of_any_model = [upstream for upstream in fitting if not upstream.models]
    if not keyed or len(fitting) == 1:
        return (of_any_model or fitting)[0]
    if len(of_any_model) == len(fitting):
        for upstream in fitting:
            if not upstream.apis or set(apis) <= set(upstream.apis):
                return upstream
    names = ", ".join(upstream.name for upstream in fitting)
    unnamed = "" if model else "names no model and "
    raise HTTPException(
        404,
        f"The request {unnamed}could be for any of {names}: {_REMEDY}",
        reason="no_upstream",
    )


def _filter_by_api(upstreams: Sequence[Upstream], apis: Sequence[str]) -> Sequence[Upstream]:
    """Return those that are bound to one of *apis*; if there is none, those that are bound to no
    API."""
    bound = [upstream for upstream in upstreams if not set(apis).isdisjoint(upstream.apis)]
    return bound or [upstream for upstream in upstreams if not upstream.apis]


def is_own_path(path: str) -> bool:
    """Does the gateway answer this path itself?"""
    return path.startswith(_OWN) and any(_is_below(path, own) for own in _OWN)


def find_provider(name: str) -> dict[str, Any] | None:
    """Return the settings of a well-known provider; None if there is none of this name."""
    settings = load_providers().get(name)
    return dict(settings) if settings else None


@cache
def load_providers() -> dict[str, dict[str, Any]]:
    """Return all well-known providers, from `providers.toml`, as the fields of an `Upstream`."""
    text = files("refold.gateway").joinpath("providers.toml").read_text(encoding="utf-8")
    return {
        name: {
            key: tuple(value) if isinstance(value, list) else value for key, value in raw.items()
        }
        for name, raw in tomllib.loads(text).items()
    }


def _is_below(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith(f"{prefix}/")


def _check_address(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        shown = url.rpartition("@")[2].partition("?")[0][:100]  # without what may be a secret
        raise ValueError(
            f"an upstream's address begins with http:// or https://, and {shown!r} does not"
        )
    if parts.username is not None or parts.query or parts.fragment:
        raise ValueError(
            "an upstream's address holds no user, query or fragment: clients bring their own keys"
        )
    if url.split() != [url]:
        raise ValueError("an upstream's address holds no blanks")
    _ = parts.port  # raises ValueError for what is no port
