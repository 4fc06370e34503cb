"""TOML with errors that name file, line and key."""

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from difflib import get_close_matches
from typing import Any, TypeVar, get_type_hints

from refold.errors import RefoldError

T = TypeVar("T")
Kind = type | tuple[type]
"""What a value has to be; `(str,)` is a list of texts."""


class ConfigError(RefoldError, ValueError):
    """A setting that is missing, unknown or wrong; the message names file, line and key."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a TOML document, which knows where it stands."""

    raw: Mapping[str, Any]
    text: str
    file: str
    path: tuple[str | int, ...] = ()

    @classmethod
    def parse(cls, text: str, file: str) -> "Table":
        """The whole document. Raises `ConfigError`."""
        try:
            return cls(tomllib.loads(text), text, file)
        except tomllib.TOMLDecodeError as error:
            where = re.search(r"\(at line (\d+), column (\d+)\)", str(error))
            place = (
                f"{file}:{where[1]}:{where[2]}" if where else f"{file}:{text.count(chr(10)) + 1}"
            )
            raise ConfigError(f"{place}: {str(error).partition(' (at ')[0]}") from error

    @property
    def names(self) -> Sequence[str]:
        """The keys that are set."""
        return list(self.raw)

    def error(self, key: str, message: str) -> ConfigError:
        """An error about *key*, or about the table where it is empty."""
        full = ".".join(str(part) for part in (*self.path, key) if isinstance(part, str) and part)
        return ConfigError(
            f"{self.file}:{_find_line(self.text, self.path, key)}: {full + ': ' if full else ''}{message}"
        )

    def guard(self, make: Callable[[], T], key: str = "") -> T:
        """What *make* makes; its ValueError becomes an error about the key that it begins with, else about *key*."""
        try:
            return make()
        except ConfigError:
            raise
        except (ValueError, TypeError) as error:
            message = str(error)
            named = re.match(r"\w*", message)
            key = named[0] if named and named[0] in self.raw else key
            raise self.error(key, message.removeprefix(f"{key}: ")) from error

    def reject_unknown(self, *names: str) -> None:
        """Raise `ConfigError` for a key that is none of *known*."""
        for key in self.raw:
            if key not in names:
                near = get_close_matches(key, names, 1, 0.5)
                raise self.error(
                    key,
                    f"unknown; did you mean {near[0]}?"
                    if near
                    else f"unknown; there are {', '.join(names)}",
                )

    def reject_renamed(self, renamed: Mapping[str, str]) -> None:
        """Raise `ConfigError` for a key that has another name now, by old name."""
        for key in self.raw:
            if key in renamed:
                raise self.error(key, f"is called {renamed[key]} now")

    def value(self, key: str, kind: Kind) -> Any:
        """The value of *key*, None where it is not set. Raises `ConfigError` for another kind."""
        value = self.raw.get(key)
        if value is None or _matches(value, kind):
            return float(value) if kind is float and value is not None else value
        raise self.error(key, f"{_KIND_NAMES[kind]} is needed, not {value!r}")

    def values(self, **kinds: Kind) -> dict[str, Any]:
        """Those of these keys that are set."""
        return {key: self.value(key, kind) for key, kind in kinds.items() if key in self.raw}

    def table(self, key: str) -> "Table":
        """A table within; empty where it is not set."""
        value = self.raw.get(key, {})
        if not isinstance(value, dict):
            raise self.error(key, "a table is needed")
        return Table(value, self.text, self.file, (*self.path, key))

    def tables(self, key: str) -> Iterator["Table"]:
        """The tables of an array: `[[upstream]]`."""
        value = self.raw.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self.error(key, f"write [[{key}]] for each")
        return (
            Table(item, self.text, self.file, (*self.path, key, at))
            for at, item in enumerate(value)
        )

    def fields(
        self, cls: Any, kinds: Mapping[str, Kind] | None = None, also: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Those fields of the dataclass *cls* that are set. *kinds* is for those whose annotation is no plain type;
        *also* are keys that are read elsewhere."""
        hints = get_type_hints(cls)
        kinds = {
            name: kind for name, hint in hints.items() if (kind := _kind_of_hint(hint))
        } | dict(kinds or {})
        names = [
            field.name for field in fields(cls) if field.name not in also and field.name in kinds
        ]
        self.reject_unknown(*names, *also)
        values = {name: self.value(name, kinds[name]) for name in names if name in self.raw}
        return {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in values.items()
        }

    def build(self, cls: Callable[..., T]) -> T:
        """The dataclass *cls* out of this table."""
        values = self.fields(cls)
        for field in fields(cls):  # type: ignore[arg-type]  # a dataclass is what is given
            if (
                field.default is MISSING
                and field.default_factory is MISSING
                and field.name not in values
            ):
                raise self.error("", f"{field.name} is missing")
        return self.guard(lambda: cls(**values), next(iter(values), ""))


_KIND_NAMES: Mapping[Any, str] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    (str,): "a list of texts",
}


def _matches(value: Any, kind: Kind) -> bool:
    if isinstance(kind, tuple):
        return isinstance(value, list) and all(_matches(item, kind[0]) for item in value)
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, int | float) if kind is float else isinstance(value, kind)


def _kind_of_hint(hint: Any) -> Kind | None:
    """What a field's annotation asks for; None for what no file can hold."""
    return _KINDS.get(hint)


_KINDS: Mapping[Any, Kind] = {
    str: str,
    int: int,
    float: float,
    bool: bool,
    int | None: int,
    float | None: float,
    tuple[str, ...]: (str,),
}


def _find_line(text: str, path: Sequence[str | int], key: str) -> int:
    """The line of *key* in the table at *path*; of the table's heading where there is no such line."""
    names = [part for part in path if isinstance(part, str)]
    number = next((part for part in path if isinstance(part, int)), 0)
    start = _heading_line(text, names, number)
    for at, line in enumerate(text.splitlines()[start:], start + 1):
        if at > start + 1 and line.lstrip().startswith("["):
            break
        if key and re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[=.]", line):
            return at
    return max(1, start + (1 if start == 0 else 0))


def _heading_line(text: str, names: Sequence[str], number: int) -> int:
    """How many lines stand before the content of a table."""
    if not names:
        return 0
    wanted = re.compile(_heading_pattern(names))
    lines = [at for at, line in enumerate(text.splitlines(), 1) if wanted.match(line)]
    return lines[min(number, len(lines) - 1)] if lines else 0


def _heading_pattern(names: Sequence[str]) -> str:
    inner = r"\s*\.\s*".join(rf"[\"']?{re.escape(name)}[\"']?" for name in names)
    return rf"\s*\[\[?\s*{inner}\s*\]"
