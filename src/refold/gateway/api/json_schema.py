"""JSON Schema, as much of it as the document uses: what the document says is what is checked."""

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

Schema = Mapping[str, Any]

KINDS: Mapping[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: _is_whole(value) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
}


def mistake(schema: Schema, value: Any) -> str:
    """The first thing in *value* that *schema* does not allow, with its place; empty where all is well."""
    return next(mistakes(schema, value), "")


def plain(schema: Schema, value: Any) -> Any:
    """*value*, which *schema* allows, with whole numbers as such where they are meant: to JSON Schema 7.0 is one."""
    if isinstance(value, float) and "integer" in _types(schema):
        return int(value)
    if isinstance(value, dict) and "properties" in schema:
        known = schema["properties"]
        return {name: plain(known[name], one) if name in known else one for name, one in value.items()}
    return value


def mistakes(schema: Schema, value: Any, at: str = "") -> Iterator[str]:
    """Everything in *value* that *schema* does not allow. Raises KeyError for a keyword that is not known here."""
    if "type" in schema and not any(KINDS[kind](value) for kind in _types(schema)):
        yield f"{at or 'it'} must be {' or '.join(_types(schema))}"
        return
    for keyword, limit in schema.items():
        yield from _CHECKS[keyword](schema, limit, value, at)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) or (isinstance(value, float) and value.is_integer())


def _types(schema: Schema) -> list[str]:
    kinds = schema.get("type", [])
    return [kinds] if isinstance(kinds, str) else list(kinds)


def _properties(_: Schema, known: Mapping[str, Schema], value: Any, at: str) -> Iterator[str]:
    if isinstance(value, dict):
        for name in known.keys() & value.keys():
            yield from mistakes(known[name], value[name], f"{at}.{name}" if at else name)


def _required(_: Schema, names: list[str], value: Any, at: str) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (f"{at}.{name} is missing" if at else f"{name} is missing" for name in names if name not in value)


def _additional(schema: Schema, allowed: Any, value: Any, at: str) -> Iterator[str]:
    if not isinstance(value, dict):
        return
    known = schema.get("properties", {})
    for name in (name for name in value if name not in known):
        if allowed is False:
            yield f"{name[:50]!r} is no field{f' of {at}' if at else ''}; there are {', '.join(known) or 'none'}"
        elif isinstance(allowed, Mapping):
            yield from mistakes(allowed, value[name], f"{at}.{name[:50]}" if at else name[:50])


def _items(_: Schema, each: Schema, value: Any, at: str) -> Iterator[str]:
    if isinstance(value, list):
        for number, one in enumerate(value):
            yield from mistakes(each, one, f"{at}[{number}]")


def _any_of(_: Schema, schemas: list[Schema], value: Any, at: str) -> Iterator[str]:
    found = [next(mistakes(one, value, at), "") for one in schemas]
    if all(found):
        yield " or ".join(islice(found, 3))


def _enum(_: Schema, values: list[Any], value: Any, at: str) -> Iterator[str]:
    if value not in values:
        yield f"{at or 'it'} must be one of {', '.join(map(str, values))}"


def _pattern(_: Schema, pattern: str, value: Any, at: str) -> Iterator[str]:
    if isinstance(value, str) and not re.search(pattern, value):
        yield f"{at or 'it'} must fit {pattern}"


def _bound(measure: Callable[[Any], Any], *, most: bool, what: str) -> Callable[..., Iterator[str]]:
    def check(_: Schema, limit: Any, value: Any, at: str) -> Iterator[str]:
        size = measure(value)
        if size is not None and (size > limit if most else size < limit):
            yield f"{at or 'it'} must have {'at most' if most else 'at least'} {limit} {what}".replace(
                "have", "be", not what
            )

    return check


def _length(kind: type[str] | type[list[Any]]) -> Callable[[Any], Any]:
    return lambda value: len(value) if isinstance(value, kind) else None


def _number(value: Any) -> Any:
    return value if KINDS["number"](value) else None


def _told(_: Schema, __: Any, ___: Any, ____: str) -> Iterator[str]:
    """What is said for readers."""
    return iter(())


_CHECKS: Mapping[str, Callable[..., Iterator[str]]] = {
    "type": _told,
    "properties": _properties,
    "required": _required,
    "additionalProperties": _additional,
    "items": _items,
    "anyOf": _any_of,
    "enum": _enum,
    "pattern": _pattern,
    "minimum": _bound(_number, most=False, what=""),
    "maximum": _bound(_number, most=True, what=""),
    "minLength": _bound(_length(str), most=False, what="characters"),
    "maxLength": _bound(_length(str), most=True, what="characters"),
    "minItems": _bound(_length(list), most=False, what="entries"),
    "maxItems": _bound(_length(list), most=True, what="entries"),
    "description": _told,
    "default": _told,
    "examples": _told,
}
"""Every keyword that a schema of ours may have."""
