"""Everything Refold raises on purpose."""

import math
from collections.abc import Iterable
from inspect import iscoroutinefunction
from typing import Any, SupportsIndex


class RefoldError(Exception):
    """Base of all errors that Refold raises on purpose."""


class EditError(RefoldError, ValueError):
    """The edit does not belong to this view."""


class FormatError(RefoldError, ValueError):
    """The payload or file is in no form that Refold knows; the message says what was tried."""


class StoreError(RefoldError):
    """The store could not be read or written; the message says which file and why, and quotes
    nothing that is in it: the gateway logs it."""


class ModelNotNamed(UserWarning):
    """A request names no model, and what may be left out of it depends on the model."""


def install_hint(name: str) -> str:
    """Say how to get the packages of an extra, at the end of an error."""
    return (
        f"install Refold with its extra {name!r}: "
        f"in a clone of its repository, pip install '.[{name}]'"
    )


def require_int(least: int, **settings: Any) -> None:
    """Raise ValueError unless each setting is a whole number of at least *least*."""
    for name, value in settings.items():
        if not isinstance(value, SupportsIndex) or isinstance(value, bool) or int(value) < least:
            raise ValueError(f"{name} must be a whole number of at least {least}, not {value!r}")


def require_number(least: float, most: float, **settings: Any) -> None:
    """Raise ValueError unless each setting is a number from *least* to *most*, both included."""
    for name, value in settings.items():
        if not is_number(value) or not least <= value <= most:
            limits = (
                f"from {least:g} to {most:g}" if math.isfinite(most) else f"of at least {least:g}"
            )
            raise ValueError(f"{name} must be a number {limits}, not {value!r}")


def is_number(value: object) -> bool:
    """Is it a finite number?"""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def require_callable(**settings: Any) -> None:
    """Raise ValueError unless each setting can be called; a class makes only what can, and what
    an async function does would never be awaited."""
    for name, value in settings.items():
        call = getattr(value, "__call__", None)  # noqa: B004 - is it async?
        if isinstance(value, type) or call is None:
            problem = f"{name} must be something to call, not {value!r}"
            raise ValueError(problem)
        if iscoroutinefunction(value) or iscoroutinefunction(call):
            raise ValueError(f"{name} must be a plain function, not the async {value!r}")


def require_callable_or_none(**settings: Any) -> None:
    """Raise ValueError unless each setting can be called, or is None."""
    require_callable(**{name: value for name, value in settings.items() if value is not None})


def as_names(setting: str, value: Iterable[str]) -> tuple[str, ...]:
    """Return the distinct names of a setting, sorted; a text is one name. Raises ValueError."""
    if isinstance(value, str):
        return (value,)
    distinct = set(value) if isinstance(value, Iterable) else {None}
    if not all(isinstance(name, str) for name in distinct):
        raise ValueError(f"{setting} must be a list of names, not {value!r}")
    return tuple(sorted(distinct))


__all__ = ["EditError", "FormatError", "ModelNotNamed", "RefoldError", "StoreError"]
