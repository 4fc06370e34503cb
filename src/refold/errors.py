"""Everything Refold raises on purpose."""


class RefoldError(Exception):
    """Base of all errors that Refold raises on purpose."""


class EditError(RefoldError, ValueError):
    """The edit does not belong to this view."""


class FormatError(RefoldError, ValueError):
    """The payload or file is in no form that Refold knows; the message says what was tried."""


class StoreError(RefoldError):
    """The store could not be read or written; the message says which file and why."""


class ModelNotNamed(UserWarning):
    """A request names no model, and what may be left out of it depends on the model."""


def extra(name: str) -> str:
    """How to get the packages of an extra, in words for an error's end."""
    return f"install Refold with its extra {name!r}, in a clone by pip install '.[{name}]'"
