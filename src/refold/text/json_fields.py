"""Access to fields of JSON that may have any shape anywhere."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

Record = Mapping[str, Any]
"""A JSON object."""


def dig(value: Any, *keys: str) -> Any:
    """Return the value under *keys*, one inside the other; None if the path ends early."""
    for key in keys:
        if not isinstance(value, dict | Mapping):
            return None
        value = value.get(key)
    return value


def text_at(value: Any, *keys: str) -> str:
    """Return the text under *keys*; empty if there is none."""
    field = dig(value, *keys)
    return field if isinstance(field, str) else ""


def first_text(values: Iterable[Any], *keys: str) -> str:
    """Return the first text under *keys* in one of *values*; empty if there is none."""
    return next((text for value in values if (text := text_at(value, *keys))), "")


def object_at(value: Any, *keys: str) -> Record:
    """Return the object under *keys*; empty if there is none."""
    field = dig(value, *keys)
    return field if isinstance(field, dict | Mapping) else {}


def list_at(value: Any, *keys: str) -> list[Any]:
    """Return the list under *keys*; empty if there is none."""
    field = dig(value, *keys)
    return field if isinstance(field, list) else []


def objects_at(value: Any, *keys: str) -> Iterator[dict[str, Any]]:
    """Yield the objects in the list under *keys*, without anything else in it."""
    return objects_in(list_at(value, *keys))


def objects_in(items: Any) -> Iterator[dict[str, Any]]:
    """Yield the objects in a list; nothing if it is no list."""
    return (item for item in (items if isinstance(items, list) else ()) if isinstance(item, dict))


def int_at(value: Any, *keys: str) -> int:
    """Return the whole number under *keys*; -1 if there is none."""
    field = dig(value, *keys)
    return field if isinstance(field, int) and not isinstance(field, bool) else -1


def parse_time(value: Any) -> datetime | None:
    """Return a time from ISO 8601, Unix seconds or Unix milliseconds; None for anything else."""
    with suppress(ValueError, OverflowError, OSError):
        if isinstance(value, str):
            when = datetime.fromisoformat(value)
            return (when if when.tzinfo else when.replace(tzinfo=UTC)).astimezone(UTC)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value / 1000 if value > 1e11 else value, UTC)
    return None


def without_keys(value: Record, *keys: str) -> dict[str, Any]:
    """Return a copy without *keys*."""
    return {key: item for key, item in value.items() if key not in keys}
