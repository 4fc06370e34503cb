"""The settings of a gateway, and those that the environment and the command line say."""

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from ipaddress import ip_address

from refold.errors import require_int, require_number
from refold.gateway.logs import LEVELS
from refold.gateway.settings import Limits, Settings
from refold.gateway.tenants import CREDENTIAL, HEADER, SINGLE, TenantResolver
from refold.gateway.upstreams import Upstream, find_provider, load_providers
from refold.stores.sql import MIN_SECONDS
from refold.stores.sqlite_connection import MEMORY

UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")


def parse_duration(text: str) -> float:
    """Return `7d`, `12h`, `30m`, `90s`, `2w` in seconds. Raises ValueError for anything else, and
    for no time at all."""
    match = _SPAN.fullmatch(text.strip().lower())
    if match is None or not float(match[1]):
        raise ValueError(f"{text!r} is no time: write it as 7d, 12h or 30m")
    return float(match[1]) * UNITS[match[2]]


ADMIN_TOKEN = "REFOLD_ADMIN_TOKEN"  # noqa: S105 - the name of a variable
SALT = "REFOLD_SALT"
STORE = "REFOLD_STORE"
"""Environment variables, so that no secret has to stand in a file or a command line."""


_ORIGIN = r"null|\*|[\w.+*-]+://[^/?#\s]+"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The gateway's settings. Raises ValueError for what cannot be."""

    upstreams: tuple[Upstream, ...] = ()
    host: str = "127.0.0.1"
    port: int = 8484
    admin_token: str = field(default="", repr=False)
    """Asked for by `/refold/...` and `/metrics`; without one they answer this machine alone."""
    salt: bytes = field(default=b"", repr=False)
    """What credentials are hashed with. It has to be the same for all replicas of one store."""
    is_salt_stored: bool = False
    """Is the salt kept with the store, to be written again where it is gone?"""
    store: str = field(default="refold.db", repr=False)
    """Where edits are kept: a file, `postgresql://...` for several machines, `:memory:` for
    none."""
    workers: int = 1
    """Processes that answer."""
    record: str = ""
    """How long transcripts are kept after they grew last: `7d`, `12h`. Empty: none are kept."""
    files: bool | None = None
    """List on the page the sessions too that clients keep in files of this user; for this machine
    alone. None: `refold serve` and `refold run` do where nobody else is served, programs do not."""
    retention: str = ""
    """How long edits are kept after they were used last, and sessions in the ledger: `90d`, at
    least `1d`. Empty: for good."""
    tenant: str = CREDENTIAL
    """How callers are told apart: `credential` (by what they show), `one` (all are one; on this
    machine alone), or `header:NAME` (by a header that a proxy before the gateway sets)."""
    credential_headers: tuple[str, ...] = ()
    """Further headers that hold keys."""
    memory: str = ""
    """An SQLite file for the facts that the API's `compact` takes out of what it hides. Empty: none
    are kept."""
    allowed_hosts: tuple[str, ...] = ()
    """Names that clients may call the gateway by, beside those of this machine: `models.example`,
    `*.example`."""
    allowed_origins: tuple[str, ...] = ()
    """Web sites whose pages may use the gateway: `https://chat.example`, `null`. Pages of this
    machine always may."""
    settings: Settings = field(default_factory=Settings)
    limits: Limits = field(default_factory=Limits)
    answer_headers: bool = True
    """Say in `refold-edits`, `refold-tokens-before` and `refold-tokens-after` what was done."""
    hold_seconds: float = 0.5
    """How long the beginning of a stream that tells nothing yet is kept back, in case a context
    error follows."""
    log: str = "info"
    """debug, info, warning or error."""

    def __post_init__(self) -> None:
        names = [upstream.name for upstream in self.upstreams]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"two upstreams are called {twice!r}")
        require_int(0, port=self.port)
        require_number(0, 65_535, port=self.port)
        require_int(1, workers=self.workers)
        require_number(0, math.inf, hold_seconds=self.hold_seconds)
        named = self.tenant.removeprefix(HEADER) if self.tenant.startswith(HEADER) else ""
        if self.tenant not in (CREDENTIAL, SINGLE) and (
            not named or named != named.strip().lower()
        ):
            raise ValueError(
                f"tenant must be {CREDENTIAL}, {SINGLE} or {HEADER}NAME in lower case, "
                f"not {self.tenant!r}"
            )
        if self.log not in LEVELS:
            raise ValueError(f"log must be one of {', '.join(LEVELS)}, not {self.log!r}")
        for name in ("record", "retention"):
            _check_duration(name, getattr(self, name))
        _check_sites(self.allowed_hosts, self.allowed_origins)

    @property
    def tenants(self) -> TenantResolver:
        """What tells callers apart, with nothing learned yet."""
        return TenantResolver(
            self.salt,
            self.tenant,
            frozenset(name.lower().encode() for name in self.credential_headers),
        )

    def check_servable(self) -> "Config":
        """Return this, if it can be served. Raises ValueError without upstreams, and for an address
        that others can reach while no admin token is set."""
        if not self.upstreams:
            raise ValueError("no upstream: name one with --upstream, or in refold.toml")
        if not is_loopback(self.host) and len(self.admin_token) < 16:
            raise ValueError(
                f"{self.host} can be reached from other machines: set {ADMIN_TOKEN} to at least 16 "
                "characters, or serve on 127.0.0.1"
            )
        if self.tenant == SINGLE and not is_loopback(self.host):
            raise ValueError(
                f"tenant is {SINGLE!r}, and {self.host} can be reached from other machines: "
                "their edits would mix"
            )
        if not self.admin_token.isascii() or not self.admin_token.isprintable():
            raise ValueError(
                f"{ADMIN_TOKEN} must be printable ASCII: no browser can send anything else"
            )
        if self.files and not is_loopback(self.host):
            raise ValueError(
                f"files of this machine are not listed where {self.host} is reached from others"
            )
        if self.workers > 1 and self.settings.shadow:
            raise ValueError("shadow keeps what it decides in memory: serve with 1 worker")
        if self.workers > 1 and (self.store == MEMORY or not hasattr(os, "fork")):
            raise ValueError(
                f"{self.workers} workers need a store that they share, and a system that can fork"
            )
        return self


def _check_duration(name: str, text: str) -> None:
    try:
        seconds = parse_duration(text) if text else MIN_SECONDS
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    if name == "retention" and seconds < MIN_SECONDS:
        raise ValueError(f"{name} must be 1d or more, not {text!r}")


def _check_sites(hosts: tuple[str, ...], origins: tuple[str, ...]) -> None:
    wrong = next((host for host in hosts if not host or "/" in host or ":" in host), None)
    if wrong is not None:
        raise ValueError(
            f"allowed_hosts: write names without scheme and port, as models.example, not {wrong!r}"
        )
    wrong = next((origin for origin in origins if not re.fullmatch(_ORIGIN, origin)), None)
    if wrong is not None:
        raise ValueError(
            f"allowed_origins: write origins as https://chat.example or null, not {wrong!r}"
        )


@lru_cache(maxsize=64)
def is_loopback(host: str) -> bool:
    """Does *host* name this machine alone?"""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def with_environment(config: Config, environment: Mapping[str, str] = os.environ) -> Config:
    """Return *config* with the secrets that the environment holds, which win."""
    token, salt, store = (environment.get(name, "") for name in (ADMIN_TOKEN, SALT, STORE))
    return replace(
        config,
        admin_token=token or config.admin_token,
        salt=salt.encode() or config.salt,
        store=store or config.store,
    )


def parse_upstream(text: str) -> Upstream:
    """Return an upstream from the command line: an address, a well-known provider's name, or
    `name=address`, which is then below `/name`. Raises ValueError."""
    name, equals, address = text.partition("=")
    if equals and "/" not in name and ":" not in name:
        return Upstream(name=name, url=address, prefix=f"/{name}")
    preset = find_provider(text)
    if preset is not None:
        return Upstream(name=text, **preset)
    if "://" not in text:
        raise ValueError(f"{text!r} is neither an address nor one of {', '.join(load_providers())}")
    return Upstream(name="default", url=text)
