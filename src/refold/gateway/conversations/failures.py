"""Why a request passes through unchanged, logged and counted without a word of what was sent."""

from refold.errors import StoreError
from refold.gateway.conversations.conversations import ConversationBusy
from refold.gateway.conversations.workers import DeadlineExceeded
from refold.gateway.logs import LOGGER, error_fields
from refold.gateway.messages import REASONS
from refold.gateway.metrics import Counters

_REASONS: tuple[tuple[type[Exception], str], ...] = (
    (StoreError, "store"),
    (DeadlineExceeded, "deadline"),
    (ConversationBusy, "busy"),
)


def failure_reason(error: BaseException) -> str:
    """Return the reason (`refold.gateway.messages.REASONS`) that a request passes through after
    *error*."""
    return next((reason for kind, reason in _REASONS if isinstance(error, kind)), "internal")


def report_failure(counters: Counters, api: str, reason: str, error: BaseException) -> None:
    """Count and log a failure. An error's text may quote content or a key, so only its kind is
    logged."""
    fields = {"reason": reason, "meaning": REASONS[reason], "api": api, **error_fields(error)}
    LOGGER.warning("passed through", extra={"fields": fields})
    counters.add("failures", reason=reason)


def log_passthrough(api: str, reason: str) -> None:
    """Log that a request passes through for what it is, not for a failure. It is counted with all
    requests."""
    fields = {"reason": reason, "meaning": REASONS[reason], "api": api}
    LOGGER.warning("passed through", extra={"fields": fields})
