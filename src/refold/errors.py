"""The errors that Refold raises on purpose, and checks of settings."""

import math
import sys
from collections.abc import Iterable
from inspect import iscoroutinefunction
from typing import Any, SupportsIndex


class RefoldError(Exception):
    """Base of all errors that Refold raises on purpose."""


class EditError(RefoldError, ValueError):
    """An edit that the view does not have, that was made for another history, or that would make
    the request invalid."""


class FormatError(RefoldError, ValueError):
    """A payload or file that cannot be read as a conversation. The message says why, or which forms
    were tried."""


class StoreError(RefoldError):
    """A store that cannot be read or written. The message names the cause, and the file if there is
    one. It quotes no message of a conversation, because the gateway logs it."""


class ModelNotNamed(UserWarning):
    """A warning: the request names no model, but what may be left out of it depends on the
    model."""


def install_hint(name: str) -> str:
    """Return the end of an error message: how to install the packages of an extra."""
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
    """Return whether *value* is a finite number that a float can hold."""
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and abs(value) <= sys.float_info.max
    )


def require_callable(**settings: Any) -> None:
    """Raise ValueError unless each setting is a callable. Classes are refused, and so are async
    functions, which would never be awaited."""
    for name, value in settings.items():
        call = getattr(value, "__call__", None)  # noqa: B004 - is it async?
        if isinstance(value, type) or call is None:
            problem = f"{name} must be something to call, not {value!r}"
            raise ValueError(problem)
        if iscoroutinefunction(value) or iscoroutinefunction(call):
            raise ValueError(f"{name} must be a plain function, not the async {value!r}")


def require_callable_or_none(**settings: Any) -> None:
    """Raise ValueError unless each setting is a callable or None."""
    require_callable(**{name: value for name, value in settings.items() if value is not None})


def as_names(setting: str, value: Iterable[str]) -> tuple[str, ...]:
    """Return the distinct names in a setting, sorted. A string is a single name. Raises ValueError
    for anything but strings."""
    if isinstance(value, str):
        return (value,)
    names = list(value) if isinstance(value, Iterable) else [None]
    if not all(isinstance(name, str) for name in names):
        raise ValueError(f"{setting} must be a list of names, not {value!r}")
    return tuple(sorted(set(names)))


__all__ = ["EditError", "FormatError", "ModelNotNamed", "RefoldError", "StoreError"]
