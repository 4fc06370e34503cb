"""What `refold serve` is told: `refold.toml`, environment and flags."""

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from refold.compactor.strategy_names import parse_strategy
from refold.economics.prices import Prices, Rates, find_rates
from refold.errors import require_int, require_number
from refold.gateway.config.durations import parse_duration
from refold.gateway.config.toml import ConfigError, Kind, Table
from refold.gateway.messages import APIS
from refold.gateway.ops.logs import LEVELS
from refold.gateway.ops.processes import can_fork
from refold.gateway.settings import OLD_KEYS, Limits, Settings
from refold.gateway.tenants import CREDENTIAL, HEADER, SINGLE, TenantResolver
from refold.gateway.upstreams import Upstream, find_provider, load_providers
from refold.models import Fallback, HTTPModel
from refold.stores.sqlite_connection import MEMORY
from refold.tokens.windows import Window

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
    """Where edits are kept: a file, `postgresql://...` for several machines, `:memory:` for none."""
    workers: int = 1
    """Processes that answer."""
    record: str = ""
    """How long transcripts are kept after they grew last: `7d`, `12h`. Empty: none are kept."""
    tenant: str = CREDENTIAL
    """How callers are told apart: `credential` (by what they show), `one` (all are one; on this machine alone), or
    `header:NAME` (by a header that a proxy before the gateway sets)."""
    credential_headers: tuple[str, ...] = ()
    """Further headers that hold keys."""
    memory: str = ""
    """An SQLite file for the facts that the API's `compact` takes out of what it hides. Empty: none are kept."""
    allowed_hosts: tuple[str, ...] = ()
    """Names that clients may call the gateway by, beside those of this machine: `models.example`, `*.example`."""
    allowed_origins: tuple[str, ...] = ()
    """Web sites whose pages may use the gateway: `https://chat.example`, `null`. Pages of this machine always may."""
    settings: Settings = field(default_factory=Settings)
    limits: Limits = field(default_factory=Limits)
    answer_headers: bool = True
    """Say in `refold-edits`, `refold-tokens-before` and `refold-tokens-after` what was done."""
    hold_seconds: float = 0.5
    """How long the beginning of a stream that tells nothing yet is kept back, in case a context error follows."""
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
                f"tenant must be {CREDENTIAL}, {SINGLE} or {HEADER}NAME in lower case, not {self.tenant!r}"
            )
        if self.log not in LEVELS:
            raise ValueError(f"log must be one of {', '.join(LEVELS)}, not {self.log!r}")
        if self.record:
            _check_duration(self.record)
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
        """This, if it can be served. Raises ValueError without upstreams, and for an address that others
        can reach while no admin token is set."""
        if not self.upstreams:
            raise ValueError("no upstream: name one with --upstream, or in refold.toml")
        if not is_loopback(self.host) and len(self.admin_token) < 16:
            raise ValueError(
                f"{self.host} can be reached from other machines: set {ADMIN_TOKEN} to at least 16 characters, "
                "or serve on 127.0.0.1"
            )
        if self.tenant == SINGLE and not is_loopback(self.host):
            raise ValueError(
                f"tenant is {SINGLE!r}, and {self.host} can be reached from other machines: their edits would mix"
            )
        if not self.admin_token.isascii() or not self.admin_token.isprintable():
            raise ValueError(
                f"{ADMIN_TOKEN} must be printable ASCII: no browser can send anything else"
            )
        if self.workers > 1 and (self.store == MEMORY or not can_fork):
            raise ValueError(
                f"{self.workers} workers need a store that they share, and a system that can fork"
            )
        return self


def _check_duration(record: str) -> None:
    try:
        parse_duration(record)
    except ValueError as error:
        raise ValueError(f"record: {error}") from error


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


def load_config(
    path: str | os.PathLike[str], environment: Mapping[str, str] = os.environ
) -> Config:
    """The settings of a TOML file. Raises `ConfigError`, which names file, line and key."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {getattr(error, 'strerror', None) or 'not UTF-8'}") from error
    return parse_config(text, str(path), environment)


def parse_config(
    text: str, name: str = "refold.toml", environment: Mapping[str, str] = os.environ
) -> Config:
    """The settings that *text* holds; *name* is what errors call it. Raises `ConfigError`."""
    table = Table.parse(text, name)
    table.reject_unknown(
        *_TOP_LEVEL_KEYS, "upstream", "limits", "compaction", "windows", "prices", "summaries"
    )
    plain = table.values(**_TOP_LEVEL_KEYS)
    settings: dict[str, Any] = {
        **plain,
        "upstreams": tuple(_read_upstream(entry) for entry in table.tables("upstream")),
        "limits": table.table("limits").build(Limits),
        "settings": _read_settings(table, environment),
    }
    lists = ("allowed_hosts", "allowed_origins", "credential_headers")
    settings |= {name: tuple(plain[name]) for name in lists if name in plain}
    if "salt" in plain:
        settings["salt"] = plain["salt"].encode()
    return table.guard(lambda: with_environment(Config(**settings), environment))


def with_environment(config: Config, environment: Mapping[str, str] = os.environ) -> Config:
    """*config* with the secrets that the environment holds, which win."""
    token, salt, store = (environment.get(name, "") for name in (ADMIN_TOKEN, SALT, STORE))
    return replace(
        config,
        admin_token=token or config.admin_token,
        salt=salt.encode() or config.salt,
        store=store or config.store,
    )


_TOP_LEVEL_KEYS: Mapping[str, Kind] = {
    "host": str,
    "port": int,
    "store": str,
    "workers": int,
    "record": str,
    "memory": str,
    "tenant": str,
    "credential_headers": (str,),
    "log": str,
    "answer_headers": bool,
    "hold_seconds": float,
    "admin_token": str,
    "salt": str,
    "allowed_hosts": (str,),
    "allowed_origins": (str,),
}
"""The keys of a file that stand in no table."""


def parse_upstream(text: str) -> Upstream:
    """An upstream from the command line: an address, a well-known provider's name, or `name=address`,
    which is then below `/name`. Raises ValueError."""
    name, equals, address = text.partition("=")
    if equals and "/" not in name and ":" not in name:
        return Upstream(name=name, url=address, prefix=f"/{name}")
    preset = find_provider(text)
    if preset is not None:
        return Upstream(name=text, **{**preset, **_as_tuples(preset)})
    if "://" not in text:
        raise ValueError(f"{text!r} is neither an address nor one of {', '.join(load_providers())}")
    return Upstream(name="default", url=text)


def _as_tuples(preset: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(preset[name]) for name in ("apis", "issuers") if name in preset}


def _read_upstream(table: Table) -> Upstream:
    preset = table.value("preset", str)
    defaults = find_provider(preset) if preset else {}
    if defaults is None:
        raise table.error(
            "preset", f"no provider is called {preset!r}; there are {', '.join(load_providers())}"
        )
    table.reject_unknown("preset", *Upstream.__dataclass_fields__)
    own = table.fields(Upstream, also=("preset",))
    merged = {"name": preset or "default", **defaults, **own}
    merged |= _as_tuples(merged)
    if "url" not in merged:
        raise table.error("", "an upstream needs a url or a preset")
    return table.guard(lambda: Upstream(**merged))


def _read_settings(table: Table, environment: Mapping[str, str]) -> Settings:
    own = table.table("compaction")
    own.reject_renamed(OLD_KEYS)
    simple = {"strategies": (str,), "refuse": (str,)}
    values = own.fields(Settings, simple, also=("native",))
    if "strategies" in values:
        values["strategies"] = tuple(
            own.guard(partial(parse_strategy, name), "strategies") for name in values["strategies"]
        )
    if "refuse" in values:
        values["refuse"] = frozenset(values["refuse"])
    values["windows"] = dict(_read_windows(table.table("windows")))
    values["prices"] = _read_prices(table.table("prices"))
    values["native"] = _read_native(own.table("native"))
    values["ask"] = _read_summaries(table.table("summaries"), environment, values["prices"])
    return own.guard(lambda: Settings(**values))


def _read_native(table: Table) -> Mapping[str, Mapping[str, Any]]:
    table.reject_unknown(*APIS)
    return {api: table.table(api).raw for api in table.names}


def _read_windows(table: Table) -> Any:
    for model in table.names:
        if isinstance(table.raw[model], dict):
            yield model, table.table(model).build(Window)
        else:
            yield model, table.guard(partial(Window, table.value(model, int)), model)


def _read_prices(table: Table) -> Prices | None:
    rates = {model: _read_rates(table.table(model)) for model in table.names}
    return rates.get if rates else None


def _read_rates(table: Table) -> Rates:
    rates = table.fields(Rates)
    table.guard(
        partial(require_number, 0, math.inf, **rates)
    )  # before it is told that others are missing
    return table.build(Rates)


def _read_summaries(table: Table, environment: Mapping[str, str], prices: Prices | None) -> Any:
    """Who writes summaries; None where nobody is named and rules do."""
    if not table.names:
        return None
    table.reject_renamed({"window": "window_tokens", "timeout": "timeout_seconds"})
    values = table.values(model=str, url=str, key_env=str, window_tokens=int, timeout_seconds=float)
    table.reject_unknown("model", "url", "key_env", "window_tokens", "timeout_seconds")
    if "model" not in values:
        raise table.error("", "model is missing")
    if rates := find_rates(values["model"], prices):
        values["price"] = (rates.input, rates.output, rates.read, rates.write)
    key = environment.get(values.get("key_env", ""), "")
    if values.get("key_env") and not key:
        raise table.error("key_env", f"the environment has no {values['key_env']}")
    named = {"window": "window_tokens", "timeout": "timeout_seconds", "price": "price"}
    options = {option: values[key] for option, key in named.items() if key in values}
    url = values.get("url", "https://api.openai.com/v1")
    return Fallback(
        table.guard(lambda: HTTPModel(url, model=values["model"], key=key, **options), "url")
    ).acall
