"""What went wrong with a request, told without a word of what was sent."""

from refold.errors import StoreError
from refold.gateway.conversations.conversations import ConversationBusy
from refold.gateway.conversations.workers import DeadlineExceeded
from refold.gateway.messages import REASONS
from refold.gateway.ops.logs import LOGGER, error_fields
from refold.gateway.ops.metrics import Counters


def failure_reason(error: BaseException) -> str:
    """The reason (`refold.gateway.messages.REASONS`) that a request passes through after *error*."""
    kinds = ((StoreError, "store"), (DeadlineExceeded, "deadline"), (ConversationBusy, "busy"))
    return next((reason for kind, reason in kinds if isinstance(error, kind)), "internal")


def report_failure(counters: Counters, api: str, reason: str, error: BaseException) -> None:
    """Count a failure, and say it in the log: never content, never a key. What an error says may quote either, so only its
    kind is told."""
    said = {"reason": reason, "meaning": REASONS[reason], "api": api, **error_fields(error)}
    LOGGER.warning("passed through", extra={"fields": said})
    counters.add("failures", reason=reason)


def log_passthrough(api: str, reason: str) -> None:
    """Say in the log that a request goes out as it came for what it is, not for what failed. It is counted with all requests."""
    LOGGER.warning(
        "passed through",
        extra={"fields": {"reason": reason, "meaning": REASONS[reason], "api": api}},
    )
