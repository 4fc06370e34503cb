"""The settings of a gateway: in `refold.toml`, in the environment, on the command line."""

import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from difflib import get_close_matches
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import msgspec

from refold.compactor.settings import parse_strategy
from refold.errors import RefoldError, require_int, require_number
from refold.gateway.exchange import APIS
from refold.gateway.logs import LEVELS
from refold.gateway.settings import (
    Engine,
    Limits,
    Settings,
    Upstream,
    find_provider,
    is_loopback,
    load_providers,
    parse_duration,
)
from refold.gateway.tenants import CREDENTIAL, HEADER, SINGLE, TenantResolver
from refold.models import CircuitBreaker, Fallback, HTTPModel
from refold.stores import is_server
from refold.stores.sql import MIN_SECONDS
from refold.stores.sqlite import MEMORY
from refold.tokens.model_table import EngineProfile, Prices, Rates, Window, find_rates

ADMIN_TOKEN = "REFOLD_ADMIN_TOKEN"  # noqa: S105 - the name of a variable
SALT = "REFOLD_SALT"
STORE = "REFOLD_STORE"
"""Environment variables, so that no secret has to be in a file or on a command line."""
MODEL_COOLDOWN_SECONDS = 60.0
"""Seconds without calls to the model for summaries after three failures in a row."""
_HEADER_NAME = r"[\w!#$%&'*+.^`|~-]+"
_ORIGIN = r"null|\*|[\w.+*-]+://[^/?#\s]+"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The gateway's settings. Raises ValueError for invalid ones."""

    upstreams: tuple[Upstream, ...] = ()
    host: str = "127.0.0.1"
    port: int = 8484
    admin_token: str = field(default="", repr=False)
    """Token required by `/refold/...` and `/metrics`. Without one they answer only this machine."""
    salt: bytes = field(default=b"", repr=False)
    """Salt of the hashes of credentials. All replicas that share a store need the same one."""
    is_salt_stored: bool = False
    """Whether the salt is kept with the store, and restored if deleted there."""
    store: str = field(default="refold.db", repr=False)
    """Where edits are kept: a file, `postgresql://...` for several machines, `:memory:` for
    none."""
    workers: int = 1
    """Number of serving processes."""
    record: str = ""
    """How long transcripts are kept after they last grew: `7d`, `12h`. Empty: none are kept."""
    files: bool | None = None
    """Whether the page also lists sessions in clients' files of this user; for loopback addresses.
    None: `refold serve` and `refold run` do unless they serve others, programs do not."""
    retention: str = ""
    """How long edits, and sessions in the ledger, are kept after their last use: `90d`, at least
    `1d`. Empty: forever."""
    tenant: str = CREDENTIAL
    """How callers are told apart: `credential` (by their keys), `one` (not at all; only on a
    loopback address), or `header:NAME` (by a header that a proxy in front of the gateway sets)."""
    credential_headers: tuple[str, ...] = ()
    """Further headers that hold keys."""
    memory: str = ""
    """SQLite file for the facts that the API's `compact` extracts from what it hides. Empty: none
    are kept."""
    allowed_hosts: tuple[str, ...] = ()
    """Host names of the gateway besides this machine's: `models.example`, `*.example`."""
    allowed_origins: tuple[str, ...] = ()
    """Web sites whose pages may use the gateway: `https://chat.example`, `null`. Pages of this
    machine always may."""
    settings: Settings = field(default_factory=Settings)
    limits: Limits = field(default_factory=Limits)
    answer_headers: bool = True
    """Whether answers have the headers `refold-edits`, `refold-tokens-before` and
    `refold-tokens-after`."""
    hold_seconds: float = 0.5
    """Seconds to hold back a stream's beginning without content, in case a context error
    follows."""
    log: str = "info"
    """Log level: debug, info, warning or error."""

    def __post_init__(self) -> None:
        names = [upstream.name for upstream in self.upstreams]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"two upstreams are called {twice!r}")
        require_int(0, port=self.port)
        require_number(0, 65_535, port=self.port)
        require_int(1, workers=self.workers)
        require_number(1, 1_000, workers=self.workers)
        require_number(0, inf, hold_seconds=self.hold_seconds)
        if not self.store or ("://" in self.store and not is_server(self.store)):
            scheme = self.store.partition("://")[0]  # the rest may hold a password
            raise ValueError(f"store must be a file, postgresql://... or {MEMORY}, not {scheme!r}")
        named = self.tenant.removeprefix(HEADER) if self.tenant.startswith(HEADER) else ""
        if self.tenant not in (CREDENTIAL, SINGLE) and (
            not re.fullmatch(_HEADER_NAME, named, re.ASCII) or named != named.lower()
        ):
            raise ValueError(
                f"tenant must be {CREDENTIAL}, {SINGLE} or {HEADER}NAME in lower case, "
                f"not {self.tenant!r}"
            )
        for name in self.credential_headers:
            if not re.fullmatch(_HEADER_NAME, name, re.ASCII):
                raise ValueError(f"credential_headers: {name!r} is no name of a header")
        if self.log not in LEVELS:
            raise ValueError(f"log must be one of {', '.join(LEVELS)}, not {self.log!r}")
        for name in ("record", "retention"):
            _check_duration(name, getattr(self, name))
        _check_sites(self.allowed_hosts, self.allowed_origins)

    @property
    def tenants(self) -> TenantResolver:
        """A new resolver, which has accepted no tokens."""
        return TenantResolver(
            self.salt,
            self.tenant,
            frozenset(name.lower().encode() for name in self.credential_headers),
        )

    def check_servable(self) -> "Config":
        """Return this config if it can be served. Raises ValueError if not, for example without
        upstreams, or if other machines can reach it and no admin token is set."""
        if not self.upstreams:
            raise ValueError("no upstream: name one with --upstream, or in refold.toml")
        if not self.host:
            raise ValueError("host is empty: write 127.0.0.1, or 0.0.0.0 for other machines")
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
        if self.admin_token != self.admin_token.strip():
            raise ValueError(
                f"{ADMIN_TOKEN} begins or ends with white space, which no header can carry: remove "
                "it, also the end of a line"
            )
        if not self.admin_token.isascii() or not self.admin_token.isprintable():
            raise ValueError(
                f"{ADMIN_TOKEN} must be printable ASCII: no browser can send anything else"
            )
        if self.files and not is_loopback(self.host):
            raise ValueError(
                f"files lists sessions of this machine, and {self.host} can be reached from others"
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


def with_environment(config: Config, environment: Mapping[str, str] = os.environ) -> Config:
    """Return *config* with the secrets that the environment sets, which take precedence."""
    token, salt, store = (environment.get(name, "") for name in (ADMIN_TOKEN, SALT, STORE))
    return replace(
        config,
        admin_token=token or config.admin_token,
        salt=salt.encode() or config.salt,
        store=store or config.store,
    )


def parse_upstream(text: str) -> Upstream:
    """Return an upstream from the command line: an address, a well-known provider's name, or
    `name=address`, served below `/name`. Raises ValueError for any other text."""
    name, equals, address = text.partition("=")
    if equals and "/" not in name and ":" not in name:
        return Upstream(name=name, url=address, prefix=f"/{name}")
    preset = find_provider(text)
    if preset is not None:
        return Upstream(name=text, **preset)
    if "://" not in text:
        raise ValueError(f"{text!r} is neither an address nor one of {', '.join(load_providers())}")
    return Upstream(name="default", url=text)


# --- refold.toml ----------------------------------------------------------------------------------
# An error names the file, the key, and what to write instead.

T = TypeVar("T")

_TEXTS = tuple[str, ...]
_TYPE_NAMES: Mapping[Any, str] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    _TEXTS: "a list of texts",
    int | None: "a whole number",
    bool | None: "true or false",
    float | None: "a number",
}
"""How errors call the type of a value, by the annotation of its field. Fields with any other
annotation are not read from files."""
_SECRETS = frozenset({"admin_token", "salt", "store", "proxy"})
"""Keys whose values are left out of errors, since logs keep them."""
_SUMMARY_KEYS = {
    "model": str,
    "url": str,
    "key_env": str,
    "window_tokens": int,
    "timeout_seconds": float,
}
ENGINE_KEYS = {"protocol": str, "kv_hints": bool, "end_after": str, "key_env": str}
"""Keys of an engine's table besides those of its profile."""


class ConfigError(RefoldError, ValueError):
    """A setting that is missing, unknown or invalid. The message names file and key."""


def load_config(
    path: str | os.PathLike[str], environment: Mapping[str, str] = os.environ
) -> Config:
    """Return the settings of a TOML file. Raises `ConfigError`."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")  # some editors write a byte order mark
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {getattr(error, 'strerror', None) or 'not UTF-8'}") from error
    return parse_config(text, str(path), environment)


def parse_config(
    text: str, name: str = "refold.toml", environment: Mapping[str, str] = os.environ
) -> Config:
    """Return the settings in *text*. Errors name it *name*. Raises `ConfigError`."""
    table = _parse_toml(text, name)
    tables = ("upstream", "limits", "compaction", "windows", "prices", "engines", "summaries")
    values = table.fields(Config, {"salt": str, "is_salt_stored": None}, also=tables)
    values |= {
        "upstreams": tuple(map(_read_upstream, table.tables("upstream"))),
        "limits": table.table("limits").build(Limits),
        "settings": _read_settings(table, environment),
    }
    if "salt" in values:
        values["salt"] = values["salt"].encode()
    return table.guard(lambda: with_environment(Config(**values), environment))


@dataclass(frozen=True, slots=True)
class _Table:
    """A table of a TOML document."""

    raw: Mapping[str, Any]
    file: str
    path: str = ""
    """Dotted name of the table in the document, such as `compaction.native`."""

    def error(self, key: str, message: str) -> ConfigError:
        """Return an error about *key*, or about the table."""
        return ConfigError(": ".join(filter(None, (self.file, self._full_name(key), message))))

    def guard(self, make: Callable[[], T], key: str = "") -> T:
        """Return *make*'s result. Its ValueError or TypeError becomes a `ConfigError` about the key
        that its message begins with, by the key's full name, else about *key*."""
        try:
            return make()
        except ConfigError:
            raise
        except (ValueError, TypeError) as error:
            name, rest = re.findall(r"(?s)\A(\w*+)(.*)", str(error))[0]
            if name in self.raw:
                raise ConfigError(f"{self.file}: {self._full_name(name)}{rest}") from error
            raise self.error(key, str(error)) from error

    def reject_unknown(self, names: Sequence[str]) -> None:
        """Raise `ConfigError` for a key that is not in *names*."""
        for key in self.raw:
            if key not in names:
                near = get_close_matches(key, names, 1, 0.5)
                hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"
                raise self.error(key, f"unknown; {hint}")

    def values(self, kinds: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of the keys of *kinds* that are set. Raises `ConfigError` for a value
        of another type."""
        return {key: self._value(key, kind) for key, kind in kinds.items() if key in self.raw}

    def fields(
        self,
        cls: Any,
        kinds: Mapping[str, Any] | None = None,
        *,
        also: Iterable[str] = (),
    ) -> dict[str, Any]:
        """Return the fields of the dataclass *cls* that are set. *kinds* overrides annotations for
        files; *also* are keys that are read elsewhere."""
        hints = {**get_type_hints(cls), **(kinds or {})}
        readable = {
            field.name: hints[field.name]
            for field in fields(cls)
            if hints[field.name] in _TYPE_NAMES
        }
        self.reject_unknown([*readable, *also])
        return self.values(readable)

    def build(self, cls: Callable[..., T]) -> T:
        """Return an instance of the dataclass *cls*, made from this table."""
        values = self.fields(cls)
        for each in fields(cls):  # type: ignore[arg-type]  # it is a dataclass
            is_needed = each.default is MISSING and each.default_factory is MISSING
            if is_needed and each.name not in values:
                raise self.error("", f"{each.name} is missing")
        return self.guard(lambda: cls(**values))

    def table(self, key: str) -> "_Table":
        """Return the table *key*, empty if it is not set."""
        value = self.raw.get(key, {})
        if not isinstance(value, dict):
            raise self.error(key, "a table is needed")
        return _Table(value, self.file, self._full_name(key))

    def tables(self, key: str) -> Iterator["_Table"]:
        """Yield the tables of an array, `[[upstream]]`."""
        value = self.raw.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self.error(key, f"write [[{key}]] for each")
        for at, item in enumerate(value):
            yield _Table(item, self.file, f"{self._full_name(key)}[{at}]")

    def _full_name(self, key: str) -> str:
        return ".".join(filter(None, (self.path, key)))

    def _value(self, key: str, kind: Any) -> Any:
        try:
            return msgspec.convert(self.raw[key], kind)
        except msgspec.ValidationError as error:
            value = self.raw[key]
            shown = str(value).lower() if isinstance(value, bool) else repr(value)  # as in TOML
            given = "" if key in _SECRETS else f", not {shown}"
            raise self.error(key, f"{_TYPE_NAMES[kind]} is needed{given}") from error


def _parse_toml(text: str, file: str) -> _Table:
    try:
        return _Table(tomllib.loads(text), file)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file}: {error}") from error


def _read_upstream(table: _Table) -> Upstream:
    own = table.fields(Upstream, also=("preset",))
    preset = table.values({"preset": str}).get("preset")
    defaults = find_provider(preset) if preset else {}
    if defaults is None:
        names = ", ".join(load_providers())
        raise table.error("preset", f"no provider is called {preset!r}; there are {names}")
    merged = {"name": preset or "default", **defaults, **own}
    if "url" not in merged:
        raise table.error("", "an upstream needs a url or a preset")
    return table.guard(lambda: Upstream(**merged))


def _read_settings(table: _Table, environment: Mapping[str, str]) -> Settings:
    own = table.table("compaction")
    lists = {"strategies": _TEXTS, "refuse": _TEXTS}
    values = own.fields(Settings, lists, also=("native",))
    if "strategies" in values:
        values["strategies"] = tuple(
            own.guard(partial(parse_strategy, name), "strategies") for name in values["strategies"]
        )
    if "refuse" in values:
        values["refuse"] = frozenset(values["refuse"])
    rates = table.table("prices")
    prices = {model: _read_rates(rates.table(model)) for model in rates.raw}.get
    values["prices"] = prices if rates.raw else None
    values["windows"] = _read_windows(table.table("windows"))
    native = own.table("native")
    native.reject_unknown(APIS)
    values["native"] = {api: native.table(api).raw for api in native.raw}
    engines = table.table("engines")
    values["engines"] = {
        name: _read_engine(engines.table(name), environment) for name in engines.raw
    }
    values["ask"] = _read_summaries(table.table("summaries"), environment, values["prices"])
    return own.guard(lambda: Settings(**values))


def _read_rates(table: _Table) -> Rates:
    table.guard(partial(require_number, 0, inf, **table.fields(Rates)))  # NaN is not a price
    return table.build(Rates)


def _read_engine(table: _Table, environment: Mapping[str, str]) -> Engine:
    figures = table.fields(EngineProfile, also=ENGINE_KEYS)
    if missing := {"prefill_rate", "cache_blocks"} - figures.keys():
        raise table.error("", f"{min(missing)} is missing")
    own = table.values(ENGINE_KEYS)
    end, key = own.pop("end_after", None), _read_key(table, own.pop("key_env", ""), environment)
    profile = table.guard(lambda: EngineProfile(**figures))
    seconds = table.guard(partial(parse_duration, end), "end_after") if end else None
    return table.guard(lambda: Engine(profile=profile, end_seconds=seconds, key=key, **own))


def _read_key(table: _Table, name: str, environment: Mapping[str, str]) -> str:
    key = environment.get(name, "").strip()  # secrets in files often end with a newline
    if name and not key:
        shown = name if name.isupper() else "such variable: write its name, not the key"
        raise table.error("key_env", f"the environment has no {shown}")
    return key


def _read_windows(table: _Table) -> Mapping[str, Window]:
    """Return context windows by model: `"a-model" = 32_000`, or a table."""
    whole = {model: int for model, value in table.raw.items() if not isinstance(value, dict)}
    return {
        model: table.guard(partial(Window, tokens), model)
        for model, tokens in table.values(whole).items()
    } | {model: table.table(model).build(Window) for model in table.raw if model not in whole}


def _read_summaries(
    table: _Table, environment: Mapping[str, str], prices: Prices | None
) -> Fallback | None:
    """Return the model that writes summaries; None if rules do."""
    if not table.raw:
        return None
    table.reject_unknown([*_SUMMARY_KEYS])
    values = table.values(_SUMMARY_KEYS)
    if not values.get("model"):
        raise table.error("", "model is missing")
    table.guard(lambda: require_int(1, window_tokens=values.get("window_tokens", 1)))
    table.guard(lambda: require_number(0.01, inf, timeout_seconds=values.get("timeout_seconds", 1)))
    if rates := find_rates(values["model"], prices):
        values["price"] = rates
    key = _read_key(table, values.get("key_env", ""), environment)
    named = {"window": "window_tokens", "timeout": "timeout_seconds", "price": "price"}
    options = {option: values[key] for option, key in named.items() if key in values}
    url = values.get("url", f"{load_providers()['openai']['url']}/v1")
    model = table.guard(lambda: HTTPModel(url, model=values["model"], key=key, **options), "url")
    return Fallback(model, breaker=CircuitBreaker(cooldown=MODEL_COOLDOWN_SECONDS))
