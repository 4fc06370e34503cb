"""Reads `refold.toml`. An error names the file, the key, and what to write instead."""

import math
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import msgspec

from refold.compactor.strategy_names import parse_strategy
from refold.errors import RefoldError, require_number
from refold.gateway.config import Config, parse_duration, with_environment
from refold.gateway.messages import APIS
from refold.gateway.settings import Engine, Limits, Settings
from refold.gateway.upstreams import Upstream, find_provider, load_providers
from refold.models import Fallback, HTTPModel
from refold.tokens.model_table import EngineProfile, Prices, Rates, Window, find_rates

T = TypeVar("T")

_TEXTS = tuple[str, ...]
_KINDS: Mapping[Any, str] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    _TEXTS: "a list of texts",
    int | None: "a whole number",
    bool | None: "true or false",
    float | None: "a number",
}
"""What a value can be, by the annotation of its field; fields of other types are in no file."""
_SUMMARY_KEYS = {
    "model": str,
    "url": str,
    "key_env": str,
    "window_tokens": int,
    "timeout_seconds": float,
}
ENGINE_KEYS = {"protocol": str, "kv_hints": bool, "end_after": str, "key_env": str}
"""Keys of an engine's table beside those of its profile."""


class ConfigError(RefoldError, ValueError):
    """A setting that is missing, unknown or wrong; the message names file and key."""


def load_config(
    path: str | os.PathLike[str], environment: Mapping[str, str] = os.environ
) -> Config:
    """Return the settings of a TOML file. Raises `ConfigError`."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {getattr(error, 'strerror', None) or 'not UTF-8'}") from error
    return parse_config(text, str(path), environment)


def parse_config(
    text: str, name: str = "refold.toml", environment: Mapping[str, str] = os.environ
) -> Config:
    """Return the settings in *text*; errors call it *name*. Raises `ConfigError`."""
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
    """Its name with those of the tables that it stands in, as `compaction.native`."""

    def error(self, key: str, message: str) -> ConfigError:
        """Return an error about *key*, or about the table if it is empty."""
        return ConfigError(": ".join(filter(None, (self.file, self._full_name(key), message))))

    def guard(self, make: Callable[[], T], key: str = "") -> T:
        """Return what *make* makes. Its ValueError becomes an error about the key that its message
        begins with, or about *key*."""
        try:
            return make()
        except ConfigError:
            raise
        except (ValueError, TypeError) as error:
            message = str(error)
            named = re.match(r"\w*", message)
            key = named[0] if named and named[0] in self.raw else key
            raise self.error(key, message.removeprefix(f"{key}: ")) from error

    def reject_unknown(self, names: Sequence[str]) -> None:
        """Raise `ConfigError` for a key that is none of *names*."""
        for key in self.raw:
            if key not in names:
                near = get_close_matches(key, names, 1, 0.5)
                hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"
                raise self.error(key, f"unknown; {hint}")

    def values(self, kinds: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of these keys, as far as they are set. Raises `ConfigError` for a value
        of another kind."""
        return {key: self._value(key, kind) for key, kind in kinds.items() if key in self.raw}

    def fields(
        self,
        cls: Any,
        kinds: Mapping[str, Any] | None = None,
        *,
        also: Iterable[str] = (),
    ) -> dict[str, Any]:
        """Return the fields of the dataclass *cls* that are set. *kinds* says what those are in a
        file whose annotation does not; *also* are keys that are read elsewhere."""
        hints = {**get_type_hints(cls), **(kinds or {})}
        readable = {
            field.name: hints[field.name] for field in fields(cls) if hints[field.name] in _KINDS
        }
        self.reject_unknown([*readable, *also])
        return self.values(readable)

    def build(self, cls: Callable[..., T]) -> T:
        """Return the dataclass *cls* made of this table."""
        values = self.fields(cls)
        for field in fields(cls):  # type: ignore[arg-type]  # it is a dataclass
            is_needed = field.default is MISSING and field.default_factory is MISSING
            if is_needed and field.name not in values:
                raise self.error("", f"{field.name} is missing")
        return self.guard(lambda: cls(**values))

    def table(self, key: str) -> "_Table":
        """Return the table *key*; an empty one if it is not set."""
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
            needed = f"{_KINDS[kind]} is needed, not {self.raw[key]!r}"
            raise self.error(key, needed) from error


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
    table.guard(partial(require_number, 0, math.inf, **table.fields(Rates)))  # nan is no price
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
    """Return the key in the environment's variable *name*, if there is a name."""
    key = environment.get(name, "").strip()  # secrets in files often end with a newline
    if name and not key:
        raise table.error("key_env", f"the environment has no {name}")
    return key


def _read_windows(table: _Table) -> Mapping[str, Window]:
    """Return windows by model: `"a-model" = 32_000`, or a table."""
    whole = {model: int for model, value in table.raw.items() if not isinstance(value, dict)}
    return {
        model: table.guard(partial(Window, tokens), model)
        for model, tokens in table.values(whole).items()
    } | {model: table.table(model).build(Window) for model in table.raw if model not in whole}


def _read_summaries(
    table: _Table, environment: Mapping[str, str], prices: Prices | None
) -> Fallback | None:
    """Return who writes summaries; None if nobody is named, so that rules do."""
    if not table.raw:
        return None
    table.reject_unknown([*_SUMMARY_KEYS])
    values = table.values(_SUMMARY_KEYS)
    if "model" not in values:
        raise table.error("", "model is missing")
    if rates := find_rates(values["model"], prices):
        values["price"] = (rates.input, rates.output, rates.read, rates.write)
    key = _read_key(table, values.get("key_env", ""), environment)
    named = {"window": "window_tokens", "timeout": "timeout_seconds", "price": "price"}
    options = {option: values[key] for option, key in named.items() if key in values}
    url = values.get("url", f"{load_providers()['openai']['url']}/v1")
    return Fallback(
        table.guard(lambda: HTTPModel(url, model=values["model"], key=key, **options), "url")
    )
