"""Functions that adapters share: compaction before a model call, with the unchanged request as
fallback, and rules and helpers for the formats of several frameworks."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from refold.budget.budget import Budget
from refold.compactor.compactor import Compactor
from refold.core.view import View
from refold.errors import install_hint
from refold.rules.anthropic_continuity import thinking_kind
from refold.rules.request import Body, Fault, Request, find_call_faults, find_result_faults
from refold.rules.rule import Rule, Rules

_log = logging.getLogger("refold")

latest_view: ContextVar[View | None] = ContextVar("refold_latest_view", default=None)
"""The view of a task's latest request, for hooks that get a response without its request."""


def compact_or_pass(
    compactor: Compactor, history: Any, *, budget: Budget | None = None
) -> View | None:
    """Return the view of *history*; None after an error, which is logged in one line.

    An unknown format, an unsupported release of the framework, or a failing store must not stop an
    agent.
    """
    try:
        return _with_payload(compactor(history, budget=budget))
    except Exception as error:  # noqa: BLE001 - a framework's objects may raise anything
        _log_uncompacted(error)
        return None


async def acompact_or_pass(
    compactor: Compactor, history: Any, *, budget: Budget | None = None
) -> View | None:
    """Do the same as `compact_or_pass`, in async code."""
    try:
        return _with_payload(await compactor.acompact(history, budget=budget))
    except Exception as error:  # noqa: BLE001 - as above
        _log_uncompacted(error)
        return None


def _with_payload(view: View) -> View:
    """Return *view* with its payload written, so that errors of writing are caught here."""
    _ = view.payload
    return view


def _log_uncompacted(error: Exception) -> None:
    """Log why a request is sent unchanged, at level DEBUG with a traceback."""
    _log.error(
        "nothing is compacted, the request is sent as it came: %s: %s",
        type(error).__name__,
        error,
        exc_info=error if _log.isEnabledFor(logging.DEBUG) else None,
    )


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
