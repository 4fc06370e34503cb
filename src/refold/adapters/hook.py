"""Functions that adapters share: failing open, and rules and helpers for the formats of several
frameworks."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from refold.compactor.compactor import Compactor
from refold.core.view import View
from refold.errors import install_hint
from refold.rules.anthropic_continuity import thinking_kind
from refold.rules.request import Body, Fault, Request, find_call_faults, find_result_faults
from refold.rules.rule import Rule, Rules

_log = logging.getLogger("refold")

latest_view: ContextVar[View | None] = ContextVar("refold_latest_view", default=None)
"""The view of a task's latest request, for hooks that get a response without its request."""


@contextmanager
def fail_open(
    effect: str = "nothing is compacted, the request is sent as it came",
) -> Iterator[None]:
    """Log an exception of this block with its *effect* in one line, and go on after the block.

    An unknown format, an unsupported release of the framework, or a failing store must not stop an
    agent. So all that an adapter does with a request or its usage stands in such a block, and the
    unchanged request after it. At level DEBUG the log has a traceback.
    """
    try:
        yield
    except Exception as error:  # noqa: BLE001 - a framework's objects may raise anything
        is_debug = _log.isEnabledFor(logging.DEBUG)
        name = type(error).__name__
        _log.error("%s: %s: %s", effect, name, error, exc_info=error if is_debug else None)


UNCOUNTED = "the usage of a call is not counted"
"""Effect of a failed usage report."""


def require_format(compactor: Compactor | None, format: Any) -> Compactor:
    """Return *compactor*, or `Compactor(format=format)`. Raises ValueError for another format."""
    if compactor is None:
        return Compactor(format=format)
    if compactor.settings.format != format:
        name = f'"{format}"' if isinstance(format, str) else format.__name__
        raise ValueError(f"this adapter needs a Compactor with format={name}")
    return compactor


@contextmanager
def explain_missing(package: str, extra: str) -> Iterator[None]:
    """Explain failed imports of *package* in this block: it is not installed, or its release is not
    supported. Raises ImportError."""
    try:
        yield
    except ImportError as error:
        try:
            state = f"{package} {version(package)} has another interface than this adapter knows"
        except PackageNotFoundError:
            state = f"this adapter needs {package}"
        raise ImportError(f"{state}: {install_hint(extra)}") from error


# --- shared by the formats of several frameworks ------------------------------------------------


def fits_types(*types: type) -> Callable[[Body, Sequence[Any]], int]:
    """Return a codec's `fits`, which rates how well a payload matches. One object of *types* is
    enough."""

    def fits(body: Body, items: Sequence[Any]) -> int:  # noqa: ARG001 - as in all codecs
        """Return 3 for each object of *types* among *items*."""
        return 3 * sum(isinstance(item, types) for item in items)

    return fits


def _find_broken_pairs(request: Request) -> Iterator[Fault]:
    yield from find_call_faults(request.full_pairing)
    yield from find_result_faults(request.full_pairing)


PAIRS = Rule(
    "FW-1",
    "every call has a result, and every result a call",
    _find_broken_pairs,
    lambda request: request.full_pairing.inseparable,
)
"""A rule that holds for every provider behind a framework."""


def provider_rules(body: Body, *rules: Rule) -> Rules:
    """Return the rules of a framework that formats results for each provider.

    Claude's thinking is bound as its model requires. The thinking of other models stays with its
    message (OA-4, GE-3), because messages do not show what the model needs back.
    """
    model = body.get("model")
    is_other = isinstance(model, str) and model and "claude" not in model
    thinking = "fixed" if is_other else thinking_kind(model)
    return Rules((PAIRS, *rules), alternate=True, thinking=thinking)
